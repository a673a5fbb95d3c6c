"""Whose an object is, for every kind that the installed operators own: one policy for all of them.

An object of another owner with the name of an owned one is never used, changed or deleted. An owned object whose labels
or owners were edited is restored, or the status names it. The kinds come from the registry: a new kind needs its case,
and a new owned kind a spec that makes one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

import operators
from operators.etcd.api import backup as backup_api
from shared.cli.options import parse_options
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import CONFIG_MAP, EVENT, PERSISTENT_VOLUME_CLAIM, POD, SECRET, Key, Kind, Obj
from shared.kubernetes.ownership import COMPONENT, INSTANCE, MANAGED_BY, NAME, PART_OF
from shared.status import conditions
from simulator.api_server.requests import TargetedRequest
from simulator.harness import NAMESPACE
from tests.etcd.unit.backup import test_life as backups
from tests.harness.scenario import ScenarioStep, Stage, Subject, apply, create, delete, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.redis import scenarios as redis

SECURE: Obj = {"auth": {}, "tls": {"mode": "self"}}
BUDGET: Obj = {"podDisruptionBudget": {"maxUnavailable": 1}}
LEAST: Obj = {"network": {"enabled": False}, "connectionSecret": False}
"""A spec after which the operator deletes the objects that it may delete."""


class Case(NamedTuple):
    """A kind, and the specs that make every object that its resources may own.

    Attributes:
        given: steps before the resource is created.
        full: steps that make objects, each in a world of its own.
        least: step that lets the operator delete objects that the spec no longer requires.
        name: name of the resource.
        ends: reason of its Ready condition at the end.
    """

    subject: Subject
    given: tuple[ScenarioStep, ...]
    full: tuple[tuple[ScenarioStep, ...], ...]
    least: ScenarioStep
    name: str = "cache"
    ends: str = "Ready"


def _memcached(workload: str) -> tuple[ScenarioStep, ...]:
    tls = {"mode": "self", "clientAuth": "required"}
    spec: Obj = {**memcached.AUTOSCALING, **BUDGET, "auth": {}, "tls": tls, "metrics": {}}
    return (apply(size=2, workload=workload, **spec),)


CASES: dict[str, Case] = {
    "Memcached": Case(
        memcached.MEMCACHED,
        (),
        (_memcached("Deployment"), _memcached("StatefulSet")),
        memcached.apply(**memcached.DEPLOYED, **LEAST),
    ),
    "EtcdCluster": Case(
        etcd.ETCD,
        (backups.CLAIM,),
        ((etcd.cluster(1, **SECURE, **BUDGET, **etcd.BACKUP), later(3600)),),
        etcd.cluster(1, **SECURE, **LEAST),
    ),
    "EtcdBackup": Case(
        backups.BACKUPS,
        (backups.CLUSTER, backups.CLAIM),
        ((backups.NIGHTLY,),),
        ScenarioStep("no change", lambda _: None),
        "nightly",
        "Complete",
    ),
    "RedisCluster": Case(
        redis.REDIS,
        (),
        ((redis.cluster(3, replicasPerMaster=0, **SECURE, **BUDGET),),),
        redis.cluster(3, replicasPerMaster=0, **SECURE, **LEAST),
    ),
}


def _owned_kinds() -> Iterator[tuple[str, set[Kind]]]:
    """Yield each kind that the installed operators serve, with the kinds of the objects that its resources own."""
    for operator in operators.installed():
        options = parse_options(operator.process_name, operator.name, [], {})
        for served in operator.kinds:
            controller = served.controller(options)
            yield controller.kind.name, {*controller.owns, *((SECRET,) if controller.makes_secrets else ())}


OWNED = dict(_owned_kinds())
IDENTITY = ("labels", "ownerReferences")

SECONDS = 60.0
"""Seconds between two edits, after which the operator restores at once (`FieldConflicts`)."""


@dataclass
class Owned:
    """An owned object as it was created, and the steps that make it."""

    kind: Kind
    name: str
    steps: tuple[ScenarioStep, ...]
    obj: Obj = field(repr=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


async def _run(case: Case, *steps: ScenarioStep) -> ScenarioRun:
    run = ScenarioRun(World(case.subject))
    await run.run_steps((*case.given, *steps))
    return run


_FOUND: dict[str, list[Owned]] = {}


async def owned_objects(kind: str) -> list[Owned]:
    """Return the objects that the resources of a kind own; of pods and claims, those with the number 0."""
    if kind not in _FOUND:
        case, found = CASES[kind], dict[tuple[Kind, str], Owned]()
        own = case.subject.controller(case.subject.database()).kind
        for steps in case.full:
            run = await _run(case)
            before = len(run.world.server.watches.history)
            await run.run_steps(steps)
            for of, event in run.world.server.watches.history[before:]:
                name = event["object"]["metadata"]["name"]
                is_one = of not in (POD, PERSISTENT_VOLUME_CLAIM) or not name[-1].isdigit() or name.endswith("-0")
                if event["type"] == "ADDED" and of not in (own, EVENT) and is_one and not _has_any_name(event):
                    found.setdefault((of, name), Owned(of, name, steps, event["object"]))
        _FOUND[kind] = list(found.values())
    return _FOUND[kind]


def _has_any_name(event: Obj) -> bool:
    """Whether an object is a pod of a Deployment, which gets a name that is free."""
    return "pod-template-hash" in (event["object"]["metadata"].get("labels") or {})


def _now(run: ScenarioRun, owned: Owned) -> Obj | None:
    """Return the present object with the kind and name of an owned one."""
    return next((obj for obj in run.stage.find(owned.kind) if obj["metadata"]["name"] == owned.name), None)


def _status(run: ScenarioRun, case: Case) -> tuple[Obj, str]:
    """Return the condition Ready of the resource, and all conditions as text."""
    [resource] = (each for each in run.stage.find() if each["metadata"]["name"] == case.name)
    return condition(resource, conditions.READY), str(resource["status"]["conditions"])


def _identity(obj: Obj | None) -> Obj | None:
    """Return the part of an object that determines its owner."""
    return obj and {key: obj["metadata"].get(key) for key in ("uid", *IDENTITY)}


def _other(stage: Stage) -> Obj:
    """Create another owner, and return a reference to it."""
    create(CONFIG_MAP, "other").act(stage)
    [owner] = (each for each in stage.find(CONFIG_MAP) if each["metadata"]["name"] == "other")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": owner["metadata"]["uid"]}
    return reference | {"controller": True}


def test_every_kind_of_the_registry_has_a_case() -> None:
    assert OWNED.keys() == CASES.keys()


@pytest.mark.parametrize("kind", CASES)
async def test_every_owned_kind_of_the_registry_is_made_by_a_case(kind: str) -> None:
    made = {owned.kind for owned in await owned_objects(kind)}
    assert OWNED[kind] == OWNED[kind] & made


# Objects of other owners.


def _foreign(owned: Owned, stage: Stage, *, is_labelled: bool) -> Obj:
    """Create an object of another owner with the name and the content of an owned one."""
    content = {key: part for key, part in owned.obj.items() if key not in ("metadata", "status")}
    metadata: Obj = {"name": owned.name, "namespace": NAMESPACE, "labels": {"team": "other"}}
    if is_labelled:
        metadata |= {"labels": owned.obj["metadata"]["labels"], "ownerReferences": [_other(stage)]}
    return stage.user_client.create(owned.kind, content | {"metadata": metadata})


def _watched(run: ScenarioRun, uid: str) -> list[str]:
    """Return a list to which each write of the operator to an object is added."""
    written, check = list[str](), run.world.server.check_write

    def checked(target: TargetedRequest, live: Obj | None) -> None:
        if live is not None and live["metadata"]["uid"] == uid:
            written.append(f"{target.verb} {target.subresource}".strip())
        check(target, live)

    run.world.server.check_write = checked
    return written


@pytest.mark.parametrize(
    "is_labelled",
    [
        pytest.param(False, id="of a user", marks=pytest.mark.nightly),
        pytest.param(True, id="with the labels of the resource and another controller"),
    ],
)
@pytest.mark.parametrize("kind", CASES)
async def test_object_of_another_owner_is_neither_used_nor_changed_nor_deleted(kind: str, is_labelled: bool) -> None:
    case, wrong = CASES[kind], list[str]()
    for owned in await owned_objects(kind):
        run = await _run(case)
        before = _foreign(owned, run.stage, is_labelled=is_labelled)
        written = _watched(run, before["metadata"]["uid"])
        await run.run_steps(owned.steps)
        ready, text = _status(run, case)
        is_named = owned.kind == POD or owned.name in text  # the StatefulSet's controller reports a pod
        if ready["reason"] in ("Ready", "Complete") or not is_named:
            wrong.append(f"{owned} is used: {ready['reason']}: {ready['message']}")
        await run.run_steps((case.least, delete(name=case.name)))
        run.world.settle_workloads()
        if written or _identity(_now(run, owned)) != _identity(before):
            wrong.append(f"{owned} is changed: {written} {_identity(_now(run, owned))}")
    assert not wrong, "\n".join(wrong)


# Edited labels and owners.


def _edits(obj: Obj, other: Obj) -> Iterator[tuple[str, Obj]]:
    """Yield changes of the labels and owners of an object."""
    deciding = (NAME, INSTANCE, MANAGED_BY, COMPONENT)
    for key in deciding if obj["kind"] == POD.name else (*deciding, PART_OF):  # on a pod, PART_OF is for users only
        yield f"label {key} is missing", {"labels": {key: None}}
        yield f"label {key} has another value", {"labels": {key: "other"}}
    if obj["metadata"].get("ownerReferences"):
        yield "it has no owner", {"ownerReferences": None}
    yield "it has another controller", {"ownerReferences": [other]}


@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=pytest.mark.nightly if each == "RedisCluster" else ()) for each in CASES]
)
async def test_edited_labels_and_owners_are_restored_or_reported(kind: str) -> None:
    """A pod without a label of the selector has lost its controller: a user decides whether it is one."""
    case, wrong = CASES[kind], list[str]()
    for steps in case.full:
        run = await _run(case, *steps)
        other, user = _other(run.stage), run.stage.user_client
        for owned in await owned_objects(kind):
            before = _now(run, owned)
            if owned.steps != steps or before is None or owned.kind == backup_api.API.kind:
                continue  # users may keep an EtcdBackup by taking it out of its schedule
            for text, edit in _edits(before, other):
                user.merge(owned.kind, NAMESPACE, owned.name, {"metadata": edit})
                await run.wait(SECONDS)
                ready, reported = _status(run, case)
                if _identity(_now(run, owned)) == _identity(before):
                    continue
                if owned.name not in reported:
                    wrong.append(f"{owned}: {text}: {ready['reason']}: {ready['message']}")
                restored = {key: before["metadata"].get(key) for key in IDENTITY}
                user.merge(owned.kind, NAMESPACE, owned.name, {"metadata": restored})
                await run.settle()
    assert not wrong, "\n".join(wrong)


# The Secret for clients.


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind != backup_api.API.kind.name])
async def test_key_of_a_user_stays_in_a_secret_for_clients_that_is_not_requested(kind: str) -> None:
    """The operator removed only its own keys, and so found one to remove in every reconcile."""
    case, added = CASES[kind], {"added": "eA=="}
    run = await _run(case, *case.full[0])
    run.stage.user_client.merge(SECRET, NAMESPACE, f"{case.name}-connection", {"data": added})
    await run.run_steps((case.least,))
    [secret] = (each for each in run.stage.find(SECRET) if each["metadata"]["name"] == f"{case.name}-connection")
    assert (secret["data"], _status(run, case)[0]["reason"]) == (added, "Ready")
    assert run.operator is not None
    assert not run.operator.queue.failures(Key(NAMESPACE, case.name))
