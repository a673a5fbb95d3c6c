"""A consent is for one loss, and ends with it; what stays in the spec afterwards consents to nothing.

The guard keeps each consent with the slots that it is for, and ends it as soon as their owner runs.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from shared.kubernetes.kinds import POD
from tests.harness.scenario import ScenarioStep, Stage, at_once, later, limit_turns, operator_down
from tests.harness.scenario_runner import ScenarioRun
from tests.redis.simulation.losses import (
    DAY,
    SUBJECT,
    destroyed,
    hidden,
    hosts,
    moved,
    on_hosts,
    returned,
    shard_of,
    withdrawn,
)
from tests.redis.simulation.moving_slots import redis_of, status
from tests.support.plays import begun, begun_once, ready, run
from tests.support.pod_loss import delete_now
from tests.support.redis.scenarios import cluster, recovery_confirmed, to_redis

ON_VOLUMES, IN_DIRECTORIES = cluster(6), on_hosts()


async def test_consent_to_one_shard_recreates_nothing_while_the_other_primaries_are_out_of_reach() -> None:
    """N1: two thirds of the keys are served all the time, only the operator does not reach their primaries."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    await run(play, destroyed(shard_of(redis)))
    assert ready(play)["reason"] == "SlotsLost"
    others = [process.pod for process in redis.running if process.node.me.slots and not process.node.me.primary]
    await run(play, operator_down(recovery_confirmed(), hidden(others)))
    play.begin()
    await run(play, (later(30),))
    assert status(play)["formed"] is True
    await run(play, (hidden(()), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert redis.state()[0]["slots by primary"] == [5461, 5461, 5462]


@pytest.mark.parametrize("first", [True, pytest.param(False, marks=pytest.mark.nightly)])
async def test_loss_of_a_shard_needs_one_consent_although_the_primary_of_another_one_was_replaced(
    *, first: bool
) -> None:
    """The replica of another shard took over, and the new pod of its primary does not start."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    shard, (replaced, _) = shard_of(redis), shard_of(redis, 1)
    if first:
        await run(play, (*destroyed(shard), later(30)))
    redis.failing[replaced] = "ImagePullBackOff"
    await run(play, (*destroyed([replaced]), later(30)))
    if not first:
        await run(play, (*destroyed(shard), later(30)))
    token = status(play)["recovery"]["token"]
    await run(play, (recovery_confirmed(), later(60), later(60)))
    assert "recovery" not in status(play), token
    assert ready(play)["reason"] == "ImagePullFailed"
    redis.failing.clear()
    await run(play, (later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    redis.guard.require_resolved(redis)


async def test_confirmation_of_a_loss_that_ended_does_not_consent_to_the_same_loss_a_year_later() -> None:
    """N4: a drain moved the pods of a shard away from their data; it came back before the confirmation counted."""
    play = await begun_once(SUBJECT, IN_DIRECTORIES)
    redis, at = redis_of(play.world), hosts(play.stage)
    pods = shard_of(redis)
    await run(play, (moved(pods), later(30)))
    assert ready(play)["reason"] == "DataAway"
    assert "the data of cache-0 is on node-1" in ready(play)["message"]
    await run(play, operator_down(recovery_confirmed(), *returned(at, pods)))
    play.begin()
    await run(play, (later(60),))
    assert ready(play)["reason"] == "Ready"
    for days in (1, 300):
        await run(play, (later(days * DAY), moved(pods), later(30), later(30)))
        assert ready(play)["reason"] == "DataAway", "the same token, in the spec since the first loss"
        await run(play, (*returned(at, pods), later(60)))
        assert ready(play)["reason"] == "Ready"


async def test_former_primary_does_not_replace_its_successor_whose_data_is_on_another_node() -> None:
    """Course 1302: the former primary has none of the writes since, and its successor may come back with them."""
    play = await begun_once(SUBJECT, IN_DIRECTORIES)
    redis, at = redis_of(play.world), hosts(play.stage)
    primary, replica = shard_of(redis)
    redis.failing[primary] = "NodeLost"
    await run(play, (later(30),))
    assert redis.named(replica).node.me.slots
    redis.failing.clear()
    await run(play, (moved((primary, replica)), later(30)))
    assert ready(play)["reason"] == "DataAway"
    await run(play, (moved([primary], [at[primary]]), later(30), later(30)))
    assert ready(play)["reason"] == "DataAway"
    assert f"the data of {replica} is on {at[replica]}" in ready(play)["message"]
    await run(play, (moved([replica], [at[replica]]), later(60)))
    assert ready(play)["reason"] == "Ready"
    redis.guard.require_resolved(redis)


async def succeeded(play: ScenarioRun, number: int = 0) -> tuple[str, str]:
    """Let a primary be away until its replica has taken over, and destroy the replica; return their pods."""
    redis = redis_of(play.world)
    primary, replica = shard_of(redis, number)
    redis.failing[primary] = "NodeLost"
    await run(play, (later(30), later(30)))
    assert redis.named(replica).node.me.slots, "the replica was elected, and takes writes"
    await run(play, (*destroyed([replica]), later(30)))
    return primary, replica


def resumed(play: ScenarioRun, pod: str) -> ScenarioStep:
    """Let a pod that was away run again, on its volume."""
    return ScenarioStep(f"{pod} runs again", lambda _: redis_of(play.world).failing.pop(pod))


async def test_former_primary_serves_its_older_keys_only_with_consent() -> None:
    """Course 5041: the successor's volume is destroyed, and the former primary lacks all writes since the election."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    primary, replica = await succeeded(play)
    assert ready(play)["reason"] == "SlotsUnserved", "the former primary may come back with its keys"
    assert f"waiting for the nodes that may hold their keys. {primary}" in ready(play)["message"]
    await run(play, (resumed(play, primary), later(30)))
    assert ready(play)["reason"] == "SlotsLost"
    assert f"{replica} lost their data: no node has all keys of slots" in ready(play)["message"]
    assert f"{primary} can serve slots" in ready(play)["message"]
    assert status(play)["recovery"]["older"] == [redis.named(primary).node.id]
    await run(play, (recovery_confirmed(), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert redis.named(primary).node.me.slots
    redis.guard.require_resolved(redis)


async def test_replica_that_started_after_its_primary_ended_takes_over_only_with_consent() -> None:
    """Course 6051: it does not know which writes it missed, and is the only node with keys of these slots."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    redis.failing[replica] = "NodeLost"
    await run(play, (later(30), *destroyed([primary]), later(30)))
    assert ready(play)["reason"] == "SlotsUnserved"
    await run(play, (resumed(play, replica), later(30), later(30)))
    assert status(play)["recovery"]["older"] == [redis.named(replica).node.id]
    await requires_consent(play, replica)


@pytest.mark.nightly
async def test_replica_that_lost_its_link_long_before_takes_over_only_with_consent() -> None:
    """Clients wrote for ten minutes to its primary, which then lost its volume."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    redis.partitions = {replica: 1}
    await run(play, (later(600),))
    redis.partitions = {primary: 1}
    await run(play, (*destroyed([primary]), later(30)))
    redis.partitions.clear()
    await run(play, (later(30), later(30)))
    await requires_consent(play, replica)


def killed(play: ScenarioRun, pods: Iterable[str]) -> ScenarioStep:
    """Kill servers, which the kubelet starts again."""
    pods, redis = tuple(pods), redis_of(play.world)

    def act(_: Stage) -> None:
        for pod in pods:
            redis.stop(redis.named(pod), "killed")

    return ScenarioStep(f"the servers in {', '.join(pods)} are killed", act)


async def test_replica_that_lost_its_link_takes_over_only_with_consent_if_all_other_nodes_restarted_since() -> None:
    """Clients wrote for ten minutes, and no node remembers that the primary answered it meanwhile."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    others = [process.pod for process in redis.running if process.pod not in (primary, replica)]
    redis.partitions = {replica: 1}
    await run(play, (later(600),))
    redis.partitions = {primary: 1}
    await run(play, (*operator_down(*destroyed([primary]), killed(play, others), later(30)),))
    redis.partitions.clear()
    play.begin()
    await run(play, (later(30), later(30)))
    await requires_consent(play, replica)


async def test_replica_takes_over_only_with_consent_if_only_nodes_that_were_cut_off_with_it_did_not_restart() -> None:
    """Clients wrote for ten minutes to two of the three primaries, a majority, while the others were cut off."""
    play = await begun(SUBJECT, cluster(6, config={"cluster-require-full-coverage": "no"}))
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    other, _ = shard_of(redis, 1)
    redis.partitions = {primary: 1, other: 1}
    await run(play, (later(600),))
    assert redis.named(primary).serves
    await run(play, (*operator_down(*destroyed([primary]), killed(play, [other]), later(30)),))
    redis.partitions.clear()
    play.begin()
    await run(play, (later(30), later(30)))
    await requires_consent(play, replica)


@pytest.mark.nightly
async def test_replica_takes_over_only_with_consent_if_a_node_that_knows_no_late_answer_was_elected_since() -> None:
    """Clients wrote for ten minutes to a primary that reached two of the other four, and no replica.

    Of these two, one restarts. The other one ends, and its replica is elected, which was cut off from the lost primary
    all the time. That replica has a vote now, but it had none while clients wrote.
    """
    play = await begun(SUBJECT, cluster(10))
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    (restarted, _), (ended, successor) = shard_of(redis, 1), shard_of(redis, 2)
    others = {process.pod for process in redis.running} - {primary, restarted, ended}
    redis.cut = {frozenset((primary, other)) for other in others}
    await run(play, (later(600),))
    assert redis.named(primary).serves
    assert redis.named(successor).linked
    redis.failing[ended] = "NodeLost"
    await run(play, (*operator_down(*destroyed([primary]), killed(play, [restarted]), later(30)),))
    assert redis.named(successor).node.me.slots, "elected after the primary ended"
    redis.cut.clear()
    play.begin()
    await run(play, (resumed(play, ended), later(30), later(30)))
    await requires_consent(play, replica)


async def test_replica_that_lost_its_link_when_its_primary_ended_takes_over_without_consent() -> None:
    """Redis elects it no more after a minute, but two other primaries know since when the lost one served no client."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    redis.partitions = {replica: 1}
    await run(play, (*operator_down(*destroyed([primary]), later(30), later(30), later(30), later(30), later(300)),))
    redis.partitions.clear()
    play.begin()
    await run(play, (later(30), later(30)))
    assert f"CLUSTER FAILOVER at {replica}" in redis.commanded
    assert ready(play)["reason"] == "Ready"
    redis.guard.require_resolved(redis)


async def test_cluster_whose_servers_all_restart_at_once_needs_no_consent() -> None:
    """After a power cut, each primary has its own data, although a replica lost its link long before."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    redis.partitions = {replica: 1}
    await run(play, (later(600),))
    redis.partitions.clear()
    await run(play, (*operator_down(killed(play, [process.pod for process in redis.running]), later(30)),))
    play.begin()
    await run(play, (later(30), later(30)))
    assert ready(play)["reason"] == "Ready"
    assert "recovery" not in status(play)
    assert redis.named(primary).node.me.slots
    assert not [command for command in redis.commanded if command.startswith("CLUSTER FAILOVER")]
    redis.guard.require_resolved(redis)


async def requires_consent(play: ScenarioRun, replica: str) -> None:
    """Require that a replica takes over only once a user has confirmed that it may lack writes."""
    redis = redis_of(play.world)
    assert ready(play)["reason"] == "SlotsLost"
    assert f"{replica} can serve slots" in ready(play)["message"]
    assert f"CLUSTER FAILOVER at {replica}" not in redis.commanded
    await run(play, (recovery_confirmed(), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert redis.commanded.count(f"CLUSTER FAILOVER at {replica}") == 1
    redis.guard.require_resolved(redis)


@pytest.mark.nightly
async def test_former_primary_that_alone_is_left_serves_its_older_keys_only_with_consent() -> None:
    """The nodes that know its successor are lost: it takes itself for the owner, and is the only node that answers.

    A server that starts serves clients from two seconds on (`BOOT`), unless it misses the majority by then.
    """
    play = await begun(SUBJECT, cluster(6, config={"cluster-node-timeout": "1500"}))
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    redis.failing[primary] = "NodeLost"
    await run(play, (later(30), later(30)))
    assert redis.named(replica).node.me.slots
    others = [process.pod for process in redis.running if process.pod != primary]
    redis.failing |= dict.fromkeys(others, "NodeLost")
    del redis.failing[primary]
    await run(play, (*destroyed(others), later(30)))
    redis.failing.clear()
    await run(play, (later(30), later(30)))
    assert [process.pod for process in redis.running if process.node.me.slots] == [primary]
    recovery = status(play)["recovery"]
    assert (recovery["slots"], recovery["older"]) == ("0-16383", [redis.named(primary).node.id])
    assert ready(play)["reason"] == "SlotsLost"
    await run(play, (recovery_confirmed(), later(60), later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert redis.named(primary).node.me.slots
    redis.guard.require_resolved(redis)


async def test_consent_to_older_keys_is_none_to_an_empty_recovery() -> None:
    play = await begun_once(SUBJECT, ON_VOLUMES)
    primary, _ = await succeeded(play)
    await run(play, (resumed(play, primary), later(30)))
    token = status(play)["recovery"]["token"]
    await run(play, operator_down(recovery_confirmed(), *destroyed([primary])))
    play.begin()
    await run(play, (later(60),))
    assert ready(play)["reason"] == "SlotsLost"
    assert status(play)["recovery"]["token"] != token
    assert "older" not in status(play)["recovery"]


@pytest.mark.nightly
async def test_consent_to_an_empty_recovery_is_none_to_serve_older_keys_that_come_back() -> None:
    """The directory of the former primary is away, too, when the user gives the keys up; then its pod returns to it."""
    play = await begun_once(SUBJECT, IN_DIRECTORIES)
    redis, at = redis_of(play.world), hosts(play.stage)
    primary, replica = shard_of(redis)
    redis.failing[primary] = "NodeLost"
    await run(play, (later(30), later(30)))
    redis.failing.clear()
    await run(play, (moved((primary, replica)), later(30)))
    offered = status(play)["recovery"]
    assert ready(play)["reason"] == "DataAway"
    assert f"of {primary} is on {at[primary]}" in ready(play)["message"]
    await run(play, operator_down(recovery_confirmed(), moved([primary], [at[primary]])))
    play.begin()
    await run(play, (later(60),))
    assert ready(play)["reason"] == "DataAway"
    assert status(play)["recovery"]["token"] != offered["token"]
    assert f"{primary} can serve slots" in ready(play)["message"]
    await run(play, (recovery_confirmed(), later(60), later(60)))
    assert ready(play)["reason"] == "Ready"
    redis.guard.require_resolved(redis)


@pytest.mark.nightly
async def test_confirmed_recovery_ends_although_a_replica_was_never_in_sync_with_the_lost_primary() -> None:
    """A replica rejects CLUSTER FORGET for its primary."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    primary, replica = shard_of(redis)
    redis.lagging.add(replica)
    await run(play, (*destroyed([replica]), later(30), *destroyed([primary]), later(30)))
    assert ready(play)["reason"] == "SlotsLost"
    redis.lagging.clear()
    await run(play, (recovery_confirmed(), later(60)))
    assert ready(play)["reason"] == "Ready"
    redis.guard.require_resolved(redis)


@pytest.mark.nightly
async def test_node_that_was_a_primary_meanwhile_is_no_copy_of_its_primary() -> None:
    """The replica took over, then its former primary took over again. The replica was a copy before the first time."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    first, second = await succeeded_twice(play)
    await run(play, (*destroyed([first]), later(30), resumed(play, second), later(30)))
    assert ready(play)["reason"] == "SlotsLost"
    assert f"{second} can serve slots" in ready(play)["message"]
    await run(play, (recovery_confirmed(), later(60)))
    assert ready(play)["reason"] == "Ready"
    redis.guard.require_resolved(redis)


async def succeeded_twice(play: ScenarioRun) -> tuple[str, str]:
    """Let a replica take over from its primary, and that one take over again; return the last primary first."""
    redis = redis_of(play.world)
    first, second = shard_of(redis)
    for primary, replica in ((first, second), (second, first)):
        redis.failing[primary] = "NodeLost"
        await run(play, (later(30),))
        assert redis.named(replica).node.me.slots
        if primary == first:
            await run(play, (limit_turns(resumed(play, first), 3), limit_turns(later(10), 3)))
            assert redis.named(first).linked, "and the operator has not moved the primary back"
    return first, second


@pytest.mark.nightly
async def test_loss_that_ended_and_began_again_without_the_operator_needs_another_consent() -> None:
    """The loss that a user confirmed ended, and the same one began, while no operator ran."""
    play = await begun_once(SUBJECT, IN_DIRECTORIES)
    redis, at = redis_of(play.world), hosts(play.stage)
    pods = shard_of(redis)
    await run(play, (moved(pods), later(30)))
    await run(play, operator_down(recovery_confirmed(), *returned(at, pods), later(60), later(30 * DAY), moved(pods)))
    play.begin()
    await run(play, (later(30), later(30)))
    assert ready(play)["reason"] == "DataAway"
    assert "earlier loss" in ready(play)["message"]


@pytest.mark.nightly
async def test_withdrawn_and_repeated_confirmation_carries_out_the_recovery_once() -> None:
    play = await begun_once(SUBJECT, ON_VOLUMES)
    await run(play, destroyed(shard_of(redis_of(play.world))))
    await run(play, operator_down(recovery_confirmed(), withdrawn()))
    play.begin()
    await run(play, (later(60),))
    assert ready(play)["reason"] == "SlotsLost"
    await run(play, (recovery_confirmed(), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert "recovery" not in status(play)


@pytest.mark.nightly
async def test_next_loss_after_a_recovery_is_not_reported_as_a_refused_token() -> None:
    """N8: spec.recovery.confirm still has the token of the recovery that is finished."""
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    await run(play, (*destroyed(shard_of(redis)), recovery_confirmed(), later(60)))
    assert ready(play)["reason"] == "Ready"
    await run(play, (later(90 * DAY), *destroyed(shard_of(redis, 1)), later(30)))
    assert ready(play)["reason"] == "SlotsLost"
    assert status(play)["recovery"]["token"] in ready(play)["message"]
    await run(play, (recovery_confirmed(), later(60)))
    assert ready(play)["reason"] == "Ready"


@pytest.mark.nightly
@pytest.mark.parametrize("kept", [0, 1], ids=["every node is lost", "one may have keys"])
async def test_cluster_is_created_again_only_if_no_disk_may_have_keys(kept: int) -> None:
    play = await begun_once(SUBJECT, ON_VOLUMES)
    redis = redis_of(play.world)
    pods = [process.pod for process in redis.running]
    if kept:
        redis.failing[pods[0]] = "NodeLost"
    await run(play, (*destroyed(pods[kept:]), later(30)))
    if kept:
        assert ready(play)["reason"] == "SlotsUnserved", "its successor is lost, but it has older keys"
        assert "recovery" not in status(play)
        return
    assert ready(play)["reason"] == "SlotsLost"
    await run(play, (recovery_confirmed(), later(60)))
    assert ready(play)["reason"] == "Ready"
    assert redis.state()[0]["slots by primary"] == [5461, 5461, 5462]


async def test_cluster_without_keys_is_created_again_although_a_replica_is_left() -> None:
    """A replica refuses CLUSTER FORGET for its primary, and CLUSTER ADDSLOTS."""
    idle = to_redis("no client writes", lambda redis: setattr(redis.client, "idle", True))
    play = await begun(SUBJECT, idle, ON_VOLUMES)
    redis = redis_of(play.world)
    [_, left], pods = shard_of(redis), [process.pod for process in redis.running]
    await run(play, (*at_once(delete_now(POD, left), *destroyed(pod for pod in pods if pod != left)), later(60)))
    assert ready(play)["reason"] == "SlotsLost"
    await run(play, (recovery_confirmed(), later(60), later(60)))
    assert ready(play)["reason"] == "Ready", ready(play)["message"]
