"""Rolling updates: the order of the restarts, and what blocks them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from operators.redis.running_cluster import keep_replicas
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.observed import ConfigTemplate, Observed
from operators.redis.steps.configuration import ensure_config_map, live_settings
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status.verdict import Progress
from tests.redis.unit.world import (
    NEW,
    NOW,
    PLANNER,
    At,
    acts,
    assess,
    cluster,
    formed,
    node_id,
    of,
    plan,
    replica,
    seen,
    stored,
    thirds,
    world,
)

P0, P1, P2, R0, R1, R2 = formed()
OLD = [replace(at, old=True) for at in formed()]
OUTDATED_PRIMARIES = [*OLD[:3], R0, R1, R2]
RECENTLY = "2026-01-01T11:59:30Z"
BROKEN = {"up": False, "failed": True, "problem": "CrashLoopBackOff: back-off restarting"}


def planned(*at: At, **more: Any) -> Plan:
    return plan(*world(*at, **more))


def test_replicas_are_restarted_first_one_at_a_time() -> None:
    made = planned(*OLD)
    assert acts(made.actions) == ["evict Pod demo-3"]
    assert (made.verdict.reason, made.status["phase"]) == ("Upgrading", "Upgrading")


def test_primary_is_restarted_only_after_a_failover_to_a_replica() -> None:
    made = planned(*OUTDATED_PRIMARIES)
    (call,) = of(made.actions, "FailOver")
    assert (call.id, call.mode, acts(made.actions)) == (node_id(3), "", [str(call)])
    failed_over = [replica(3, old=True), *OLD[1:3], At(P0.slots), R1, R2]
    assert acts(planned(*failed_over).actions) == ["evict Pod demo-0"], "demo-0 is a replica now"
    failed_over[0] = replica(3, old=True, since="2026-01-01T11:59:56Z")
    assert acts(planned(*failed_over).actions) == [], "clients may not know the new primary yet"


def test_an_updated_replica_is_promoted_before_an_outdated_one() -> None:
    at = [*OLD[:3], replace(R0, old=True), R1, R2, replica(0)]
    rolled = planned(*at)
    assert acts(rolled.actions) == ["evict Pod demo-3"]
    at = [OLD[0], P1, P2, R0, R1, R2, replica(0, old=True, synced=True)]
    (call,) = of(planned(*[*at[:6], replica(0)]).actions, "FailOver")
    assert call.id in (node_id(3), node_id(6))


def test_primary_is_not_restarted_while_its_only_replica_lags() -> None:
    made = planned(*OLD[:3], replace(R0, synced=False), R1, R2)
    assert (made.verdict.reason, made.verdict.warning, acts(made.actions)) == ("RollBlocked", True, [])
    assert made.verdict.message == (
        "Rolling update: 3 of 6 pods are outdated. demo-0 is not recreated yet: demo-3 is not in sync with its "
        "primary yet."
    )


@pytest.mark.parametrize("number", range(4))
def test_primary_is_not_restarted_while_its_only_replica_is_unreachable(number: int) -> None:
    """During a long restart the stale replica could be elected, which would lose acknowledged writes."""
    at = [replace(spot, old=at < 4) for at, spot in enumerate(formed(4))]
    at[4 + number] = replace(at[4 + number], up=False)
    made = planned(*at, replicas=6)
    assert f"evict Pod demo-{number}" not in acts(made.actions)


def test_no_pod_is_restarted_while_a_replica_of_another_shard_lags() -> None:
    made = planned(P0, P1, P2, replace(R0, old=True), R1, replace(R2, synced=False))
    assert (made.verdict.reason, acts(made.actions)) == ("RollBlocked", [])


def test_no_warning_while_a_recreated_replica_catches_up() -> None:
    made = planned(*OLD[:3], replace(R0, synced=False, created=RECENTLY), R1, R2)
    assert (made.verdict.reason, made.verdict.warning, acts(made.actions)) == ("Upgrading", False, [])


def test_update_stops_at_the_first_pod_that_fails_to_start_and_names_the_cause() -> None:
    made = planned(*OLD[:3], replace(R0, created=RECENTLY, **BROKEN), *OLD[4:])  # type: ignore[arg-type]
    assert (made.verdict.reason, acts(made.actions)) == ("RollBlocked", [])
    assert "demo-3 does not start: CrashLoopBackOff: container redis keeps exiting" in made.verdict.message
    assert "demo-3 is already updated. Fix the spec or revert the change" in made.verdict.message


def test_broken_pod_is_recreated_once_the_change_is_corrected() -> None:
    made = planned(*OLD[:3], replace(R0, old=True, **BROKEN), *OLD[4:])  # type: ignore[arg-type]
    assert acts(made.actions) == ["delete Pod demo-3"]


def test_replica_that_is_out_of_sync_is_restarted_first() -> None:
    """After a failover to a newer version, the former primary may not understand the replication stream."""
    at = [replica(3, old=True, synced=False), *OLD[1:3], At(P0.slots), R1, R2]
    assert acts(planned(*at).actions) == ["evict Pod demo-0"]


def test_no_other_pod_is_deleted_while_one_terminates() -> None:
    made = planned(*OLD[:4], replace(R1, leaving=True), R2)
    assert (made.verdict.reason, acts(made.actions)) == ("Upgrading", [])
    assert "demo-4 is being deleted" in made.verdict.message


def test_message_names_what_keeps_a_terminating_pod() -> None:
    resource, found = world(*OLD[:4], replace(R1, leaving=True), R2)
    late = NOW + timedelta(minutes=3)
    made = PLANNER.plan(resource, found, late)
    assert (made.verdict.reason, made.verdict.warning, acts(made.actions)) == ("RollBlocked", True, [])
    assert "demo-4 is being deleted: the deletion should have ended at 2026-01-01T11:59:30Z" in made.verdict.message
    resource, found = world(*OLD[:4], replace(R1, leaving=True, up=False, failed=True), R2)
    instance = found.instances[4]
    assert instance.pod_obj is not None
    instance.pod_obj["metadata"]["finalizers"] = ["example.com/held"]
    ended = (*found.instances[:4], replace(instance, pod=None), found.instances[5])
    made = PLANNER.plan(resource, replace(found, instances=ended), NOW)
    assert (made.verdict.reason, acts(made.actions)) == ("RollBlocked", [])
    assert "demo-4 is being deleted: the pod has ended, but finalizers remain: example.com/held." in (
        made.verdict.message
    )


LOG: Obj = {"appendonly": "yes", "save": ""}
VOLATILE: Obj = {"appendonly": "no", "save": ""}


def alone(settings: Obj, **more: Any) -> list[At]:
    """Return outdated primaries without replicas."""
    return [At(slots, keys=5, old=True, settings=settings, **more) for slots in thirds()]


def test_primary_without_replicas_is_restarted_if_its_volume_has_the_data() -> None:
    made = planned(*alone(LOG), replicasPerMaster=0)
    assert acts(made.actions) == ["evict Pod demo-0"]
    assert "its slots are not served until it is back" in made.verdict.message


SNAPSHOTS: Obj = {"appendonly": "no", "save": "3600 1"}
NOSAVE: Obj = {"shutdown-on-sigterm": "nosave"}
IN_MEMORY_ONLY = "the keys are only in memory"
UNWRITABLE = "writing the append-only file failed: check the space on the volume, and the memory"
ENDS: dict[str, tuple[list[At], Obj, str]] = {
    "no storage": (alone(LOG), {"storage": None}, "no spec.storage"),
    "claim ends": (alone(LOG, claim_leaving=True), {}, "the claim is being deleted"),
    "in memory": (alone(VOLATILE), {"config": VOLATILE}, IN_MEMORY_ONLY),
    "first log not begun": (alone(VOLATILE), {}, IN_MEMORY_ONLY),
    "log about to end": (alone(LOG), {"config": VOLATILE}, IN_MEMORY_ONLY),
    "unknown settings": (alone({}), {}, IN_MEMORY_ONLY),
    "begins as a new node": (alone(SNAPSHOTS, afresh=True), {"config": SNAPSHOTS}, IN_MEMORY_ONLY),
    "refuses writes": (alone(LOG, refuses_writes=True), {}, UNWRITABLE),
    "no snapshot": (
        alone(SNAPSHOTS, save_failed=True),
        {"config": SNAPSHOTS},
        "the last snapshot failed: check the space on the volume, and run BGSAVE",
    ),
    "nosave": (
        alone(SNAPSHOTS | NOSAVE),
        {"config": SNAPSHOTS | NOSAVE},
        "with shutdown-on-sigterm nosave, no snapshot is written",
    ),
}


@pytest.mark.parametrize(("at", "spec", "why"), ENDS.values(), ids=ENDS)
def test_primary_without_replicas_whose_data_ends_with_its_pod_is_not_restarted(
    at: list[At], spec: Obj, why: str
) -> None:
    made = planned(*at, replicasPerMaster=0, **spec)
    assert made.verdict.reason == "RollBlocked"
    assert not {"evict Pod demo-0", "delete Pod demo-0"} & {*acts(made.actions)}
    assert f"({why}). Increase spec.replicas" in made.verdict.message
    assert applied(made, "PodDisruptionBudget")["maxUnavailable"] == 0


def test_log_needs_no_snapshot() -> None:
    made = planned(*alone(LOG | NOSAVE, save_failed=True), replicasPerMaster=0, config=NOSAVE)
    assert acts(made.actions) == ["evict Pod demo-0"]
    assert applied(made, "PodDisruptionBudget")["maxUnavailable"] == 1


@pytest.mark.parametrize("config", [LOG, SNAPSHOTS], ids=["log", "snapshots"])
def test_primary_that_runs_although_no_node_reaches_it_is_not_restarted(config: Obj) -> None:
    """Whether the process writes files is unknown. A drain of its node is possible: the volume has the data."""
    away = At(thirds()[0], old=True, up=False, failed=True, runs=True)
    made = planned(away, *alone(config)[1:], replicasPerMaster=0, config=config)
    assert (made.verdict.reason, acts(made.actions)) == ("RollBlocked", [])
    assert "it is unreachable, and its data, which may be the only copy" in made.verdict.message
    assert applied(made, "PodDisruptionBudget")["maxUnavailable"] == 1


def test_last_valid_file_of_the_user_counts() -> None:
    resource, found = world(*alone(SNAPSHOTS), replicasPerMaster=0, pod=[{"configmap": "mine"}])
    files = ConfigTemplate("appendonly no\nsave 60 1\n")
    [file] = of(ensure_config_map(assess(resource, replace(found, config=files))).actions, "Apply")
    for text in (files, ConfigTemplate('appendonly no\nsave ""\nhz "43\n')):
        made = plan(resource, replace(found, config_map=stored(file.obj), config=text))
        assert "evict Pod demo-0" in acts(made.actions)


@pytest.mark.parametrize("replicas", [3, 6], ids=["are removed", "become primaries"])
def test_replicas_of_keys_in_memory_stay_until_all_pods_have_restarted(replicas: int) -> None:
    in_memory = [replace(at, settings=VOLATILE) for at in OLD]
    made = planned(*in_memory, replicas=replicas, replicasPerMaster=0, config=VOLATILE)
    assert "delete Pod demo-3" in acts(made.actions)
    rolled = [replace(at, old=number < 3) for number, at in enumerate(in_memory)]
    made = planned(*rolled, replicas=replicas, replicasPerMaster=0, config=VOLATILE)
    assert [call.id for call in of(made.actions, "FailOver")] == [node_id(3)]
    for step in (in_memory, rolled):
        [applied] = [
            action.obj
            for action in of(planned(*step, replicas=replicas, replicasPerMaster=0, config=VOLATILE).actions, "Apply")
            if action.obj["kind"] == "StatefulSet"
        ]
        assert applied["spec"]["replicas"] == 6


IN_MEMORY = [replace(at, settings=VOLATILE) for at in OLD]
EMPTY = At(settings=VOLATILE)


def removing(*at: At, replicas: int = 3, **more: Any) -> Plan:
    """Plan of a cluster that is to have no replicas, while keys are only in memory."""
    return planned(*at, replicas=replicas, replicasPerMaster=0, config=VOLATILE, **more)


def applied(made: Plan, kind: str) -> Obj:
    [found] = [action.obj for action in of(made.actions, "Apply") if action.obj["kind"] == kind]
    return found["spec"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("present", [6, 5, 4])
def test_no_eviction_is_permitted_while_replicas_in_memory_are_removed(present: int) -> None:
    """An updated primary that is evicted resumes with its id, and empties its replica."""
    made = removing(*IN_MEMORY[:present])
    assert applied(made, "PodDisruptionBudget")["maxUnavailable"] == 0
    assert acts(made.actions) == ["delete Pod demo-3"]


@pytest.mark.parametrize(("lacking", "evictable"), [(None, 1), (replica(2, synced=False, settings=VOLATILE), 0)])
def test_no_eviction_is_permitted_while_keys_in_memory_have_no_copy(lacking: At | None, evictable: int) -> None:
    current = [replace(at, old=False) for at in IN_MEMORY]
    made = planned(*current[:5], lacking or current[5], config=VOLATILE)
    assert applied(made, "PodDisruptionBudget")["maxUnavailable"] == evictable
    made = planned(*(At(slots, settings=VOLATILE) for slots in thirds(6)), config=VOLATILE)
    assert applied(made, "PodDisruptionBudget")["maxUnavailable"] == 0, "replicas cannot be there yet"


def test_claims_that_end_with_pods_permit_no_eviction() -> None:
    made = planned(*(At(slots, claim_leaving=True) for slots in thirds()), replicasPerMaster=0)
    budget = applied(made, "PodDisruptionBudget")
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (0, "IfHealthyBudget")


def test_slots_move_while_only_copies_are_not_restarted() -> None:
    at = alone(VOLATILE)
    made = planned(*at, EMPTY, EMPTY, replicasPerMaster=0, config=VOLATILE)
    assert (made.verdict.reason, len(of(made.actions, "MoveSlots"))) == ("Scaling", 1)
    newer = replace(EMPTY, version="8.2.0")
    made = planned(*at, newer, newer, replicasPerMaster=0, config=VOLATILE, version="8.2.0")
    assert len(of(made.actions, "MoveSlots")) == 1
    updated = [
        At(slots, keys=5, settings=VOLATILE, old=number < 3, version="8.0.2" if number < 3 else "8.2.0")
        for number, slots in enumerate(thirds(5))
    ]
    made = planned(*updated, replicas=3, replicasPerMaster=0, config=VOLATILE, version="8.2.0")
    assert (made.verdict.reason, of(made.actions, "MoveSlots")) == ("RollBlocked", [])
    assert "Slots stay until then: an older version cannot read keys of a newer one." in made.verdict.message


def test_primaries_without_replicas_become_replicas_before_they_restart() -> None:
    at = [At(slots, keys=5, old=True, settings=VOLATILE) for slots in thirds(6)]
    [call] = of(planned(*at, config=VOLATILE).actions, "MoveSlots")
    assert len({move.source for move in call.moves}) == 3


def test_larger_cluster_gets_its_pods_while_replicas_stay() -> None:
    resource = cluster(*IN_MEMORY, replicas=9, replicasPerMaster=0, config=VOLATILE)
    assert applied(plan(resource, seen(resource, *IN_MEMORY, replicas=6)), "StatefulSet")["replicas"] == 9


@pytest.mark.parametrize(
    "strategy",
    [{}, {"updateStrategy": {"type": "AssignReceive", "assignStrategies": 2 * [{"slots": 9, "fromReplicas": "0"}]}}],
    ids=["AutoReceive", "AssignReceive"],
)
def test_new_primaries_stay_primaries_while_pods_are_outdated(strategy: Obj) -> None:
    made = removing(*IN_MEMORY[:3], EMPTY, EMPTY, replicas=5, **strategy)
    assert (of(made.actions, "Replicate"), applied(made, "StatefulSet")["replicas"]) == ([], 5)


def test_new_primary_stays_one_before_the_first_restart() -> None:
    """Whether a change of the spec restarts pods is not known before it is applied."""
    current = [replace(at, old=False) for at in IN_MEMORY[:5]]
    assert of(removing(*current, EMPTY, replicas=6).actions, "Replicate") == []


def test_replica_that_restarted_without_data_becomes_a_replica_again() -> None:
    [call] = of(removing(*IN_MEMORY[:5], EMPTY).actions, "Replicate")
    assert (call.id, call.primary) == (node_id(5), node_id(2))


def test_primary_that_receives_slots_stays_one_while_replicas_stay() -> None:
    source = replace(IN_MEMORY[0], open_slots={0: (">", 6)})
    target = replace(EMPTY, open_slots={0: ("<", 0)})
    moves = [{"from": node_id(0), "to": node_id(6), "slots": "0-10"}]
    at, spec = (source, *IN_MEMORY[1:], target), {"replicas": 7, "replicasPerMaster": 0, "config": VOLATILE}
    resource, found = world(*at, **spec, status={"moves": moves})
    assert keep_replicas(assess(resource, found)).primaries == tuple(map(node_id, (0, 1, 2, 6)))


PENDING = At(up=False, member=False, recorded=None, problem="Unschedulable: 0/3 nodes are available")


def test_removed_replica_that_never_began_does_not_stop_the_update() -> None:
    assert acts(removing(*IN_MEMORY[:5], PENDING).actions) == ["delete Pod demo-3"]
    made = planned(*OLD[:5], PENDING)
    assert (made.verdict.reason, acts(made.actions)) == ("RollBlocked", []), "the spec has it"


def test_removed_replica_that_never_returns_is_reported() -> None:
    away = replace(IN_MEMORY[5], old=False, **BROKEN)  # type: ignore[arg-type]
    for at in ((*IN_MEMORY[:5], away), (*IN_MEMORY[:3], *(replace(each, old=False) for each in IN_MEMORY[3:5]), away)):
        made = removing(*at)
        assert (made.verdict.reason, acts(made.actions)) == ("RollBlocked", [])
        assert "Repair the replica, or delete the outdated pods whose keys may be lost." in made.verdict.message


def rewriting(**more: Any) -> Plan:
    """Plan of a rolling update of primaries without replicas whose append-only files are rewritten."""
    resource, found = world(*alone(LOG), replicasPerMaster=0)
    [file] = of(ensure_config_map(assess(resource, Observed())).actions, "Apply")
    found = replace(found, config_map=stored(file.obj))
    reports = [replace(each.report, rewrites_log=True, **more) for each in found.instances if each.report]
    instances = (replace(each, report=report) for each, report in zip(found.instances, reports, strict=True))
    return plan(resource, replace(found, instances=tuple(instances)))


def test_failed_rewrite_leaves_a_complete_log() -> None:
    assert acts(rewriting(rewrite_failed=True).actions) == ["evict Pod demo-0"]


def test_update_waits_for_a_rewrite_that_may_be_the_first_since_a_full_sync() -> None:
    made = rewriting(log_pending=True)
    assert (made.verdict.reason, acts(made.actions)) == ("Upgrading", [])
    assert made.verdict.message.endswith("Waiting for demo-0 to write its append-only file.")


def test_update_reports_a_file_that_cannot_be_written() -> None:
    made = rewriting(log_pending=True, rewrite_failed=True)
    assert (made.verdict.reason, made.verdict.warning, acts(made.actions)) == ("RollBlocked", True, [])
    assert f"({UNWRITABLE})" in made.verdict.message


def beginning(*at: At, **more: Any) -> Plan:
    """Plan of a cluster without replicas that is to have append-only files, while redis.conf has none."""
    before, _ = world(*at, replicasPerMaster=0, config=VOLATILE)
    [file] = of(ensure_config_map(assess(before, Observed())).actions, "Apply")
    resource, found = world(*at, replicasPerMaster=0, **more)
    found = replace(found, config_map=stored(file.obj))
    settings = live_settings(assess(resource, found))
    reports = [
        each.report and replace(each.report, settings={**settings, **each.report.settings}) for each in found.instances
    ]
    instances = (replace(each, report=report) for each, report in zip(found.instances, reports, strict=True))
    return plan(resource, replace(found, instances=tuple(instances)))


@pytest.mark.parametrize(
    ("fails", "reason", "message"),
    [
        (False, "Configuring", "Writing the first append-only file of demo-0, demo-1, demo-2."),
        (True, "LogIncomplete", "writing the first append-only file failed (aof_last_bgrewrite_status in INFO)"),
    ],
)
def test_update_waits_for_the_first_append_only_files(fails: bool, reason: str, message: str) -> None:
    made = beginning(*alone(LOG, rewrites_log=True, log_pending=True, rewrite_failed=fails))
    assert (made.verdict.reason, made.verdict.warning, acts(made.actions)) == (reason, fails, [])
    assert message in made.verdict.message


def test_update_to_another_series_needs_the_append_only_files_first() -> None:
    made = beginning(*alone(VOLATILE), version="8.2.1")
    assert (made.verdict.reason, made.verdict.warning) == ("RollBlocked", True)
    assert "Revert spec.version until all have an append-only file: demo-0, demo-1, demo-2" in made.verdict.message


def test_replicas_stay_until_a_user_has_deleted_the_pods() -> None:
    by_hand = [{"updateStrategy": {"type": "OnDelete"}}]
    in_memory = [replace(at, settings=VOLATILE) for at in OLD]
    made = planned(*in_memory, replicas=3, replicasPerMaster=0, config=VOLATILE, pod=by_hand)
    assert made.verdict.reason == "PodsOutdated"
    assert "Replicas stay until then" in made.verdict.message


def test_pods_whose_claims_are_being_deleted_are_replaced_while_others_have_their_data() -> None:
    made = planned(*(replace(each, claim_leaving=True) for each in OLD))
    assert acts(made.actions) == ["evict Pod demo-3"]


def test_primary_with_storage_is_not_restarted_while_its_replica_is_missing() -> None:
    made = planned(*OLD[:3], replace(R0, up=False, failed=True), R1, R2)
    assert (made.verdict.reason, acts(made.actions)) == ("RollBlocked", [])


def test_broken_pod_without_storage_is_kept_if_it_may_have_the_only_copy() -> None:
    at = [replace(P0, old=True, **BROKEN), P1, P2, replica(1), replica(2), replica(1)]  # type: ignore[arg-type]
    assert acts(planned(*at, storage=None).actions) == []
    assert acts(planned(*at).actions) == ["delete Pod demo-0"], (
        "with storage, the next pod finds the data on the volume"
    )
    ends = replace(at[0], claim_leaving=True)
    assert acts(planned(ends, *at[1:]).actions) == [], "its claim ends with the pod"
    never = [replace(NEW, old=True, up=False), *[NEW] * 5]
    assert acts(planned(*never, storage=None, is_formed=False).actions) == ["delete Pod demo-0"], (
        "an empty node of a cluster that was not formed has no data"
    )


def test_update_strategy_on_delete_leaves_restarts_to_the_user() -> None:
    by_hand = [{"updateStrategy": {"type": "OnDelete"}}]
    made = planned(*OLD, pod=by_hand)
    assert (made.verdict.reason, made.verdict.progress, acts(made.actions)) == (
        "PodsOutdated",
        Progress.PROGRESSING,
        [],
    )


@pytest.mark.parametrize(
    ("version", "problem"),
    [("3.2.8", "redis 3.2.8 is not supported"), ("7.0.15", "older than redis 8.0.2, which a node runs")],
)
def test_refused_version_does_not_change_pods(version: str, problem: str) -> None:
    resource = cluster(*formed(), version=version)
    found = seen(resource, *formed())
    made = plan(resource, found)
    assert (made.verdict.reason, made.verdict.progress) == ("VersionRefused", Progress.BLOCKED)
    assert problem in made.verdict.message
    assert acts(made.actions) == []
    (applied,) = [action.obj for action in of(made.actions, "Apply") if action.obj["kind"] == "StatefulSet"]
    assert applied["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/redis:8.0.2"
    assert made.status["readyReplicas"] == 6, "running pods are still reported"


def test_renamed_container_and_a_refused_version_keep_the_image_of_the_pods() -> None:
    """E5: nodes from a mirror would restart with the default image, which may be of another engine."""
    resource = cluster(*formed(), version="3.2.8")
    found = seen(resource, *formed())
    assert found.stateful_set is not None
    found.stateful_set["spec"]["template"]["spec"]["containers"][0]["name"] = "renamed"
    for each in found.instances:
        assert each.pod_obj is not None
        each.pod_obj["spec"]["containers"] = [{"name": "redis", "image": "mirror.example.com/custom:8.0.2"}]
    (applied,) = [each.obj for each in of(plan(resource, found).actions, "Apply") if each.obj["kind"] == "StatefulSet"]
    [container] = applied["spec"]["template"]["spec"]["containers"]
    assert (container["name"], container["image"]) == ("redis", "mirror.example.com/custom:8.0.2")


def test_repairs_continue_while_a_version_is_refused() -> None:
    at = (*formed()[:5], replace(R2, up=False, pod=False, disk="b", failed=True))
    resource = cluster(*at, version="3.2.8")
    assert of(plan(resource, seen(resource, *at)).actions, "Forget")


def test_no_object_is_created_for_a_refused_version() -> None:
    resource = cluster(is_formed=False, phase="", replicas=6, version="3.2.8")
    made = plan(resource, seen(resource, stateful_set=False))
    assert (made.verdict.reason, made.status["phase"], made.actions) == ("VersionRefused", "Failed", ())


def test_slots_do_not_move_during_a_rolling_update() -> None:
    """Slots of a newer version cannot go to an older one."""
    made = planned(*OLD, At(epoch=0), replica(6))
    assert of(made.actions, "MoveSlots") == []
    assert acts(made.actions) == ["evict Pod demo-3"]


def test_new_replicas_join_while_missing_replicas_block_a_rolling_update() -> None:
    """The replicas that unblock the rolling update can only come from new nodes."""
    alone = [At(str(Slots.of(range(a, b))), keys=1, old=True) for a, b in ((0, 5461), (5461, 10923), (10923, 16384))]
    made = planned(*alone, At(epoch=0), At(epoch=0), At(epoch=0), storage=None)
    assert len(of(made.actions, "Replicate")) == 3
