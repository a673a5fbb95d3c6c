"""Flags of memcached that extraArgs may not set, as regular expressions for both CEL and Python."""

from __future__ import annotations

from functools import reduce
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

REFUSED_WITH_TLS = _flags("Z", "enable-ssl", options="ssl_(chain_cert|key|keyformat|verify_mode|ca_cert)")
"""Flags and options that decide which clients may connect; ssl_ciphers, ssl_min_version and the like are allowed."""

REFUSED_WITH_WARM_RESTART = _flags("eL", "memory-file", "enable-largepages", options="ext_path")
"""Flags that conflict with spec.warmRestart; items on external storage do not survive (memcached's restart.c)."""
