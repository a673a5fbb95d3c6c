"""Memory that a server needs at most: one formula, for Python and for CEL over the spec as `self`."""

from __future__ import annotations

# Memory that a server needs beyond -m in the worst case:
#   - 16 bytes per item while the hash table doubles (an item takes at least 96 bytes).
#   - 21 KiB per connection, for a partly read request and responses that the client has not fetched.
#   - stacks and log buffers of the threads.
#   - the process itself, and a page of 1 MiB for each of the 39 slab classes, even if -m is full.
# Peaks measured with 1.6.18 and 1.6.38 (the larger of the two), with the smallest items, then one item of each size,
# then every connection busy as above:
#     -m  64 -c 1024 -t 4: 140 MiB      -m 600 -c 1024 -t 4: 746 MiB
#     -m  64 -c 8000 -t 4: 248 MiB      -m   8 -c   16 -t 1:  53 MiB
_UNITS_PER_MIB = {"memoryMB": 6, "maxConnections": 48, "threads": 1}
_BASE_MIB = 48

# TLS adds the OpenSSL context and, per connection, its state and two records of 16 KiB (one partly read, one partly
# written). Measured with 4000 such connections: 45 KiB each in total (1.6.38; 33 KiB with 1.6.18). The formula reserves
# 21 + 32 KiB.
_TLS_PER_MIB = 32
_TLS_BASE_MIB = 4

# extstore adds write buffers and read requests: 4 buffers of 4 MiB, and one item per connection in the queue at most.
_EXTSTORE_MIB = 64

EXTSTORE_MAX_ITEM_MB = 4
"""Maximum of maxItemSizeMB with extstore: the size of a write buffer (ext_wbuf_size)."""

ENCRYPTS_CEL = "(has(self.tls) && self.tls.mode != 'none')"
"""Whether connections are encrypted, as a CEL expression."""

NEEDED_CEL = " + ".join(
    [
        "self.memoryMB",
        *(f"self.{field} / {per}" for field, per in _UNITS_PER_MIB.items()),
        f"{_BASE_MIB}",
        f"({ENCRYPTS_CEL} ? self.maxConnections / {_TLS_PER_MIB} + {_TLS_BASE_MIB} : 0)",
        f"(has(self.extstore) ? {_EXTSTORE_MIB} : 0)",
    ]
)
"""Memory limit in MiB that a server never exceeds with its own flags, as a CEL expression."""

MIN_WARM_RESTART_MB = 64
"""Minimum of memoryMB with warmRestart: at startup each slab class takes a page of 1 MiB, and there are at most 63."""


def overhead_mib(
    memory_mb: int, max_connections: int, threads: int, *, tls: bool = False, extstore: bool = False
) -> int:
    """Return the memory that a server may need in addition to its items, in MiB."""
    settings = {"memoryMB": memory_mb, "maxConnections": max_connections, "threads": threads}
    storage = _EXTSTORE_MIB if extstore else 0
    encryption = max_connections // _TLS_PER_MIB + _TLS_BASE_MIB if tls else 0
    return _BASE_MIB + sum(settings[field] // per for field, per in _UNITS_PER_MIB.items()) + encryption + storage
