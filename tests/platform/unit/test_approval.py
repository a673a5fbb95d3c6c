"""Changes that wait for an approval (`spec.changes`), for each kind of database.

A change that waits is not applied, what runs is repaired, and an approval is of exactly one change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from operators.etcd.api import resource as etcd_api
from operators.memcached.api import resource as memcached_api
from operators.redis.api import resource as redis_api
from shared.api.applied_spec import APPLIED_SPEC, APPROVAL, note, to_apply
from shared.api.policy import PlatformPolicy
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import EVENT, POD, SECRET, SERVICE, STATEFUL_SET, Kind, Obj
from shared.status import conditions
from simulator.harness import NAMESPACE
from tests.harness.scenario import ScenarioStep, Subject, delete, edit, later, lose
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.plays import issued_with_new_keys
from tests.support.redis import scenarios as redis

DAY = 86_400.0
APPROVED: Obj = {"changes": "Approved"}


class Case(NamedTuple):
    """A kind of database.

    Attributes:
        applied: returns the step that applies a spec with fields in addition to those of the first one.
        field: field that a change sets, with the value before and after it.
        parse, minimal: arguments of `to_apply`.
    """

    subject: Subject
    applied: Callable[..., ScenarioStep]
    field: tuple[str, Any, Any]
    parse: Callable[[Obj], Any]
    minimal: Obj


def over(first: Obj, spec: Obj) -> Obj:
    return first | {"tls": {"mode": "self"}} | spec


CASES = {
    "Memcached": Case(
        memcached.MEMCACHED,
        lambda **spec: memcached.apply(**over({"size": 1}, spec)),
        ("size", 1, 2),
        memcached_api.Memcached.parse,
        memcached_api.MINIMAL,
    ),
    "EtcdCluster": Case(
        etcd.ETCD,
        lambda **spec: etcd.cluster(**over({"size": 1}, spec)),
        ("size", 1, 3),
        etcd_api.EtcdCluster.parse,
        etcd_api.MINIMAL,
    ),
    "RedisCluster": Case(
        redis.REDIS,
        lambda **spec: redis.cluster(**over({"replicas": 3, "replicasPerMaster": 0}, spec)),
        ("replicas", 3, 4),
        redis_api.RedisCluster.parse,
        redis_api.MINIMAL,
    ),
}
KINDS = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def changed(case: Case, **spec: object) -> ScenarioStep:
    field, _, after = case.field
    return case.applied(**{**APPROVED, field: after, **spec})


def resource(run: ScenarioRun) -> Obj:
    [found] = run.stage.find()
    return found


def ready(run: ScenarioRun) -> tuple[str, str]:
    found = condition(resource(run), conditions.READY)
    return found["status"], found["reason"]


def token(run: ScenarioRun) -> str:
    """Return the token in the command of the condition Ready."""
    message = condition(resource(run), conditions.READY)["message"]
    found = re.search(
        rf"`kubectl annotate {run.stage.kind.name.lower()} cache -n default --overwrite {APPROVAL}=(\w+)`$", message
    )
    assert found, message
    return found[1]


def approve(value: str | None) -> ScenarioStep:
    return edit(None, {"metadata": {"annotations": {APPROVAL: value}}})


def contents(run: ScenarioRun) -> dict[tuple[Kind, str], Any]:
    """Return what is in each object but the resource and the events."""
    return {
        (kind, obj["metadata"]["name"]): (obj.get("spec"), obj.get("data"))
        for kind, obj in run.world.server.objects()
        if kind not in (EVENT, run.stage.kind)
    }


async def created(case: Case) -> ScenarioRun:
    run = ScenarioRun(World(case.subject))
    await run.run_steps((case.applied(**APPROVED),))
    assert ready(run) == ("True", "Ready")
    return run


@KINDS
async def test_change_waits_for_its_approval_and_is_then_carried_out(case: Case) -> None:
    run = await created(case)
    before = contents(run)
    await run.run_steps((changed(case), later(3600)))
    assert contents(run) == before
    assert ready(run) == ("False", "AwaitingApproval")
    await run.run_steps((approve(token(run)),))
    assert ready(run) == ("True", "Ready")
    assert len(run.stage.find(POD)) == case.field[2]


@KINDS
async def test_servers_are_repaired_while_a_change_waits(case: Case) -> None:
    subject = case.subject
    run = await created(
        case._replace(
            subject=replace(
                subject, controller=lambda given: replace(subject.controller(given), issue=issued_with_new_keys)
            )
        )
    )
    await run.run_steps((changed(case, tls=None),))
    secrets = {each["metadata"]["name"]: each["data"] for each in run.stage.find(SECRET)}
    if case.subject is not redis.REDIS:  # its pods have no replicas, so that a loss waits for a person
        await run.run_steps((lose(POD), later(600)))
    await run.wait(DAY, times=80)
    assert ready(run) == ("False", "AwaitingApproval")
    assert len(run.stage.find(POD)) == case.field[1]
    renewed = [each for each in run.stage.find(SECRET) if secrets.get(each["metadata"]["name"]) != each["data"]]
    assert any("tls.crt" in each["data"] for each in renewed)


@KINDS
async def test_an_approval_is_of_one_change(case: Case) -> None:
    run, spent = await created(case), list[str]()
    for after in (changed(case), case.applied(**APPROVED)) * 2:
        before = contents(run)
        await run.run_steps((after, later(600)))
        assert ready(run)[1] == "AwaitingApproval"
        assert token(run) not in spent
        for wrong in (*spent, "", "true"):
            await run.run_steps((approve(wrong), later(600)))
        assert contents(run) == before
        spent.append(token(run))
        await run.run_steps((approve(spent[-1]), later(7200)))
        assert ready(run) == ("True", "Ready")


@KINDS
async def test_change_after_the_approval_waits_again(case: Case) -> None:
    run = await created(case)
    await run.run_steps((changed(case),))
    former = token(run)
    await run.run_steps((changed(case, annotations={"team": "data"}), approve(former)))
    assert ready(run)[1] == "AwaitingApproval"
    assert token(run) != former
    await run.run_steps((case.applied(**APPROVED),))  # taken back: nothing waits
    assert ready(run) == ("True", "Ready")


@KINDS
async def test_invalid_change_is_reported_as_invalid(case: Case) -> None:
    run = await created(case)
    await run.run_steps((edit(None, {"spec": {case.field[0]: "many"}}),))
    assert ready(run) == ("False", "InvalidSpec")


@KINDS
async def test_workload_that_is_deleted_while_a_change_waits_gets_nothing_of_it(case: Case) -> None:
    run = await created(case)
    await run.run_steps((changed(case), delete(STATEFUL_SET, "cache"), later(600)))
    assert token(run)
    assert run.stage.find(STATEFUL_SET) == []
    await run.run_steps((approve(token(run)), later(600)))
    assert len(run.stage.find(POD)) == case.field[2]


@KINDS
async def test_approval_lasts_while_the_workload_is_recreated(case: Case) -> None:
    """The operator itself deletes a StatefulSet to change the template of its claims, and its pods stay."""
    run = await created(case)
    await run.run_steps((changed(case),))
    await run.run_steps((approve(token(run)), delete(STATEFUL_SET, "cache", propagationPolicy="Orphan"), later(600)))
    assert ready(run) == ("True", "Ready")


@KINDS
async def test_deleted_objects_are_restored_while_a_change_waits(case: Case) -> None:
    run = await created(case)
    await run.run_steps((changed(case), delete(SERVICE, "cache"), later(600)))
    assert [each for each in run.stage.find(SERVICE) if each["metadata"]["name"] == "cache"]
    assert ready(run) == ("False", "AwaitingApproval")


def test_changes_of_an_autoscaler_wait_for_no_approval() -> None:
    case, given = CASES["Memcached"], {"autoscaling": memcached.AUTOSCALING["autoscaling"]}
    policy = PlatformPolicy(approval_namespaces=("*",))
    assert not seen(case, policy, case.minimal | given | {"size": 4}, noted=given | {"size": 2}).awaits_approval


@KINDS
async def test_operator_that_restarts_knows_what_waits(case: Case) -> None:
    run = await created(case)
    await run.run_steps((changed(case),))
    before, former = contents(run), token(run)
    run.end()
    run.begin()
    await run.run_steps((later(600),))
    assert contents(run) == before
    assert token(run) == former


# The policy of the platform.


def seen(case: Case, policy: PlatformPolicy, spec: Obj, *, generation: int = 2, noted: Obj | None = None) -> Any:
    """Return the resource as the operator applies it."""
    metadata = {"name": "cache", "namespace": NAMESPACE, "uid": "u-1", "generation": generation}
    obj: Obj = {"kind": "Cache", "metadata": metadata, "spec": spec}
    applied = case.parse({**obj, "spec": case.minimal | noted}) if noted is not None else None
    workload = {"metadata": {"annotations": note(applied)}} if applied else None
    return to_apply(case.parse, obj, (None, workload), case.minimal, policy)


@KINDS
@pytest.mark.parametrize("namespaces", [(NAMESPACE,), ("*",), ("other", NAMESPACE)])
def test_policy_requires_approvals_with_any_spec(case: Case, namespaces: tuple[str, ...]) -> None:
    field, before, after = case.field
    policy = PlatformPolicy(approval_namespaces=namespaces)
    for choice in ({}, {"changes": "Automatic"}, APPROVED):
        found = seen(case, policy, case.minimal | {field: after} | choice, noted={field: before})
        assert found.awaits_approval
        assert found.obj["spec"][field] == before
    assert not seen(case, policy, case.minimal | {field: before}, noted={field: before}).awaits_approval


@KINDS
def test_policy_of_other_namespaces_requires_none(case: Case) -> None:
    field, before, after = case.field
    policy = PlatformPolicy(approval_namespaces=("other",))
    assert not seen(case, policy, case.minimal | {field: after}, noted={field: before}).awaits_approval


@KINDS
def test_unknown_applied_spec_is_no_approval(case: Case) -> None:
    found = seen(case, PlatformPolicy(), case.minimal | APPROVED)
    assert (bool(found.awaits_approval), APPROVAL in found.invalid) == (True, True)
    assert not seen(case, PlatformPolicy(), case.minimal | APPROVED, generation=1).awaits_approval


def test_note_names_no_approval() -> None:
    parsed = etcd_api.EtcdCluster.parse({"metadata": {"uid": "u-1"}, "spec": {"size": 3, **APPROVED}})
    assert "changes" not in note(parsed)[APPLIED_SPEC]
