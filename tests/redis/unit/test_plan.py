"""The whole plan: order of the steps, verdicts, and safety in any observed state."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from operators.redis.api.resource import RedisCluster
from operators.redis.objects.names import CLIENTS, CLUSTER_UID, SERVES
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from operators.redis.state.observed import ConfigTemplate, Observed
from shared.kubernetes.kinds import POD, Obj
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import Plan
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from tests.redis.unit.world import (
    ABSENT,
    NEW,
    NEW_RECORDED,
    At,
    acts,
    assess,
    cluster,
    formed,
    node_id,
    of,
    plan,
    planned,
    replica,
    requested_replicas,
    seen,
    world,
)

P0, P1, P2, R0, R1, R2 = formed()


def test_cluster_in_its_desired_state_is_ready_and_not_changed() -> None:
    made = planned(*formed())
    assert made.verdict.done
    assert made.verdict.message == "6 of 6 nodes serve, 3 of them primaries."
    assert (acts(made.actions), made.poll, made.status["phase"]) == ([], 30.0, "Running")


def test_claims_that_are_being_deleted_are_reported_while_pods_use_them() -> None:
    at = (replace(P0, claim_leaving=True), P1, P2, replace(R0, claim_leaving=True), R1, R2)
    made = planned(*at)
    assert (made.verdict.reason, made.verdict.done, made.poll) == ("VolumesTerminating", False, 30.0)
    assert made.verdict.message.startswith("PersistentVolumeClaim data-demo-0, data-demo-3: being deleted. Each ends ")
    replaced = planned(P0, P1, P2, replace(at[3], leaving=True), R1, R2)
    assert replaced.verdict.reason != "VolumesTerminating", "its pod ends already"


def test_paused_resource_is_reported_and_not_changed() -> None:
    made = planned(*(replace(at, old=True) for at in formed()), pause=True, phase="Running")
    assert (made.actions, made.verdict.reason, made.verdict.ready) == ((), "Paused", False)
    assert made.status["phase"] == "Running"
    assert planned(*formed(), pause=True).verdict.ready is True


@pytest.mark.parametrize("spec", [{"pause": True}, {"replicasPerMaster": 2}])
def test_cluster_that_is_not_created_yet_is_not_healed(spec: dict[str, Any]) -> None:
    for at in ([NEW] * 6, formed(), [*formed()[:5], replace(NEW, keys=5)]):
        resource = cluster(*at, is_formed=False, replicas=6, phase="", **spec)
        assert plan(resource, seen(resource, *at)).actions == ()


def test_invalid_spec_changes_nothing() -> None:
    made = planned(*formed(), replicasPerMaster=2, replicas=6)
    assert (made.verdict.reason, made.verdict.progress, made.actions) == ("InvalidSpec", Progress.BLOCKED, ())


def with_foreign_volume(found: Observed, number: int) -> Observed:
    """The observed state with the volume of an instance labelled for another resource."""
    instances = list(found.instances)
    volume = instances[number].volume
    assert volume
    foreign = {**volume, "metadata": volume["metadata"] | {"labels": {CLUSTER_UID: "u-0"}}}
    instances[number] = replace(instances[number], volume=foreign)
    return replace(found, instances=tuple(instances))


@pytest.mark.parametrize("foreign", [NEW, NEW_RECORDED, replace(NEW, keys=5), At(epoch=0), R0, P0], ids=str)
def test_node_on_a_foreign_volume_is_not_changed(foreign: At) -> None:
    resource, found = world(*formed(), foreign, replicas=7)
    made = plan(resource, with_foreign_volume(found, 6))
    assert made.actions == ()
    assert "PersistentVolumeClaim data-demo-6 belongs to another RedisCluster (uid u-0)." in made.verdict.message
    (before, after) = (
        [entry.get("nodeId") for entry in status["nodes"] if entry["name"] == "demo-6"]
        for status in (resource.reported, made.status)
    )
    assert (after or [None]) == (before or [None]), "it is neither recorded nor are former records lost"


def test_own_nodes_are_healed_although_a_foreign_volume_exists() -> None:
    moved = replace(R0, address="10.9.0.1", stale_address="10.0.0.4")
    resource, found = world(*formed()[:3], moved, *formed()[4:], replace(NEW, up=False), replicas=6)
    made = plan(resource, with_foreign_volume(found, 6))
    assert acts(made.actions) == ["let demo-0, demo-1, demo-2, demo-4, demo-5 meet demo-3 at 10.9.0.1"]
    assert made.verdict.reason == "Meeting"
    assert made.verdict.message.startswith("Updating the address of demo-3 on the other nodes (CLUSTER MEET). Persist")


def test_paused_cluster_is_healed_at_its_present_size() -> None:
    """A member that the paused spec would remove is a member until then, and one that it would add is not awaited."""
    moved = replace(R0, address="10.9.0.1", stale_address="10.0.0.8")
    at = [*formed(4, 1)[:7], replace(moved, of=3)]
    for replicas in (6, 8, 10):
        resource = cluster(*at, replicas=replicas, pause=True)
        made = plan(resource, seen(resource, *at, replicas=8))
        assert [action.id for action in of(made.actions, "Meet")] == [node_id(7)]
        assert len(made.actions) == 1
        assert made.verdict.message.endswith(
            "spec.pause is true: no change is applied until it is false. Repairs of the running cluster continue."
        )


def test_reason_of_a_repair_comes_before_that_of_the_spec() -> None:
    lost = replace(P0, up=False, failed=True, disk="another")
    made = planned(lost, P1, P2, replace(R0, up=False, failed=True, pod=False), R1, R2, replicasPerMaster=2, replicas=6)
    assert made.verdict.reason == "SlotsUnserved"
    assert "demo-3 does not exist" in made.verdict.message
    assert "spec.replicas: is too small" in made.verdict.message


def test_bootstrap_waits_for_a_missing_config_map() -> None:
    problem = SecretProblem(Reason("ConfigMapMissing"), "There is no ConfigMap c.")
    resource = cluster(is_formed=False, replicas=6, phase="", pod=[{"configmap": "c"}])
    made = plan(resource, seen(resource, stateful_set=False, config=ConfigTemplate(problem=problem)))
    assert (made.verdict.reason, made.verdict.progress, acts(made.actions)) == (
        "ConfigMapMissing",
        Progress.WAITING,
        [],
    )


def test_cluster_is_not_ready_while_a_primary_accepts_no_commands() -> None:
    resource, found = world(*formed())
    started = found.instances[1]
    assert started.report
    started = replace(started, report=replace(started.report, state_ok=False))
    made = plan(resource, replace(found, instances=(found.instances[0], started, *found.instances[2:])))
    assert not made.verdict.done
    assert "demo-1 does not accept commands yet" in made.verdict.message


def pod_patches(made: Plan) -> list[Any]:
    return [action for action in of(made.actions, "Patch") if action.kind == POD]


def test_only_members_in_sync_are_labelled_for_the_client_service() -> None:
    unlabelled = [replace(at, labels={"a": "b"}) for at in formed()]
    made = planned(*unlabelled[:5], replace(unlabelled[5], synced=False))
    patched = {action.obj["metadata"]["name"]: action.change["metadata"] for action in pod_patches(made)}
    assert patched == {f"demo-{n}": {"labels": {SERVES: CLIENTS}} for n in range(5)}
    assert pod_patches(planned(*[NEW] * 6, is_formed=False)) == []


def test_pod_to_be_removed_loses_the_client_label() -> None:
    made = planned(*formed(), At(epoch=0), replicas=6)
    (patch,) = pod_patches(made)
    assert (patch.obj["metadata"]["name"], patch.change["metadata"]["labels"]) == ("demo-6", {SERVES: None})
    assert pod_patches(planned(*formed()[:2], R0, R1, R2, R2, P2, replicas=6)) == [], (
        "a pod that owns slots keeps the label"
    )


@pytest.mark.parametrize(
    ("at", "phase", "before"),
    [
        ([*formed(), NEW], "Scaling", "Running"),
        ([replace(at, old=True) for at in formed()], "Upgrading", "Running"),
        ([*formed()[:5], replace(R2, synced=False)], "Running", "Running"),
        ([*formed()[:5], replace(R2, synced=False)], "Scaling", "Scaling"),
        ([P0, P1, replace(P2, up=False, failed=True), *formed()[3:]], "Failed", "Running"),
        ([NEW] * 6, "Creating", ""),
    ],
)
def test_phase_has_the_names_of_the_seed(at: list[At], phase: str, before: str) -> None:
    made = planned(*at, phase=before, generation=2, is_formed=before != "")
    assert made.status["phase"] == phase


def test_timeout_of_the_bootstrap_is_reported() -> None:
    since = {"type": "Reconciling", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    broken = At(up=False, recorded=None, problem="ErrImagePull: no such image")
    resource = cluster(*[NEW] * 5, broken, is_formed=False, phase="Creating", status={"conditions": [since]})
    made = plan(resource, seen(resource, *[NEW] * 5, broken))
    assert made.verdict.reason == "CreateTimeout"
    assert "demo-5 cannot pull its image: no such image." in made.verdict.message


def test_failing_node_is_reported_with_its_cause() -> None:
    made = planned(*formed()[:5], replace(R2, up=False, failed=True, problem="Unschedulable: no node."))
    assert (made.verdict.reason, made.verdict.warning) == ("NodeFailing", True)
    assert made.verdict.message == (
        "5 of 6 nodes serve, 3 of them primaries. demo-5 does not start: Unschedulable: no node."
    )


def test_deleted_stateful_set_is_recreated_with_every_recorded_pod() -> None:
    resource = cluster(*formed(), At(), At(), replicas=6)
    made = plan(resource, seen(resource, *formed(), At(""), At(""), stateful_set=False))
    assert requested_replicas(made) == 8


# Any observed state.

DANGEROUS = ("MoveSlots", "CloseSlots", "Replicate", "AddSlots", "Forget", "FailOver")

EVENTS: dict[str, Callable[[At, int], At]] = {
    "unreachable": lambda at, _: replace(at, up=False, runs=True, ready=True),
    "failed": lambda at, _: replace(at, up=False, failed=True),
    "lost": lambda at, n: replace(at, up=False, failed=True, pod=False, disk=f"disk-{n}b"),
    "lost and not a member": lambda at, n: replace(at, up=False, member=False, disk=f"disk-{n}b"),
    "restarted empty": lambda at, n: replace(NEW, incarnation=1, recorded=at.recorded, disk=f"disk-{n}b"),
    "rejoined empty": lambda at, n: At(epoch=0, incarnation=1, recorded=1, disk=f"disk-{n}b"),
    "lagging": lambda at, _: replace(at, synced=False),
    "never in sync": lambda at, _: replace(at, copied=False, synced=False),
    "behind": lambda at, _: replace(at, offset=at.offset - 100),
    "old": lambda at, _: replace(at, old=True),
    "leaving": lambda at, _: replace(at, leaving=True),
    "broken": lambda at, _: replace(at, up=False, failed=True, old=True, problem="CrashLoopBackOff: back-off"),
    "unrecorded": lambda at, _: replace(at, recorded=None),
    "no pod": lambda at, _: replace(at, up=False, failed=True, pod=False),
    "forgotten": lambda at, _: replace(at, member=False),
    "stray keys": lambda at, _: replace(at, keys=5),
    "crowded": lambda at, _: replace(at, host="a"),
    "moved": lambda at, _: replace(at, address="10.9.0.1", stale_address="10.0.0.99"),
    "slots without an owner": lambda at, _: replace(at, slots=str(Slots.parse(at.slots).first(1000))),
    "migrating slot": lambda at, n: replace(at, open_slots={n * 1000: (">", (n + 1) % 3)}),
    "importing slot": lambda at, n: replace(at, open_slots={n * 1000 + 1: ("<", (n + 1) % 3)}),
    "older keys": lambda at, n: replace(
        at, open_slots={n * 1000 + 2: ("<", (n + 1) % 3)}, strays={n * 1000 + 2: 3, n * 1000 + 3: 1}
    ),
}
EVENTS_OF_ALL_NODES = (*[""] * 12, "old", "old", "failed", "broken", "restarted empty", "moved")


def random_states(chance: Random) -> list[At]:
    """A cluster in some state, with events on some of its nodes."""
    count, copies = chance.choice([(3, 1), (3, 1), (4, 1), (3, 2), (3, 0)])
    at = formed(count, copies)
    if chance.random() < 0.25 and copies:  # an earlier failover
        failed_over = chance.randrange(count)
        candidate = failed_over + count
        at[candidate], at[failed_over] = replace(at[failed_over]), replica(candidate, keys=10)
        at = [
            replace(each, of=candidate) if each.of == failed_over and n != failed_over else each
            for n, each in enumerate(at)
        ]
    more = [NEW, NEW_RECORDED, At(epoch=0), At(epoch=0), replica(0), replica(1, synced=False), ABSENT]
    at += chance.choices(more, k=chance.choice([0, 0, 1, 2, 3]))
    event_of_all = chance.choice(EVENTS_OF_ALL_NODES)
    for number in range(len(at)):
        if event_of_all:
            at[number] = EVENTS[event_of_all](at[number], number)
    for name in chance.choices(sorted(EVENTS), k=chance.choice([0, 0, 1, 1, 1, 2, 3])):
        number = chance.randrange(len(at))
        at[number] = EVENTS[name](at[number], number)
    return at


def some_world(seed: int) -> tuple[RedisCluster, Observed]:
    """A random cluster as the operator may observe it."""
    chance = Random(seed)
    at = random_states(chance)
    copies = chance.choice([0, 1, 1, 1])
    replicas = max(len(at) + chance.choice([-3, -2, -1, 0, 0, 0, 1, 2]), 3 * (1 + copies))
    at += [ABSENT] * (replicas - len(at))
    spec: dict[str, Any] = {"replicas": replicas, "replicasPerMaster": copies}
    if chance.random() < 0.25:
        spec["storage"] = None
    if chance.random() < 0.25:
        entries = [{"slots": 100, "fromReplicas": node_id(0)}]
        spec["updateStrategy"] = {"type": "AssignReceive", "assignStrategies": entries}
    is_formed = chance.random() < 0.9
    resource = cluster(*at, is_formed=is_formed, **spec)
    first = plan(resource, seen(resource, *at)).status
    persisted = ("recovery", "assigned", "forming", *(("moves", "foreign") if chance.random() < 0.8 else ()))
    status: Obj = {key: value for key, value in first.items() if key in persisted}
    if chance.random() < 0.7:
        if "recovery" in status:
            spec["recovery"] = {"confirm": chance.choice([status["recovery"]["token"], "another"])}
        resource = cluster(*at, is_formed=is_formed, status=status, **spec)
    there = [number + 1 for number, spot in enumerate(at) if spot.pod]
    return resource, seen(resource, *at, replicas=max([replicas, *there]) + chance.choice([0, 0, 1]))


WORLDS = st.integers(0, 2**40).map(some_world)

EXAMPLES = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def paused(resource: RedisCluster) -> RedisCluster:
    return RedisCluster.parse({**resource.obj, "spec": resource.obj["spec"] | {"pause": True}})


def allowed(resource: RedisCluster) -> bool:
    """Return whether the user confirmed the loss with the token in the status."""
    given_ = resource.spec.recovery
    return given_ is not None and given_.confirm == (resource.reported.get("recovery") or {}).get("token", "")


def require_provenance(resource: RedisCluster, view_of: Observed, move: Move) -> None:
    """Assert that open slots of a move are recorded, and that the target has no keys of slots that have not begun."""
    view = view_of.view
    opened = move.slots & Slots.of(*view.nodes[move.source].line.migrating, *view.nodes[move.target].line.importing)
    unrecorded = opened - Slots.union(
        known.slots for known in assess(resource, view_of).recorded_moves if known.target == move.target
    )
    assert not unrecorded, "only slots that the operator opened are finished"
    strays = view.nodes[move.target].report.strays  # type: ignore[union-attr]
    begun = view.nodes[move.source].line.migrating
    assert not {slot for slot in strays if slot in move.slots and slot not in begun}, (
        "no slot moves to a node that has keys of it"
    )


def require_reopened_slots_recorded(resource: RedisCluster, view_of: Observed, made: Plan) -> None:
    view = view_of.view
    for call in of(made.actions, "ReopenSlots"):
        assert not call.slots - view.slots_of(call.source)
        known = assess(resource, view_of).recorded_moves
        assert not call.slots - Slots.union(move.slots for move in known if move.target == call.target)


@EXAMPLES
@given(WORLDS, st.booleans())
def test_no_observation_leads_to_data_loss(found: tuple[RedisCluster, Observed], is_paused: bool) -> None:
    resource, view_of = found
    if is_paused:
        resource = paused(resource)
    made, view = plan(resource, view_of), view_of.view
    for kind in {type(action).__name__ for action in made.actions} & {*DANGEROUS, "Delete", "Evict"}:
        event(kind)
    disagree = assess(resource, view_of).agreement.settled
    for call in of(made.actions, "Forget"):
        assert call.id not in view_of.reachable, "no reachable node is forgotten"
        if resource.formed and not allowed(resource):
            assert not view.slots_of(call.id), "no slot owner is forgotten"
            assert not view.replicas_of(call.id)
            assert not view.without([each.id for each in of(made.actions, "Forget")]).settled, (
                "no node is forgotten while the others disagree"
            )
    for call in of(made.actions, "MoveSlots"):
        assert not disagree, "slots move only while all nodes agree"
        for move in call.moves:
            assert view.nodes[move.source].answers
            assert view.nodes[move.target].answers
            assert view.nodes[move.target].is_primary
            assert not move.slots - view.slots_of(move.source), "slots move from their owner"
            require_provenance(resource, view_of, move)
    require_reopened_slots_recorded(resource, view_of, made)
    for call in of(made.actions, "CancelImport"):
        assert all(view.nodes[view.owners[slot]].answers for slot in call.slots), "their owner has the keys"
    for call in of(made.actions, "AddSlots"):
        assert not resource.formed or allowed(resource), "no slot is assigned empty without confirmation"
        assert not call.slots - view.uncovered
    for call in of(made.actions, "Replicate"):
        node = view.nodes[call.id]
        assert not disagree
        assert not view.slots_of(call.id)
        assert node.report
        assert node.is_replica or not node.report.keys, "no node with keys becomes a replica"
        assert not view.slots_of(node.primary) or view.other_copies(call.id), (
            "no only copy becomes a replica of another node"
        )
    # A primary whose pod is being deleted does not wait: its server ends in any case, and the servers vote themselves.
    ending = {instance.id for instance in view_of.instances if instance.leaving}
    for call in of(made.actions, "FailOver"):
        primary = view.nodes[call.id].primary
        assert primary, "only a replica is promoted"
        if call.mode:
            assert view_of.lost(primary), "a forced failover only if the primary is proven lost"
            report = view.nodes[call.id].report
            is_empty = report is not None and not report.keys and allowed(resource)
            assert view_of.has_data_of(call.id, primary) or is_empty, "a forced failover only to a complete copy"
            left = [each for each in view.primaries if not view_of.lost(each.id)]
            assert (call.mode == "TAKEOVER") == (len(left) < view.majority)
        else:
            assert not disagree or primary in ending
            assert call.id not in ending
            assert view.nodes[call.id].synced
            assert view.nodes[primary].answers
    assert len([call for call in of(made.actions, "FailOver") if view.nodes[call.id].primary not in ending]) <= 1
    assert len({type(action).__name__ for action in made.actions} & set(DANGEROUS)) <= 2


@EXAMPLES
@given(WORLDS)
def test_pods_and_volumes_that_may_have_the_only_copy_are_kept(found: tuple[RedisCluster, Observed]) -> None:
    resource, view_of = found
    made, view = plan(resource, view_of), view_of.view
    applies = [action for action in of(made.actions, "Apply") if action.obj["kind"] == "StatefulSet"]
    there = int((view_of.stateful_set or {})["spec"]["replicas"])
    for apply in applies:
        least = min(apply.obj["spec"]["replicas"], there)
        event("fewer pods" if least < there else "as many pods")
        for instance in view_of.instances:
            if not least <= instance.number < there or not resource.formed:
                continue
            ids = {instance.id, instance.recorded.node_id if instance.recorded else ""} - {""}
            for each in ids:
                assert not view.slots_of(each), f"{instance.name} owns slots"
                assert not view.slots_of(view.nodes[each].primary if each in view.nodes else "") or view.other_copies(
                    each
                )
                assert not assess(resource, view_of).agreement.settled
                assert not view.uncovered
    for action in of(made.actions, "Delete") + of(made.actions, "Evict"):
        obj, name = action.obj, action.obj["metadata"]["name"]
        instance = next(at for at in view_of.instances if name in (at.name, f"data-{at.name}"))
        each = instance.id or (instance.recorded.node_id if instance.recorded else "")
        event(f"delete {obj['kind']}")
        if not resource.formed or view_of.lost(each):
            continue
        if obj["kind"] == "PersistentVolumeClaim":
            assert not view.slots_of(each)
            assert each not in view.nodes or view.other_copies(each)
            continue
        candidates = (
            [candidate for candidate in view.failover_candidates(each) if candidate.synced]
            if instance.report and view.slots_of(each)
            else []
        )
        assert not candidates, "a failover comes first"
        if resource.spec.storage is None:
            assert not view.slots_of(each), "the data would be deleted with the pod"
            assert (
                each not in view.nodes
                or not view.nodes[each].is_replica
                or (view.other_copies(each) or not view.slots_of(view.nodes[each].primary))
            )


@EXAMPLES
@given(WORLDS)
def test_number_of_primaries_follows_the_spec(found: tuple[RedisCluster, Observed]) -> None:
    resource, view_of = found
    made, view = plan(resource, view_of), view_of.view
    if not resource.formed or not of(made.actions, "MoveSlots") or made.verdict.reason == "RepairingSlots":
        return
    leading = assess(resource, view_of).primaries
    assert len(leading) <= resource.primaries
    owners = {primary.id for primary in view.primaries}
    assert len(owners - set(leading)) == max(0, len(owners) - resource.primaries) or any(
        (instance := view_of.instance_of(owner)) is not None and instance.number >= resource.spec.replicas
        for owner in owners
    )
    left = {move.target for move in assess(resource, view_of).slot_plan.moves}
    assert left <= set(leading)


@EXAMPLES
@given(WORLDS)
def test_waiting_plan_has_a_reason_and_a_requeue(found: tuple[RedisCluster, Observed]) -> None:
    resource, view_of = found
    made = plan(resource, view_of)
    event(made.verdict.reason)
    assert (made.requeue, made.poll) != (None, None)
    if not made.verdict.done:
        assert made.verdict.reason.isalnum()
        assert made.verdict.reason[0].isupper()
        assert (
            re.search(r"(\.|image|: (`kubectl [^`]+`|CLUSTER [^.]+))$", made.verdict.message)
            or "does not start:" in made.verdict.message
        )
    composed = cluster(is_formed=False, replicas=6, status=made.status)
    assert composed.formed == made.status["formed"]
    assert not {type(action).__name__ for action in plan(paused(resource), view_of).actions} & {
        *("Apply", "Delete", "Evict", "WriteSecret", "SetEpoch")
    }


@EXAMPLES
@given(WORLDS)
def test_step_that_waits_for_the_status_passes_once_it_is_written(found: tuple[RedisCluster, Observed]) -> None:
    """Otherwise the step would wait forever."""
    resource, view_of = found
    made = plan(resource, view_of)
    if made.requeue != 0 or acts(made.actions):
        return
    status = {**made.status, "observedGeneration": 1}
    again = RedisCluster.parse({**resource.obj, "status": status})
    known = {node.name: node for node in again.recorded_nodes if node.node_id}
    moved = [replace(instance, recorded=known.get(instance.name)) for instance in view_of.instances]
    then = plan(again, replace(view_of, instances=tuple(moved)))
    assert (then.verdict.reason, then.verdict.message, then.requeue) != (
        made.verdict.reason,
        made.verdict.message,
        0,
    )
