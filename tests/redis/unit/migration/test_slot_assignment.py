"""Slots that no node owns: keys that a server has but counts for no slot prevent an assignment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from operators.redis.client.errors import Refused
from operators.redis.client.responses import Node, NodeReport
from operators.redis.migration import slot_assignment
from operators.redis.migration.slot_assignment import _require_free
from operators.redis.slots.hash_slots import Slots

ME = "a" * 40
ENDS: Any = SimpleNamespace(of={ME: None})
OWNED = Slots.of(1, 2)


class Server:
    """Counts 3 keys in each slot that it owns, as Redis does; of others it counts none, as Redis 8.4 and later do."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    async def pipe(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        assert commands[0] == ("MULTI",)
        assert commands[-1] == ("EXEC",)
        counts = [self._keys if command == ("DBSIZE",) else 3 for command in commands[1:-1]]
        return ["OK", *(["QUEUED"] * len(counts)), counts]


@pytest.fixture(autouse=True)
def no_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def with_keys(*_: object) -> Slots:
        return Slots()

    monkeypatch.setattr(slot_assignment, "with_keys", with_keys)


def end(keys: int, version: str = "8.6.3", trimming: int = 0) -> Any:
    me = Node(ME, flags=frozenset({"myself", "master"}), slots=OWNED)
    report = NodeReport(ME, nodes=(me,), version=version, keys=keys, trimming=trimming)
    return SimpleNamespace(name="demo-1", report=report, server=Server(keys))


async def test_node_that_counts_all_of_its_keys_has_none_of_a_slot() -> None:
    await _require_free(end(6), ENDS, Slots.of(7), has_keys=False)
    await _require_free(end(18, "8.2.9"), ENDS, Slots.of(7), has_keys=False)  # earlier versions count all keys


@pytest.mark.parametrize(("found", "hidden"), [(end(18), 12), (end(6, trimming=5), 5)])
async def test_slot_is_not_assigned_while_a_node_has_keys_that_it_counts_for_no_slot(found: Any, hidden: int) -> None:
    with pytest.raises(Refused, match=f"demo-1 has {hidden} keys of slots that it does not own, and does not report"):
        await _require_free(found, ENDS, Slots.of(7), has_keys=False)
