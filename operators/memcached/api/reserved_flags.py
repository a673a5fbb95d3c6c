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

_NUMBER, _POSITIVE, _RATIO = "[0-9]{1,9}", "[1-9][0-9]{0,8}", "[0-9]{1,3}([.][0-9]{1,6})?"
_ABOVE_ZERO = f"({_POSITIVE}([.][0-9]{{1,6}})?|0[.][0-9]{{0,5}}[1-9])"
_ABOVE_ONE = "([2-9]|[1-9][0-9]{1,2}|1[.][0-9]{0,5}[1-9]|[1-9][0-9]{0,2}[.][0-9]{0,5}[1-9])"
_PATH = "/[^\\s,:]{1,200}"
_SHARE = "([2-9]|[1-3][0-9]|40)"  # the HOT and the WARM LRU together take at most 80 percent

VALUED = {
    ("f", "slab-growth-factor"): _ABOVE_ONE,
    ("n", "slab-min-size"): _POSITIVE,
    ("R", "max-reqs-per-event"): _POSITIVE,
    ("b", "listen-backlog"): _POSITIVE,
    ("D", ""): "[^\\s]",
    ("B", "protocol"): "(auto|ascii|binary)",
    ("Y", "auth-file"): _PATH,
    ("e", "memory-file"): _PATH,
}
"""Values of flags, by their short and long names; memcached -h and the calls of getopt_long in memcached.c."""

BARE_LONG = (
    *("enable-shutdown", "enable-coredumps", "enable-ssl", "disable-evictions", "lock-memory", "verbose(=[0-9])?"),
    *("enable-largepages", "disable-cas", "enable-sasl", "disable-flush-all", "disable-dumping", "disable-watch"),
)

OPTIONS = {
    "(no_)?(maxconns_fast|lru_crawler|lru_maintainer|slab_reassign|drop_privileges|inline_ascii_resp|modern)": "",
    "no_hashexpand|no_chunked_items|track_sizes|ssl_session_cache|ssl_kernel_tls": "",
    "hashpower": "(1[6-9]|2[0-8])",
    "tail_repair_time": "[1-9][0-9]{1,8}",
    "hash_algorithm": "(jenkins|murmur3|xxh3)",
    "lru_crawler_sleep": "[0-9]{1,6}",
    "lru_crawler_tocrawl|temporary_ttl|idle_timeout|read_buf_mem_limit|resp_obj_mem_limit": _NUMBER,
    "(hot|warm)_lru_pct": _SHARE,
    "(hot|warm)_max_factor": _ABOVE_ZERO,
    "slab_automove": "[012]",
    "slab_automove_ratio|slab_automove_freeratio": "0[.][0-9]{0,5}[1-9]",
    "slab_automove_window": "[1-9][0-9]{1,3}",  # memcached 1.6.18 crashes with 322800712
    "watcher_logbuf_size|worker_logbuf_size|ssl_wbuf_size": "[1-9][0-9]{0,3}",
    "slab_chunk_max": "(8|16|32|64|128|256|512)",  # it must divide the maximum size of an item
    "ssl_(chain_cert|key|ca_cert)": _PATH,
    "ssl_ciphers": "[^\\s,]{1,200}",
    "ssl_(keyformat|verify_mode|min_version)": "[0-3]",
}
"""Values of the options of -o, by their names; empty for an option without a value. Source: memcached.c."""


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
