"""The plan as a whole: verdict, phase and status of an EtcdCluster in any state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.etcd.client.commands import Remove
from operators.etcd.client.server import Alarm
from operators.etcd.security.secrets import Secrets
from shared.kubernetes.kinds import Obj
from shared.pki.secret_checks import SecretProblem
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from tests.etcd.unit.world import ABSENT, DOWN, LEARNER, VOTER, At, acts, cluster, member_id, plan, seen


def test_cluster_in_its_desired_state_is_ready_and_reports_endpoints() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, leader=1))
    assert made.verdict.done
    assert made.verdict.message == "3 of 3 members are healthy."
    assert (made.status["phase"], made.status["size"], made.status["readyMembers"]) == ("Running", 3, 3)
    assert (made.status["leader"], made.status["version"]) == ("demo-1", "3.6.8")
    assert made.status["endpoints"] == [f"http://demo-{n}.demo.default.svc:2379" for n in range(3)]
    assert made.poll == 30.0, "no watch reports the leader, file sizes and alarms"


@pytest.mark.parametrize("quota", ["8Gi", "", "-1", "9" * 5000])
def test_quota_of_an_edited_template_does_not_end_the_repairs_of_a_paused_cluster(quota: str) -> None:
    """E8: one that is no number was a bug in the operator, as long as the cluster was paused."""
    resource = cluster(paused=True)
    world = seen(resource, VOTER, VOTER, replace(DOWN, disk="another"))
    assert world.stateful_set is not None
    [container] = world.stateful_set["spec"]["template"]["spec"]["containers"]
    container["args"].append(f"--quota-backend-bytes={quota}")
    assert acts(plan(resource, world).actions) == ["remove demo-2"]


def test_status_of_a_ready_cluster_ignores_small_changes() -> None:
    resource = cluster()
    world = seen(resource, VOTER, VOTER, VOTER)
    first = plan(resource, world).status
    again = cluster(status=first)
    grown = [
        replace(instance, status=instance.status and replace(instance.status, db_size=4500))
        for instance in world.instances
    ]
    assert plan(again, replace(world, instances=tuple(grown))).status == first, "a tenth more is noise"
    grown = [
        replace(instance, status=instance.status and replace(instance.status, db_size=5000))
        for instance in world.instances
    ]
    status = plan(again, replace(world, instances=tuple(grown))).status
    assert [member["dbSize"] for member in status["members"]] == [5000] * 3


def test_members_are_listed_by_ordinal() -> None:
    resource = cluster(9, recorded=range(9))
    world = seen(resource, *[VOTER] * 9)
    names = [member["name"] for member in plan(resource, world).status["members"]]
    assert names == [f"demo-{n}" for n in range(9)]


def test_status_of_a_member_has_all_fields() -> None:
    resource = cluster()
    world = replace(seen(resource, VOTER, VOTER, VOTER), alarms=(Alarm(member_id(1), "NOSPACE"),))
    member = plan(resource, world).status["members"][1]
    assert member == {
        "name": "demo-1",
        "id": f"{member_id(1):016x}",
        "role": "voter",
        "version": "3.6.8",
        "dbSize": 4096,
        "dbInUse": 2048,
        "healthy": True,
        "alarms": ["NOSPACE"],
        "volume": "disk-1",
    }


def test_status_keeps_the_last_known_values_of_an_unreachable_member() -> None:
    known = plan(cluster(), seen(cluster(), VOTER, VOTER, VOTER)).status
    resource = cluster(status=known)
    member = plan(resource, seen(resource, VOTER, DOWN, VOTER)).status["members"][1]
    assert (member["version"], member["dbSize"], member["healthy"]) == ("3.6.8", 4096, False)


def test_endpoints_list_only_ready_voters() -> None:
    resource = cluster()
    status = plan(resource, seen(resource, VOTER, replace(VOTER, ready=False), LEARNER)).status
    assert status["endpoints"] == ["http://demo-0.demo.default.svc:2379"]


URLS = [f"http://demo-{n}.demo.default.svc:2379" for n in range(3)]
CUT_OFF = replace(DOWN, ready=True, runs=True)


@pytest.mark.parametrize(
    ("at", "known", "endpoints"),
    [
        ((CUT_OFF, CUT_OFF, CUT_OFF), False, URLS),
        ((DOWN, DOWN, DOWN), False, URLS),
        ((VOTER, CUT_OFF, VOTER), True, URLS),
        ((VOTER, DOWN, VOTER), True, [URLS[0], URLS[2]]),
        ((VOTER, replace(DOWN, pod=False), VOTER), True, [URLS[0], URLS[2]]),
        ((VOTER, VOTER, ABSENT), True, URLS[:2]),
    ],
    ids=["operator cut off", "all unreachable", "one cut off", "one down", "one deleted", "one removed"],
)
def test_endpoints_stay_while_only_the_operator_cannot_reach_members(
    at: tuple[At, ...], known: bool, endpoints: list[str]
) -> None:
    resource = cluster(status={"endpoints": URLS})
    assert plan(resource, seen(resource, *at, known=known)).status["endpoints"] == endpoints


def test_member_that_was_never_reached_is_no_endpoint() -> None:
    resource = cluster(status={"endpoints": URLS[:1]})
    assert plan(resource, seen(resource, VOTER, CUT_OFF, VOTER)).status["endpoints"] == [URLS[0], URLS[2]]


def test_endpoints_use_https_with_tls() -> None:
    resource = cluster(tls={"mode": "secret", "peer": {"secretName": "p"}, "client": {"secretName": "c"}})
    status = plan(resource, seen(resource, VOTER, VOTER, VOTER)).status
    assert status["endpoints"][0] == "https://demo-0.demo.default.svc:2379"


@pytest.mark.parametrize(
    ("at", "leader", "message"),
    [
        (DOWN, 0, "demo-1 does not answer: no route to host"),
        (replace(DOWN, pod=False), 0, "demo-1 does not exist."),
        (At(up=False, problem="Unschedulable: no node"), 0, "demo-1 does not start: Unschedulable: no node."),
        (At(up=False, leaving=True), 0, "demo-1 is terminating."),
        (At(applied=1000 - 6000), 0, "demo-1 is catching up with the leader."),
        (replace(VOTER, ready=False), 0, "demo-1: not ready for clients yet."),
    ],
)
def test_message_names_the_unhealthy_member_and_the_reason(at: At, leader: int, message: str) -> None:
    resource = cluster()
    made = plan(resource, seen(resource, VOTER, at, VOTER, leader=leader))
    assert made.verdict.progress is Progress.PROGRESSING
    assert message in made.verdict.message
    assert acts(made.actions) == []


def test_missing_secret_makes_the_plan_wait() -> None:
    resource = cluster()
    problem = SecretProblem(Reason("SecretMissing"), "There is no Secret root.")
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, secrets=Secrets(problem)))
    assert (made.verdict.reason, made.verdict.progress) == ("SecretMissing", Progress.WAITING)
    assert made.status["readyMembers"] == 3, "running members are reported nevertheless"


def test_paused_cluster_is_reported_and_not_changed() -> None:
    resource = cluster(1, paused=True)
    made = plan(resource, seen(resource, VOTER, DOWN, VOTER))
    assert acts(made.actions) == [], "a member that is only down is not removed, and neither is a surplus one"
    assert (made.verdict.reason, made.verdict.ready, made.status["phase"]) == ("Paused", False, "Paused")
    whole = cluster(paused=True)
    assert plan(whole, seen(whole, VOTER, VOTER, VOTER)).verdict.ready is True


@pytest.mark.parametrize(
    ("size", "before", "phase"),
    [(3, "Creating", "Creating"), (5, "Running", "Scaling"), (1, "Running", "Scaling"), (5, "Degraded", "Scaling")],
)
def test_phase_names_the_operation_in_progress(size: int, before: str, phase: str) -> None:
    resource = cluster(size, phase=before, generation=2)
    world = seen(resource, VOTER, VOTER, VOTER if size != 3 else ABSENT, *[ABSENT] * (size - 3))
    assert plan(resource, world).status["phase"] == phase


def test_replacement_is_reported_as_degraded_not_scaling() -> None:
    resource = cluster()
    assert plan(resource, seen(resource, VOTER, ABSENT, VOTER)).status["phase"] == "Degraded"


def test_unrelated_edit_does_not_hide_a_member_that_is_down() -> None:
    resource = cluster(generation=2)
    assert plan(resource, seen(resource, VOTER, DOWN, VOTER)).status["phase"] == "Degraded"


def test_creation_that_takes_too_long_is_reported() -> None:
    since = {"type": "Reconciling", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    resource = cluster(recorded=None, status={"phase": "Creating", "conditions": [since]})
    broken = At(up=False, problem="ErrImagePull: no such image")
    made = plan(resource, seen(resource, broken, ABSENT, ABSENT, known=False))
    assert made.verdict.reason == "CreateTimeout"
    assert "demo-0 cannot pull its image: no such image." in made.verdict.message


MEMBER_STATES = st.builds(
    At,
    member=st.booleans(),
    learner=st.just(False),
    started=st.booleans(),
    up=st.booleans(),
    ready=st.none() | st.booleans(),
    pod=st.booleans(),
    runs=st.none() | st.booleans(),
    leaving=st.booleans(),
    problem=st.sampled_from(["", "CrashLoopBackOff: x"]),
    disk=st.sampled_from([None, "another", ""]),
    empty_data_dir=st.booleans(),
    old=st.booleans(),
    applied=st.sampled_from([1000, 500]),
)
SPECS: list[Obj] = [{}, {"storage": {"medium": "Memory"}}]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(MEMBER_STATES, min_size=1, max_size=5),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from(["Creating", "Running", "Scaling", "Updating", "Degraded", "Failed", "Paused"]),
    st.sampled_from(SPECS),
)
def test_plan_has_one_disruptive_action_at_most_and_ready_means_desired(
    instances: list[At], size: int, known: bool, phase: str, spec: Obj
) -> None:
    instances = [
        instance if instance.pod else replace(instance, up=False, runs=False, ready=False) for instance in instances
    ]
    instances += [ABSENT] * (size - len(instances))
    resource = cluster(size, phase=phase, recorded=range(len(instances)), **spec)
    leader = next((n for n, instance in enumerate(instances) if instance.up and instance.member), None)
    world = seen(resource, *instances, leader=leader, known=known)
    made = plan(resource, world)
    done = acts(made.actions)
    disruptive = [act for act in done if not act.startswith("delete PersistentVolumeClaim")]
    assert len(disruptive) <= 1, done
    if not known:
        assert not any(act.startswith(("remove", "add", "promote", "delete Persistent")) for act in done)
    for action in made.actions:
        if isinstance(action, Remove):
            others = [other for other in world.down if other.id != action.member.id]
            remaining = [voter for voter in world.voters if voter.id != action.member.id]
            assert sum(voter not in world.down for voter in remaining) >= len(remaining) // 2 + 1
            assert not others or action.member in world.down
    if made.verdict.done:
        assert len(world.healthy_voters) == size == len(world.members or ())
        assert all(instance.ready for instance in world.instances if instance.member)
    else:
        assert made.verdict.reason
        assert made.verdict.message
    assert made == plan(resource, world), "the plan is a pure function"
