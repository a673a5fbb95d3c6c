"""The final state of a resource depends only on its current spec, not on earlier specs.

Acto's oracles (SOSP'23): a changed spec ends like a new resource with that spec, and a repaired spec ends like a spec
that was always valid. The tests change and revert each field alone, and several fields together.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import reduce
from operator import or_

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.memcached.api.resource import Memcached, validate
from operators.memcached.api.spec import MemcachedSpec
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.secret_provenance import is_blank
from tests.harness.outcome import HISTORY, Outcome
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import Scenario, apply
from tests.harness.scenario_runner import ScenarioRun, World
from tests.memcached.unit.world import UNPAUSED
from tests.support.memcached.scenarios import (
    AUTH,
    AUTOSCALING,
    BUDGET,
    INVALID,
    MEMCACHED,
    TLS,
    given_certificate,
    given_users,
)

pytestmark = pytest.mark.nightly

BASE: Obj = {"size": 1} | UNPAUSED
VOLUMES: Obj = {"extraVolumes": [{"name": "logs", "emptyDir": {}}]}
FIELDS: dict[str, list[Obj]] = {
    "size": [{"size": 2}, {"size": 0}],
    "image": [{"image": "example.com:5000/memcached@sha256:" + "0" * 64}],
    "version": [],  # without it, servers keep the version that they run, by design (api/test_review.py)
    "workload": [{"workload": "Deployment"}, {"workload": "StatefulSet"}],
    "memoryMB": [{"memoryMB": 128}],
    "maxConnections": [{"maxConnections": 2048}],
    "threads": [{"threads": 2}],
    "maxItemSizeMB": [{"maxItemSizeMB": 2}],
    "extraArgs": [{"extraArgs": ["--disable-evictions"]}],
    "containerPort": [{"containerPort": 11311}],
    "warmRestart": [{"warmRestart": True}],
    "extstore": [{"extstore": {"sizeMB": 512}}, {"extstore": {"sizeMB": 512, "storageClassName": "fast"}}],
    "auth": [AUTH],
    "tls": [TLS, {"tls": {"secretName": "cache-tls", "clientAuth": "required"}}],
    # metrics.image is missing: without it, running servers keep the sidecar that they have, by design.
    "metrics": [{"metrics": {}}, {"metrics": {"port": 9151}}, {"metrics": {"enabled": False}}],
    "autoscaling": [{"autoscaling": AUTOSCALING["autoscaling"]}],
    "updateStrategy": [],  # no time passes here; test_pause.py tests the pause
    "network": [{"network": {"enabled": False}}, {"network": {"enabled": True}}],
    "connectionSecret": [],  # without it, an emptied Secret remains recorded: steps/test_connection_secret.py
    "changes": [],  # it determines when later changes apply: tests/platform/unit/test_approval.py
    "paused": [],  # the final state of a paused resource depends on earlier specs by design
    "podDisruptionBudget": [BUDGET, {"podDisruptionBudget": {"minAvailable": 1}}],
    "labels": [{"labels": {"team": "web"}}],
    "annotations": [{"annotations": {"example.com/a": "b"}}],
    "env": [{"env": [{"name": "A", "value": "1"}]}],
    "resources": [{"resources": {"limits": {"memory": "1Gi"}}}],
    "nodeSelector": [{"nodeSelector": {"disk": "ssd"}}],
    "tolerations": [{"tolerations": [{"key": "a", "operator": "Exists"}]}],
    "affinity": [{"affinity": {"podAntiAffinity": {}}}],
    "topologySpread": [{"topologySpread": [{"topologyKey": "zone"}]}],
    "priorityClassName": [{"priorityClassName": "high"}],
    "imagePullSecrets": [{"imagePullSecrets": [{"name": "registry"}]}],
    "imagePullPolicy": [{"imagePullPolicy": "Always"}],
    "serviceAccountName": [{"serviceAccountName": "shop"}],
    "terminationGracePeriodSeconds": [{"terminationGracePeriodSeconds": 60}],
    "podSecurityContext": [{"podSecurityContext": {"runAs": "Platform"}}, {"podSecurityContext": {"runAsUser": 1000}}],
    "containerSecurityContext": [{"containerSecurityContext": {"readOnlyRootFilesystem": False}}],
    "extraContainers": [{"extraContainers": [{"name": "a", "image": "a:1"}]}],
    "extraInitContainers": [{"extraInitContainers": [{"name": "b", "image": "b:1"}]}],
    "extraVolumes": [VOLUMES],
    "extraVolumeMounts": [{**VOLUMES, "extraVolumeMounts": [{"name": "logs", "mountPath": "/logs"}]}],
}
WRONG: tuple[Obj, ...] = (
    INVALID,
    {"memoryMB": 1},
    {"version": "no version"},
    {"extraArgs": ["-p", "1"]},
    {"containerPort": 9150, "metrics": {}},
    {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}},
)
SECRETS = (given_users(), given_certificate())

CASES = [pytest.param(change, id=f"{name}-{number}") for name in FIELDS for number, change in enumerate(FIELDS[name])]


def followed_by(spec: Obj, former: Obj) -> Obj:
    """Return a spec with the default workload if the former one sets another, which is kept otherwise, by design."""
    return {"workload": "StatefulSet"} | spec if "workload" in former else spec


async def differences_after(*specs: Obj) -> list[str]:
    """Return how the final state after several specs differs from that of the last spec alone, one line each."""
    fresh = Scenario(f"{specs[-1]}", (apply(**specs[-1]),), given=SECRETS)
    reference = (await ReferenceRun.record(MEMCACHED, fresh)).reference
    play = ScenarioRun(World(MEMCACHED))
    await play.run_steps((*SECRETS, *(apply(**spec) for spec in specs)))
    return reference.differences(without_empty_secrets(play.world.outcome), unstable=HISTORY)


def without_empty_secrets(outcome: Outcome) -> Outcome:
    """Return an outcome without Secrets that have no content: the operator has no right to delete Secrets."""
    objects = ((kind, obj) for kind, obj in outcome.objects if kind is not SECRET or not is_blank(obj))
    return replace(outcome, objects=tuple(objects))


@pytest.mark.commit
def test_every_field_has_a_change() -> None:
    assert {field.alias or name for name, field in MemcachedSpec.model_fields.items()} == FIELDS.keys()


@pytest.mark.parametrize("change", CASES)
async def test_changed_field_ends_like_a_new_resource(change: Obj) -> None:
    assert not await differences_after(BASE, BASE | change)


@pytest.mark.parametrize("change", CASES)
async def test_reverted_field_leaves_nothing_behind(change: Obj) -> None:
    assert not await differences_after(BASE | change, followed_by(BASE, BASE | change))


@pytest.mark.commit
async def test_key_and_copy_of_a_certificate_do_not_outlive_auth_and_tls() -> None:
    assert not await differences_after(BASE | AUTH | TLS, BASE)


@pytest.mark.commit
@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_repaired_spec_leaves_nothing_behind(wrong: Obj) -> None:
    assert not await differences_after(BASE, BASE | wrong, BASE)


def is_accepted(spec: Obj) -> bool:
    """Return whether the API server accepts a spec: it refuses extstore together with warmRestart, for example."""
    return not validate(Memcached.parse({"metadata": {"name": "cache"}, "spec": spec}))


CHANGES = st.lists(st.sampled_from([change for changes in FIELDS.values() for change in changes]), max_size=6)
SPECS = CHANGES.map(lambda changes: reduce(or_, changes, BASE)).filter(is_accepted)


@settings(max_examples=40, deadline=None)
@given(SPECS, SPECS)
def test_any_sequence_of_specs_ends_like_a_new_resource(first: Obj, second: Obj) -> None:
    assert not asyncio.run(differences_after(first, followed_by(second, first)))
