"""Key-by-key migration: failures of an end, keys at both ends, replication of the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from operators.redis.client.errors import Refused, SlotStuck, TargetFull, TargetNotReplicating, Unreachable
from operators.redis.client.server import Access, Command, Endpoint
from operators.redis.migration import big_keys, coordinator, throttle
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from simulator.redis import data, server
from simulator.redis.client import KEYS, Entry
from simulator.redis.node import fake_id, slot_of
from simulator.redis.process import Process
from tests.redis.simulation.lab import GuardedLab
from tests.support.redis.recorded_conformance import SEEN

KEY, OTHER = b"{hot}:0", b"{hot}:1"
SLOT = slot_of(KEY)
FAILOVER_SECONDS = 10.0


class Texts(MutableMapping[bytes, bytes]):
    """The keys of a node, as texts."""

    def __init__(self, entries: dict[bytes, Entry]) -> None:
        self._entries = entries

    def __getitem__(self, key: bytes) -> bytes:
        return self._entries[key].text

    def __setitem__(self, key: bytes, text: bytes) -> None:
        self._entries[key] = Entry(0, text=text)

    def __delitem__(self, key: bytes) -> None:
        del self._entries[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@dataclass
class Bed:
    """Two primaries, of which one gives slots to the other.

    Attributes:
        before: called with each command that changes something, before it is carried out.
        pipelines: names of the commands that were sent together.
    """

    lab: GuardedLab
    source: str
    target: str
    before: Callable[[str], None] = lambda _: None
    pipelines: list[list[str]] = field(default_factory=list)

    @classmethod
    async def begin(cls, *, opened: bool = True, replicas: str = "def") -> Bed:
        lab = await GuardedLab.begin(replicas)
        lab.redis.client.idle = lab.redis.guard.disabled = True  # the tests write keys themselves
        source = next(name for name in "abc" if lab.process(name).node.me.slots >> SLOT & 1)
        target = next(name for name in "abc" if name != source)
        bed = cls(lab, source, target)
        if opened:
            await lab.opened(SLOT)
        lab.redis.fault = lambda what: bed.before(what)
        lab.redis.commanded.clear()
        return bed

    def keys(self, name: str) -> Texts:
        return Texts(self.process(name).node.keys)

    def process(self, name: str) -> Process:
        return self.lab.process(name)

    def replica(self, name: str) -> Process:
        (found,) = self.lab.redis.replicas_of(self.process(name))
        return found

    async def fail_over(self) -> str:
        """Stop the source, and wait until its replica owns its slots; return the name of the replica."""
        successor = self.replica(self.source).pod.removeprefix("demo-")
        await self.lab.stop(self.source)
        await self.lab.wait(FAILOVER_SECONDS)
        assert not self.process(successor).node.me.primary
        return successor

    async def move(self, slots: Slots = Slots.of(SLOT), **options: object) -> None:  # noqa: B008
        names = [name for name in "abcdef" if name in self.lab._pods and name in self.lab._addresses]
        nodes = {
            self.process(name).node.id: Endpoint(f"demo-{name}", self.lab.address(name)[0], name) for name in names
        }
        life = server.Life()

        def connect(endpoint: Endpoint, access: Access) -> _Recorded:
            return _Recorded(self.pipelines, server.FakeServer(self.lab.redis, life, endpoint, access))

        moves = [Move(self.process(self.source).node.id, self.process(self.target).node.id, slots)]
        await coordinator.move(connect, Access(), nodes, moves, **options)  # type: ignore[arg-type]

    def owns(self, name: str) -> bool:
        return bool(self.process(name).node.me.slots >> SLOT & 1)


@dataclass
class _Recorded:
    pipelines: list[list[str]]
    server: server.FakeServer

    async def execute(self, *command: str | int | bytes) -> object:
        self.pipelines.append([str(command[0])])
        return await self.server.execute(*command)

    async def pipe(self, commands: Sequence[Command]) -> list[object]:
        self.pipelines.append([server.name_of([str(word).encode() for word in command[:2]]) for command in commands])
        return await self.server.pipe(commands)

    async def aclose(self) -> None:
        await self.server.aclose()


async def test_source_learns_of_a_slot_that_the_target_already_owns() -> None:
    lab = await GuardedLab.begin()
    slot = slot_of(KEYS[-1])
    moved_keys = [key for key in KEYS if slot_of(key) == slot]
    source, target = await lab.opened(slot)
    await lab.server(source).execute("MIGRATE", *lab.address(target), "", 0, 1000, "KEYS", *moved_keys)
    await lab.cluster(target, "SETSLOT", slot, "NODE", lab.id(target))  # the interruption
    assert lab.process(source).node.me.slots >> slot & 1
    nodes = {lab.id(name): Endpoint(name, lab.address(name)[0], name) for name in "abc"}
    move = Move(lab.id(source), lab.id(target), Slots.of(slot))
    await coordinator.move(lab.redis.connect, Access(), nodes, [move])
    await lab.wait(SEEN)
    assert not lab.process(source).node.me.slots >> slot & 1
    assert not lab.redis.violations


# A replica of the source takes over.


async def _interrupted_by_failover(*, moved: bytes = b"1000000", lost: bool = True) -> Bed:
    """Move one key, and stop the source; its replica, which has no MIGRATING, owns the slot then."""
    bed = await Bed.begin()
    await bed.lab.server(bed.source).execute("MIGRATE", *bed.lab.address(bed.target), "", 0, 1000, "KEYS", KEY)
    await bed.lab.wait(1)  # the replica receives that the key moved
    bed.keys(bed.target)[KEY] = moved
    bed.source = await bed.fail_over()
    assert SLOT not in bed.process(bed.source).node.migrating
    if lost:
        assert KEY not in bed.keys(bed.source)
    bed.lab.redis.commanded.clear()
    return bed


async def test_key_that_a_promoted_replica_created_again_does_not_replace_the_moved_one() -> None:
    bed = await _interrupted_by_failover()
    data.put(bed.lab.redis, bed.process(bed.source), KEY, b"1")  # INCR of a client that got no redirection
    with pytest.raises(SlotStuck) as error:
        await bed.move()
    assert (bed.keys(bed.target)[KEY], bed.keys(bed.source)[KEY]) == (b"1000000", b"1")
    assert OTHER in bed.keys(bed.target)  # the other keys of the slot have moved
    message = str(error.value)
    assert f"Slot {SLOT} cannot leave demo-{bed.source}: '{{hot}}:0' exist there and at demo-{bed.target}" in message
    assert f'at demo-{bed.source} with "DEL", or at demo-{bed.target} with "ASKING" and then "DEL"' in message
    del bed.keys(bed.source)[KEY]  # the decision of the user
    await bed.move()
    assert bed.owns(bed.target)
    assert bed.keys(bed.target)[KEY] == b"1000000"


async def test_recorded_promotion_protects_keys_although_the_target_imports_from_the_promoted_replica() -> None:
    bed = await _interrupted_by_failover()
    data.put(bed.lab.redis, bed.process(bed.source), KEY, b"1")
    for what in ("NODE", "IMPORTING"):  # as an earlier call did
        await bed.lab.cluster(bed.target, "SETSLOT", SLOT, what, bed.process(bed.source).node.id)
    with pytest.raises(SlotStuck, match="with different values, because a replica took over"):
        await bed.move(promoted=Slots.of(SLOT))
    assert bed.keys(bed.target)[KEY] == b"1000000"


async def test_promoted_replica_that_lost_a_deletion_gives_up_its_identical_copy() -> None:
    bed = await _interrupted_by_failover(moved=b"7")
    bed.keys(bed.source)[KEY] = b"7"  # the deletion by MIGRATE did not reach the replica
    await bed.move()
    assert bed.owns(bed.target)
    assert bed.keys(bed.target)[KEY] == b"7"


async def test_promoted_replica_is_marked_as_migrating_before_anything_else() -> None:
    bed = await _interrupted_by_failover()
    await bed.move()
    assert bed.lab.redis.commanded[0] == f"CLUSTER SETSLOT at demo-{bed.source}"
    assert bed.owns(bed.target)


async def test_message_names_three_of_many_conflicting_keys() -> None:
    bed = await _interrupted_by_failover()
    several = [b"{hot}:%d" % number for number in range(10, 15)]
    for key in several:
        bed.keys(bed.target)[key], bed.keys(bed.source)[key] = b"new", b"old"
    with pytest.raises(SlotStuck, match=r"'\{hot\}:10', '\{hot\}:11', '\{hot\}:12' and 2 more exist"):
        await bed.move()
    assert {bed.keys(bed.target)[key] for key in several} == {b"new"}


async def test_importing_mark_alone_does_not_allow_keys_of_unknown_origin_at_the_target() -> None:
    bed = await Bed.begin(opened=False)
    await bed.lab.cluster(bed.target, "SETSLOT", SLOT, "IMPORTING", bed.lab.id(bed.source))  # as a server by itself
    bed.keys(bed.target)[KEY] = b"7"  # of an older dataset
    with pytest.raises(SlotStuck, match=f"has 1 keys of unknown origin in slot {SLOT}"):
        await bed.move()
    assert bed.owns(bed.source)
    assert not bed.process(bed.source).node.migrating


# Hand-over.


async def test_each_slot_is_handed_over_before_keys_of_the_next_one_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MAX_SLOTS", 1, raising=False)
    bed = await Bed.begin(opened=False)
    slots = sorted({slot_of(key) for key in bed.keys(bed.source)})
    waiting: list[int] = []

    def before(what: str) -> None:
        source, target = bed.process(bed.source).node, bed.process(bed.target).node
        emptied = [slot for slot in slots if not source.in_slot(slot) and not target.me.slots >> slot & 1]
        waiting.append(len(emptied) if what.startswith("MIGRATE") else 0)

    bed.before = before
    await bed.move(Slots.of(*slots))
    assert bed.owns(bed.target)
    assert max(waiting) == 0


async def test_slots_without_keys_move_first() -> None:
    bed = await Bed.begin(opened=False)
    occupied = {slot_of(key) for key in bed.keys(bed.source)}
    owned = [slot for slot in Slots(bed.process(bed.source).node.me.slots) if slot not in occupied]
    owned_at_first_migrate: list[int] = []

    def before(what: str) -> None:
        if what.startswith("MIGRATE") and not owned_at_first_migrate:
            owned_at_first_migrate.extend(Slots(bed.process(bed.target).node.me.slots))

    bed.before = before
    await bed.move(Slots.of(*owned[:40], *occupied))
    assert {*owned[:40]} <= {*owned_at_first_migrate}
    assert not occupied & {*owned_at_first_migrate}
    assert occupied <= {*Slots(bed.process(bed.target).node.me.slots)}


async def test_slots_of_which_no_key_has_moved_are_closed_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = await Bed.begin(opened=False)
    occupied = {slot_of(key) for key in bed.keys(bed.source)}
    course = bed.lab.redis.commanded
    path = "operators.redis.migration.key_by_key.KeyByKeyPath._is_expired"
    monkeypatch.setattr(path, property(lambda _: any(what.startswith("MIGRATE") for what in course)))
    await bed.move(Slots.of(*occupied))
    assert not bed.process(bed.source).node.migrating
    assert not bed.process(bed.target).node.importing
    assert occupied & {*Slots(bed.process(bed.target).node.me.slots)}


# MIGRATE that the target executes late.


async def test_key_that_a_client_deletes_while_it_is_in_doubt_stays_deleted() -> None:
    bed = await Bed.begin()
    bed.lab.redis.stalled.add(f"demo-{bed.target}")
    bed.before = partial(_delete_at, bed, f"EVAL at demo-{bed.target}", KEY)  # after the failure, before the retry
    await bed.move()
    assert bed.owns(bed.target)
    assert KEY not in bed.keys(bed.target)
    assert OTHER in bed.keys(bed.target)


async def test_key_in_doubt_is_checked_again_before_the_hand_over() -> None:
    bed = await Bed.begin()
    bed.lab.redis.stalled.add(f"demo-{bed.target}")
    tries: list[str] = []

    def before(what: str) -> None:
        if what == f"MIGRATE at demo-{bed.source}":
            tries.append(what)
        first = next(iter(bed.keys(bed.source)), None)
        if len(tries) == 2 and what == tries[0] and KEY in bed.keys(bed.source) and first is not None:
            value = bed.process(bed.source).node.keys.pop(KEY)  # deleted right before it is moved alone
            bed.process(bed.target).node.keys[KEY] = value  # by a RESTORE that arrives even later

    bed.before = before
    await bed.move()
    assert bed.owns(bed.target)
    assert KEY not in bed.keys(bed.target)


async def test_key_that_a_client_created_at_the_target_after_the_failure_is_kept() -> None:
    bed = await Bed.begin()
    bed.lab.redis.stalled.add(f"demo-{bed.target}")

    def before(what: str) -> None:
        if what == f"EVAL at demo-{bed.target}" and KEY in bed.keys(bed.source):
            del bed.keys(bed.source)[KEY]
            bed.keys(bed.target)[KEY] = b"new"

    bed.before = before
    await bed.move()
    assert bed.owns(bed.target)
    assert bed.keys(bed.target)[KEY] == b"new"


async def test_outdated_copy_at_the_target_is_removed_while_the_source_has_the_key() -> None:
    bed = await Bed.begin()
    bed.keys(bed.target)[KEY] = b"outdated"
    bed.keys(bed.source)[KEY] = b"current"
    await bed.move()
    assert bed.owns(bed.target)
    assert bed.keys(bed.target)[KEY] == b"current"


def _delete_at(bed: Bed, when: str, key: bytes, what: str) -> None:
    if what == when:
        bed.keys(bed.source).pop(key, None)


# Replication of the target.


async def test_no_key_moves_if_no_replica_acknowledges_the_present_ones() -> None:
    bed = await Bed.begin(opened=False)
    bed.lab.redis.lagging.add(bed.replica(bed.target).pod)
    occupied = sorted({slot_of(key) for key in bed.keys(bed.source)})
    with pytest.raises(TargetNotReplicating, match=f"to demo-{bed.target} paused: no replica of it acknowledged"):
        await bed.move(Slots.of(*occupied))
    assert all(bed.process(bed.source).node.me.slots >> slot & 1 for slot in occupied)
    assert not bed.process(bed.target).node.importing


async def test_refused_write_acknowledges_nothing() -> None:
    """Since Redis 7.2, WAIT covers the last write of its connection: without one, it counts every replica."""
    bed = await Bed.begin(opened=False)
    bed.lab.redis.full.add(f"demo-{bed.target}")
    occupied = sorted({slot_of(key) for key in bed.keys(bed.source)})
    with pytest.raises(TargetFull, match=f"demo-{bed.target} has no memory for further keys"):
        await bed.move(Slots.of(*occupied))
    assert not [what for what in bed.lab.redis.commanded if "MIGRATE" in what]


def _hang(bed: Bed, what: str) -> None:
    if what.startswith("MIGRATE"):
        bed.lab.redis.lagging.add(bed.replica(bed.target).pod)


async def test_migration_stops_if_no_replica_acknowledges_the_keys() -> None:
    bed = await Bed.begin(opened=False)
    bed.before = partial(_hang, bed)
    occupied = sorted({slot_of(key) for key in bed.keys(bed.source)})
    with pytest.raises(TargetNotReplicating, match=f"to demo-{bed.target} paused: no replica of it acknowledged"):
        await bed.move(Slots.of(*occupied))
    arrived = [slot for slot in occupied if bed.process(bed.target).node.me.slots >> slot & 1]
    assert len(arrived) == 1  # its keys are at the target already
    assert not bed.process(bed.source).node.migrating
    assert not bed.process(bed.target).node.importing
    await bed.move(Slots.of(*occupied), acknowledge=False)
    assert all(bed.process(bed.target).node.me.slots >> slot & 1 for slot in occupied)


async def test_no_slot_is_opened_if_all_replicas_of_the_target_are_offline() -> None:
    bed = await Bed.begin(opened=False)
    await bed.lab.stop(bed.replica(bed.target).pod.removeprefix("demo-"))
    with pytest.raises(TargetNotReplicating, match=r"No slot moves to demo-.: none of its replicas is online"):
        await bed.move()
    assert bed.owns(bed.source)
    assert not bed.lab.redis.commanded


async def test_target_without_replicas_by_plan_receives_slots() -> None:
    bed = await Bed.begin(opened=False, replicas="")
    await bed.move()
    assert bed.owns(bed.target)


# Restarts, and large keys.


async def test_target_that_restarted_receives_no_more_slots_in_this_call() -> None:
    bed = await Bed.begin(opened=False)
    slots = Slots.of(*sorted(Slots(bed.process(bed.source).node.me.slots))[:200])

    def before(what: str) -> None:
        process = bed.process(bed.target)
        if what == f"CLUSTER SETSLOT at demo-{bed.target}" and len(Slots(process.node.me.slots) & slots) == 64:
            process.run_id = fake_id("restarted")

    bed.before = before
    with pytest.raises(Unreachable, match="restarted during the migration"):
        await bed.move(slots)
    assert len(Slots(bed.process(bed.target).node.me.slots) & slots) < 200


async def test_connection_that_failed_is_not_opened_again() -> None:
    bed = await Bed.begin()

    def before(what: str) -> None:
        if what == f"MIGRATE at demo-{bed.source}":
            bed.before = lambda _: None
            raise Unreachable("closed")

    bed.before = before
    with pytest.raises(Unreachable, match="closed"):
        await bed.move()
    assert bed.lab.redis.commanded[-1] == f"MIGRATE at demo-{bed.source}"


async def test_large_keys_are_looked_for_once_per_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(big_keys, "BIG_KEY_BYTES", 1000)
    bed = await Bed.begin()
    bed.keys(bed.source).update({b"{hot}:%d" % number: b"1" for number in range(100, 400)})
    await bed.move()
    assert bed.owns(bed.target)
    assert sum("MEMORY USAGE" in pipeline for pipeline in bed.pipelines) == 1


async def test_rejected_migrate_of_a_large_key_halts_the_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(big_keys, "BIG_KEY_BYTES", 1000)
    bed = await Bed.begin()
    bed.keys(bed.source)[KEY] = b"1" * 2000
    bed.lab.redis.full.add(f"demo-{bed.target}")
    with pytest.raises(Refused, match="has no memory for slot"):
        await bed.move(acknowledge=False)
    assert KEY in bed.keys(bed.source)
    bed.lab.redis.full.clear()
    await bed.move()
    assert bed.owns(bed.target)


async def test_many_outdated_copies_in_several_batches_are_removed() -> None:
    bed = await Bed.begin()
    keys = [b"{hot}:%d" % number for number in range(100, 600)]
    for key in keys:
        bed.keys(bed.source)[key], bed.keys(bed.target)[key] = b"2", b"1"
    await bed.move()
    assert bed.owns(bed.target)
    assert {bed.keys(bed.target)[key] for key in keys} == {b"2"}


async def test_keys_that_stay_although_migrate_succeeds_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = await Bed.begin()
    monkeypatch.setattr(data, "migrate", lambda *_: "OK")
    with pytest.raises(SlotStuck, match=f"Keys of slot {SLOT} stay at .*, although MIGRATE returned OK"):
        await bed.move()
