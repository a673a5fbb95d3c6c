"""Specs that the API server accepts, rejects and defaults, and the output of kubectl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from operators import installed
from operators.etcd.api.resource import MAX_OUTSIDE_VOTERS
from operators.memcached.api.spec import DEFAULT_VERSION
from shared.api.crd import Resource
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import SECRET, STATEFUL_SET, Kind, Obj
from shared.pki.secret_names import server_secret
from shared.pki.stores import issued_in
from tests.platform.api.conftest import Kubectl
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import ETCD_BACKUP, ETCD_CLUSTER, MEMCACHED, REDIS_CLUSTER, World
from tests.support.cases import Case, Change
from tests.support.etcd import backup_cases
from tests.support.etcd import cases as etcd_cases
from tests.support.etcd.changes import CHANGES, REFUSED_CHANGES
from tests.support.memcached import cases as memcached_cases
from tests.support.memcached import changes as memcached_changes
from tests.support.redis import cases as redis_cases
from tests.support.redis import changes as redis_changes
from tools.local.controlplane import ControlPlane
from tools.local.errors import ClusterError
from tools.local.paths import REPOSITORY

CASES = {
    MEMCACHED: memcached_cases,
    ETCD_CLUSTER: etcd_cases,
    ETCD_BACKUP: backup_cases,
    REDIS_CLUSTER: redis_cases,
}
ACCEPTED = [pytest.param(kind, case, id=f"{kind.name}: {case}") for kind in CASES for case in CASES[kind].ACCEPTED]
REFUSED = [
    pytest.param(kind, case, id=f"{kind.name}: {case}")
    for kind in CASES
    for case in CASES[kind].REFUSED
    if case.api_error  # others only the webhook and the plan refuse
]
REJECTED_CHANGES_OF_ALL = [
    *((MEMCACHED, change) for change in memcached_changes.REFUSED_CHANGES),
    *((ETCD_CLUSTER, change) for change in REFUSED_CHANGES),
    *((ETCD_BACKUP, change) for change in backup_cases.REFUSED_CHANGES),
    *((REDIS_CLUSTER, change) for change in redis_changes.REFUSED_CHANGES),
]
ACCEPTED_CHANGES_OF_ALL = [
    *((MEMCACHED, change) for change in memcached_changes.CHANGES),
    *((ETCD_CLUSTER, change) for change in CHANGES),
    *((REDIS_CLUSTER, change) for change in redis_changes.CHANGES),
]

SAMPLES = sorted((REPOSITORY / "samples" / "memcached").glob("*.yaml"))
OTHER_SAMPLES = [
    sample for name in ("etcd", "redis") for sample in sorted((REPOSITORY / "samples" / name).glob("*.yaml"))
]
SEED_OF_REDIS = OTHER_SAMPLES.pop(OTHER_SAMPLES.index(REPOSITORY / "samples" / "redis" / "seed.yaml"))

DEFAULTS = {
    "memoryMB": 64,
    "maxItemSizeMB": 1,
    "maxConnections": 1024,
    "threads": 4,
    "containerPort": 11211,
    "warmRestart": False,
    "changes": "Automatic",
    "connectionSecret": True,
    "paused": False,
}


ETCD_DEFAULTS = {
    "storage": {"size": "8Gi", "medium": "Volume", "retain": True},
    "heartbeatInterval": 100,
    "electionTimeout": 1000,
    "paused": False,
    "changes": "Automatic",
    "connectionSecret": True,
    "deletionProtection": False,
    "hibernate": False,
}


REDIS_DEFAULTS = {
    "replicasPerMaster": 1,
    "pause": False,
    "finalizers": "foreground",
    "changes": "Automatic",
    "connectionSecret": True,
    "deletionProtection": False,
    "hibernate": False,
}


def manifest(case: Case, kind: Kind = MEMCACHED) -> dict[str, object]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": case.resource},
        "spec": case.whole_spec,
    }


def holds(kept: Any, given: Any) -> bool:
    """Whether the stored value contains every given field."""
    if not isinstance(given, dict):
        return bool(kept == given)
    return all(name in kept and holds(kept[name], value) for name, value in given.items())


def message_of(refused: pytest.ExceptionInfo[KubeError]) -> str:
    """Return the message of the API server, in the words of Kubernetes 1.32 and later."""
    return str(refused.value).replace("may not be longer than", "may not be more than")


def create(world: World, kind: Kind, case: Case) -> Obj:
    return world.user_client.create(kind, manifest(case, kind) | {"metadata": world.metadata(case.resource)})


@pytest.fixture(scope="module")
def shared_world(plane: ControlPlane) -> Iterator[World]:
    """Return a world that tests can share, because they leave no resource in it."""
    world = World(plane)
    yield world
    world.close()


@pytest.mark.parametrize(("kind", "case"), ACCEPTED)
def test_valid_spec_is_accepted(shared_world: World, kind: Kind, case: Case) -> None:
    created = create(shared_world, kind, case)
    shared_world.remove(kind, case.resource)
    assert holds(created["spec"], case.whole_spec), "the spec as given, plus defaults"


@pytest.mark.parametrize(("kind", "case"), REFUSED)
def test_invalid_spec_is_rejected_with_an_explanation(shared_world: World, kind: Kind, case: Case) -> None:
    with pytest.raises(KubeError) as refused:
        create(shared_world, kind, case)
    assert refused.value.status in (400, 422)
    assert case.api_error in message_of(refused)


def replace(world: World, kind: Kind, change: Change) -> Obj:
    """Create a resource, set its status, and replace its spec."""
    created = create(world, kind, change.old)
    if change.status:
        status = {"status": change.status}
        created = world.user_client.merge(kind, world.namespace, change.old.resource, status, subresource="status")
    return world.user_client.update(kind, created | {"spec": change.new.whole_spec})


@pytest.mark.parametrize(("kind", "change"), ACCEPTED_CHANGES_OF_ALL, ids=str)
def test_valid_change_is_accepted(world: World, kind: Kind, change: Change) -> None:
    assert holds(replace(world, kind, change)["spec"], change.new.whole_spec)


@pytest.mark.parametrize(("kind", "change"), REJECTED_CHANGES_OF_ALL, ids=str)
def test_invalid_change_is_rejected_with_an_explanation(world: World, kind: Kind, change: Change) -> None:
    with pytest.raises(KubeError) as refused:
        replace(world, kind, change)
    assert refused.value.status == 422
    assert change.api_error in message_of(refused)


@pytest.mark.parametrize(
    ("kind", "given", "filled_in"),
    [
        (MEMCACHED, {"size": 2}, DEFAULTS),
        (ETCD_CLUSTER, {"size": 3, "version": "3.6.16"}, ETCD_DEFAULTS),
        (REDIS_CLUSTER, {"replicas": 6}, REDIS_DEFAULTS),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else "",
)
def test_missing_fields_get_defaults(world: World, kind: Kind, given: Obj, filled_in: Obj) -> None:
    assert create(world, kind, Case("", given, base={}))["spec"] == given | filled_in


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_memcached_sample_applies_strictly_and_becomes_ready(
    world: World, kube: Kubectl, operator: Operator, sample: Path
) -> None:
    kube("apply", "--validate=strict", "--filename", sample)
    resources = [obj for obj in yaml.safe_load_all(sample.read_text()) if obj["kind"] == MEMCACHED.name]
    (name,) = (obj["metadata"]["name"] for obj in resources)

    def becomes_ready() -> bool:
        if issued := issued_in(world.find(SECRET, server_secret(name))):
            operator.fleet.files = issued.pair  # the kubelet mounts the Secret, and servers load the files
        return world.is_ready(name)

    world.eventually(becomes_ready, seconds=60)
    again = kube("apply", "--validate=strict", "--filename", sample)
    assert f"{MEMCACHED.name.lower()}.{MEMCACHED.group}/{name} unchanged" in again


def test_unknown_field_is_named(world: World, kube: Kubectl) -> None:
    case = manifest(Case("unknown", {"memoryMb": 64}))
    with pytest.raises(ClusterError, match=r'unknown field "spec\.memoryMb"'):
        kube("apply", "--validate=strict", "--filename", "-", stdin=json.dumps(case))


def test_kubectl_get_shows_the_printer_columns(world: World, kube: Kubectl, operator: Operator) -> None:
    world.create(size=2)
    world.eventually(world.is_ready)
    heading, row = kube("get", "mc").splitlines()
    assert heading.split() == ["NAME", "DESIRED", "READY", "PHASE", "REASON", "AGE"]
    assert row.split()[:5] == ["cache", "2", "2", "Running", "Ready"]
    heading, row = kube("get", "platform", "--output", "wide").splitlines()
    assert heading.split()[6:] == ["IMAGE", "MESSAGE"]
    assert f"memcached:{DEFAULT_VERSION}" in row
    assert row.endswith("2 of 2 servers are ready.")


@pytest.mark.parametrize(
    "resource", [each for operator in installed() for each in operator.resources], ids=lambda api: api.kind.name
)
def test_kubectl_explain_describes_every_field(kube: Kubectl, resource: Resource) -> None:
    output = kube("explain", f"{resource.kind.plural}.spec")
    for field in resource.spec.model_fields.values():
        assert f"  {field.alias}\t" in output
    assert "<no description>" not in kube("explain", resource.kind.plural, "--recursive") + output


WAITING = {
    "type": "Ready",
    "status": "False",
    "reason": "GrowBlocked",
    "message": "Waiting.",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "observedGeneration": 1,
}

SHOWN = {
    ETCD_CLUSTER: (
        {
            "readyMembers": 2,
            "phase": "Scaling",
            "version": "3.6.16",
            "leader": "cache-1",
            "image": "etcd:v3.6.16",
            "outsideVoters": [f"{number:016x}" for number in range(MAX_OUTSIDE_VOTERS)],
            "conditions": [WAITING],
        },
        ["NAME", "SIZE", "READY", "PHASE", "REASON", "VERSION", "AGE", "LEADER", "IMAGE", "MESSAGE"],
        ["cache", "3", "2", "Scaling", "GrowBlocked", "3.6.16", ..., "cache-1", "etcd:v3.6.16", "Waiting."],
    ),
    ETCD_BACKUP: (
        {
            "phase": "Complete",
            "revision": 7,
            "size": "1.2Mi",
            "sizeBytes": 1258291,
            "location": "volume://snapshots/a",
            "conditions": [WAITING],
        },
        ["NAME", "CLUSTER", "PHASE", "REASON", "REVISION", "SIZE", "AGE", "LOCATION", "MESSAGE"],
        ["cache", "demo", "Complete", "GrowBlocked", "7", "1.2Mi", ..., "volume://snapshots/a"],
    ),
    REDIS_CLUSTER: (
        {
            "readyReplicas": 5,
            "masters": 3,
            "phase": "Upgrading",
            "version": "redis-7.0.15",
            "image": "redis:8.0.2",
            "conditions": [WAITING, {"type": "slave", "status": "False"}, {"type": "slave", "status": "True"}],
        },
        ["NAME", "REPLICAS", "READY", "PRIMARIES", "PHASE", "REASON", "VERSION", "AGE", "IMAGE", "MESSAGE"],
        ["cache", "6", "5", "3", "Upgrading", "GrowBlocked", "redis-7.0.15", ..., "redis:8.0.2"],
    ),
}


@pytest.mark.parametrize("kind", SHOWN, ids=lambda kind: kind.name)
def test_kubectl_get_shows_the_status(world: World, kube: Kubectl, kind: Kind) -> None:
    status, titles, cells = SHOWN[kind]
    create(world, kind, Case("", base=CASES[kind].BASE))
    world.user_client.merge(kind, world.namespace, "cache", {"status": status}, subresource="status")
    heading, row = kube("get", kind.plural, "--output", "wide").splitlines()
    assert heading.split() == titles
    assert all(shown == cell for shown, cell in zip(row.split(), cells, strict=False) if cell is not ...)


def test_kubectl_scales_an_etcd_cluster_within_its_bounds(world: World, kube: Kubectl) -> None:
    create(world, ETCD_CLUSTER, Case("", base=etcd_cases.BASE))
    status = {"size": 3, "selector": "app.kubernetes.io/instance=cache"}
    world.user_client.merge(ETCD_CLUSTER, world.namespace, "cache", {"status": status}, subresource="status")
    kube("scale", "etcd/cache", "--replicas=5")
    scale = json.loads(kube("get", "etcdcluster", "cache", "--subresource=scale", "--output=json"))
    assert (scale["spec"]["replicas"], scale["status"]) == (5, {"replicas": 3, "selector": status["selector"]})
    with pytest.raises(ClusterError, match="greater than or equal to 1"):
        kube("scale", "etcd/cache", "--replicas=0")


@pytest.mark.parametrize("sample", OTHER_SAMPLES, ids=lambda path: f"{path.parent.stem}: {path.stem}")
def test_sample_applies_strictly_and_idempotently(world: World, kube: Kubectl, sample: Path) -> None:
    kube("apply", "--validate=strict", "--filename", sample)
    again = kube("apply", "--validate=strict", "--filename", sample).splitlines()
    lines_of_resources = [line for line in again if not line.startswith("secret/")]  # stringData is applied every time
    assert lines_of_resources
    assert all(line.endswith(" unchanged") for line in lines_of_resources)


def test_seed_manifest_is_rejected_only_for_its_version(world: World, kube: Kubectl) -> None:
    text = SEED_OF_REDIS.read_text().replace("namespace: kube-system", f"namespace: {world.namespace}")
    with pytest.raises(ClusterError, match=r"redis 3\.2\.8 is not supported"):
        kube("create", "--filename", "-", stdin=text.replace("7.0.15", "3.2.8"))
    for _ in range(2):
        kube("apply", "--validate=strict", "--filename", "-", stdin=text)
    with pytest.raises(ClusterError, match=r"Use redis 6\.2 to 8\.x, or valkey 7\.2 to 9\.x"):
        kube("patch", "rec/example000-redis-cluster", "--type=merge", "--patch", '{"spec": {"version": "3.2.8"}}')
    kept = json.loads(kube("get", "rec/example000-redis-cluster", "--output=json"))
    assert kept["spec"]["version"] == "7.0.15"
    assert kept["metadata"]["generation"] == 1, "the second apply changes nothing"
    assert "status" not in kept, "an apply does not change the status subresource"


def test_kubectl_scales_a_redis_cluster_within_its_bounds(world: World, kube: Kubectl) -> None:
    create(world, REDIS_CLUSTER, Case("", base=redis_cases.BASE))
    kube("scale", "rec/cache", "--replicas=8")
    assert json.loads(kube("get", "rec", "cache", "--output=json"))["spec"]["replicas"] == 8
    with pytest.raises(ClusterError, match="at least three primaries"):
        kube("scale", "rec/cache", "--replicas=5")


def test_kubectl_scales_a_memcached_and_its_selector_finds_the_pods(
    world: World, kube: Kubectl, operator: Operator
) -> None:
    world.create(size=1)
    world.eventually(world.is_ready)
    kube("scale", "memcached/cache", "--replicas=3")
    world.eventually(lambda: world.is_ready() and world.get(STATEFUL_SET)["spec"]["replicas"] == 3)
    scale = json.loads(kube("get", "memcached", "cache", "--subresource=scale", "--output=json"))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 3)
    found = kube("get", "pods", "--selector", scale["status"]["selector"], "--output=name").split()
    assert len(found) == 3


def test_kubectl_describe_and_wait_work(world: World, kube: Kubectl, operator: Operator) -> None:
    world.create()
    world.eventually(world.is_ready)
    kube("wait", "memcached/cache", "--for=condition=Ready", "--timeout=5s")
    world.eventually(lambda: world.events(reason="Ready"))
    output = kube("describe", "memcached", "cache")
    assert "1 of 1 servers are ready." in output
    assert "memcached-operator" in output.partition("Events:")[2]
