"""Outdated claims of a source, which some versions of Redis accept after the target has received the slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest

from operators.redis.client.errors import Loading, Unreachable
from operators.redis.client.server import Access, Endpoint
from operators.redis.migration.claim_renewal import FULL_COVERAGE, renew_claims, require_settled
from operators.redis.migration.journal import Journal
from operators.redis.migration.key_by_key import KeyByKeyPath
from operators.redis.migration.participants import End, Ends, Limits
from operators.redis.migration.slot_assignment import assign_slots
from operators.redis.migration.throttle import Throttle
from operators.redis.slots.hash_slots import Slots
from simulator.redis.bus import build_message, receive
from tests.redis.unit.migration.test_key_by_key import SLOT, Bed

PATIENCE = 1.0


def receive_outdated_claims(bed: Bed) -> None:
    """Let the target receive two messages that the source sent earlier.

    The first one, of before the source received the slot, arrives at once. The second one, of before the source is
    informed of the new owner, arrives right after SETSLOT NODE at the target.
    """
    redis, source, target = bed.lab.redis, bed.process(bed.source), bed.process(bed.target)
    owned = build_message(source, redis.turn)._replace(gossip=())
    receive(redis, target, owned._replace(slots=owned.slots & ~(1 << SLOT)))

    def after(_: str) -> None:
        if bed.owns(bed.target):
            redis.after = str
            receive(redis, target, owned)

    redis.after = after


@asynccontextmanager
async def ends(bed: Bed) -> AsyncIterator[tuple[End, End]]:
    ids = [bed.process(name).node.id for name in (bed.source, bed.target)]
    at: Mapping[str, Endpoint] = {
        node_id: Endpoint(f"demo-{name}", bed.lab.address(name)[0], name)
        for node_id, name in zip(ids, (bed.source, bed.target), strict=True)
    }
    async with Ends.opened(bed.lab.redis.connect, Access(), at, ids) as found:
        yield found.of[ids[0]], found.of[ids[1]]


async def test_slot_stays_with_the_target_although_an_earlier_claim_of_the_source_arrives_late() -> None:
    bed = await Bed.begin()
    keys = dict(bed.keys(bed.source))
    receive_outdated_claims(bed)
    await bed.move()
    await bed.lab.wait(5)
    assert bed.owns(bed.target)
    assert not bed.owns(bed.source)
    assert {*keys} <= {*bed.keys(bed.source), *bed.keys(bed.target)}


async def test_target_serves_clients_while_it_forgets_outdated_claims() -> None:
    bed = await Bed.begin()
    served: set[bool] = set()
    coverage: list[str] = []

    def before(what: str) -> None:
        served.add(bed.process(bed.target).serves)
        if what.startswith("CLUSTER DELSLOTS"):
            coverage.append(bed.process(bed.target).config(FULL_COVERAGE))

    bed.before = before
    await bed.move()
    assert served == {True}
    assert coverage == ["no"]
    assert bed.process(bed.target).config(FULL_COVERAGE) == "yes"


async def test_claims_are_renewed_once_for_all_slots_of_a_source() -> None:
    bed = await Bed.begin(opened=False)
    await bed.move(Slots.of(*sorted(Slots(bed.process(bed.source).node.me.slots))[:200]))
    assert sum(what.startswith("CLUSTER DELSLOTS") for what in bed.lab.redis.commanded) == 1


@pytest.mark.parametrize("version", ["6.2.21", "7.0.12", "7.2.4", "7.4.0"])
async def test_target_of_another_version_unassigns_no_slot(version: str) -> None:
    bed = await Bed.begin()
    bed.process(bed.target).version = version
    await bed.move()
    assert bed.owns(bed.target)
    assert not [what for what in bed.lab.redis.commanded if "DELSLOTS" in what or "MEET" in what]


async def test_open_slot_stays_open_if_the_source_has_no_other() -> None:
    bed = await Bed.begin()
    source, target = bed.process(bed.source).node, bed.process(bed.target).node
    target.importing = dict.fromkeys(Slots(source.me.slots), source.id)
    async with ends(bed) as (one, other):
        await renew_claims(one, other, PATIENCE)
    assert target.importing == dict.fromkeys(Slots(source.me.slots), source.id)
    assert target.known[source.id].slots == source.me.slots


async def test_missing_message_of_the_source_pauses_the_migration_and_is_reported() -> None:
    bed = await Bed.begin(opened=False)
    async with ends(bed) as (one, other):
        bed.lab.redis.partitions[f"demo-{bed.target}"] = 1
        with pytest.raises(Unreachable, match=r"paused: no message of .* reached it within 0\.2 s.* port 16379"):
            await renew_claims(one, other, 0.2)
    assert (
        bed.process(bed.target).config(FULL_COVERAGE) == "no"
    )  # it serves clients until the source is connected again


async def test_target_that_knows_no_slot_of_the_source_receives_none_yet() -> None:
    bed = await Bed.begin(opened=False)
    async with ends(bed) as (one, other):
        bed.process(bed.target).node.known[bed.process(bed.source).node.id].slots = 0
        with pytest.raises(Loading, match=r"does not know which slots demo-. owns"):
            await renew_claims(one, other, PATIENCE)
    assert not bed.lab.redis.commanded


@pytest.mark.parametrize(("version", "keeps"), [("7.0.15", False), ("7.2.4", True)])
async def test_late_claim_takes_a_slot_back_from_the_versions_that_keep_outdated_marks(
    version: str, keeps: bool
) -> None:
    """The simulated cluster behaves as cluster.c of these versions."""
    bed = await Bed.begin(replicas="")
    target = bed.process(bed.target)
    target.version = version
    receive_outdated_claims(bed)
    bed.process(bed.source).node.keys.clear()
    await bed.lab.cluster(bed.target, "SETSLOT", SLOT, "NODE", bed.lab.id(bed.target))
    assert bed.owns(bed.target) is keeps


@asynccontextmanager
async def paths(bed: Bed) -> AsyncIterator[KeyByKeyPath]:
    """A path to a node that could give the slots to one of Valkey 8."""
    for name in (bed.source, bed.target):
        bed.process(name).engine, bed.process(name).version = "valkey", "8.1.1"
    async with ends(bed) as (one, other):
        limits = Limits(asyncio.get_running_loop().time() + PATIENCE, 1, Slots(), acknowledge=False)
        others: Any = nullcontext
        yield KeyByKeyPath(one, other, Slots.of(SLOT), others, Throttle(), limits, PATIENCE, Journal())


async def test_node_may_have_received_a_slot_if_the_response_was_lost() -> None:
    """If it owned the slot, a message of before would let the next target take it over without its keys."""
    bed = await Bed.begin(replicas="")

    def lose(_: str) -> None:
        if bed.owns(bed.target):
            raise Unreachable("the response is lost")

    bed.lab.redis.after = lose
    async with paths(bed) as path:
        with pytest.raises(Unreachable):
            await path._hand_over([SLOT], acknowledge=False)
        with pytest.raises(Loading, match="it received slots 0 s ago"):
            require_settled(path.target, path.source, PATIENCE)


async def test_node_that_received_no_slot_gives_slots_at_once() -> None:
    async with paths(await Bed.begin(replicas="")) as path:
        await path._hand_over([], acknowledge=False)
        require_settled(path.target, path.source, PATIENCE)


async def test_node_that_received_a_slot_from_a_job_of_the_servers_gives_none_yet() -> None:
    bed = await Bed.begin(opened=False, replicas="")
    for name in "abc":
        bed.process(name).engine, bed.process(name).version = "valkey", "9.0.1"
    await bed.move()
    assert bed.owns(bed.target)
    async with ends(bed) as (one, other):
        with pytest.raises(Loading, match="it received slots 0 s ago"):
            require_settled(other, one, PATIENCE)


async def test_node_that_was_assigned_a_slot_gives_none_yet() -> None:
    bed = await Bed.begin(opened=False, replicas="")
    nodes = {bed.process(name).node.id: Endpoint(f"demo-{name}", bed.lab.address(name)[0], name) for name in "abc"}
    for name in "abc":
        bed.process(name).engine, bed.process(name).version = "valkey", "8.1.1"
        await bed.lab.cluster(name, "DELSLOTS", SLOT)
    await assign_slots(bed.lab.redis.connect, Access(), nodes, bed.process(bed.source).node.id, Slots.of(SLOT))
    assert bed.owns(bed.source)
    async with ends(bed) as (one, other):
        with pytest.raises(Loading, match="it received slots 0 s ago"):
            require_settled(one, other, PATIENCE)


async def test_source_that_has_just_received_a_slot_gives_none_to_valkey_8() -> None:
    """A message of before would let the target take it over, and the source would delete the keys."""
    bed = await Bed.begin(opened=False, replicas="")
    for name in (bed.source, bed.target):
        bed.process(name).engine, bed.process(name).version = "valkey", "8.1.1"
    keys = dict(bed.keys(bed.source))
    outdated = build_message(bed.process(bed.target), bed.lab.redis.turn)._replace(gossip=())
    await bed.move()
    assert bed.owns(bed.target)
    source, target = bed.target, bed.source
    bed.source, bed.target = source, target

    def before(what: str) -> None:
        if what.startswith("MIGRATE"):
            receive(bed.lab.redis, bed.process(target), outdated)

    bed.before = before
    with pytest.raises(Loading, match=r"No slot moves from demo-. yet: it received slots 0 s ago"):
        await bed.move()
    bed.before = lambda _: None  # such a message cannot arrive any more
    bed.process(source).settings["cluster-node-timeout"] = "20"
    await asyncio.sleep(0.02)
    await bed.move()
    assert bed.owns(target)
    assert {*keys} <= {*bed.keys(source), *bed.keys(target)}
