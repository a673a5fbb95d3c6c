"""The calls of a plan that move slots between primaries; see client/commands.py for what holds for every call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from operators.redis.client.command_base import RedisCall
from operators.redis.client.server import Connect, Endpoint
from operators.redis.migration.coordinator import BUDGET_SECONDS, move
from operators.redis.migration.slot_closing import close_slots
from operators.redis.migration.throttle import MAX_KEYS_PER_COMMAND
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move


@dataclass(frozen=True, slots=True)
class MoveSlots(RedisCall):
    """Move slots for a while; what is left is moved by the next.

    Attributes:
        nodes: where masters are asked, by id.
        keys: of a slot, in one command; where servers move slots by themselves, they decide.
        budget: seconds after which nothing more is begun.
    """

    moves: tuple[Move, ...]
    nodes: Mapping[str, Endpoint]
    keys: int = MAX_KEYS_PER_COMMAND
    budget: float = BUDGET_SECONDS

    async def carry_out(self, connect: Connect, /) -> None:
        await move(connect, self.access, self.nodes, self.moves, keys=self.keys, budget=self.budget)

    def __str__(self) -> str:
        told = (f"{len(each.slots)} from {self._name(each.source)} to {self._name(each.target)}" for each in self.moves)
        return f"move slots: {', '.join(told)}"

    def _name(self, node_id: str) -> str:
        endpoint = self.nodes.get(node_id)
        return endpoint.name if endpoint else node_id


@dataclass(frozen=True, slots=True)
class CloseSlots(RedisCall):
    """Take slots off their way; who does not own them must have none of their keys.

    Attributes:
        source, target: ids of the ends.
        nodes: where masters are asked, by id; an end that is not among them is left alone.
    """

    source: str
    target: str
    slots: Slots
    nodes: Mapping[str, Endpoint]

    async def carry_out(self, connect: Connect, /) -> None:
        await close_slots(connect, self.access, self.nodes, (self.source, self.target), self.slots)

    def __str__(self) -> str:
        return f"close slots {self.slots}"
