"""The budget of loss of a primary that dies, from samples of the replication of all nodes. Pure.

A write is replicated if the primary's offset, sampled after its acknowledgement, is one that the successor has applied.
The successor reports exactly how far it followed the former primary: `master_replid2` and `second_repl_offset`. If no
node took over, the disks of the primary and its replicas count: one of them serves what its append-only file has. That
is what a node had applied when its buffer of unwritten commands was empty (`aof_buffer_length` in INFO).

Source: https://redis.io/docs/latest/operate/oss_and_stack/management/replication/; Redis 7.0, replication.c, aof.c.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from e2e.scenarios.redis.consistency import Death

MAX_LAG_SECONDS = 10.0
"""Maximum time before its death of which a primary may lose writes, however far its replica lagged.

An isolated primary serves clients for up to 1.5 times the node timeout, which is 5 s in the scenarios.
"""


FLUSH_SECONDS = 2.0
"""Maximum time before its death of which a primary without a replica may lose writes.

With `appendfsync everysec`, writes to the append-only file wait up to two seconds for a slow fsync (aof.c of Redis 7.0,
flushAppendOnlyFile).
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """State of a node at one moment.

    Attributes:
        name: name of the node.
        called, returned: time of the request and the answer, in seconds of the clients' clock.
        run: id of the process; empty if it did not answer.
        serving: whether it is a primary and accepts commands.
        replication: id of the history of writes (master_replid).
        offset: position in that history: written by a primary, applied by a replica.
        former: id of the history that it followed before it became a primary (master_replid2).
        former_end: first position that it did not apply of that history (second_repl_offset).
        claims: slots of the node, as in CLUSTER NODES, with those that it imports.
        written: whether the kernel has everything up to the offset for the append-only file.
    """

    name: str
    called: float
    returned: float
    run: str = ""
    serving: bool = False
    replication: str = ""
    offset: int = 0
    former: str = ""
    former_end: int = 0
    claims: str = ""
    written: bool = True

    @property
    def slots(self) -> frozenset[int]:
        """Slots that it owns or imports."""
        owned = re.sub(r"\[\d+->-\w+\]", "", self.claims)
        ranges = re.findall(r"\[?(\d+)(?:-(\d+)|-<-\w+\])?(?=\s|$)", owned)
        return frozenset(slot for first, last in ranges for slot in range(int(first), int(last or first) + 1))


def sample_of(
    name: str, called: float, returned: float, info: Mapping[str, Any], cluster_info: str, nodes: str
) -> Sample:
    """Parse the answers to INFO, CLUSTER INFO and CLUSTER NODES."""
    primary = info["role"] == "master"
    return Sample(
        name,
        called,
        returned,
        run=str(info["run_id"]),
        serving=primary and "cluster_state:ok" in cluster_info,
        replication=str(info["master_replid"]),
        offset=int(info["master_repl_offset" if primary else "slave_repl_offset"]),
        former=str(info["master_replid2"]) if primary else "",
        former_end=int(info["second_repl_offset"]),
        claims=" ".join(own_line(nodes)[8:]),
        written=not int(info.get("aof_buffer_length", 0)),
    )


def own_line(nodes: str) -> list[str]:
    """Return the words of the entry of the node that answered CLUSTER NODES."""
    [line] = [words for words in (line.split() for line in nodes.splitlines()) if "myself" in words[2].split(",")]
    return line


def death_of(samples: Iterable[Sample], name: str, at: float) -> Death | None:
    """Return the death of the process that a node had at a time; None if it was no primary, or never stopped serving.

    Raises:
        AssertionError: there is no sample of the node before that time.
    """
    ordered = sorted(samples, key=lambda each: each.called)
    own = [each for each in ordered if each.name == name]
    before = [each for each in own if each.run and each.called <= at]
    assert before, f"{name} was not sampled before it died"
    lived = [each for each in own if each.run == before[-1].run and each.serving]
    if not before[-1].serving:
        return None
    last = lived[-1]
    after = next((each for each in own if each.called > last.called), None)
    if after is None:
        return None
    others = [each for each in ordered if each.name != name]
    successor = next((each for each in others if each.serving and each.former == last.replication), None)
    heirs = [each for each in own if each.called > last.called and each.run not in ("", last.run)][:1]
    heirs += [successor] if successor else []
    reached = successor.former_end - 1 if successor else _written([*lived, *others], last.replication)
    kept = (each for each in lived if each.offset <= reached)
    replicated = max((each.called for each in kept), default=-math.inf)
    alone = successor is None and not any(each.replication == last.replication for each in others)
    most = FLUSH_SECONDS if alone else MAX_LAG_SECONDS
    slots = last.slots.union(*(each.slots for each in heirs))
    return Death(name, slots, max(replicated, last.called - most), after.returned)


def _written(samples: Iterable[Sample], replication: str) -> float:
    """Return the position of a history that all nodes which followed it certainly have on their disks."""
    offsets: dict[str, int] = {}
    for each in samples:
        if each.run and each.replication == replication:
            offsets[each.name] = max(each.offset if each.written else 0, offsets.get(each.name, 0))
    return min(offsets.values(), default=-math.inf)
