"""Scenarios of the redis operator with real nodes: tasks of a user and their results."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import yaml
from redis.exceptions import AuthenticationError

from e2e.scenarios.redis.cluster import SMALL, Cluster
from e2e.scenarios.redis.session import Access
from e2e.scenarios.redis.versions import KEY_BY_KEY, REDIS_7, REDIS_8, VALKEY_8, VALKEY_9, Spec
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import ROOT, Kubectl, Refused, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.resource import owned_claims
from operators.redis.api.spec import DEFAULT_EXPORTER
from operators.redis.objects.names import CLUSTER_UID, CONTAINER

SAMPLES = ROOT / "samples" / "redis"


@pytest.mark.nightly
def test_manifest_of_the_first_release_runs_once_its_references_exist(kubectl: Kubectl) -> None:
    manifest = yaml.safe_load((SAMPLES / "seed.yaml").read_text())
    manifest["metadata"]["namespace"] = kubectl.namespace
    kubectl("apply", "-f", "-", given=manifest)
    seed = Cluster(kubectl, manifest["metadata"]["name"])
    seed.await_reason("Paused", seconds=30)
    assert not kubectl.items("pods"), "a paused resource has no pods"
    kubectl("delete", "rec", seed.name, "--timeout=30s")

    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    kubectl.apply(named("PersistentVolumeClaim", "all-nodes", spec=claim))
    kubectl.apply(named("ConfigMap", "name", data={"redis.conf": "maxmemory-policy allkeys-lru\n"}))
    [pod] = manifest["spec"]["pod"]
    pod |= {"volumes": {"type": "nfs", "persistentVolumeClaimName": "all-nodes"}, "resources": SMALL}
    pod |= {"monitorImage": DEFAULT_EXPORTER, "middlewareImage": "redis"}
    del pod["initImage"]
    manifest["spec"]["pause"] = False
    nodes = [node["metadata"]["name"] for node in kubectl.items("nodes")]
    kubectl("label", "nodes", *nodes, "--overwrite", "HC_Status=C")
    try:
        kubectl("apply", "-f", "-", given=manifest)
        seed.await_ready(7)
        [entry] = [each for each in seed.status["conditions"] if each.get("name") == f"{seed.name}-0"]
        assert entry["domainName"] == f"{seed.name}-0.{seed.name}.{kubectl.namespace}.svc.cluster.local"
        assert entry["instance"] == f"{seed.pods()[entry['name']]['status']['podIP']}:6379"
        with seed.node(f"{seed.name}-0") as node:
            assert node.config_get("maxmemory*")["maxmemory"] == str(2 * 1024**3)
            assert node.config_get("maxmemory*")["maxmemory-policy"] == "allkeys-lru"
        with seed.load() as load:
            time.sleep(2)
        assert load.is_undisturbed()
        assert load.check() > 10
    finally:
        kubectl("label", "nodes", *nodes, "HC_Status-")


def named(kind: str, name: str, **content: Any) -> dict[str, Any]:
    """Return an object of the core API."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content}


@pytest.mark.nightly
def test_version_of_the_first_release_is_rejected_with_the_reason(kubectl: Kubectl) -> None:
    with pytest.raises(Refused) as refused:
        kubectl.apply(Cluster.manifest("demo", replicas=6, repository="library/redis", version="3.2.8"))
    assert "3.2.8" in refused.value.output
    assert "6.2" in refused.value.output


@pytest.mark.parametrize("engine", [REDIS_8, pytest.param(VALKEY_9, marks=pytest.mark.weekly)], ids=["redis", "valkey"])
def test_cluster_scales_out_and_in_under_load(kubectl: Kubectl, engine: Spec) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **engine)
    cluster.await_ready(6)
    with cluster.load() as load:
        with cluster.planned(lambda: kubectl("scale", "rec", "demo", "--replicas=8"), replicas=8):
            cluster.await_ready(8, primaries=4)
        heading, row = kubectl("get", "rec", "demo").splitlines()
        with cluster.planned(lambda: kubectl("scale", "rec", "demo", "--replicas=6"), replicas=6):
            cluster.await_ready(6)
    assert load.is_undisturbed(removed=1)
    assert load.check() > 100
    assert dict(zip(heading.split(), row.split(), strict=False))["READY"] == "8"
    until("volumes of removed nodes are deleted", lambda: len(kubectl.items("persistentvolumeclaims")) == 6)


@pytest.mark.nightly
def test_invalid_change_is_rejected_and_pods_keep_running(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=3, replicasPerMaster=0, storage=None)
    cluster.await_ready(3)
    before = cluster.uids()
    refusals: tuple[tuple[dict[str, Any], str], ...] = (
        ({"replicas": 2}, "replicas"),
        ({"replicas": 5, "replicasPerMaster": 1}, "replicas"),
        ({"version": "7.0.15"}, "8.0"),
        ({"storage": {"size": "1Gi"}}, "storage"),
        ({"updateStrategy": {"pipeline": "many"}}, "pipeline"),
        (
            {"updateStrategy": {"type": "AssignReceive", "assignStrategies": [{"slots": 0, "fromReplicas": "a"}]}},
            "slots",
        ),
        ({"config": {"cluster-enabled": "no"}}, "cluster-enabled"),
    )
    for change, named in refusals:
        with pytest.raises(Refused) as refused:
            cluster.change(**change)
        assert named in refused.value.output
    cluster.await_ready(3)
    assert cluster.uids() == before


