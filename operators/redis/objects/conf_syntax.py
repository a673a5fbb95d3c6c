"""Syntax of a line of redis.conf. Pure.

Source: sdssplitargs in src/sds.c and loadServerConfigFromString in src/config.c of redis 7.0.
"""

from __future__ import annotations

import re
from functools import lru_cache

NAME = r"[a-z][a-z0-9_.-]*"
"""Pattern of a directive's name in lower case; names with a dot or an underscore belong to modules and old versions."""

_BLANK = b" \t\n\r\v\f"
_ENDS_WORD = b" \t\n\r"
_PLAIN = re.compile(rb"[^\"'\\]+")
_HEX = re.compile(rb"[0-9a-fA-F]{2}")
_ESCAPED = {ord("n"): b"\n", ord("r"): b"\r", ord("t"): b"\t", ord("b"): b"\b", ord("a"): b"\a"}


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
    while True:
        while at < len(text) and text[at] in _BLANK:
            at += 1
        if at == len(text):
            break
        word, at = _word(text, at)
        found.append(word)
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


def _word(text: bytes, at: int) -> tuple[bytes, int]:
    """Return the word that begins at a position, and the position after it."""
    word, quote = bytearray(), 0
    while at < len(text):
        if quote:
            part, at, closed = _quoted_part(text, at, quote)
            word += part
            if closed:
                return bytes(word), at
        elif text[at] in _ENDS_WORD:
            break
        elif text[at] in b"\"'":
            quote, at = text[at], at + 1
        else:
            word.append(text[at])
            at += 1
    if quote:
        raise Malformed("has unbalanced quotes")
    return bytes(word), at


def _quoted_part(text: bytes, at: int, quote: int) -> tuple[bytes, int, bool]:
    """Return the next characters within quotes, the position after them, and whether it was the closing quote."""
    if plain := _PLAIN.match(text, at):
        return plain[0], plain.end(), False
    character, rest = text[at], text[at + 1 : at + 4]
    if character == quote:
        if rest and rest[0] not in _BLANK:
            raise Malformed("has unbalanced quotes")
        return b"", at + 1, True
    if character == ord("\\") and quote == ord("'") and rest[:1] == b"'":
        return b"'", at + 2, False
    if character == ord("\\") and quote == ord('"') and rest:
        if rest[:1] == b"x" and _HEX.match(rest, 1):
            return bytes([int(rest[1:3], 16)]), at + 4, False
        return _ESCAPED.get(rest[0], rest[:1]), at + 2, False
    return bytes([character]), at + 1, False


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
