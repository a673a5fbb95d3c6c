"""Why a container exited, according to its last log lines, which Kubernetes reports as termination message. Pure.

Understood are the formats of programs in Go: JSON lines of zap, errors of the flag package, and panics. Other lines are
not quoted, because they may contain parts of a user's configuration.
"""

from __future__ import annotations

import re

from shared.kubernetes.encoding import decode

MAX_LENGTH = 300
"""Length, in characters, after which a quoted line is cut."""

_FATAL = ("fatal", "panic", "dpanic")
_GO = re.compile(r"(flag provided but not defined: |invalid (boolean )?value .* for (flag )?-|panic: |fatal error: )")


def exit_reason(message: str) -> str:
    """Return the reason that a log states for an exit; empty if it states none.

    Args:
        message: termination message of the container.
    """
    lines = message.splitlines()
    entries = [entry for line in lines if (entry := _entry(line))]
    fatal = [text for level, text in entries if level in _FATAL]
    plain = [line for line in lines if _GO.match(line)]
    failed = [text for level, text in entries if level in ("error", "warn") and ": " in text]
    found = [*fatal[-1:], *plain[:1], *failed[-1:]]
    return found[0][:MAX_LENGTH] if found else ""


def _entry(line: str) -> tuple[str, str] | None:
    """Return the level and the text of a JSON line: its message, and its error if it has one."""
    try:
        found = decode(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("msg"), str):
        return None
    error = found.get("error")
    return str(found.get("level")), found["msg"] + (f": {error}" if error else "")
