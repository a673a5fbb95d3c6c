"""Opens slots again whose marks were lost in a failover, which Redis does not replicate (Valkey does since 8.0)."""

from __future__ import annotations

from collections.abc import Mapping

from operators.redis.client.responses import Node
from operators.redis.client.server import Access, Connect, Endpoint
from operators.redis.migration.participants import End, Ends
from operators.redis.slots.hash_slots import Slots

_SETSLOT = ("CLUSTER", "SETSLOT")


async def reopen_slots(
    connect: Connect, access: Access, endpoints: Mapping[str, Endpoint], ids: tuple[str, str], slots: Slots
) -> None:
    """Open slots at both ends, as far as a mark is missing or names a former node.

    First at a target that does not import, because the source redirects clients to it; then at the source. Slots that
    the source does not own are skipped, and commands that a node does not accept yet are left to the next call: until
    gossip has spread, it may not know that the other one is a primary.

    Args:
        ids: node ids of source and target.

    Raises:
        RedisError: an end is unreachable, or no longer a primary.
    """
    async with Ends.opened(connect, access, endpoints, ids) as ends:
        for failure in ends.missing.values():
            raise failure
        source, target = (ends.of[node_id] for node_id in ids)
        slots = (slots & source.report.me.slots) - target.report.me.slots
        if not _is_primary(source.report.node(target.id)):
            return
        importing, migrating = target.report.me.importing, source.report.me.migrating
        await target.server.pipe([(*_SETSLOT, slot, "IMPORTING", source.id) for slot in slots if slot not in importing])
        lost = [slot for slot in slots if _may_replace(source, migrating.get(slot, ""), target.id)]
        await source.server.pipe([(*_SETSLOT, slot, "MIGRATING", target.id) for slot in lost])
        renamed = [slot for slot in slots if importing.get(slot, source.id) != source.id]
        # A node that imports a slot ignores claims of other nodes to it, so the owner is set explicitly.
        await target.server.pipe([(*_SETSLOT, slot, "NODE", source.id) for slot in renamed])
        await target.server.pipe([(*_SETSLOT, slot, "IMPORTING", source.id) for slot in renamed])


def _may_replace(source: End, present: str, target: str) -> bool:
    """Return whether the migrating mark of a slot is missing, or names a node that is no healthy primary any more."""
    other = source.report.node(present)
    return present != target and not (_is_primary(other) and other is not None and not other.failing)


def _is_primary(node: Node | None) -> bool:
    return node is not None and node.is_primary and not node.handshake
