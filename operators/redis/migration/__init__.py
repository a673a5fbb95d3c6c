"""Moves slots between primaries, while clients read and write them.

At every moment each key is where clients are sent for it. An interrupted migration leaves at most open slots, which the
next one finds and moves on.

| module | |
|---|---|
| `commands` | the calls of a plan |
| `coordinator` | all moves of one call: which path each takes, and what runs in parallel |
| `key_by_key` | SETSLOT and MIGRATE, as every version can |
| `server_side` | jobs of the servers themselves, where both ends can: `valkey`, `redis` |
| `throttle`, `latency_probe` | how much moves at once, by how long clients wait |
| `slot_closing` | closes open slots that need not move |
| `big_keys`, `memory_check`, `functions` | keys that take long; memory of the target; function libraries |
| `participants` | the nodes |
"""
