"""Conditions about slots that the operator does not change: foreign keys, and migrations of other clients. Pure.

They need a user, and nothing else waits for them: Ready does not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import FOREIGN_KEYS, FOREIGN_MIGRATION
from operators.redis.slots.hash_slots import Slots
from operators.redis.topology.provenance import Ends
from operators.redis.topology.view_conflicts import brief
from shared.kubernetes.accessors import condition_in, rfc3339
from shared.kubernetes.kinds import Obj
from shared.status.reasons import Reason


def conditions(seen: Assessment) -> list[Obj]:
    """Return the conditions that hold; each is True, and missing otherwise."""
    if not seen.resource.formed:
        return []
    elsewhere = [*seen.provenance.elsewhere.items(), *seen.provenance.left.items()]
    sentences: Mapping[Reason, Iterable[str]] = {
        FOREIGN_KEYS: [_keys_of(seen, *each) for each in sorted(seen.foreign.items())],
        FOREIGN_MIGRATION: [_migration(seen, *each) for each in sorted(elsewhere)],
    }
    return list(_made(seen, sentences))


def _made(seen: Assessment, sentences: Mapping[Reason, Iterable[str]]) -> Iterator[Obj]:
    resource = seen.resource
    earlier = resource.reported.get("conditions") or []
    generation = resource.obj["metadata"].get("generation", 0)
    for reason, each in sentences.items():
        if message := " ".join(each):
            since = condition_in(earlier, str(reason)).get("lastTransitionTime") or rfc3339(seen.now)
            about = {"type": str(reason), "status": "True", "reason": str(reason), "message": message}
            yield about | {"lastTransitionTime": since, "observedGeneration": generation}


def _keys_of(seen: Assessment, node_id: str, slots: Slots) -> str:
    instance = seen.reachable.get(node_id)
    counts = instance.report.strays if instance and instance.report else {}
    keys = sum(count for slot, count in counts.items() if slot in slots)
    return (
        f"{seen.name_of(node_id)} holds {keys or 'some'} keys of {brief(slots)}, which it does not own. They are not "
        "served, and are usually an older copy from before a restart, with keys that were deleted since. These slots "
        "do not move to it. Compare the keys with those of the owner, then delete them."
    )


def _migration(seen: Assessment, ends: Ends, slots: Slots) -> str:
    source, target = map(seen.name_of, ends)
    return (
        f"{brief(slots).capitalize()} migrate from {source} to {target}, and the operator did not begin that: it moves "
        "no other keys of them. Let the client that began it finish it; or, if the other node has no keys of them, "
        "close them on both nodes (CLUSTER SETSLOT … STABLE)."
    )
