"""Which of memcached's flags belong to fields of the spec, as patterns for CEL and Python alike."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

_BARE = "ACFLMSWXZkrv"
"""Short flags that take no value: others may stand behind them in one argument, as in -vvm5."""


class FieldFlag(NamedTuple):
    """A flag that a field of the spec sets: `objects.pod.arguments` passes it, and extraArgs may not.

    Attributes:
        field: as the manifest names it.
        unit: what follows the number.
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
    """A long flag and every beginning of it, which getopt takes as well: --mem=5."""
    return reduce(lambda rest, letter: f"{letter}({rest})?" if rest else letter, reversed(flag), "")


def _flags(short: str, *long: str, options: str = "") -> str:
    """A pattern of arguments that hold one of these flags, or one of these options of -o."""
    by_option = f"|(.*[,=]|-[{_BARE}]*o)?({options})(=.*)?(,.*)?" if options else ""
    return f"^(-[{_BARE}]*[{short}].*|--({'|'.join(map(_abbreviations, long))})(=.*)?{by_option})$"


REFUSED = _flags(
    "".join(flag.short for flag in BY_FIELD) + "UsaluPdhiV",
    *(flag.long for flag in BY_FIELD),
    *("udp-port", "unix-socket", "unix-mask", "listen", "user", "pidfile", "daemon", "help", "license", "version"),
)
"""Flags that other fields set, that keep clients or Kubernetes from a server, or that only print."""

REFUSED_WITH_AUTH = _flags("YSB", "auth-file", "enable-sasl", "protocol")
"""memcached takes one way to authenticate, and its users' file only with the ASCII protocol."""

REFUSED_WITH_TLS = _flags("Z", "enable-ssl", options="ssl_(chain_cert|key|keyformat|verify_mode|ca_cert)")
"""What decides who may connect; ssl_ciphers, ssl_min_version and the like may be given."""

REFUSED_WITH_WARM_RESTART = _flags("eL", "memory-file", "enable-largepages", options="ext_path")
"""The file is the operator's; items on external storage do not survive (memcached's restart.c)."""
