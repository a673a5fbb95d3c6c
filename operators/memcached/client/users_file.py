"""The users file of memcached, and what any version of it reads otherwise than written. Pure.

Source: authfile.c. A server that loads such a file cuts passwords, drops users, or, from an empty one, accepts no login
at all. So the operator starts no server with it, and the sidecar of a running one does not make it load the file.
"""

from __future__ import annotations

import re

MAX_USERS, MAX_LINE_BYTES = 8, 255
"""Maximum number of lines, and of bytes per line."""

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


def problem(text: str) -> str:
    """Return the first problem that any version of memcached has with a users file; empty if there is none."""
    if not text:
        return "it has no users, and memcached would accept no login. Add one."
    if not text.endswith("\n"):  # 1.6.18 drops the last character
        return "the last line has no line break, and memcached would truncate the password. Add a line break."
    if (count := text.count("\n")) > MAX_USERS:
        return f"{count:,} lines, but memcached reads only {MAX_USERS}. Remove the others."
    *lines, _ = text.split("\n")
    for number, line in enumerate(lines, 1):
        user, _, password = line.partition(":")
        if not user or not password or re.search(r"\s", line):
            return f"line {number} does not have the form user:password, or contains whitespace. Correct it."
        if _CONTROL_CHARACTER.search(line):  # memcached cuts the password at NUL, and accepts the shorter one
            return f"line {number} contains a control character, at which memcached may cut the password. Remove it."
        if len(line.encode()) >= MAX_LINE_BYTES:
            return f"line {number} is too long: memcached reads at most {MAX_LINE_BYTES - 1} bytes. Shorten it."
    return ""
