"""What the API server takes, refuses and fills in, and how kubectl shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import REPOSITORY
from shared.kube import DEPLOYMENT, SECRET, KubeError
from tests.api.conftest import Kubectl
from tests.api.running import Operator
from tests.api.world import MEMCACHED, World
from tests.cases import Case
from tests.memcached_cases import ACCEPTED, REFUSED
from tests.unit.memcached.fleet import certificate, tls_secret

SAMPLES = sorted((REPOSITORY / "samples" / "memcached").glob("*.yaml"))

DEFAULTS = {
    "version": "1.6.38",
    "memoryMB": 64,
    "maxItemSizeMB": 1,
    "maxConnections": 1024,
    "threads": 4,
    "containerPort": 11211,
    "workload": "Deployment",
    "warmRestart": False,
    "paused": False,
}


def manifest(case: Case) -> dict[str, object]:
    return {
        "apiVersion": MEMCACHED.api_version,
        "kind": MEMCACHED.name,
        "metadata": {"name": case.resource},
        "spec": case.whole_spec,
    }


def holds(kept: Any, given: Any) -> bool:
    """Whether all that was given was kept."""
    if not isinstance(given, dict):
        return bool(kept == given)
    return all(name in kept and holds(kept[name], value) for name, value in given.items())


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
def test_it_is_accepted(world: World, case: Case) -> None:
    created = world.person.create(MEMCACHED, manifest(case) | {"metadata": world.metadata(case.resource)})
    assert holds(created["spec"], case.whole_spec), "as given, with defaults beside"


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_it_is_refused_with_a_sentence(world: World, case: Case) -> None:
    with pytest.raises(KubeError) as refused:
        world.person.create(MEMCACHED, manifest(case) | {"metadata": world.metadata(case.resource)})
    assert refused.value.status in (400, 422)
    assert case.says in str(refused.value)


def test_what_is_not_given_is_filled_in(world: World) -> None:
    assert world.create(size=2)["spec"] == DEFAULTS | {"size": 2}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_applies_strictly_and_is_made_real(
    world: World, kube: Kubectl, operator: Operator, sample: Path
) -> None:
    world.person.create(SECRET, tls_secret(certificate()) | {"metadata": world.metadata("vault-tls")})
    kube("apply", "--validate=strict", "--filename", sample)
    resources = [obj for obj in yaml.safe_load_all(sample.read_text()) if obj["kind"] == MEMCACHED.name]
    (name,) = (obj["metadata"]["name"] for obj in resources)
    world.eventually(lambda: world.is_ready(name))
    again = kube("apply", "--validate=strict", "--filename", sample)
    assert f"{MEMCACHED.name.lower()}.{MEMCACHED.group}/{name} unchanged" in again


def test_an_unknown_field_is_named(world: World, kube: Kubectl) -> None:
    case = manifest(Case("unknown", {"memoryMb": 64}))
    with pytest.raises(ClusterError, match=r'unknown field "spec\.memoryMb"'):
        kube("apply", "--validate=strict", "--filename", "-", stdin=json.dumps(case))


def test_get_shows_what_counts(world: World, kube: Kubectl, operator: Operator) -> None:
    world.create(size=2)
    world.eventually(world.is_ready)
    heading, row = kube("get", "mc").splitlines()
    assert heading.split() == ["NAME", "DESIRED", "READY", "PHASE", "AGE"]
    assert row.split()[:4] == ["cache", "2", "2", "Running"]
    heading, row = kube("get", "platform", "--output", "wide").splitlines()
    assert heading.split()[5:] == ["IMAGE", "MESSAGE"]
    assert "memcached:1.6.38" in row
    assert row.endswith("2 of 2 servers are ready.")


def test_explain_describes_every_field(kube: Kubectl) -> None:
    said = kube("explain", "memcached.spec")
    assert "MiB for items" in said or "Memory for items" in said
    for field in (*DEFAULTS, "size", "extraArgs", "resources", "topologySpread", "tls", "auth", "metrics"):
        assert field in said
    assert "<no description>" not in kube("explain", "memcached", "--recursive") + said


def test_kubectl_scales_and_an_autoscaler_finds_the_pods(world: World, kube: Kubectl, operator: Operator) -> None:
    world.create(size=1)
    world.eventually(world.is_ready)
    kube("scale", "memcached/cache", "--replicas=3")
    world.eventually(lambda: world.is_ready() and world.get(DEPLOYMENT)["spec"]["replicas"] == 3)
    scale = json.loads(kube("get", "memcached", "cache", "--subresource=scale", "--output=json"))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    found = kube("get", "pods", "--selector", scale["status"]["selector"], "--output=name").split()
    assert len(found) == 3


def test_describe_and_wait_work_as_people_expect(world: World, kube: Kubectl, operator: Operator) -> None:
    world.create()
    world.eventually(world.is_ready)
    kube("wait", "memcached/cache", "--for=condition=Ready", "--timeout=5s")
    world.eventually(lambda: world.events(reason="Ready"))
    said = kube("describe", "memcached", "cache")
    assert "1 of 1 servers are ready." in said
    assert "memcached-operator" in said.partition("Events:")[2]
