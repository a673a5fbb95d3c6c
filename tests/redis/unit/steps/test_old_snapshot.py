"""A primary without an append-only file, which restarted within the node timeout with its last snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from operators.redis.client.commands import ApplyDirective
from operators.redis.facts.assessment import Assessment
from operators.redis.objects.names import CONTAINER
from operators.redis.objects.redis_conf import AWAITED, AWAITED_REPLICA, DELAY, DELAYED_SYNC, live
from operators.redis.state.observed import Observed
from operators.redis.steps import configuration, old_snapshot
from shared.runtime.plan import Apply, Plan
from tests.redis.unit.world import NOW, PLANNER, At, assess, cluster, formed, node_id, of, seen, stored

P0, P1, P2, R0, R1, R2 = formed()
SNAPSHOTS: dict[str, Any] = {"config": {"appendonly": "no"}}
STARTED = {DELAY: DELAYED_SYNC[DELAY], AWAITED: "1"}
"""Settings with which a server starts."""

WAITING = replace(R0, synced=False)
"""A replica that waits for a transfer, and has kept its data."""


def planned(at: list[At], started: set[int], *, cut_off: bool = False, **spec: Any) -> Plan:
    """Plan for nodes of which some have the settings of their start, and the others those of the spec.

    Args:
        cut_off: whether replica 3 has no link to primaries 1 and 2.
    """
    resource = cluster(*at, **{**SNAPSHOTS, **spec})
    found = seen(resource, *at)
    instances = []
    for one in found.instances:
        settings = {**live(resource), **(STARTED if one.number in started else {})}
        pod = dict(one.pod_obj or {})
        pod["spec"] = {**pod.get("spec", {}), "containers": [{"name": CONTAINER, "args": [f"--{DELAY}", "2147483647"]}]}
        report = replace(one.report, settings=settings) if one.report else None
        if report and cut_off and one.number == 3:
            unlinked = {node_id(1), node_id(2)}
            report = replace(
                report, nodes=tuple(replace(each, linked=each.id not in unlinked) for each in report.nodes)
            )
        instances.append(replace(one, report=report, pod_obj=pod if one.pod_obj else None))
    found = replace(found, instances=tuple(instances))
    return PLANNER.plan(resource, replace(found, config_map=_config_map(resource, found)), NOW)


def _config_map(resource: Any, found: Observed) -> Any:
    (action,) = configuration.ensure_config_map(assess(resource, found)).actions
    assert isinstance(action, Apply)
    return action.obj


def released(made: Plan) -> set[str]:
    """Names of the nodes that get the desired settings."""
    calls = [each.call for each in of(made.actions, "Attempt")]
    return {each.at.name for each in calls if isinstance(each, ApplyDirective) and each.name == DELAY}


def test_replica_with_newer_keys_than_the_snapshot_of_its_primary_takes_over() -> None:
    made = planned([P0, P1, P2, WAITING, R1, R2], {0})
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode, call.resumed) == (node_id(3), "FORCE", True)
    assert made.verdict.reason == "TakingOver"
    assert made.verdict.message == (
        "demo-0 restarted with its last snapshot, and demo-3 has newer keys; demo-3 is taking over."
    )
    assert released(made) == set(), "the replica would copy the snapshot"


@pytest.mark.parametrize(
    ("copy", "started"),
    [
        (WAITING, {0, 3}),
        (replace(WAITING, copied=False), {0}),
        (replace(WAITING, syncing=True), {0}),
        (replace(WAITING, loading=True), {0}),
        (replace(WAITING, keys=0, had_keys=True), {0}),
        (R0, {0}),
        (replace(WAITING, up=False, pod=False), {0}),
    ],
    ids=["restarted as well", "never in sync", "copies already", "loads", "was emptied", "in sync", "does not exist"],
)
def test_primary_continues_with_its_snapshot_if_no_replica_has_newer_keys(copy: At, started: set[int]) -> None:
    made = planned([P0, P1, P2, copy, R1, R2], started)
    assert of(made.actions, "FailOver") == []
    assert "demo-0" in released(made)
    assert "demo-3" not in released(made), "only a replica in sync counts as a copy later"


@pytest.mark.parametrize(
    ("snapshot", "offset", "takes_over"),
    [
        (("h", 1001), 1000, False),
        (("h", 1000), 1000, True),
        (("h", 999), 1000, True),
        (("h", 1001), 1, True),
        (("another", 1001), 1000, True),
        (("", -2), 1000, True),
    ],
    ids=["newer snapshot", "the same", "older snapshot", "unknown offset", "another history", "before redis 7.0"],
)
def test_replica_that_lacks_writes_of_the_snapshot_does_not_take_over(
    snapshot: tuple[str, int], offset: int, *, takes_over: bool
) -> None:
    made = planned([replace(P0, snapshot=snapshot), P1, P2, replace(WAITING, offset=offset), R1, R2], {0})
    assert (len(of(made.actions, "FailOver")), "demo-0" in released(made)) == (int(takes_over), not takes_over)


def test_replica_without_a_majority_of_the_primaries_does_not_take_over_yet() -> None:
    made = planned([P0, P1, P2, WAITING, R1, R2], {0}, cut_off=True)
    assert (of(made.actions, "FailOver"), released(made)) == ([], set())
    assert made.verdict.message.startswith(
        "demo-0 restarted with its last snapshot. demo-3 is to take over, but does not reach demo-1, demo-2: without "
        "them no majority of the primaries can elect it."
    )


def test_replica_takes_over_although_that_of_another_shard_cannot_be_elected() -> None:
    made = planned([P0, P1, P2, WAITING, replace(R1, synced=False), R2], {0, 1}, cut_off=True)
    assert [call.id for call in of(made.actions, "FailOver")] == [node_id(4)]


def test_replica_takes_over_from_an_old_snapshot_although_that_of_a_lost_primary_cannot_be_elected() -> None:
    lost = replace(P0, up=False, failed=True, disk="another")
    made = planned([lost, P1, P2, WAITING, replace(R1, synced=False), R2], {1}, cut_off=True)
    assert [call.id for call in of(made.actions, "FailOver")] == [node_id(4)]


def test_primary_waits_for_a_replica_that_starts() -> None:
    made = planned([P0, P1, P2, replace(WAITING, up=False), R1, R2], {0})
    assert (of(made.actions, "FailOver"), released(made)) == ([], set())
    assert made.verdict.message.startswith(
        "demo-0 restarted with its last snapshot. Waiting for demo-3, which may have newer keys."
    )


def test_most_advanced_replica_takes_over_and_one_that_is_deleted_last() -> None:
    at = [P0, P1, P2, replace(WAITING, offset=7, leaving=True), R1, R2, replace(WAITING, offset=5)]
    (call,) = of(planned(at, {0}).actions, "FailOver")
    assert call.id == node_id(6)
    (call,) = of(planned([*at[:6], replace(WAITING, offset=9)], {0}).actions, "FailOver")
    assert call.id == node_id(6)


def test_node_that_is_to_be_removed_accepts_writes_again() -> None:
    """The node must give its keys away, which deletes them there."""
    slots = P2.slots.split("-")
    last = At(f"16000-{slots[1]}", keys=10)
    at = [P0, P1, replace(P2, slots=f"{slots[0]}-15999"), R0, R1, R2, last]
    assert "demo-6" in released(planned(at, {6}, replicas=6))


def test_primary_of_the_former_series_serves_its_replicas_so_that_the_rolling_update_continues() -> None:
    former = replace(P0, version="7.4.2")
    made = planned([former, P1, P2, replace(WAITING, copied=False), R1, R2], {0})
    sent = [each.call.name for each in of(made.actions, "Attempt") if isinstance(each.call, ApplyDirective)]
    assert "demo-0" in released(made)
    assert set(sent) <= {*DELAYED_SYNC, *AWAITED_REPLICA}, "it reads the other settings when its pod is recreated"


def test_restarted_replica_in_sync_may_be_promoted_later() -> None:
    assert released(planned(formed(), {3})) == {"demo-3"}


def test_primary_that_started_with_a_log_is_not_replaced() -> None:
    """The log is switched on, and the pods still have the settings of a server with snapshots."""
    made = planned([P0, P1, P2, WAITING, R1, R2], {0}, config={})
    assert of(made.actions, "FailOver") == []
    assert released(made) == {"demo-0"}


@pytest.mark.parametrize("primaries", [3, 12])
def test_desired_settings_are_computed_as_often_for_many_primaries(
    primaries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may set the delay with which servers start. Then each primary with a log seems to have just started."""
    at = formed(primaries)
    resource = cluster(*at, config={DELAY: DELAYED_SYNC[DELAY]})
    found, computed = seen(resource, *at), list[str]()
    settings = dict(live(resource))
    instances = (
        replace(each, report=replace(each.report, settings=settings)) for each in found.instances if each.report
    )
    found = replace(found, instances=tuple(instances))
    found = replace(found, config_map=stored(_config_map(resource, found)))

    def counted(view: Assessment) -> Mapping[str, str]:
        computed.append(view.resource.name)
        return configuration.live_settings(view)

    monkeypatch.setattr(old_snapshot, "live_settings", counted)
    assert PLANNER.plan(resource, found, NOW).verdict.reason == "Ready"
    assert len(computed) == 1


