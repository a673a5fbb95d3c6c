"""What is said of an EtcdCluster in the states that it can be in, and what its status tells."""

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
from tests.unit.etcd.world import ABSENT, DOWN, LEARNER, VOTER, At, acts, cluster, member_id, plan, seen


def test_a_cluster_as_wanted_is_ready_and_says_where_it_is() -> None:
    resource = cluster()
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, leader=1))
    assert made.verdict.done
    assert made.verdict.message == "3 of 3 members are healthy."
    assert (made.status["phase"], made.status["size"], made.status["readyMembers"]) == ("Running", 3, 3)
    assert (made.status["leader"], made.status["version"]) == ("demo-1", "3.6.8")
    assert made.status["endpoints"] == [f"http://demo-{n}.demo.default.svc:2379" for n in range(3)]
    assert made.requeue == 30.0, "nobody tells who leads, how large files are, and of alarms"


def test_the_status_of_a_cluster_as_wanted_does_not_move() -> None:
    resource = cluster()
    world = seen(resource, VOTER, VOTER, VOTER)
    first = plan(resource, world).status
    again = cluster(status=first)
    grown = [
        replace(instance, status=instance.status and replace(instance.status, db_size=4500))
        for instance in world.instances
    ]
    assert plan(again, replace(world, instances=tuple(grown))).status == first, "by a tenth: noise"
    grown = [
        replace(instance, status=instance.status and replace(instance.status, db_size=5000))
        for instance in world.instances
    ]
    told = plan(again, replace(world, instances=tuple(grown))).status
    assert [member["dbSize"] for member in told["members"]] == [5000] * 3


def test_members_stand_in_the_order_of_their_numbers() -> None:
    resource = cluster(9, recorded=range(9))
    world = seen(resource, *[VOTER] * 9)
    names = [member["name"] for member in plan(resource, world).status["members"]]
    assert names == [f"demo-{n}" for n in range(9)]


def test_a_member_is_told_with_all_that_people_ask() -> None:
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


def test_of_who_does_not_answer_what_was_known_stays() -> None:
    known = plan(cluster(), seen(cluster(), VOTER, VOTER, VOTER)).status
    resource = cluster(status=known)
    member = plan(resource, seen(resource, VOTER, DOWN, VOTER)).status["members"][1]
    assert (member["version"], member["dbSize"], member["healthy"]) == ("3.6.8", 4096, False)


def test_only_members_that_take_clients_are_listed() -> None:
    resource = cluster()
    status = plan(resource, seen(resource, VOTER, replace(VOTER, ready=False), LEARNER)).status
    assert status["endpoints"] == ["http://demo-0.demo.default.svc:2379"]


def test_with_tls_clients_are_told_so() -> None:
    resource = cluster(tls={"mode": "secret", "peer": {"secretName": "p"}, "client": {"secretName": "c"}})
    status = plan(resource, seen(resource, VOTER, VOTER, VOTER)).status
    assert status["endpoints"][0] == "https://demo-0.demo.default.svc:2379"


@pytest.mark.parametrize(
    ("at", "leader", "told"),
    [
        (DOWN, 0, "demo-1 does not answer: no route to host"),
        (replace(DOWN, pod=False), 0, "demo-1 has no pod."),
        (At(up=False, trouble="Unschedulable: no node"), 0, "demo-1 does not start: Unschedulable: no node"),
        (At(up=False, leaving=True), 0, "demo-1 is terminating."),
        (At(applied=1000 - 6000), 0, "demo-1 is catching up with the leader."),
        (replace(VOTER, ready=False), 0, "demo-1: not ready for clients yet."),
    ],
)
def test_who_is_missing_and_why_is_said(at: At, leader: int, told: str) -> None:
    resource = cluster()
    made = plan(resource, seen(resource, VOTER, at, VOTER, leader=leader))
    assert made.verdict.progress is Progress.PROGRESSING
    assert told in made.verdict.message
    assert acts(made.actions) == []


