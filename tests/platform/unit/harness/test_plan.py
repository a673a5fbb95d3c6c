"""Plans of changes: predicted is what the operator of a whole simulated world then executes; what is unknown ends it.

The worlds have clients that write, keys, and their own ids and addresses. They are not made from what a plan knows.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import logging
from typing import Any

import pytest

import operators
from shared.kubernetes.client import Request, Response
from shared.kubernetes.errors import Forbidden
from shared.kubernetes.kinds import DEPLOYMENT, POD, SECRET, STATEFUL_SET, Kind, Obj
from shared.kubernetes.secrets import content_of
from shared.status.reconciliation_pause import PAUSE
from simulator import plan as plans
from simulator.kubelet.kubelet import ProcessStatus
from simulator.memcached.database import SimulatedMemcached
from simulator.mirror import Mirror
from simulator.plan import Live, Plan, plan
from simulator.subjects import subject
from tests.harness.scenario import ScenarioStep, delete, edit
from tests.harness.scenario_runner import ScenarioRun
from tests.support import planning, plays
from tests.support.etcd.scenarios import EXPANDABLE
from tests.support.etcd.scenarios import cluster as etcd_cluster
from tests.support.memcached.scenarios import apply as memcached
from tests.support.memcached.scenarios import given_users
from tests.support.planning import (
    CASES,
    CPU,
    TLS,
    WORLDS,
    Case,
    as_read,
    changed,
    executed,
    form,
    live,
    nothing_else,
    planned,
    volumes,
)
from tests.support.redis.scenarios import cluster as redis_cluster
from tests.support.virtual_time import in_virtual_time


@pytest.mark.parametrize(
    "case", [pytest.param(each, id=f"{each.operator}: {each.what}", marks=each.marks) for each in CASES]
)
@in_virtual_time  # a call that moves slots ends after seconds, and is repeated
async def test_predicted_steps_are_those_that_are_executed(case: Case) -> None:
    play = await plays.begun(WORLDS[case.operator][0], *case.given)
    predicted = await planned(case.operator, play, case.spec)
    assert predicted.outcome == case.outcome, predicted
    assert predicted.ready
    assert form(predicted.steps) == form(await executed(case.operator, play, case.spec))


@pytest.mark.parametrize(
    "case", [pytest.param(each, id=f"{each.operator}: {each.what}", marks=each.marks) for each in CASES]
)
async def test_dry_run_shows_a_replacement_of_pods_if_the_plan_does(case: Case) -> None:
    play = await plays.begun(WORLDS[case.operator][0], *case.given)
    found = live(play).resource
    assert found is not None
    admission = next(each for each in operators.installed() if each.name == case.operator).kinds[0].admission
    assert admission is not None
    if admission.restarts is None:  # each such change has a warning
        warnings = str(admission.review(changed(found, case.spec), found).warnings)
        assert "start empty" in warnings or case.outcome == plans.SAFE
    else:
        assert admission.restarts(found, changed(found, case.spec)) == (case.outcome == plans.RESTARTS)


REST: dict[str, Obj] = {"memcached": {"version": "1.6.18"}, "etcd": {"version": "3.6.16"}, "redis": {"replicas": 8}}


@pytest.mark.parametrize("operator", WORLDS)
@in_virtual_time
async def test_remaining_steps_of_a_change_in_progress_are_predicted(operator: str) -> None:
    play = await world(operator)
    await play.step(dataclasses.replace(edit(None, {"spec": REST[operator]}), absent=True))
    predicted = await planned_of(operator, live(play))
    assert predicted.outcome in (plans.SAFE, plans.RESTARTS)
    steps = form(predicted.steps)
    assert len(steps) >= 4
    assert steps == form(await executed(operator, play))


@pytest.mark.parametrize("operator", WORLDS)
async def test_defaults_of_a_real_api_server_change_no_plan(operator: str) -> None:
    found = live(await world(operator))
    plain = await planned_of(operator, found, REST[operator])
    read = await planned_of(operator, as_read(found), REST[operator])
    assert read.message == plain.message
    assert form(read.steps) == form(plain.steps)


async def test_deployment_is_recognized_by_the_names_of_kubernetes() -> None:
    found = live(await world("memcached", memcached(size=3, workload="Deployment")))
    plain, read = [await planned_of("memcached", each, {"version": "1.6.18"}) for each in (found, as_read(found))]
    assert (read.outcome, read.message) == (plans.RESTARTS, plain.message)
    assert [(each.action, each.reason, len(each.pods)) for each in read.steps] == [
        (each.action, each.reason, len(each.pods)) for each in plain.steps
    ]


GIVEN = {"memcached": memcached(size=3), "etcd": etcd_cluster(3), "redis": redis_cluster(6)}


async def world(operator: str, *steps: ScenarioStep) -> ScenarioRun:
    return await plays.begun(WORLDS[operator][0], *(steps or (GIVEN[operator],)))


async def planned_of(operator: str, found: Live, spec: Obj | None = None) -> Plan:
    change = changed(found.resource, spec) if spec is not None and found.resource is not None else None
    return await plan(subject(operator), WORLDS[operator][1], found, change, nothing_else)


@pytest.mark.parametrize("operator", WORLDS)
async def test_a_resource_at_rest_has_nothing_to_do(operator: str) -> None:
    found = live(await world(operator))
    assert found.resource is not None
    assert (await planned_of(operator, found)).outcome == plans.NOTHING
    same = await planned_of(operator, found, {})
    assert (same.outcome, same.steps, same.ready) == (plans.NOTHING, (), True)


@pytest.mark.parametrize("operator", WORLDS)
async def test_a_new_resource_has_a_plan(operator: str) -> None:
    found = live(await world(operator))
    assert found.resource is not None
    metadata = {"name": "new", "namespace": found.resource["metadata"]["namespace"]}
    kind = WORLDS[operator][0].controller(WORLDS[operator][0].database()).kind
    change = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": found.resource["spec"]}
    made = await plan(subject(operator), WORLDS[operator][1], Live(None, (), found.now), change, nothing_else)
    assert (made.outcome, made.ready) == (plans.SAFE, True)
    assert [each.target for each in made.steps if each.action == "starts"][:2] == ["Pod new-0", "Pod new-1"]


@pytest.mark.parametrize("operator", WORLDS)
async def test_the_real_cluster_is_not_changed(operator: str) -> None:
    play = await world(operator)
    before = play.world.server.version, play.world.database.state()
    await planned(operator, play, {"paused": True})
    assert (play.world.server.version, play.world.database.state()) == before


async def test_a_paused_resource_needs_a_person() -> None:
    play = await world("memcached")
    found = await planned("memcached", play, {"paused": True, "size": 5})
    assert found.outcome == plans.PERSON
    assert found.person is not None
    assert found.person.reason == "Paused"


async def test_a_pause_by_annotation_needs_a_person() -> None:
    play = await world("memcached")
    await play.step(edit(None, {"metadata": {"annotations": {PAUSE: "true"}}}))
    found = await planned("memcached", play, {"size": 5})
    assert (found.outcome, found.steps) == (plans.PERSON, ())
    assert found.person is not None
    assert found.person.reason == "ReconciliationPaused"


async def test_pause_after_each_server_passes() -> None:
    """Kubernetes replaces the next server when the new one has been ready for minReadySeconds, without any event."""
    play = await world("memcached", memcached(size=3, updateStrategy={"pauseSeconds": 30}))
    found = await planned("memcached", play, {"version": "1.6.18"})
    assert (found.outcome, found.ready) == (plans.RESTARTS, True)
    restarts = [each for each in found.steps if each.action == "restarts"]
    assert [each.target for each in restarts] == ["Pod cache-2", "Pod cache-1", "Pod cache-0"]
    assert [each.seconds >= 30 for each in restarts] == [True, True, False], "nothing waits for the last pause"


@pytest.mark.parametrize("operator", ["etcd", "redis"])
async def test_hibernation_stops_all_servers(operator: str) -> None:
    play = await world(operator)
    found = await planned(operator, play, {"hibernate": True})
    assert (found.outcome, found.reason, found.person) == (plans.RESTARTS, "Hibernated", None)
    assert form(found.steps) == form(await executed(operator, play, {"hibernate": True}))


async def test_a_deleted_resource_has_no_plan() -> None:
    found = live(await world("memcached"))
    assert found.resource is not None
    ending = found.resource["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    made = await planned_of("memcached", dataclasses.replace(found, resource=found.resource | {"metadata": ending}))
    assert (made.outcome, made.message) == (plans.UNKNOWN, "The resource is being deleted: its objects follow it.")


async def test_volumes_that_cannot_grow_need_a_person() -> None:
    found = await planned(
        "etcd", await world("etcd", etcd_cluster(3, storage={"size": "1Gi"})), {"storage": {"size": "2Gi"}}
    )
    assert found.outcome == plans.PERSON
    assert found.person is not None
    assert found.person.reason == "VolumesCannotGrow"


@pytest.mark.parametrize("operator", WORLDS)
async def test_no_secret_is_in_a_plan(operator: str) -> None:
    secured = {
        "memcached": memcached(size=3, auth={}, **TLS),
        "etcd": etcd_cluster(3, auth={}, **TLS),
        "redis": redis_cluster(6, auth={}, **TLS),
    }
    play = await world(operator, secured[operator])
    found = live(play)
    text = json.dumps(dataclasses.asdict(await planned(operator, play, CPU)), ensure_ascii=False)
    content = [item for secret in found.of(SECRET) for item in content_of(secret).items()]
    values = {value for key, value in content if key != "provider" and len(value) >= 16}
    assert len(values) > 3
    assert not [value for value in values if value in text or any(line in text for line in value.splitlines()[1:2])]


def without_readiness(obj: Obj) -> Obj:
    status = {**obj["status"], "conditions": [{"type": "Ready", "status": "False"}]}
    return {**obj, "status": status}


def with_status(found: Live, **status: Any) -> Live:
    assert found.resource is not None
    resource = {**found.resource, "status": found.resource["status"] | status}
    objects = [
        (kind, resource if obj is found.resource or _is_it(obj, resource) else obj) for kind, obj in found.objects
    ]
    return dataclasses.replace(found, resource=resource, objects=objects)


def _is_it(obj: Obj, resource: Obj) -> bool:
    return bool(obj["metadata"]["uid"] == resource["metadata"]["uid"])


def edited(found: Live, kind: Kind, name: str, change: Any) -> Live:
    """Return what runs with one object changed, or without it if `change` returns None."""
    objects = [
        (of, change(obj) if of == kind and obj["metadata"]["name"] == name else obj) for of, obj in found.objects
    ]
    return dataclasses.replace(found, objects=[(of, obj) for of, obj in objects if obj is not None])


@pytest.mark.parametrize("operator", WORLDS)
async def test_a_pod_that_does_not_serve_ends_the_plan(operator: str) -> None:
    found = edited(live(await world(operator)), POD, "cache-1", without_readiness)
    made = await planned_of(operator, found, CPU)
    assert (made.outcome, made.steps) == (plans.UNKNOWN, ())
    assert "Pod cache-1 does not serve" in made.message


async def test_slots_that_move_now_end_the_plan() -> None:
    found = with_status(live(await world("redis")), moves=[{"from": "a", "to": "b", "slots": "1-2"}])
    made = await planned_of("redis", found, CPU)
    assert (made.outcome, made.message) == (
        plans.UNKNOWN,
        "The status has unfinished work (moves): repeat the command when it is done.",
    )


async def test_a_member_that_is_no_healthy_voter_ends_the_plan() -> None:
    found = live(await world("etcd"))
    assert found.resource is not None
    members = [each | {"healthy": each["name"] != "cache-2"} for each in found.resource["status"]["members"]]
    made = await planned_of("etcd", with_status(found, members=members), CPU)
    assert (made.outcome, "cache-2 is no healthy voter" in made.message) == (plans.UNKNOWN, True)


async def test_a_cluster_that_does_not_match_its_simulation_ends_the_plan() -> None:
    """The status claims that the resource is at rest, and the operator would change something."""

    def other_replicas(obj: Obj) -> Obj:
        return {**obj, "spec": obj["spec"] | {"replicas": 2}}

    found = edited(live(await world("memcached")), STATEFUL_SET, "cache", other_replicas)
    found = edited(found, POD, "cache-2", lambda _: None)
    made = await planned_of("memcached", found, {"size": 4})
    assert (made.outcome, "It does not match this cluster" in made.message) == (plans.UNKNOWN, True)


async def test_an_unreadable_secret_ends_the_plan() -> None:
    async def forbidden(kind: Kind, namespace: str, name: str) -> Obj | None:
        if kind == SECRET and name == "given":
            raise Forbidden("you cannot get secrets", status=403)
        return None

    found = live(await world("memcached"))
    assert found.resource is not None
    change = changed(found.resource, {"auth": {"secretName": "given"}})
    made = await plan(subject("memcached"), planning.WORLDS["memcached"][1], found, change, forbidden)
    assert (made.outcome, made.message) == (plans.UNKNOWN, "Secret given cannot be read: you cannot get secrets")


# States that the simulation does not know are no plan of "nothing" and none of a safe change.


UID = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize("operator", ["etcd", "redis"])
async def test_adoption_of_volumes_ends_the_plan(operator: str) -> None:
    """The data on the volumes of a deleted resource is not known."""
    found = live(await world(operator))
    assert found.resource is not None
    change = changed(found.resource, {"adopt": {"fromUID": UID}})
    change["metadata"] = {"name": "new", "namespace": "default"}
    change.pop("status")
    made = await plan(subject(operator), WORLDS[operator][1], Live(None, (), found.now), change, nothing_else)
    assert (made.outcome, made.steps) == (plans.UNKNOWN, ())
    assert made.message.startswith("spec.adopt is not simulated: ")


@pytest.mark.parametrize("operator", ["etcd", "redis"])
def test_beginnings_from_former_data_are_known_once_they_are_done(operator: str) -> None:
    unknown = subject(operator).unknown_start
    adopt = {"spec": {"adopt": {"fromUID": UID}}}
    assert "spec.adopt" in unknown(adopt)
    assert "spec.adopt" in unknown({**adopt, "status": {"adoption": {"fromUID": "another"}}})
    assert not unknown({**adopt, "status": {"adoption": {"fromUID": UID}}})
    assert not unknown({"spec": None})


def test_restore_is_known_once_it_is_done() -> None:
    unknown = subject("etcd").unknown_start
    restore = {"spec": {"restore": {"from": {"file": "a.db"}}}}
    assert "spec.restore is not simulated" in unknown(restore)
    assert "spec.restore is not simulated" in unknown({**restore, "status": {"restore": {"phase": "Running"}}})
    assert not unknown({**restore, "status": {"clusterID": "1f"}})


async def test_restore_of_a_new_cluster_ends_the_plan() -> None:
    found = live(await world("etcd"))
    assert found.resource is not None
    change = changed(found.resource, {"restore": {"from": {"volume": {"claimName": "snapshots"}, "file": "a.db"}}})
    change["metadata"] = {"name": "new", "namespace": "default"}
    change.pop("status")
    made = await plan(subject("etcd"), WORLDS["etcd"][1], Live(None, (), found.now), change, nothing_else)
    assert (made.outcome, made.message[:29]) == (plans.UNKNOWN, "spec.restore is not simulated")


@pytest.mark.parametrize("operator", ["etcd", "redis"])
async def test_pod_on_a_volume_with_unknown_content_ends_the_plan(operator: str) -> None:
    """A claim that no pod mounts may have any data, although it belongs to the resource."""
    play = await world(operator)
    spec = play.stage.find()[0]["spec"]
    await play.step(delete())

    async def find(kind: Kind, namespace: str, name: str) -> Obj | None:
        return play.world.server.stored(kind, namespace, name)

    kind = WORLDS[operator][0].controller(WORLDS[operator][0].database()).kind
    metadata = {"name": "cache", "namespace": "default"}
    change = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
    found = Live(None, (), play.world.clock.now)  # so the UID of the resource in the plan is the former one
    made = await plan(subject(operator), WORLDS[operator][1], found, change, find)
    assert made.outcome == plans.UNKNOWN
    assert "Pod cache-0 starts on PersistentVolumeClaim data-cache-0, which no pod uses now" in made.message


async def test_operator_that_never_rests_ends_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """States that repeat are no progress, in any number of turns."""
    run, runs = SimulatedMemcached.run, itertools.count()

    def flapping(self: Any, pod: Obj, claims: Any) -> ProcessStatus:
        found = run(self, pod, claims)
        return ProcessStatus("Unready") if pod["metadata"]["name"] == "cache-3" and next(runs) % 2 else found

    monkeypatch.setattr(SimulatedMemcached, "run", flapping)
    monkeypatch.setattr(plans, "MAX_REPEATED_TURNS", 300, raising=False)
    monkeypatch.setattr(plans, "TURNS_AT_ONCE", 50, raising=False)
    found = live(await world("memcached"))
    made = await planned_of("memcached", found, {"size": 4})
    assert made.outcome == plans.UNKNOWN
    assert "reaches no new state" in made.message
    assert next(runs) < 20_000


@pytest.mark.parametrize("workload", ["StatefulSet", "Deployment"])
async def test_missing_pod_ends_the_plan(workload: str) -> None:
    """Kubernetes creates it, unless something prevents that, such as a quota."""
    found = live(await world("memcached", memcached(size=3, workload=workload)))
    missing = found.of(POD)[-1]["metadata"]["name"]
    made = await planned_of("memcached", edited(found, POD, missing, lambda _: None))
    assert (made.outcome, made.steps) == (plans.UNKNOWN, ())
    assert f"{workload} cache has 2 of 3 pods" in made.message


async def test_change_of_kubernetes_before_the_operator_ends_the_plan() -> None:
    """The StatefulSet has an outdated pod that Kubernetes replaces without the operator."""

    def outdated(pod: Obj) -> Obj:
        labels = pod["metadata"]["labels"] | {"controller-revision-hash": "cache-former"}
        return {**pod, "metadata": pod["metadata"] | {"labels": labels}}

    found = edited(live(await world("memcached")), POD, "cache-1", outdated)
    made = await planned_of("memcached", found)
    assert (made.outcome, made.steps) == (plans.UNKNOWN, ())
    assert "Kubernetes stops pod cache-1" in made.message


@pytest.mark.parametrize("workload", ["StatefulSet", "Deployment"])
async def test_workload_that_is_not_observed_ends_the_plan(workload: str) -> None:
    """The status is of an earlier template: Kubernetes is about to replace all of its pods."""
    kind = STATEFUL_SET if workload == "StatefulSet" else DEPLOYMENT

    def changed_since(obj: Obj) -> Obj:
        text = json.dumps(obj["spec"]).replace("memcached:1.6.45", "memcached:1.6.18")
        metadata = obj["metadata"] | {"generation": obj["metadata"]["generation"] + 1}
        return {**obj, "metadata": metadata, "spec": json.loads(text)}

    found = live(await world("memcached", memcached(size=3, workload=workload)))
    made = await planned_of("memcached", edited(found, kind, "cache", changed_since))
    assert (made.outcome, made.steps) == (plans.UNKNOWN, ())
    assert f"Kubernetes has not observed the last change of {workload} cache" in made.message


async def test_removed_annotation_is_removed() -> None:
    """A manifest without the annotation of the pause ends the pause."""
    play = await world("memcached")
    await play.step(edit(None, {"metadata": {"annotations": {PAUSE: "true"}, "labels": {"team": "a"}}}))
    found = live(play)
    assert found.resource is not None
    change = changed(found.resource, {"size": 5})
    del change["metadata"]["annotations"][PAUSE]
    assert (await plan_of(found, change)).outcome == plans.SAFE
    del change["metadata"]["annotations"], change["metadata"]["labels"]
    assert (await plan_of(found, change)).outcome == plans.SAFE


async def plan_of(found: Live, change: Obj) -> Plan:
    return await plan(subject("memcached"), WORLDS["memcached"][1], found, change, nothing_else)


def refusing_workloads(monkeypatch: pytest.MonkeyPatch, status: int, reason: str, message: str) -> None:
    """Let the simulated API server refuse each change of a StatefulSet."""
    request = Mirror.request

    async def refused(self: Mirror, given: Request) -> Response:
        if "/statefulsets/" in given.path and given.method != "GET":
            return Response(status, {"kind": "Status", "reason": reason, "message": message, "code": status})
        return await request(self, given)

    monkeypatch.setattr(Mirror, "request", refused)


@pytest.mark.parametrize(("status", "reason"), [(409, "Conflict"), (500, "InternalError")])
async def test_operator_that_fails_for_ever_ends_the_plan(
    monkeypatch: pytest.MonkeyPatch, status: int, reason: str
) -> None:
    refusing_workloads(monkeypatch, status, reason, "what was refused")
    found = live(await world("memcached"))
    made = await planned_of("memcached", found, {"size": 4})
    assert (made.outcome, made.ready) == (plans.UNKNOWN, False)
    assert made.message.startswith("The operator fails in the simulation: ")
    assert "what was refused" in made.message


async def test_simulated_operator_logs_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Warnings and errors of the simulated operator are about no real cluster."""
    refusing_workloads(monkeypatch, 500, "InternalError", "what was refused")
    found = live(await world("memcached"))
    caplog.clear()
    handler = logging.StreamHandler(output := io.StringIO())
    logging.getLogger().addHandler(handler)
    try:
        await planned_of("memcached", found, {"size": 4})
        logging.getLogger("here").warning("of another thread")
    finally:
        logging.getLogger().removeHandler(handler)
    assert output.getvalue() == "of another thread\n"
    assert not handler.filters