def logged(others: str, *, spec: dict[str, Any], former: bool = False) -> Plan:
    """Plan while the applied file has the log, and demo-0 has started with it.

    Args:
        others: appendonly of the other servers.
        former: whether the pod of the last one is not replaced yet: its process does not start waiting.
    """
    at = [P0, P1, P2, WAITING, R1, R2]
    resource, found = cluster(*at, **spec), seen(cluster(*at), *at)
    instances = []
    for one in found.instances:
        settings = {**live(resource), "appendonly": others}
        settings |= {**STARTED, "appendonly": "yes"} if one.number == 0 else {}
        args = [] if former and one.number == 5 else [f"--{DELAY}", "2147483647"]
        pod = {**(one.pod_obj or {}), "spec": {"containers": [{"name": CONTAINER, "args": args}]}}
        assert one.report
        instances.append(replace(one, report=replace(one.report, settings=settings), pod_obj=pod))
    file = stored(_config_map(cluster(*at), Observed()))
    return PLANNER.plan(resource, replace(found, instances=tuple(instances), config_map=file), NOW)


@pytest.mark.parametrize("spec", [SNAPSHOTS, {}], ids=["not applied to the file yet", "reverted"])
def test_log_that_servers_no_longer_wrote_is_not_all_data(spec: dict[str, Any]) -> None:
    """Servers switched their logs off; then the write of the file was refused for an hour, and a primary restarted."""
    made = logged("no", spec=spec)
    assert [call.id for call in of(made.actions, "FailOver")] == [node_id(3)]
    assert released(made) == set()
    assert "demo-0 restarted with its last append-only file, and demo-3 has newer keys" in made.verdict.message


