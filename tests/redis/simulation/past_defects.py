"""Past defects of the Redis operator (`tests.support.past_defects`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial

import pytest

from operators.redis import observe, plan
from operators.redis.client.commands import Meet
from operators.redis.facts.assessment import Assessment
from operators.redis.facts.moves import MoveFacts
from operators.redis.migration import commands
from operators.redis.migration.key_by_key import KeyByKeyPath
from operators.redis.objects import pod
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move, RecordedMove
from operators.redis.state.observed import Observed
from operators.redis.steps import (
    configuration,
    data_loss_recovery,
    live_config,
    membership_repair,
    open_slots,
    rebalance,
)
from shared.kubernetes.client import Request
from shared.kubernetes.kinds import POD, Obj
from shared.runtime.plan import PASS, Step
from simulator.faults import CALL, Crash
from simulator.redis.client import Entry
from simulator.redis.node import slot_of
from simulator.redis.process import Process
from tests.harness.scenario import ScenarioStep, at_once, later, limit_turns, operator_down
from tests.harness.scenario_runner import ScenarioRun
from tests.redis.simulation.courses import claimed
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.losses import DAY, SUBJECT, destroyed, hidden, hosts, moved, on_hosts, returned, shard_of
from tests.redis.simulation.moving_slots import Shape, healed, redis_of, settled, start_of, status
from tests.redis.simulation.test_crash_matrix import Kill
from tests.redis.simulation.test_mutations import reports_every_replica_as_synced
from tests.redis.simulation.test_provenance import owner_of, stopped_before_the_first_slot
from tests.redis.simulation.test_replication_links import begun as begun_with_tenant
from tests.redis.simulation.test_replication_links import lead_astray
from tests.support.past_defects import PastDefect, RemoveFix, tokens_identify_no_occurrence
from tests.support.plays import begun, begun_once, ready, run
from tests.support.pod_loss import delete_now
from tests.support.redis.scenarios import NAME, cluster, recovery_confirmed

ON_VOLUMES, LARGER, ON_HOSTS = cluster(6), cluster(8), on_hosts()
NOTHING: Obj = {"config": {"appendonly": "no", "save": ""}}
SNAPSHOTS: Obj = {"config": {"appendonly": "no"}}

Patch = pytest.MonkeyPatch


# Fixes that are removed.


def replaces_keys_at_the_target(patch: Patch) -> None:
    """Take the copy at the target for outdated, also if a replica of the source took over."""
    patch.setattr(KeyByKeyPath, "_is_promoted", lambda *_: False)


def ignores_replicas_of_the_target(patch: Patch) -> None:
    patch.setattr(MoveFacts, "acknowledges_moves", False)


def process_resumes_as_the_same_node(patch: Patch) -> None:
    """Let a restarted process keep its identity, and serve its replicas at once."""
    for module in (pod, configuration):
        for name in ("starts_afresh", "starts_waiting"):
            patch.setattr(module, name, lambda *_: False)


def forgets_keys_in_doubt(patch: Patch) -> None:
    async def nothing(*_: object) -> None:
        pass

    for name in ("_remove_late", "_settle_doubts", "_record_doubts"):
        patch.setattr(KeyByKeyPath, name, nothing)


def finishes_any_open_slot(patch: Patch) -> None:
    """Take each importing mark for one of the operator, and do not check for keys of unknown origin."""

    def marked(seen: Assessment) -> tuple[RecordedMove, ...]:
        found: dict[tuple[str, str], list[int]] = {}
        for node in seen.view.reachable_nodes:
            for slot in node.line.importing if node.is_primary else ():
                if owner := seen.view.owners.get(slot):
                    found.setdefault((owner, node.id), []).append(slot)
        return tuple(RecordedMove(*ends, Slots.of(*slots), promoted=True) for ends, slots in found.items())

    patch.setattr(MoveFacts, "recorded_moves", property(marked))


def records_all_planned_slots(patch: Patch) -> None:
    """Record each move before the first command, instead of each slot before it is opened."""

    def call(seen: Assessment, moves: tuple[Move, ...]) -> commands.MoveSlots:
        made = open_slots_call(seen, moves)
        planned = tuple(RecordedMove(move.source, move.target, move.slots) for move in moves)
        return dataclasses.replace(made, recorded=planned)

    open_slots_call = open_slots.move_call
    for module in (open_slots, rebalance):
        patch.setattr(module, "move_call", call)


def sees_claims_by_their_labels(patch: Patch) -> None:
    async def none(*_: object) -> dict[int, Obj]:
        return {}

    patch.setattr(observe, "_unlabelled", none)


def unreachable_primaries_are_lost(patch: Patch) -> None:
    """Take a cluster without a reachable primary for lost, once a user has confirmed any loss."""

    def is_lost(seen: Assessment) -> bool:
        recovery = seen.resource.spec.recovery
        return recovery is not None and not any(primary.answers for primary in seen.view.primaries)

    patch.setattr(data_loss_recovery, "restarts_empty", is_lost)


def former_copy_counts_for_ever(patch: Patch) -> None:
    """Let a replica that was once in sync replace its primary, regardless of what it has now."""
    patch.setattr(Observed, "may_replace", Observed.has_data_of)


def persistence_ends_before_pods_are_ready_for_it(patch: Patch) -> None:
    for module in (configuration, live_config):
        patch.setattr(module, "keeps_persistence", lambda _: False)


def meets_only_nodes_of_the_spec(patch: Patch) -> None:
    """Update no address of a node beyond spec.replicas, nor at such a node."""

    def update(seen: Assessment) -> Step:
        step, size = membership_repair.update_addresses(seen), seen.resource.spec.replicas
        staying = {instance.name: instance.id for instance in seen.instances if instance.number < size}
        meets = [
            dataclasses.replace(action, via=via)
            for action in step.actions
            if isinstance(action, Meet) and action.id in staying.values()
            if (via := tuple(each for each in action.via if each.name in staying))
        ]
        return dataclasses.replace(step, actions=tuple(meets)) if meets else PASS

    patch.setattr(plan, "update_addresses", update)


# Courses.


def restarted(redis: FakeRedis, processes: Iterable[Process]) -> ScenarioStep:
    """Restart the containers of servers within the node timeout."""

    def act(_: object) -> None:
        for process in processes:
            redis.stop(process, "killed")

    return ScenarioStep("containers restart", act, unobserved=True)


def primaries_of(redis: FakeRedis) -> list[Process]:
    return [each for each in redis.running if each.node.me.slots and each.cluster == NAME]


async def source_fails_between_batches(remove_fix: RemoveFix) -> None:
    """A replica of the source is elected while keys of its open slots are at the target, and clients write there."""
    start = await start_of(Shape())
    remove_fix()
    play = ScenarioRun(start.world.fork())
    redis = redis_of(play.world)
    migrations = [number for number, what in enumerate(start.points) if what.startswith("MIGRATE")]
    kill = Kill(redis, start.source, migrations[len(migrations) // 2], "elected")

    def strike(what: str) -> None:
        if redis.violations:  # what follows from a loss is of no interest
            raise Crash(f"before {what}", Request(CALL, what))
        kill(what)

    redis.fault = strike
    await play.step(start.step)
    await healed(play)


async def target_is_lost_whose_replica_stopped(remove_fix: RemoveFix) -> None:
    """The replica of the target receives nothing from the first open slot on; then the target is destroyed."""
    start = await start_of(Shape())
    remove_fix()
    play = ScenarioRun(start.world.fork())
    redis = redis_of(play.world)

    def stops(what: str) -> None:
        if what.startswith("CLUSTER SETSLOT"):
            redis.lagging |= {replica.pod for replica in redis.replicas_of(redis.named(start.target))}

    redis.after = stops
    await play.step(start.step)
    redis.after = str
    await run(play, destroyed([start.target]))
    play.world.require_safe()


async def key_is_deleted_after_a_late_restore(remove_fix: RemoveFix) -> None:
    """A target executes RESTORE three seconds after the time-out; clients have deleted these keys meanwhile."""
    start = await start_of(Shape())
    remove_fix()
    play = ScenarioRun(start.world.fork())
    redis = redis_of(play.world)
    redis.stalled.add(start.target)
    redis.lateness = 3.0

    def delete(what: str) -> None:
        if redis.done["timed out"] and not redis.client.idle:
            redis.client.idle = True
            for late in redis.late:
                assert redis.client.send(redis, late.key, "DEL"), f"no server accepts DEL {late.key!r}"

    redis.after = delete
    await play.step(start.step)
    assert redis.done["timed out"]
    redis.after = str
    await play.wait(10, times=3)


def keys_of(redis: FakeRedis, slots: int, count: int) -> tuple[bytes, ...]:
    """Let clients write keys of some slots, and return them."""
    keys: list[bytes] = []
    number = 0
    while len(keys) < count:
        key = b"stored:%d" % number
        number += 1
        if slots >> slot_of(key) & 1:
            keys.append(key)
    redis.client.add((), tuple(keys))
    redis.settle("clients write")
    return tuple(keys)


def deleted_by_clients(redis: FakeRedis, keys: Iterable[bytes]) -> None:
    for key in keys:
        assert redis.client.send(redis, key, "DEL")


async def primary_resumes_with_keys_that_were_deleted(remove_fix: RemoveFix) -> None:
    """A primary restarts with data from before some of its slots moved, and marks these slots as importing."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    source = primaries_of(redis)[0]
    keys = keys_of(redis, source.node.me.slots, 120)
    await play.wait(1)
    older = {key: source.node.keys[key] for key in keys}
    await run(play, (LARGER,))
    deleted_keys = [key for key in keys if not source.node.me.slots >> slot_of(key) & 1]
    assert deleted_keys
    deleted_by_clients(redis, deleted_keys)
    redis.client.idle = True  # nothing creates these keys again
    await play.wait(1)
    remove_fix()
    source.node.keys |= {key: older[key] for key in deleted_keys}
    redis.stop(source, "killed")
    play.world.settle_workloads()  # the container is back before a replica is elected
    await play.wait(5, times=4)


