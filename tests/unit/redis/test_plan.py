"""The whole chain: what comes first, what is said, and what no view whatever may lead to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.objects.names import CLIENTS, CLUSTER_UID, SERVES
from operators.redis.observe import ConfigTemplate, Observed
from operators.redis.slots.hash_slots import Slots
from shared.kubernetes.kinds import Obj
from shared.pki.secret_checks import SecretProblem
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from tests.unit.redis.world import (
    ABSENT,
    NEW,
    NEW_RECORDED,
    At,
    acts,
    cluster,
    formed,
    node_id,
    of,
    places_asked_for,
    plan,
    planned,
    replica,
    seen,
    world,
)

M0, M1, M2, R0, R1, R2 = formed()


def test_a_cluster_as_wanted_is_ready_and_left_alone() -> None:
    made = planned(*formed())
    assert made.verdict.done
    assert made.verdict.message == "6 of 6 nodes serve, 3 of them masters."
    assert (acts(made.actions), made.requeue, made.status["phase"]) == ([], 30.0, "Running")


def test_paused_reports_and_touches_nothing() -> None:
    made = planned(*(replace(at, old=True) for at in formed()), pause=True, phase="Running")
    assert (made.actions, made.verdict.reason, made.verdict.ready) == ((), "Paused", False)
    assert made.status["phase"] == "Running"
    assert planned(*formed(), pause=True).verdict.ready is True


def test_a_spec_that_contradicts_itself_changes_nothing() -> None:
    made = planned(*formed(), replicasPerMaster=2, replicas=6)
    assert (made.verdict.reason, made.verdict.progress, made.actions) == ("InvalidSpec", Progress.BLOCKED, ())


def test_the_data_of_another_cluster_is_left_alone() -> None:
    resource, found = world(*formed())
    volume = found.instances[3].volume
    assert volume
    theirs = {**volume, "metadata": volume["metadata"] | {"labels": {CLUSTER_UID: "u-0"}}}
    places = (*found.instances[:3], replace(found.instances[3], volume=theirs), *found.instances[4:])
    made = plan(resource, replace(found, instances=places))
    assert (made.verdict.reason, made.actions) == ("ForeignData", ())


def test_a_config_map_that_is_missing_is_waited_for() -> None:
    problem = SecretProblem(Reason("ConfigMapMissing"), "There is no ConfigMap c.")
    resource = cluster(begun=False, replicas=6, phase="", pod=[{"configmap": "c"}])
    made = plan(resource, seen(resource, stateful_set=False, config=ConfigTemplate(problem=problem)))
    assert (made.verdict.reason, made.verdict.progress, acts(made.actions)) == (
        "ConfigMapMissing",
        Progress.WAITING,
        [],
    )


def test_a_master_that_takes_no_commands_yet_is_no_part_of_a_cluster_that_is_ready() -> None:
    resource, found = world(*formed())
    began = found.instances[1]
    assert began.report
    began = replace(began, report=replace(began.report, state_ok=False))
    made = plan(resource, replace(found, instances=(found.instances[0], began, *found.instances[2:])))
    assert not made.verdict.done
    assert "demo-1 takes no commands yet" in made.verdict.message


def test_clients_are_sent_to_members_that_are_in_step() -> None:
    bare = [replace(at, labels={"a": "b"}) for at in formed()]
    made = planned(*bare[:5], replace(bare[5], synced=False))
    patched = {action.obj["metadata"]["name"]: action.change["metadata"] for action in of(made.actions, "Patch")}
    assert patched == {f"demo-{n}": {"labels": {SERVES: CLIENTS}} for n in range(5)}
    assert of(planned(*[NEW] * 6, begun=False).actions, "Patch") == []


def test_who_is_let_go_is_sent_no_more_clients() -> None:
    made = planned(*formed(), At(epoch=0), replicas=6)
    (patch,) = of(made.actions, "Patch")
    assert (patch.obj["metadata"]["name"], patch.change["metadata"]["labels"]) == ("demo-6", {SERVES: None})
    assert of(planned(*formed()[:2], R0, R1, R2, R2, M2, replicas=6).actions, "Patch") == [], "not while it owns slots"


def test_settings_are_told_to_running_servers_that_have_not_heard_of_them() -> None:
    resource = cluster(*formed(), config={"maxmemory-policy": "allkeys-lru"})
    made = plan(resource, seen(cluster(*formed()), *formed()))
    calls = of(made.actions, "Configure")
    assert [call.id for call in calls] == [node_id(n) for n in range(6)]
    assert calls[0].settings["maxmemory-policy"] == "allkeys-lru"
    assert len(of(made.actions, "Patch")) == 6
    again = plan(resource, seen(resource, *formed()))
    assert of(again.actions, "Configure") == []


@pytest.mark.parametrize(
    ("at", "phase", "before"),
    [
        ([*formed(), NEW], "Scaling", "Running"),
        ([replace(at, old=True) for at in formed()], "Upgrading", "Running"),
        ([*formed()[:5], replace(R2, synced=False)], "Running", "Running"),
        ([*formed()[:5], replace(R2, synced=False)], "Scaling", "Scaling"),
        ([M0, M1, replace(M2, up=False, failed=True), *formed()[3:]], "Failed", "Running"),
        ([NEW] * 6, "Creating", ""),
    ],
)
def test_what_is_under_way_has_the_seed_s_name(at: list[At], phase: str, before: str) -> None:
    made = planned(*at, phase=before, generation=2, begun=before != "")
    assert made.status["phase"] == phase


def test_what_takes_too_long_is_told() -> None:
    since = {"type": "Reconciling", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    broken = At(up=False, recorded=None, trouble="ErrImagePull: no such image")
    resource = cluster(*[NEW] * 5, broken, begun=False, phase="Creating", status={"conditions": [since]})
    made = plan(resource, seen(resource, *[NEW] * 5, broken))
    assert made.verdict.reason == "CreateTimeout"
    assert "demo-5 does not start: ErrImagePull: no such image" in made.verdict.message


def test_who_is_missing_and_why_is_said() -> None:
    made = planned(*formed()[:5], replace(R2, up=False, failed=True, trouble="Unschedulable: no node"))
    assert (made.verdict.reason, made.verdict.warning) == ("NodeFailing", True)
    assert made.verdict.message == (
        "5 of 6 nodes serve, 3 of them masters. demo-5 does not start: Unschedulable: no node"
    )


def test_a_stateful_set_that_is_gone_comes_back_with_every_place_that_there_was() -> None:
    resource = cluster(*formed(), At(), At(), replicas=6)
    made = plan(resource, seen(resource, *formed(), At(""), At(""), stateful_set=False))
    assert places_asked_for(made) == 8


# Whatever is seen.

DANGEROUS = ("MoveSlots", "CloseSlots", "Replicate", "AddSlots", "Forget", "FailOver")

HAPPENINGS: dict[str, Callable[[At, int], At]] = {
    "silent": lambda at, _: replace(at, up=False, runs=True, ready=True),
    "failed": lambda at, _: replace(at, up=False, failed=True),
    "lost": lambda at, n: replace(at, up=False, failed=True, pod=False, disk=f"disk-{n}b"),
    "lost, and nobody knows it": lambda at, n: replace(at, up=False, member=False, disk=f"disk-{n}b"),
    "begun anew": lambda at, n: replace(NEW, life=1, recorded=at.recorded, disk=f"disk-{n}b"),
    "joined anew": lambda at, n: At(epoch=0, life=1, recorded=1, disk=f"disk-{n}b"),
    "lagging": lambda at, _: replace(at, synced=False),
    "yet to get anything": lambda at, _: replace(at, copied=False, synced=False),
    "behind": lambda at, _: replace(at, offset=at.offset - 100),
    "old": lambda at, _: replace(at, old=True),
    "leaving": lambda at, _: replace(at, leaving=True),
    "broken": lambda at, _: replace(at, up=False, failed=True, old=True, trouble="CrashLoopBackOff: back-off"),
    "unrecorded": lambda at, _: replace(at, recorded=None),
    "no pod": lambda at, _: replace(at, up=False, failed=True, pod=False),
    "forgotten": lambda at, _: replace(at, member=False),
    "stray keys": lambda at, _: replace(at, keys=5),
    "crowded": lambda at, _: replace(at, host="a"),
    "moved": lambda at, _: replace(at, address="10.9.0.1", looked_for="10.0.0.99"),
    "slots let go": lambda at, _: replace(at, slots=str(Slots.parse(at.slots).first(1000))),
    "a slot on its way": lambda at, n: replace(at, opens={n * 1000: (">", (n + 1) % 3)}),
    "a slot coming": lambda at, n: replace(at, opens={n * 1000 + 1: ("<", (n + 1) % 3)}),
}
EVERYBODY = (*[""] * 12, "old", "old", "failed", "broken", "begun anew", "moved")


def places(chance: Random) -> list[At]:
    """A cluster in some state, some of whose nodes have been struck by something."""
    count, copies = chance.choice([(3, 1), (3, 1), (4, 1), (3, 2), (3, 0)])
    at = formed(count, copies)
    if chance.random() < 0.25 and copies:  # a failover, a while ago
        turned = chance.randrange(count)
        heir = turned + count
        at[heir], at[turned] = replace(at[turned]), replica(heir, keys=10)
        at = [replace(each, of=heir) if each.of == turned and n != turned else each for n, each in enumerate(at)]
    more = [NEW, NEW_RECORDED, At(epoch=0), At(epoch=0), replica(0), replica(1, synced=False), ABSENT]
    at += chance.choices(more, k=chance.choice([0, 0, 1, 2, 3]))
    everybody = chance.choice(EVERYBODY)
    for number in range(len(at)):
        if everybody:
            at[number] = HAPPENINGS[everybody](at[number], number)
    for what in chance.choices(sorted(HAPPENINGS), k=chance.choice([0, 0, 1, 1, 1, 2, 3])):
        number = chance.randrange(len(at))
        at[number] = HAPPENINGS[what](at[number], number)
    return at


def some_world(seed: int) -> tuple[RedisCluster, Observed]:
    """Some cluster, as the operator may find it."""
    chance = Random(seed)
    at = places(chance)
    copies = chance.choice([0, 1, 1, 1])
    replicas = max(len(at) + chance.choice([-3, -2, -1, 0, 0, 0, 1, 2]), 3 * (1 + copies))
    at += [ABSENT] * (replicas - len(at))
    spec: dict[str, Any] = {"replicas": replicas, "replicasPerMaster": copies}
    if chance.random() < 0.25:
        spec["storage"] = None
    if chance.random() < 0.25:
        entries = [{"slots": 100, "fromReplicas": node_id(0)}]
        spec["updateStrategy"] = {"type": "AssignReceive", "assignStrategies": entries}
    begun = chance.random() < 0.9
    resource = cluster(*at, begun=begun, **spec)
    first = plan(resource, seen(resource, *at)).status
    written = ("recovery", "assigned", "forming")
    status: Obj = {key: value for key, value in first.items() if key in written}
    if chance.random() < 0.7:
        if "recovery" in status:
            spec["recovery"] = {"confirm": chance.choice([status["recovery"]["token"], "another"])}
        resource = cluster(*at, begun=begun, status=status, **spec)
    there = [number + 1 for number, spot in enumerate(at) if spot.pod]
    return resource, seen(resource, *at, replicas=max([replicas, *there]) + chance.choice([0, 0, 1]))


WORLDS = st.integers(0, 2**40).map(some_world)

TRIED = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def allowed(resource: RedisCluster) -> bool:
    """Whether a person gave up what is lost, by the token of what was told."""
    given_ = resource.spec.recovery
    return given_ is not None and given_.confirm == resource.recovery_token


@TRIED
@given(WORLDS)
def test_no_view_leads_to_a_loss(found: tuple[RedisCluster, Observed]) -> None:
    resource, view_of = found
    made, view = plan(resource, view_of), view_of.view
    for kind in {type(action).__name__ for action in made.actions} & {*DANGEROUS, "Delete"}:
        event(kind)
    disagree = Assessment.of(resource, view_of).agreement.settled
    for call in of(made.actions, "Forget"):
        assert call.id not in view_of.reachable, "nobody who answers is forgotten"
        if resource.formed and not allowed(resource):
            assert not view.slots_of(call.id), "nor who owns slots"
            assert not view.replicas_of(call.id)
            assert not view.without([each.id for each in of(made.actions, "Forget")]).settled, (
                "nor while others disagree"
            )
    for call in of(made.actions, "MoveSlots"):
        assert not disagree, "slots move only while all agree"
        for move in call.moves:
            assert view.nodes[move.source].answers
            assert view.nodes[move.target].answers
            assert view.nodes[move.target].is_primary
            assert not move.slots - view.slots_of(move.source), "who owns them gives them"
    for call in of(made.actions, "AddSlots"):
        assert not resource.formed or allowed(resource), "no slot is given to an empty node unasked"
        assert not call.slots - view.uncovered
    for call in of(made.actions, "Replicate"):
        node = view.nodes[call.id]
        assert not disagree
        assert not view.slots_of(call.id)
        assert node.report
        assert node.is_replica or not node.report.keys, "nobody becomes a replica who holds something"
        assert not view.slots_of(node.primary) or view.other_copies(call.id), "nor one that has the only copy"
    for call in of(made.actions, "FailOver"):
        primary = view.nodes[call.id].primary
        assert primary, "who takes over is a replica"
        if call.mode:
            assert view_of.lost(primary), "without its master's help only where that lost all, by evidence"
            assert view_of.has_data_of(call.id, primary), "and by one that had all of it"
            left = [each for each in view.primaries if not view_of.lost(each.id)]
            assert (call.mode == "TAKEOVER") == (len(left) < view.majority)
        else:
            assert not disagree
            assert view.nodes[call.id].synced
            assert view.nodes[primary].answers
    assert len(of(made.actions, "FailOver")) <= 1
    assert len({type(action).__name__ for action in made.actions} & set(DANGEROUS)) <= 2


@TRIED
@given(WORLDS)
def test_no_pod_and_no_disk_goes_that_may_have_the_only_copy(found: tuple[RedisCluster, Observed]) -> None:
    resource, view_of = found
    made, view = plan(resource, view_of), view_of.view
    asked = [action for action in of(made.actions, "Apply") if action.obj["kind"] == "StatefulSet"]
    there = int((view_of.stateful_set or {})["spec"]["replicas"])
    for apply in asked:
        least = min(apply.obj["spec"]["replicas"], there)
        event("fewer places" if least < there else "as many places")
        for place in view_of.instances:
            if not least <= place.number < there or not resource.formed:
                continue
            ids = {place.id, place.recorded.node_id if place.recorded else ""} - {""}
            for each in ids:
                assert not view.slots_of(each), f"{place.name} owns slots"
                assert not view.slots_of(view.nodes[each].primary if each in view.nodes else "") or view.other_copies(
                    each
                )
                assert not Assessment.of(resource, view_of).agreement.settled
                assert not view.uncovered
    for action in of(made.actions, "Delete"):
        obj, name = action.obj, action.obj["metadata"]["name"]
        place = next(at for at in view_of.instances if name in (at.name, f"data-{at.name}"))
        each = place.id or (place.recorded.node_id if place.recorded else "")
        event(f"delete {obj['kind']}")
        if not resource.formed or view_of.lost(each):
            continue
        if obj["kind"] == "PersistentVolumeClaim":
            assert not view.slots_of(each)
            assert each not in view.nodes or view.other_copies(each)
            continue
        heirs = (
            [heir for heir in view.failover_candidates(each) if heir.synced]
            if place.report and view.slots_of(each)
            else []
        )
        assert not heirs, "first a replica takes over"
        if resource.spec.storage is None:
            assert not view.slots_of(each), "its data would go with it"
            assert (
                each not in view.nodes
                or not view.nodes[each].is_replica
                or (view.other_copies(each) or not view.slots_of(view.nodes[each].primary))
            )


@TRIED
@given(WORLDS)
def test_masters_are_made_and_unmade_only_as_many_as_the_spec_asks(found: tuple[RedisCluster, Observed]) -> None:
    resource, view_of = found
    made, view = plan(resource, view_of), view_of.view
    if not resource.formed or not of(made.actions, "MoveSlots") or made.verdict.reason == "MendingSlots":
        return
    leading = Assessment.of(resource, view_of).primaries
    assert len(leading) <= resource.primaries
    owners = {primary.id for primary in view.primaries}
    assert len(owners - set(leading)) == max(0, len(owners) - resource.primaries) or any(
        (place := view_of.instance_of(owner)) is not None and place.number >= resource.spec.replicas for owner in owners
    )
    left = {move.target for move in Assessment.of(resource, view_of).slot_plan.moves}
    assert left <= set(leading)


@TRIED
@given(WORLDS)
def test_what_waits_says_why_and_looks_again(found: tuple[RedisCluster, Observed]) -> None:
    resource, view_of = found
    made = plan(resource, view_of)
    event(made.verdict.reason)
    assert made.requeue is not None
    if not made.verdict.done:
        assert made.verdict.reason.isalnum()
        assert made.verdict.reason[0].isupper()
        assert made.verdict.message.endswith((".", "image")) or "does not start:" in made.verdict.message
    composed = cluster(begun=False, replicas=6, status=made.status)
    assert composed.formed == made.status["formed"]
    paused = RedisCluster.parse({**resource.obj, "spec": resource.obj["spec"] | {"pause": True}})
    assert plan(paused, view_of).actions == ()


@TRIED
@given(WORLDS)
def test_what_is_written_down_is_what_is_waited_for(found: tuple[RedisCluster, Observed]) -> None:
    """A step that waits for the status to be written passes once it is: else it would wait for ever."""
    resource, view_of = found
    made = plan(resource, view_of)
    if made.requeue != 0 or acts(made.actions):
        return
    status = {**made.status, "observedGeneration": 1}
    again = RedisCluster.parse({**resource.obj, "status": status})
    known = {node.name: node for node in again.recorded_nodes if node.node_id}
    moved = [replace(place, recorded=known.get(place.name)) for place in view_of.instances]
    then = plan(again, replace(view_of, instances=tuple(moved)))
    assert (then.verdict.reason, then.verdict.message, then.requeue) != (
        made.verdict.reason,
        made.verdict.message,
        0,
    )