def test_log_that_is_on_until_all_pods_are_replaced_is_all_data() -> None:
    """The pods already have the settings of a server with snapshots, but each server keeps its log until then."""
    made = logged("yes", spec=SNAPSHOTS, former=True)
    assert (of(made.actions, "FailOver"), released(made)) == ([], {"demo-0"})


def test_log_is_not_switched_on_before_it_is_decided_whether_a_snapshot_is_old() -> None:
    """A primary with a log counts as one that has all its data."""
    resource, at = cluster(*formed()), [P0, P1, P2, WAITING, R1, R2]
    found = seen(resource, *at)
    snapshots = dict(live(cluster(*at, **SNAPSHOTS)))
    instances = tuple(
        replace(each, report=replace(each.report, settings=snapshots | (STARTED if each.number == 0 else {})))
        for each in found.instances
        if each.report
    )
    found = replace(found, instances=instances)
    file = _config_map(cluster(*at, **SNAPSHOTS), Observed())
    made = PLANNER.plan(resource, replace(found, config_map=file), NOW)
    calls = [each.call for each in of(made.actions, "Attempt")]
    assert {each.at.name for each in calls if each.name == "appendonly"} == {f"demo-{number}" for number in range(1, 6)}
    (call,) = of(made.actions, "FailOver")
    assert call.id == node_id(3)
