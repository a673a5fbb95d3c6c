"""Syntax of a line of redis.conf. Pure.

Source: sdssplitargs in src/sds.c and loadServerConfigFromString in src/config.c of redis 7.0.
"""

from __future__ import annotations

import re
from functools import lru_cache

NAME = r"[a-z][a-z0-9_.-]*"
"""Pattern of a directive's name in lower case; names with a dot or an underscore belong to modules and old versions."""

_BLANK = b" \t\n\r\v\f"
_WORD = re.compile(
    rb"""[%b]*+(?=.)([^ \t\n\r"']*+)"""
    rb"""(?:"((?:[^"\\]++|\\.)*+)"(?![^%b])|'((?:[^'\\]++|\\'?)*+)'(?![^%b])|(?!["']))""" % (_BLANK, _BLANK, _BLANK),
    re.DOTALL,
)
"""The next word: characters without quotes, and then those within double or single quotes, if there are any."""

_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


class Malformed(Exception):
    """The server cannot read a line, or reads something else than text; the message is the end of a sentence."""


def arguments(line: str) -> tuple[str, ...]:
    """Split a line into its directive and the arguments, as the server does; empty for a comment and a blank line.

    Quotes may begin within a word, and the rest belongs to the same word.

    Raises:
        Malformed: quotes do not match, or a word is not UTF-8 text without NUL.
    """
    return (_remembered if len(line) <= _REMEMBERED_BYTES else _split)(line)


def _split(line: str) -> tuple[str, ...]:
    text, found, at = line.strip(" \t\r\n").encode("utf-8", "surrogatepass"), list[bytes](), 0
    if text.startswith(b"#"):
        return ()
    while word := _WORD.match(text, at):
        plain, escaped, verbatim = word.groups(b"")
        found.append(plain + _ESCAPE.sub(_character, escaped) + verbatim.replace(b"\\'", b"'"))
        at = word.end()
    if text[at:].strip(_BLANK):
        raise Malformed("has unbalanced quotes")
    try:
        words = tuple(word.decode() for word in found)
    except UnicodeDecodeError:
        raise Malformed("has bytes that are not UTF-8") from None
    if b"\0" in text or any("\0" in word for word in words):
        raise Malformed("has a NUL character")
    return words


_REMEMBERED_BYTES = 1024
"""Maximum size of a line that is remembered."""

_remembered = lru_cache(maxsize=4096)(_split)  # every plan reads the same lines


def _character(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return bytes.fromhex(code[1:].decode()) if len(code) > 1 else _ESCAPED.get(code, code)


def quoted(argument: str) -> str:
    """Return an argument in the syntax of redis.conf."""
    if re.fullmatch(r"[!-~]+", argument) and not set("\"'\\#") & set(argument):
        return argument
    text = "".join(
        f"\\{character}"
        if character in '"\\'
        else character
        if " " <= character != "\x7f"
        else f"\\x{ord(character):02x}"
        for character in argument
    )
    return f'"{text}"'
