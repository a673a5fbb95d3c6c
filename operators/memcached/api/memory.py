"""How much memory a server may need: one formula, for Python and for CEL over the spec as `self`."""

from __future__ import annotations

# Memory that a server takes beyond -m at worst: 16 bytes an item while its hash table doubles (an item takes 96 at
# least); 21 KiB a connection, of a request half read and answers not fetched; stacks and logs of its threads; and
# itself with a page of 1 MiB for each of its 39 slab classes, which every class gets even when -m is used up. Peaks
# measured with 1.6.18 and 1.6.38 (the larger one here), filled with the smallest items, then one of each size, then
# every connection busy like that:
#     -m  64 -c 1024 -t 4: 140 MiB      -m 600 -c 1024 -t 4: 746 MiB
#     -m  64 -c 8000 -t 4: 248 MiB      -m   8 -c   16 -t 1:  53 MiB
_UNITS_PER_MIB = {"memoryMB": 6, "maxConnections": 48, "threads": 1}
_BASE_MIB = 48

# TLS adds OpenSSL with its context, and to each connection its state and two records of 16 KiB, one half read and one
# half written: measured 45 KiB in all with 4000 connections held like that (1.6.38; 33 KiB with 1.6.18), where 21 and
# 32 are reckoned.
_TLS_PER_MIB = 32
_TLS_BASE_MIB = 4

NEEDED_CEL = " + ".join(
    [
        "self.memoryMB",
        *(f"self.{field} / {per}" for field, per in _UNITS_PER_MIB.items()),
        f"{_BASE_MIB}",
        f"(has(self.tls) ? self.maxConnections / {_TLS_PER_MIB} + {_TLS_BASE_MIB} : 0)",
    ]
)
"""MiB with which a server is never killed for what its own flags allow."""

MIN_WARM_RESTART_MB = 64
"""A memory file is handed out to every slab class at the start, a page of 1 MiB each, and 63 is the most there are."""


def overhead_mib(memory_mb: int, max_connections: int, threads: int, *, tls: bool = False) -> int:
    """Memory that a server may need beyond its items, in MiB."""
    settings = {"memoryMB": memory_mb, "maxConnections": max_connections, "threads": threads}
    encryption = max_connections // _TLS_PER_MIB + _TLS_BASE_MIB if tls else 0
    return _BASE_MIB + sum(settings[field] // per for field, per in _UNITS_PER_MIB.items()) + encryption