def test_a_secret_that_is_missing_is_waited_for() -> None:
    resource = cluster()
    problem = SecretProblem(Reason("SecretMissing"), "There is no Secret root.")
    made = plan(resource, seen(resource, VOTER, VOTER, VOTER, secrets=Secrets(problem)))
    assert (made.verdict.reason, made.verdict.progress) == ("SecretMissing", Progress.WAITING)
    assert made.status["readyMembers"] == 3, "what runs is reported all the same"


def test_paused_reports_and_touches_nothing() -> None:
    resource = cluster(1, paused=True)
    made = plan(resource, seen(resource, VOTER, DOWN, VOTER))
    assert made.actions == ()
    assert (made.verdict.reason, made.verdict.ready, made.status["phase"]) == ("Paused", False, "Paused")
    whole = cluster(paused=True)
    assert plan(whole, seen(whole, VOTER, VOTER, VOTER)).verdict.ready is True


@pytest.mark.parametrize(
    ("size", "before", "phase"),
    [(3, "Creating", "Creating"), (5, "Running", "Scaling"), (1, "Running", "Scaling"), (5, "Degraded", "Scaling")],
)
def test_what_is_under_way_has_a_name(size: int, before: str, phase: str) -> None:
    resource = cluster(size, phase=before, generation=2)
    world = seen(resource, VOTER, VOTER, VOTER if size != 3 else ABSENT, *[ABSENT] * (size - 3))
    assert plan(resource, world).status["phase"] == phase


def test_a_replacement_is_no_scaling() -> None:
    resource = cluster()
    assert plan(resource, seen(resource, VOTER, ABSENT, VOTER)).status["phase"] == "Degraded"


def test_an_edit_of_something_else_does_not_hide_that_a_member_is_down() -> None:
    resource = cluster(generation=2)
    assert plan(resource, seen(resource, VOTER, DOWN, VOTER)).status["phase"] == "Degraded"


def test_what_takes_too_long_is_told() -> None:
    since = {"type": "Reconciling", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    resource = cluster(recorded=None, status={"phase": "Creating", "conditions": [since]})
    broken = At(up=False, trouble="ErrImagePull: no such image")
    made = plan(resource, seen(resource, broken, ABSENT, ABSENT, known=False))
    assert made.verdict.reason == "CreateTimeout"
    assert "demo-0 does not start: ErrImagePull: no such image" in made.verdict.message


PLACES = st.builds(
    At,
    member=st.booleans(),
    learner=st.just(False),
    started=st.booleans(),
    up=st.booleans(),
    ready=st.none() | st.booleans(),
    pod=st.booleans(),
    runs=st.none() | st.booleans(),
    leaving=st.booleans(),
    trouble=st.sampled_from(["", "CrashLoopBackOff: x"]),
    disk=st.sampled_from([None, "another", ""]),
    empty_data_dir=st.booleans(),
    old=st.booleans(),
    applied=st.sampled_from([1000, 500]),
)
SPECS: list[Obj] = [{}, {"storage": {"medium": "Memory"}}]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(PLACES, min_size=1, max_size=5),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from(["Creating", "Running", "Scaling", "Updating", "Degraded", "Failed", "Paused"]),
    st.sampled_from(SPECS),
)
def test_in_any_state_at_most_one_thing_that_can_hurt_is_done_and_ready_is_said_of_none_but_what_is_wanted(
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
    hurting = [act for act in done if not act.startswith("delete PersistentVolumeClaim")]
    assert len(hurting) <= 1, done
    if not known:
        assert not any(act.startswith(("remove", "add", "promote", "delete Persistent")) for act in done)
    for action in made.actions:
        if isinstance(action, Remove):
            others = [other for other in world.down if other.id != action.member.id]
            assert world.quorum_without(action.member)
            assert not others or action.member in world.down
    if made.verdict.done:
        assert len(world.healthy_voters) == size == len(world.members or ())
        assert all(instance.ready for instance in world.instances if instance.member)
    else:
        assert made.verdict.reason
        assert made.verdict.message
    assert made == plan(resource, world), "a plan is a function"