@pytest.mark.weekly
def test_new_primary_receives_assigned_slots(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    before = cluster.owners()
    first, second, third = (node for _, node in sorted(cluster.primaries().items()))

    def assigned(slots: int, *nodes: str) -> dict[str, Any]:
        return {"type": "AssignReceive", "assignStrategies": [{"slots": slots, "fromReplicas": ",".join(nodes)}]}

    for slots, nodes, message in ((16000, (first,), f"node {first}, which owns 54"), (10, ("nodeId1",), "nodeId1")):
        with pytest.raises(Refused) as refused:
            cluster.change(replicas=8, updateStrategy=assigned(slots, *nodes))
        assert message in refused.value.output
    with cluster.load() as load, cluster.planned(replicas=8, updateStrategy=assigned(1000, first, second)):
        cluster.await_ready(8, primaries=4)
    after = cluster.owners()
    taken = Counter(before[slot] for slot in after if after[slot] != before[slot])
    assert taken == {first: 500, second: 500}, third
    assert load.is_undisturbed()
    assert load.check() > 50


@pytest.mark.weekly
def test_cluster_starts_once_its_missing_secret_appears(kubectl: Kubectl) -> None:
    kubectl.apply(Cluster.manifest("demo", replicas=3, replicasPerMaster=0, auth={"secretName": "login"}, **REDIS_8))
    cluster = Cluster(kubectl, "demo", Access(password="first"))
    assert "login" in cluster.await_reason("SecretMissing")
    kubectl.apply(named("Secret", "login", stringData={"password": "first"}))
    cluster.touch()
    cluster.await_ready(3)
    assert cluster.execute("demo-0", "PING")
    with pytest.raises(AuthenticationError):
        Cluster(kubectl, "demo").execute("demo-0", "PING")


@pytest.mark.weekly
def test_cluster_starts_once_its_missing_config_map_appears(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=3, replicasPerMaster=0, pod=[{"configmap": "template"}])
    assert "template" in cluster.await_reason("ConfigMapMissing")
    text = "maxmemory-policy allkeys-lru\nport 7000\ndir /elsewhere\n"
    kubectl.apply(named("ConfigMap", "template", data={"redis.conf": text}))
    cluster.touch()
    cluster.await_ready(3)
    with cluster.node("demo-0") as node:
        assert node.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}
        assert node.config_get("port") == {"port": "6379"}, "reserved directives are not overridden"


@pytest.mark.weekly
def test_paused_cluster_is_not_changed_until_it_is_resumed(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    before = cluster.uids()
    cluster.change(pause=True, replicas=8)
    cluster.await_reason("Paused")
    kubectl("delete", "poddisruptionbudget", "demo")
    time.sleep(10)
    assert cluster.uids() == before, "changes are paused"
    assert not kubectl.items("poddisruptionbudgets")
    cluster.change(pause=False)
    cluster.await_ready(8, primaries=4)


@pytest.mark.weekly
@pytest.mark.parametrize("finalizers", ["foreground", ""])
def test_deletion_deletes_or_keeps_objects_as_specified(kubectl: Kubectl, finalizers: str) -> None:
    cluster = Cluster.create(kubectl, replicas=3, replicasPerMaster=0, finalizers=finalizers)
    cluster.await_ready(3)
    with cluster.load(clients=1) as load:
        time.sleep(1)
    before, find = cluster.uids(), cluster.addresses()
    kubectl("delete", "rec", "demo", "--timeout=60s")
    if finalizers:
        until("all owned objects are deleted", lambda: not kubectl.items("pods,statefulsets,services"))
        assert len(kubectl.items("persistentvolumeclaims")) == 3, "deletion keeps the volumes"
        return
    time.sleep(10)
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kubectl.items("pods")}
    assert pods == before
    load.find = lambda: find
    assert load.check() > 5