async def test_growth_of_volumes_of_an_unreadable_class_ends_the_plan() -> None:
    spec: Obj = {"storage": {"size": "2Gi", "storageClassName": "fast"}}
    play = await world("etcd", EXPANDABLE, etcd_cluster(3, **volumes("1Gi")))
    found = dataclasses.replace(live(play), unreadable_classes=frozenset({"fast"}))
    made = await planned_of("etcd", found, spec)
    assert made.outcome == plans.UNKNOWN
    assert "StorageClass fast, which you may not read" in made.message


async def test_other_objects_of_a_change_are_applied_with_it() -> None:
    """A Secret of the same manifest exists when the operator observes the change, and not before."""
    found = live(await world("memcached"))
    assert found.resource is not None
    users = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given", "namespace": "default"}}
    users |= {"data": {"users": "YXBwOmh1bnRlcjJodW50ZXIyCg=="}}
    change = changed(found.resource, {"auth": {"secretName": "given"}})
    alone = await plan_of(found, change)
    assert (alone.outcome, alone.reason) == (plans.PERSON, "SecretMissing")
    options = WORLDS["memcached"][1]
    made = await plan(subject("memcached"), options, found, change, nothing_else, [(SECRET, users)])
    assert (made.outcome, made.ready) == (plans.RESTARTS, True)


async def test_changed_secret_is_a_change_by_itself() -> None:
    play = await world(
        "memcached", given_users("hunter2hunter2"), memcached(size=3, auth={"secretName": "cache-users"})
    )
    found = live(play)
    assert found.resource is not None
    [secret] = [each for each in found.of(SECRET) if each["metadata"]["name"] == "cache-users"]
    other = {**secret, "data": {"users": "YXBwOmh1bnRlcjNodW50ZXIzCg=="}}
    options = WORLDS["memcached"][1]
    made = await plan(subject("memcached"), options, found, found.resource, nothing_else, [(SECRET, other)])
    assert "change Secret cache-users-mounted" in [step.title for step in made.steps]
    assert made.ready
