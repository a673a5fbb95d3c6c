"""Flags of memcached that extraArgs may not set, as regular expressions for both CEL and Python."""

from __future__ import annotations

import tomllib
from functools import reduce
from pathlib import Path
from typing import NamedTuple

_BARE = "ACFLMSWXZkrv"
"""Short flags without a value: other flags may follow them in the same argument, as in -vvm5."""


class FieldFlag(NamedTuple):
    """A flag that a field of the spec sets: `objects.pod.arguments` passes it, and extraArgs must not.

    Attributes:
        short: letter of the short form.
        long: name of the long form.
        field: name of the field in the manifest.
        unit: suffix of the value, such as m for MiB.
    """

    short: str
    long: str
    field: str
    unit: str = ""


BY_FIELD = (
    FieldFlag("p", "port", "containerPort"),
    FieldFlag("m", "memory-limit", "memoryMB"),
    FieldFlag("c", "conn-limit", "maxConnections"),
    FieldFlag("t", "threads", "threads"),
    FieldFlag("I", "max-item-size", "maxItemSizeMB", unit="m"),
)


def _abbreviations(flag: str) -> str:
    """Return a pattern for a long flag and its abbreviations, which getopt accepts too: --mem=5."""
    return reduce(lambda rest, letter: f"{letter}({rest})?" if rest else letter, reversed(flag), "")


def _flags(short: str, *long: str, options: str = "") -> str:
    """Return a pattern for arguments that contain one of these flags, or one of these options of -o."""
    by_option = f"|(.*[,=]|-[{_BARE}]*o)?({options})(=.*)?(,.*)?" if options else ""
    return f"^(-[{_BARE}]*[{short}].*|--({'|'.join(map(_abbreviations, long))})(=.*)?{by_option})$"


REFUSED = _flags(
    "".join(flag.short for flag in BY_FIELD) + "UsaluPdhiV",
    *(flag.long for flag in BY_FIELD),
    *("udp-port", "unix-socket", "unix-mask", "listen", "user", "pidfile", "daemon", "help", "license", "version"),
)
"""Flags that other fields set, that make a server unreachable for clients or Kubernetes, or that only print."""

REFUSED_WITH_AUTH = _flags("YSB", "auth-file", "enable-sasl", "protocol")
"""Flags that conflict with spec.auth: memcached supports the users file only with the ASCII protocol."""

REFUSED_WITH_METRICS = (
    rf"{_flags('S', 'enable-sasl')}|^(-[{_BARE}]*B(binary)?|--({_abbreviations('protocol')})(=binary)?)$"
)
"""Flags with which a server does not respond to the exporter: it speaks the ASCII protocol, without SASL."""

REFUSED_WITH_TLS = _flags("Z", "enable-ssl", options="ssl_(chain_cert|key|keyformat|verify_mode|ca_cert)")
"""Flags and options that decide which clients may connect; ssl_ciphers, ssl_min_version and the like are allowed."""

REFUSED_WITH_WARM_RESTART = _flags("eL", "memory-file", "enable-largepages")
"""Flags that conflict with spec.warmRestart."""

FLUSH_DISABLED, DUMPS_DISABLED = _flags("F", "disable-flush-all"), _flags("X", "disable-dumping")
"""Flags without which every client can empty a server (flush_all), or list all its keys (lru_crawler metadump)."""

EXTERNAL_STORAGE = rf"^(.*[,=]|-[{_BARE}]*o)?ext_.*$"
"""Options of -o that set up external storage: they need a writable volume, which spec.extstore mounts."""

REWRITTEN = r"^[^\n]*(\n|\$\()"
"""Arguments with a line break, or with $(NAME), which Kubernetes replaces by a variable and so by another flag."""

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_VALUES: dict[str, str] = _TABLE["values"]

VALUED = {(name[0], name[2:]): _VALUES.get(value, value) for name, value in _TABLE["valued"].items()}
"""Patterns of the values of flags, by their short and long names."""

BARE_LONG: tuple[str, ...] = tuple(_TABLE["bare"])
"""Patterns of the long flags without a value."""

OPTIONS = {name: _VALUES.get(value, value) for name, value in _TABLE["options"].items()}
"""Patterns of the values of the options of -o, by those of their names; empty for an option without a value."""


def _accepted() -> str:
    """Return a pattern for all arguments, each followed by a line break; a value may be an argument of its own."""
    option = "|".join(f"({name}){f'={value}' if value else ''}" for name, value in OPTIONS.items())
    options = f"({option})(,({option}))*"
    short = [f"{letter}\n?{value}" for (letter, _), value in VALUED.items()]
    long = [f"{name}[=\n]{value}" for (_, name), value in VALUED.items() if name]
    return (
        f"^((-[{_BARE}]+|-[{_BARE}]*({'|'.join(short)}|o\n?{options})|"
        f"--({'|'.join((*BARE_LONG, *long))}|extended[=\n]{options}))\n)*$"
    )


ACCEPTED = _accepted()
"""All extraArgs, each followed by a line break, that memcached accepts: it exits on others, or ignores a word."""