@pytest.mark.weekly
@pytest.mark.parametrize("engine", [REDIS_8, VALKEY_9], ids=["redis", "valkey"])
def test_recreated_cluster_adopts_the_volumes_of_all_its_nodes(kubectl: Kubectl, engine: Spec) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **engine)
    before = cluster.await_ready(6)
    with cluster.load() as load:
        time.sleep(3)
    owners, claims, uid = cluster.owners(), owned_claims(kubectl, CLUSTER_UID), before["metadata"]["uid"]
    assert load.is_undisturbed()
    assert len(claims) == 6
    kubectl("delete", "rec", "demo", "--timeout=60s")
    until("nothing runs", lambda: not kubectl.items("pods,statefulsets"))
    assert owned_claims(kubectl, CLUSTER_UID) == claims, "the volumes are kept"

    cluster = Cluster.create(kubectl, replicas=6, **engine)
    assert uid in cluster.await_reason("ForeignData")
    assert not kubectl.items("pods"), "no node starts on data of another resource"

    cluster.change(adopt={"fromUID": uid})
    now = cluster.await_ready(6)
    assert now["metadata"]["uid"] != uid
    assert owned_claims(kubectl, CLUSTER_UID) == dict.fromkeys(claims, now["metadata"]["uid"])
    assert set(cluster.owners()) == set(owners), "every slot has an owner"
    assert set(cluster.owners().values()) <= {each["nodeId"] for each in before["status"]["nodes"]}
    assert load.check() > 100, "all former keys are there"

    with cluster.load() as later, cluster.planned(adopt=None, replicas=8):
        cluster.await_ready(8, primaries=4)
    assert later.is_undisturbed()
    assert later.check() > 50


@pytest.mark.weekly
def test_namespace_is_deleted_within_a_minute(kubectl: Kubectl) -> None:
    Cluster.create(kubectl, replicas=6).await_ready(6)
    started = time.monotonic()
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=60s")
    assert time.monotonic() - started < 60


@pytest.mark.weekly
def test_nodes_serve_and_fail_over_while_the_operator_is_down(kubectl: Kubectl, redis_operator: Operator) -> None:
    cluster = Cluster.create(kubectl, replicas=6)
    cluster.await_ready(6)
    with redis_operator.scaled_to_zero(), cluster.load() as load:
        time.sleep(2)
        kubectl("delete", "pod", cluster.shard()[0])
        time.sleep(15)
    cluster.await_ready(6)
    assert load.check() > 50


@pytest.mark.nightly
@pytest.mark.parametrize("is_down", [False, True], ids=["operator runs", "operator is down"])
def test_replicas_keep_their_keys_when_a_primary_without_persistence_is_killed(
    kubectl: Kubectl, redis_operator: Operator, is_down: bool
) -> None:
    """The container restarts with the same address, where its replicas would copy an empty data set."""
    cluster = Cluster.create(kubectl, replicas=6, config={"appendonly": "no", "save": ""})
    cluster.await_ready(6)
    cluster.fill(3000)
    time.sleep(1)  # the replicas have the keys
    keys, (primary, _) = cluster.keys(), cluster.shard()
    with redis_operator.scaled_to_zero() if is_down else nullcontext():
        runtime.signal(cluster.pods()[primary], CONTAINER, "SIGKILL")
        time.sleep(15)
    until("a replica has taken over", lambda: primary not in cluster.primaries())
    cluster.await_ready(6)
    assert cluster.keys() == keys == 3000


@pytest.mark.weekly
def test_engine_upgrades_under_load_without_errors(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **KEY_BY_KEY)
    cluster.await_ready(6)
    with cluster.load() as load:
        for engine, name in ((VALKEY_8, "valkey 8.1"), (VALKEY_9, "valkey 9.1")):
            with cluster.planned(**engine):
                cluster.await_ready(6, seconds=400)
            assert all(name in server(cluster, pod) for pod in cluster.uids())
        print(load.summary())
    assert load.is_undisturbed(removed=6)
    assert load.check() > 200
    for former in (REDIS_7, VALKEY_8):
        with pytest.raises(Refused):
            cluster.change(**former)


def server(cluster: Cluster, name: str) -> str:
    """Return the engine and version that a node reports, such as valkey 9.1.0."""
    info = cluster.execute(name, "INFO", "SERVER")
    return f"valkey {info['valkey_version']}" if "valkey_version" in info else f"redis {info['redis_version']}"


@pytest.mark.weekly
def test_exporter_reports_covered_slots(kubectl: Kubectl) -> None:
    cluster = Cluster.create(kubectl, replicas=3, replicasPerMaster=0, metrics={})
    cluster.await_ready(3)

    def covered() -> bool:
        path = f"/api/v1/namespaces/{kubectl.namespace}/pods/demo-0:9121/proxy/metrics"
        metrics = kubectl("get", "--raw", path)
        assert "redis_up 1" in metrics, metrics[:500]
        return "redis_cluster_slots_ok 16384" in metrics

    until("the exporter reports all slots", covered)


@pytest.mark.weekly
@pytest.mark.parametrize("name", ["small", "complete", "secure"])
def test_every_sample_becomes_ready_and_is_not_modified(kubectl: Kubectl, name: str) -> None:
    sample = str(SAMPLES / f"{name}.yaml")
    kubectl("apply", "-f", sample)
    [resource] = kubectl.items("redisclusters")
    found = Cluster(kubectl, resource["metadata"]["name"])
    until("the sample is Ready", lambda: found.ready_now(), seconds=240)
    assert found.now["spec"] == resource["spec"], "the spec is not modified"
    assert kubectl("diff", "-f", sample) == ""