async def planned_move_never_began(remove_fix: RemoveFix) -> None:
    """The target restarts with older data, and a replica of the source takes over, before any slot is open."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    older: dict[str, dict[bytes, Entry]] = {}
    keys = {process.pod: keys_of(redis, process.node.me.slots, 60) for process in primaries_of(redis)}
    await play.wait(1)
    for process in primaries_of(redis):
        older[process.pod] = {key: process.node.keys[key] for key in keys[process.pod]}
    await run(play, (LARGER,))
    target, deleted_keys = await _returning(play, older)
    source = owner_of(redis, deleted_keys[0])
    deleted_keys = [key for key in deleted_keys if owner_of(redis, key) is source]
    remove_fix()
    await stopped_before_the_first_slot(play, ON_VOLUMES)
    deleted_by_clients(redis, deleted_keys)
    redis.client.idle = True
    later(2).act(play.stage)
    redis.advance()
    target.node.keys |= {key: older[target.pod][key] for key in deleted_keys}
    redis.stop(target, "killed")
    play.world.settle_workloads()
    assert redis.named(target.pod).node.importing, "the server marks slots of its stray keys by itself"
    redis.failing[source.pod] = "NodeLost"
    redis.stop(source, "killed")
    later(12).act(play.stage)
    redis.advance()
    play.begin()
    redis.failing.clear()
    await play.wait(20, times=6)


async def _returning(play: ScenarioRun, older: dict[str, dict[bytes, Entry]]) -> tuple[Process, list[bytes]]:
    """Return a primary to which slots return that it had before, and its keys of these slots."""
    after = redis_of(await settled(play.world.fork(), ON_VOLUMES))
    for process in primaries_of(redis_of(play.world)):
        had = older.get(process.pod, {})
        gained = after.named(process.pod).node.me.slots & ~process.node.me.slots
        if found := [key for key in had if gained >> slot_of(key) & 1]:
            return process, found
    raise AssertionError("no slot returns to a former owner")


async def container_of_a_primary_restarts(given: Obj, remove_fix: RemoveFix) -> None:
    remove_fix()
    play = await begun(SUBJECT, cluster(6, **given))
    redis = redis_of(play.world)
    await run(play, (later(5),))
    await run(play, (restarted(redis, primaries_of(redis)[:1]), later(30)))


async def container_restarts_while_persistence_is_switched_off(remove_fix: RemoveFix) -> None:
    """Pods are replaced by hand (OnDelete), so that each still starts with the identity that it had."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    remove_fix()
    by_hand: Obj = {"pod": [{"updateStrategy": {"type": "OnDelete"}}]}
    await run(play, (cluster(6, **NOTHING, **by_hand), later(60)))
    await run(play, (restarted(redis, primaries_of(redis)[:1]), later(30)))


