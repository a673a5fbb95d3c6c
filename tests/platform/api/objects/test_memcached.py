"""Objects and status of a Memcached on a real API server."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from operators.memcached.api.spec import DEFAULT_VERSION
from operators.memcached.security.secrets import fingerprint
from shared.kubernetes.kinds import AUTOSCALER, DEPLOYMENT, DISRUPTION_BUDGET, POD, SECRET, SERVICE, STATEFUL_SET, Kind
from shared.status import conditions
from simulator.memcached.fake_servers import certificate, der, secret, tls_secret
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, World


@pytest.mark.parametrize("workload", [STATEFUL_SET, DEPLOYMENT], ids=str)
def test_resource_creates_a_workload_and_a_headless_service(world: World, operator: Operator, workload: Kind) -> None:
    resource = world.create(size=3, **({"workload": "Deployment"} if workload == DEPLOYMENT else {}))
    world.eventually(world.is_ready)
    labels = {
        "app.kubernetes.io/name": "memcached",
        "app.kubernetes.io/instance": "cache",
        "app.kubernetes.io/component": "server",
        "app.kubernetes.io/managed-by": "memcached-operator",
        "app.kubernetes.io/part-of": "platform",
    }
    owner = {
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        "name": "cache",
        "uid": resource["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    for kind in (workload, SERVICE):
        (obj,) = world.listed(kind)
        assert obj["metadata"]["name"] == "cache"
        assert obj["metadata"]["labels"] == labels
        assert obj["metadata"]["ownerReferences"] == [owner]
    assert world.get(workload)["spec"]["replicas"] == 3
    assert world.get(SERVICE)["spec"]["clusterIP"] == "None"
    pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in world.listed(POD)}
    status = world.get(MEMCACHED)["status"]
    assert status["nodes"] == sorted(pods)
    named = [f"cache-{number}.cache.{world.namespace}.svc" for number in range(3)]
    assert status["servers"] == [
        f"{host}:11211" for host in (named if workload == STATEFUL_SET else sorted(pods.values()))
    ]
    assert status["workload"] == workload.name


def reconciles() -> float:
    """Return the number of reconciles without an error that the operator has completed."""
    results = ({"controller": "memcached", "result": result} for result in ("success", "requeue_after"))
    return sum(REGISTRY.get_sample_value("controller_runtime_reconcile_total", labels) or 0.0 for labels in results)


def test_all_features_create_their_objects_without_further_writes(world: World, operator: Operator) -> None:
    world.user_client.create(SECRET, secret("users", users="app:secret\n") | {"metadata": world.metadata("users")})
    served = operator.fleet.files = certificate(hosts=(f"cache.{world.namespace}.svc",))
    world.user_client.create(SECRET, tls_secret(served) | {"metadata": world.metadata("cache-tls")})
    world.create(
        size=2,
        warmRestart=True,
        auth={"secretName": "users"},
        tls={"secretName": "cache-tls", "clientAuth": "required"},
        metrics={},
        podDisruptionBudget={},
        autoscaling={"minReplicas": 2, "maxReplicas": 4},
    )
    world.eventually(lambda: world.is_ready() and world.get(MEMCACHED)["status"].get("certificate"))
    for kind in (STATEFUL_SET, SERVICE, DISRUPTION_BUDGET, AUTOSCALER):
        (obj,) = world.listed(kind)
        assert obj["metadata"]["name"] == "cache"
    status = world.get(MEMCACHED)["status"]
    assert status["servers"] == [f"cache-{n}.cache.{world.namespace}.svc:11211" for n in range(2)]
    assert status["certificate"] == fingerprint(der(served))
    ports = {port["name"]: port["port"] for port in world.get(SERVICE)["spec"]["ports"]}
    assert ports == {"memcached": 11211, "metrics": 9150}
    operator.wire.sent.clear()
    before = reconciles()
    world.edit(MEMCACHED, {"metadata": {"annotations": {"reconcile": "again"}}})
    world.eventually(lambda: reconciles() > before)
    assert operator.wire.sent == [], "Secrets are read only after a change"


def test_first_status_reports_ready_as_unknown(world: World, operator: Operator) -> None:
    workloads, world.workloads = world.workloads, None
    world.create(size=2)
    first = world.eventually(world.condition)
    assert (first["status"], first["reason"]) == ("Unknown", "Creating")
    assert first["observedGeneration"] == 1
    assert world.get(MEMCACHED)["status"]["phase"] == "Creating"
    world.workloads = workloads
    world.eventually(world.is_ready)
    assert world.get(MEMCACHED)["status"] | {"conditions": [], "nodes": [], "servers": []} == {
        "phase": "Running",
        "observedGeneration": 1,
        "replicas": 2,
        "readyReplicas": 2,
        "image": f"memcached:{DEFAULT_VERSION}",
        "version": DEFAULT_VERSION,
        "workload": "StatefulSet",
        "binding": {"name": "cache-connection"},
        "secrets": {"cache-connection": world.get(SECRET, "cache-connection")["metadata"]["uid"]},
        "selector": "app.kubernetes.io/component=server,app.kubernetes.io/instance=cache,"
        "app.kubernetes.io/name=memcached",
        "conditions": [],
        "nodes": [],
        "servers": [],
    }


def test_events_report_creation_scaling_and_update(world: World, operator: Operator) -> None:
    world.create(size=1)
    world.eventually(world.is_ready)
    world.change(size=3)
    world.eventually(lambda: world.is_ready() and len(world.listed(POD)) == 3)
    world.change(version="1.6.18")
    world.eventually(lambda: world.is_ready() and "1.6.18" in world.get(MEMCACHED)["status"]["image"])
    events = world.eventually(lambda: (found := world.events())[-1]["count"] == 2 and found)
    # The last event has the same message as an earlier one, so its count is 2.
    assert [event["reason"] for event in events] == ["Creating", "Ready", "Scaling", "Updating", "Ready"]
    assert {event["type"] for event in events} == {"Normal"}
    assert {event["source"]["component"] for event in events} == {"memcached-operator"}


def test_repeated_event_is_counted_even_across_a_restart(world: World, operator: Operator) -> None:
    world.create()
    world.eventually(world.is_ready)

    def assert_event_count(times: int) -> None:
        world.edit(SERVICE, {"spec": {"ports": None}})
        world.eventually(lambda: [event["count"] for event in world.events(reason="Restored")] == [times])

    assert_event_count(1)
    assert_event_count(2)
    operator.restart()
    assert_event_count(3)


def test_scaling_to_zero_and_back(world: World, operator: Operator) -> None:
    world.create(size=2)
    world.eventually(world.is_ready)
    world.change(size=0)
    world.eventually(lambda: world.is_ready() and not world.listed(POD))
    status = world.get(MEMCACHED)["status"]
    assert (status["nodes"], status["servers"], status["replicas"]) == ([], [], 0)
    world.change(size=2)
    world.eventually(lambda: world.is_ready() and len(world.get(MEMCACHED)["status"]["servers"]) == 2)


def test_change_and_its_reversal_restore_the_objects(world: World, operator: Operator) -> None:
    world.create(size=2, memoryMB=128)
    world.eventually(world.is_ready)
    before = world.snapshot()
    world.change(memoryMB=256, labels={"team": "shop"}, env=[{"name": "TZ", "value": "UTC"}])
    world.eventually(lambda: world.is_ready() and world.get(STATEFUL_SET)["metadata"]["generation"] == 2)
    assert world.snapshot() != before
    world.change(memoryMB=128, labels=None, env=None)
    world.eventually(lambda: world.is_ready() and world.get(STATEFUL_SET)["metadata"]["generation"] == 3)
    assert world.snapshot() == before


def test_own_secrets_are_recorded_and_a_seeded_one_is_refused(world: World, operator: Operator) -> None:
    """Secrets of type kubernetes.io/tls are created with empty keys too, and nothing in a seeded Secret is used."""
    labels = {
        "app.kubernetes.io/name": "memcached",
        "app.kubernetes.io/instance": "cache",
        "app.kubernetes.io/managed-by": "memcached-operator",
    }
    metadata = world.metadata("cache-ca") | {"labels": labels}
    seeded = world.user_client.create(SECRET, secret("cache-ca", **{"ca.crt": "x"}) | {"metadata": metadata})
    resource = world.create(size=1, auth={}, tls={"mode": "self"})
    world.eventually(lambda: world.reason() == "ForeignObject")
    assert seeded["metadata"]["uid"] in world.condition(of=conditions.STALLED)["message"]
    assert world.find(STATEFUL_SET) is None
    world.delete(SECRET, "cache-ca")
    world.edit(MEMCACHED, {"metadata": {"labels": {"retry": "now"}}})
    made = ("cache-auth", "cache-ca", "cache-server-tls", "cache-client-tls")
    world.eventually(lambda: all(_is_filled(world, name) for name in made))
    owner = [resource["metadata"]["uid"]]
    for name in made:
        found = world.get(SECRET, name)["metadata"]
        assert world.get(MEMCACHED)["status"]["secrets"][name] == found["uid"]
        assert [each["uid"] for each in found["ownerReferences"]] == owner


def _is_filled(world: World, name: str) -> bool:
    found = world.find(SECRET, name)
    return found is not None and all(found["data"].values())
