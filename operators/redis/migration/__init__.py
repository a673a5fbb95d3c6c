"""Moves slots between primaries, while clients read and write them.

At every moment each key is on the node to which clients are redirected for it. An interrupted migration leaves at most
open slots, which the next one finds and completes.

| module | |
|---|---|
| `commands` | the calls of a plan |
| `coordinator` | all moves of one call: the path of each, and which run in parallel |
| `key_by_key` | SETSLOT and MIGRATE, which every version supports |
| `server_side` | migration jobs of the servers, if both ends support them: `valkey`, `redis` |
| `claim_renewal` | a target forgets outdated claims, before it receives a slot |
| `duplicates` | keys that both ends of an open slot have |
| `target_check`, `acknowledgement` | memory and replication of the target |
| `throttle` | the batch size, adapted to the time that a batch takes |
| `slot_closing` | closes open slots that need not move |
| `slot_assignment` | assigns slots that no node owns |
| `big_keys`, `functions` | large keys; function libraries |
| `participants` | the nodes |
"""