async def another_user_has_the_next_claim(remove_fix: RemoveFix) -> None:
    play = await begun_once(SUBJECT, ON_VOLUMES)
    remove_fix()
    await run(play, (claimed(6), cluster(7)))
    play.world.require_safe()


async def link_stays_at_a_foreign_server(remove_fix: RemoveFix) -> None:
    """The former address of a primary is that of a server of another tenant, which accepts any password."""
    play, redis = await begun_with_tenant()
    remove_fix()
    lead_astray(redis, is_hostile=True)
    await play.wait(30, times=2)


async def one_shard_is_lost_and_the_others_are_hidden(remove_fix: RemoveFix) -> None:
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    await run(play, destroyed(shard_of(redis)))
    assert ready(play)["reason"] == "SlotsLost"
    others = [process.pod for process in primaries_of(redis)]
    remove_fix()
    await run(play, operator_down(recovery_confirmed(), hidden(others)))
    play.begin()
    await run(play, (later(30), hidden(()), later(60)))
    assert status(play)["formed"] is True


async def replica_was_emptied(remove_fix: RemoveFix) -> None:
    """A replica loses its keys, as in a full sync that broke off, and its primary is destroyed."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    redis.partitions = {replica: 1}
    waits = (later(30), later(30), later(30), later(30), later(300))
    await run(play, operator_down(*destroyed([primary]), *waits))
    redis.roll_back(replica, {})
    remove_fix()
    redis.partitions.clear()
    play.begin()
    await run(play, (later(30), later(30)))
    assert ready(play)["reason"] == "SlotsLost", ready(play)


async def confirmed_loss_ended_and_comes_again(remove_fix: RemoveFix) -> None:
    """A drain moves the pods of a shard away from their data, again and again; the first time a user confirms."""
    play = await begun_once(SUBJECT, ON_HOSTS)
    redis, at = redis_of(play.world), hosts(play.stage)
    remove_fix()
    pods = shard_of(redis)
    await run(play, (moved(pods), later(30)))
    assert ready(play)["reason"] == "DataAway"
    await run(play, operator_down(recovery_confirmed(), *returned(at, pods)))
    play.begin()
    await run(play, (later(60),))
    assert ready(play)["reason"] == "Ready"
    await run(play, (later(300 * DAY), moved(pods), later(30), later(30)))


async def all_pods_restart_during_a_scale_in(remove_fix: RemoveFix) -> None:
    play = await begun_once(SUBJECT, LARGER)
    remove_fix()
    pods = [found["metadata"]["name"] for found in play.stage.find(POD)]
    await run(play, (limit_turns(ON_VOLUMES, 2), *at_once(*(delete_now(POD, each) for each in pods)), later(60)))
    await run(play, (later(60), later(60)))
    found = ready(play)
    assert found["reason"] == "Ready", f"the change never ends: {found['reason']}: {found['message']}"


DEFECTS = (
    PastDefect(
        "R1",
        "Keys that clients created again at a promoted source replace those that had moved.",
        replaces_keys_at_the_target,
        source_fails_between_batches,
        "acknowledged writes are lost: no server has .*, which was",
        level="nightly",
    ),
    PastDefect(
        "R2",
        "Keys move to a primary whose replicas receive nothing, and exist on one process alone.",
        ignores_replicas_of_the_target,
        target_is_lost_whose_replica_stopped,
        "acknowledged writes are lost: no server has",
    ),
    PastDefect(
        "R4",
        "Without persistence, a container that restarts resumes as an empty primary, and its replicas copy that.",
        process_resumes_as_the_same_node,
        partial(container_of_a_primary_restarts, NOTHING),
        "discards the only copy of",
    ),
    PastDefect(
        "R7",
        "A key that was deleted after MIGRATE timed out is alive again, because the target executes RESTORE late.",
        forgets_keys_in_doubt,
        key_is_deleted_after_a_late_restore,
        "was deleted, and comes back",
    ),
    PastDefect(
        "R17",
        "Slots that a server marked as importing by itself are moved to its older data: deleted keys come back.",
        finishes_any_open_slot,
        primary_resumes_with_keys_that_were_deleted,
        "was deleted, and comes back",
        level="nightly",  # the longest case, next to another of the same report
    ),
    PastDefect(
        "C1",
        "A claim that another user created is used, because it has the name of a pod of the cluster.",
        sees_claims_by_their_labels,
        another_user_has_the_next_claim,
        "which uses the volume data-cache-6 of another user",
    ),
    PastDefect(
        "C8",
        "A replica that is connected to a server of another tenant counts as a copy of its primary.",
        reports_every_replica_as_synced,
        link_stays_at_a_foreign_server,
        "is reported as synced, though it is connected to other-",
    ),
    PastDefect(
        "N1",
        "The consent to the loss of one shard creates the whole cluster again while the others are out of reach.",
        unreachable_primaries_are_lost,
        one_shard_is_lost_and_the_others_are_hidden,
        "records that cache is not formed, though the disks of",
    ),
    PastDefect(
        "N2",
        "A replica that has lost its data replaces its primary, because it once had all of it.",
        former_copy_counts_for_ever,
        replica_was_emptied,
        "takes over by FORCE, though it has not had all data of",
    ),
    PastDefect(
        "N3",
        "Persistence ends live in all servers, while each pod still starts with its identity.",
        persistence_ends_before_pods_are_ready_for_it,
        container_restarts_while_persistence_is_switched_off,
        "discards the only copy of",
    ),
    PastDefect(
        "N3",
        "A primary that restarts within the node timeout wipes its replicas to its last snapshot.",
        process_resumes_as_the_same_node,
        partial(container_of_a_primary_restarts, SNAPSHOTS),
        "discards the only copy of",
        variant="snapshots",
    ),
    PastDefect(
        "N4",
        "A confirmation is never spent: the same pods, drained 300 days later, are given up.",
        partial(tokens_identify_no_occurrence, module=data_loss_recovery),
        confirmed_loss_ended_and_comes_again,
        "which owns|without consent",
    ),
    PastDefect(
        "N5",
        "Nodes beyond spec.replicas are never met at a new address: the change, and all healing after it, stops.",
        meets_only_nodes_of_the_spec,
        all_pods_restart_during_a_scale_in,
        "the change never ends: Scaling",
    ),
    PastDefect(
        "N6",
        "A move that was only planned is finished after a failover of its source: deleted keys come back.",
        records_all_planned_slots,
        planned_move_never_began,
        "was deleted, and comes back",
    ),
)
