"""Observation of a RedisCluster: reachable and unreachable nodes, stale addresses, and volumes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest

from operators.redis import zones
from operators.redis.api.resource import API, RedisCluster
from operators.redis.api.spec import MAX_REPLICAS
from operators.redis.client.errors import Denied, Loading, RedisError, Unreachable
from operators.redis.client.server import Access, Endpoint, Server
from operators.redis.objects import names
from operators.redis.objects.redis_conf import CONFIG_KEY
from operators.redis.observe import ELSEWHERE, deleted_seconds, observer
from operators.redis.operator import clusters
from operators.redis.slots.placement import Location
from operators.redis.state.observed import Observed
from shared.cli.options import parse_options
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.kinds import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Key, Kind, Obj
from simulator.api_server.server import ApiServer
from tests.harness import cost
from tests.redis.unit.world import UID, At, cluster, formed, node_id, plan, replica
from tests.redis.unit.world import seen as world

OPTIONS = parse_options("redis-operator", "redis", [], {})

INFORMATION = """\
redis_version:8.0.2
run_id:r
used_memory:1
maxmemory:0
maxmemory_policy:noeviction
loading:0
role:master
master_repl_offset:1
"""


@dataclass
class StubServer:
    """A server that knows no other node: the id that it reports, or the error of every request.

    Attributes:
        run: id of the process.
    """

    id: str = ""
    error: RedisError | None = None
    calls: list[str] = field(default_factory=list)
    importing: tuple[int, ...] = ()
    keys: dict[int, int] = field(default_factory=dict)
    slots: str = "0-16383"
    run: int = field(default_factory=count().__next__)

    async def pipe(self, commands: Any) -> list[Any]:
        self.calls.append("pipe")
        if self.error:
            raise self.error
        if commands[0][:2] == ("CLUSTER", "COUNTKEYSINSLOT"):
            return [self.keys.get(slot, 0) for _, _, slot in commands]
        marks = "".join(f" [{slot}-<-{node_id(1)}]" for slot in self.importing)
        line = f"{self.id} 10.0.0.1:6379@16379 myself,master - 0 0 1 connected {self.slots}{marks}\n"
        user = ["flags", ["on", "nopass"], "passwords", []]
        state, given = "cluster_state:ok\ncluster_current_epoch:1\n", (["masterauth", ""], ["masteruser", ""])
        information = INFORMATION.replace("run_id:r", f"run_id:{self.run}")
        found = [information, 0, state, line, given[0], user, given[1], None]
        settings = [command[2] for command in commands[len(found) :]]
        return [*found, *([name, "20"] if name != "mine.size" else [] for name in settings)]

    async def execute(self, *command: str) -> Any:
        if command == ("CONFIG", "GET", "cluster-databases"):
            return []
        assert command == ("CLUSTER", "MYID")
        return self.id

    async def aclose(self) -> None:
        self.calls.append("closed")


class Kubernetes:
    """An API server with the pods and volume claims of nodes, and a cache of them."""

    def __init__(self, resource: RedisCluster) -> None:
        self.resource = resource
        self.controller = clusters(OPTIONS)
        self.server = ApiServer([API.kind])
        self.cache = self.controller.cache(lambda _: None)
        self.user_client = self.server.actor("kubectl")
        self.labels = names.owner(resource, "redis-operator").labels(names.COMPONENT) | {zones.LABEL: "zone-1"}

    def pod(self, number: int, *, address: str | None = None, now: str | None = None, phase: str = "Running") -> Obj:
        """Create a pod in the cache and on the server, where `now` is its current address if that differs."""
        address = f"10.0.0.{number}" if address is None else address
        name = f"demo-{number}"
        spec = {"nodeName": "host", "containers": [{"name": "redis", "image": "redis"}]}
        live = self.user_client.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        status = {"phase": phase, "podIP": address}
        obj = self._object(POD, name, live["metadata"]["uid"]) | {"status": status, "spec": spec}
        self.cache.put(POD, obj)
        patch = {"status": {"podIP": address if now is None else now}}
        self.user_client.merge(POD, "default", name, patch, subresource="status")
        return obj

    def volume(self, number: int, uid: str = "", *, exists: bool = False) -> None:
        name = f"data-demo-{number}"
        if exists:
            uid = self.user_client.create(
                PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": name, "namespace": "default"}}
            )["metadata"]["uid"]
        self.cache.put(PERSISTENT_VOLUME_CLAIM, self._object(PERSISTENT_VOLUME_CLAIM, name, uid or f"disk-{number}"))

    def claim(self, number: int) -> Obj:
        found = self.cache.get(PERSISTENT_VOLUME_CLAIM, "default", f"data-demo-{number}")
        assert found is not None
        return found

    def _object(self, kind: Kind, name: str, uid: str) -> Obj:
        about = {"name": name, "namespace": "default", "uid": uid, "labels": self.labels, "resourceVersion": "1"}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": about}

    async def observe(self, **servers: StubServer) -> Observed:
        """Observe the cluster; server `a1` answers at the address that ends with 1."""
        self.connections: list[str] = []
        self.read: list[str] = []

        def connect(endpoint: Endpoint, _: Access) -> Server:
            self.connections.append(endpoint.address)
            found: Any = servers["a" + endpoint.address.rpartition(".")[2]]
            return found  # type: ignore[no-any-return]

        observe = observer(connect)
        return await observe(self.resource, self.cache, Kube(self, manager="redis-operator"))

    async def request(self, request: Request) -> Response:
        """Record the path of a live request, and forward it to the API server."""
        self.read.append(request.path)
        return await self.server.request(request)


def three(**spec: Any) -> Kubernetes:
    kubernetes = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0, **spec))
    for number in range(3):
        kubernetes.pod(number)
        kubernetes.volume(number)
    return kubernetes


def reachable_nodes(*ids: str) -> dict[str, StubServer]:
    return {f"a{number}": StubServer(each) for number, each in enumerate(ids)}


async def test_observation_of_a_healthy_cluster() -> None:
    kubernetes = three()
    servers = reachable_nodes(*(node_id(n) for n in range(3)))
    seen = await kubernetes.observe(**servers)
    assert [(instance.name, instance.id, instance.disk) for instance in seen.instances] == [
        (f"demo-{n}", node_id(n), f"disk-{n}") for n in range(3)
    ]
    assert [server.calls for server in servers.values()] == [["pipe", "closed"]] * 3, "one pipeline for each node"
    assert seen.instances[0].location == Location("host", "zone-1")


def test_deletion_is_measured_from_its_first_observation_by_one_clock() -> None:
    now, key = 100.0, Key("default", "demo")
    observed: dict[Key, dict[str, float]] = {}
    stays: Obj = {"metadata": {"uid": "stays"}}
    deleted: Obj = {"metadata": {"uid": "ends", "deletionTimestamp": "2030-01-01T00:00:00Z"}}
    assert deleted_seconds(observed, now, key, [stays, deleted]) == {"ends": 0}
    now = 125.0
    assert deleted_seconds(observed, now, Key("default", "other"), [deleted]) == {"ends": 0}
    assert deleted_seconds(observed, now, key, [stays, deleted]) == {"ends": 25}
    assert deleted_seconds(observed, now, key, [stays]) == {}
    assert deleted_seconds(observed, now, key, [deleted]) == {"ends": 0}


@pytest.mark.parametrize("replicas", [5_000, 2**31 - 1])
async def test_replicas_that_no_spec_permits_are_not_expanded(replicas: int) -> None:
    """Someone scaled the StatefulSet: the operator of all tenants must survive what it then observes, and undo it."""
    kubernetes = three()
    made = world(kubernetes.resource, *formed()[:3], replicas=replicas, scaled_by_hand=True).stateful_set
    assert made is not None
    metadata = made["metadata"] | kubernetes._object(STATEFUL_SET, "demo", "s-1")["metadata"]
    kubernetes.cache.put(STATEFUL_SET, made | {"metadata": metadata})
    kubernetes.volume(MAX_REPLICAS)
    kubernetes.volume(9_999_999)
    async with cost.bounded():
        seen = await kubernetes.observe(**reachable_nodes(*(node_id(n) for n in range(3))))
    assert [each.number for each in seen.instances] == [*range(MAX_REPLICAS + 1), 9_999_999]


STRAYS = (
    {"apiVersion": "batch/v1", "kind": "Job", "name": "demo"},
    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "d"},
)


@pytest.mark.parametrize("controller", STRAYS, ids=["Job", "StatefulSet"])
async def test_pod_of_another_controller_is_no_node(controller: Obj) -> None:
    """Labels and a matching name are not enough: a scale-in would delete the pod."""
    kubernetes = three()
    kubernetes.pod(7)
    stray = kubernetes.cache.get(POD, "default", "demo-7")
    assert stray is not None
    owners = [{**controller, "uid": "x", "controller": True}]
    stray["metadata"] |= {"resourceVersion": "2", "ownerReferences": owners}
    kubernetes.cache.put(POD, stray)
    observed = await kubernetes.observe(**reachable_nodes(*(node_id(n) for n in range(3))), a7=StubServer("f" * 40))
    assert [instance.name for instance in observed.instances] == ["demo-0", "demo-1", "demo-2"]


async def test_report_has_the_settings_that_the_spec_and_the_template_determine() -> None:
    kubernetes = three(config={"hz": "20", "tcp-backlog": "100"}, pod=[{"configmap": "mine"}])
    text = "loadmodule /a.so\nmine.size 1\nslowlog-max-len 20\nport 7000\n"
    mine = {"metadata": {"name": "mine", "namespace": "default"}, "data": {CONFIG_KEY: text}}
    kubernetes.user_client.create(CONFIG_MAP, mine)
    servers = reachable_nodes(*(node_id(n) for n in range(3)))
    seen = await kubernetes.observe(**servers)
    assert [server.calls for server in servers.values()] == [["pipe", "closed"]] * 3, "one pipeline for each node"
    report = seen.instances[0].report
    assert report
    assert {"hz", "slowlog-max-len", "cluster-node-timeout", "proto-max-bulk-len"} <= report.settings.keys()
    assert not {"tcp-backlog", "port", "masterauth", "loadmodule"} & report.settings.keys()
    assert "mine.size" not in report.settings, "the server does not have it"


@pytest.mark.parametrize(
    ("error", "denied"), [(Unreachable("no route"), False), (Denied("WRONGPASS"), True), (Loading("LOADING"), False)]
)
async def test_unreachable_node_is_an_instance_with_an_error(error: RedisError, denied: bool) -> None:
    servers = reachable_nodes(node_id(0), "", node_id(2)) | {"a1": StubServer(error=error)}
    seen = await three().observe(**servers)
    instance = seen.instances[1]
    assert (instance.report, instance.error, instance.denied) == (None, str(error), denied)
    assert servers["a1"].calls == ["pipe", "closed"]
    assert not seen.lost(node_id(1))


async def test_no_request_to_pods_without_an_address_or_that_have_ended() -> None:
    kubernetes = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0))
    kubernetes.pod(0, address="")
    kubernetes.pod(1, phase="Failed")
    seen = await kubernetes.observe()
    assert kubernetes.connections == []
    assert [instance.pod is None for instance in seen.instances] == [False, True, True]


async def test_new_node_is_accepted_only_at_the_current_address_of_its_pod() -> None:
    kubernetes = Kubernetes(cluster(replicas=3, replicasPerMaster=0, is_formed=False))
    kubernetes.pod(0)
    kubernetes.pod(1, now="10.0.0.9")
    kubernetes.pod(2)
    kubernetes.user_client.delete(POD, "default", "demo-2", gracePeriodSeconds=0)
    seen = await kubernetes.observe(**reachable_nodes(node_id(0), node_id(1), node_id(2)))
    assert [instance.id for instance in seen.instances] == [node_id(0), "", ""]
    assert [instance.error for instance in seen.instances[1:]] == [ELSEWHERE, ELSEWHERE]


async def test_node_of_another_cluster_at_a_stale_address_is_ignored() -> None:
    """Two clusters whose pods have swapped addresses must not be merged by CLUSTER MEET."""
    kubernetes = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0))
    for number in range(3):
        kubernetes.pod(number, now="10.0.0.9" if number == 1 else None)
        kubernetes.volume(number)
    seen = await kubernetes.observe(**reachable_nodes(node_id(0), "f" * 40, node_id(2)))
    assert (seen.instances[1].report, seen.instances[1].error) == (None, ELSEWHERE)
    assert not seen.lost(node_id(1)), "an unreachable node is not lost"


async def test_node_that_answers_at_two_addresses_belongs_to_its_recorded_pod() -> None:
    seen = await three().observe(**reachable_nodes(node_id(0), node_id(0), node_id(2)))
    assert [instance.id for instance in seen.instances] == [node_id(0), "", node_id(2)]


def copied(
    *, original_is_up: bool = True, recorded: bool = False, moved: bool = False
) -> tuple[Kubernetes, dict[str, Any]]:
    """The server of demo-1 runs on another claim, with the node id of demo-0.

    Args:
        recorded: whether the status records that id for both.
        moved: whether demo-0 has another claim as well, so that its former volume may be that of demo-1 now.
    """
    entries = cluster(*formed()[:3]).reported["nodes"]
    entries[1] = entries[1] | ({"nodeId": node_id(0)} if recorded else {})
    kubernetes = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0, status={"nodes": entries}))
    for number in range(3):
        kubernetes.pod(number)
        kubernetes.volume(number, exists=number == 1 or (moved and number == 0))
    if recorded:
        entries[1]["disk"] = kubernetes.claim(1)["metadata"]["uid"]
    servers = reachable_nodes(node_id(0), node_id(0), node_id(2))
    return kubernetes, servers if original_is_up else servers | {"a0": StubServer(error=Unreachable("no route"))}


@pytest.mark.parametrize("original_is_up", [True, False])
async def test_server_on_a_copy_of_a_volume_is_not_the_node_of_the_original(*, original_is_up: bool) -> None:
    kubernetes, servers = copied(original_is_up=original_is_up)
    seen = await kubernetes.observe(**servers)
    assert [instance.id for instance in seen.instances] == [node_id(0) * original_is_up, "", node_id(2)]
    assert "its server has the node id of demo-0: one of the volumes is a copy" in seen.instances[1].error
    assert ("unless that pod has this address now" in seen.instances[1].error) == (not original_is_up)
    assert "run `kubectl delete pvc/data-demo-1 pod/demo-1 -n default`, and a" in seen.instances[1].error


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_server_that_is_reached_at_two_addresses_is_no_copy(*, is_recorded: bool) -> None:
    """Addresses were assigned again after a reboot, and the status of a pod still has its former one."""
    recorded = cluster(*formed()[:3]).reported["nodes"]
    nodes = recorded if is_recorded else [recorded[0], recorded[1] | {"disk": "another"}, recorded[2]]
    kubernetes = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0, status={"nodes": nodes}))
    for number, address in enumerate(("10.0.0.1", None, None)):
        kubernetes.pod(number, address=address)
        kubernetes.volume(number)
    seen = await kubernetes.observe(**reachable_nodes("", node_id(1), node_id(2)))
    assert [instance.id for instance in seen.instances] == ["", node_id(1) * is_recorded, node_id(2)]
    assert [instance.error for instance in seen.instances] == [ELSEWHERE, "" if is_recorded else ELSEWHERE, ""]
    assert not seen.lost(node_id(0))


async def test_of_two_servers_with_one_recorded_id_none_is_believed() -> None:
    """An earlier build recorded the id of a copy. Which of them clients use is unknown."""
    kubernetes, servers = copied(recorded=True)
    seen = await kubernetes.observe(**servers)
    assert [instance.id for instance in seen.instances] == ["", "", node_id(2)]
    assert "its server has the node id of demo-1" in seen.instances[0].error
    assert not seen.lost(node_id(0))


async def test_copy_whose_claim_records_another_uid_is_known_although_both_are_recorded() -> None:
    kubernetes, servers = copied(recorded=True)
    claim = kubernetes.claim(1)
    claim["metadata"] |= {"annotations": {names.CLAIM_UID: "disk-0"}, "resourceVersion": "2"}
    kubernetes.cache.put(PERSISTENT_VOLUME_CLAIM, claim)
    seen = await kubernetes.observe(**servers)
    assert [instance.id for instance in seen.instances] == [node_id(0), "", node_id(2)]


async def test_node_follows_its_volume_to_another_claim() -> None:
    kubernetes, servers = copied(original_is_up=False, moved=True)
    seen = await kubernetes.observe(**servers)
    assert [instance.id for instance in seen.instances] == ["", node_id(0), node_id(2)]


async def test_known_node_at_its_recorded_pod_needs_no_kubernetes_request() -> None:
    kubernetes = three()
    await kubernetes.observe(**reachable_nodes(*(node_id(n) for n in range(3))))
    assert [path for path in kubernetes.read if "secrets" not in path] == []


@pytest.mark.parametrize("exists", [True, False])
async def test_changed_volume_is_confirmed_with_a_live_read(exists: bool) -> None:
    """A missing volume proves nothing: only its replacement proves the loss of the data."""
    kubernetes = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0))
    for number in range(3):
        kubernetes.pod(number)
        kubernetes.volume(number, "another" if number == 1 else "", exists=exists and number == 1)
    seen = await kubernetes.observe(
        **reachable_nodes(node_id(0), "", node_id(2)) | {"a1": StubServer(error=Unreachable("…"))}
    )
    assert seen.instances[1].disk not in ("another", "disk-1")
    assert seen.lost(node_id(1)) is exists


async def test_new_node_on_the_same_volume_proves_the_loss_of_the_former_one() -> None:
    seen = await three().observe(**reachable_nodes(node_id(0), node_id(1, 1), node_id(2)))
    assert seen.instances[1].id == node_id(1, 1)
    assert seen.lost(node_id(1))
    assert not seen.lost(node_id(1, 1))


async def test_pod_uid_identifies_the_data_without_volumes() -> None:
    kubernetes = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0, storage=None))
    pods = [kubernetes.pod(number) for number in range(3)]
    seen = await kubernetes.observe(**{f"a{n}": StubServer(error=Unreachable("…")) for n in range(3)})
    assert [instance.disk for instance in seen.instances] == [pod["metadata"]["uid"] for pod in pods]
    assert seen.lost(node_id(1)), "the uid of the pod differs from the recorded one"


@pytest.mark.parametrize(
    ("volumes", "disk"),
    [({"type": "hostPath"}, "host"), ({"type": "nfs", "persistentVolumeClaimName": "shared"}, "shared")],
)
async def test_shared_volume_identifies_the_data(volumes: Obj, disk: str) -> None:
    kubernetes = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0, storage=None, pod=[{"volumes": volumes}]))
    kubernetes.pod(0)
    seen = await kubernetes.observe(a0=StubServer(error=Unreachable("…")))
    assert seen.instances[0].disk == disk


async def test_instances_are_the_desired_recorded_and_existing_pods() -> None:
    kubernetes = Kubernetes(cluster(*formed()[:3], *[At()] * 2, replicas=3, replicasPerMaster=0))
    kubernetes.volume(7)
    seen = await kubernetes.observe()
    assert [instance.number for instance in seen.instances] == [0, 1, 2, 3, 4, 7]
    assert seen.instances[5].volume


LOST_RECORDS = [replace(at, recorded=None) for at in formed()[:3]]


def with_lost_records(*, uid: str = UID, is_formed: bool = True, recorded: int = 0) -> Kubernetes:
    """A cluster whose claims record their nodes, but not its status, or only for the first ones."""
    at = [*formed()[:recorded], *LOST_RECORDS[recorded:]]
    kubernetes = Kubernetes(cluster(*at, replicasPerMaster=0, is_formed=is_formed))
    for number in range(3):
        kubernetes.pod(number)
        name = f"data-demo-{number}"
        claim = kubernetes._object(PERSISTENT_VOLUME_CLAIM, name, f"disk-{number}")
        nodes = ",".join(f"demo-{each}={node_id(each)}" for each in range(4))
        annotations = {names.NODE_ID: node_id(number), names.NODES: nodes}
        about = {"labels": kubernetes.labels | {names.CLUSTER_UID: uid}, "annotations": annotations}
        kubernetes.cache.put(PERSISTENT_VOLUME_CLAIM, claim | {"metadata": claim["metadata"] | about})
    return kubernetes


async def test_records_that_an_older_crd_removed_are_restored_from_the_claims() -> None:
    away = {f"a{n}": StubServer(error=Unreachable("…")) for n in range(3)}
    seen = await with_lost_records().observe(**away)
    assert [each.as_recorded for each in seen.instances] == [
        *((node_id(n), f"disk-{n}") for n in range(3)),
        (node_id(3), ""),
    ]
    resource = with_lost_records().resource
    nodes = plan(resource, seen).status["nodes"]
    assert [(node["nodeId"], node.get("disk")) for node in nodes] == [
        *((node_id(n), f"disk-{n}") for n in range(3)),
        (node_id(3), ""),
    ]


async def test_recorded_node_beyond_any_size_is_not_expanded() -> None:
    """Users write annotations of claims: neither instances nor the present size follow from such a number."""
    kubernetes = with_lost_records()
    claim = kubernetes.cache.get(PERSISTENT_VOLUME_CLAIM, "default", "data-demo-0")
    assert claim is not None
    name, record = "data-demo-50000", {names.NODE_ID: "e" * 40, names.NODES: f"demo-50001={'f' * 40}"}
    metadata = claim["metadata"] | {"name": name, "uid": name, "annotations": record}
    kubernetes.cache.put(PERSISTENT_VOLUME_CLAIM, claim | {"metadata": metadata})
    async with cost.bounded():
        seen = await kubernetes.observe(**{f"a{n}": StubServer(error=Unreachable("…")) for n in range(3)})
    assert [each.number for each in seen.instances] == [0, 1, 2, 3, 50_000]
    assert seen.instances[-1].recorded is None


@pytest.mark.parametrize(
    ("lost", "restored"),
    [({"uid": "another"}, 0), ({"is_formed": False}, 0), ({"recorded": 1}, 1)],
    ids=["claims of another cluster", "not created", "the status has records"],
)
async def test_records_are_not_restored_otherwise(lost: Any, restored: int) -> None:
    seen = await with_lost_records(**lost).observe(**{f"a{n}": StubServer(error=Unreachable("…")) for n in range(3)})
    assert sum(each.recorded is not None for each in seen.instances) == restored


async def test_pods_of_another_component_are_ignored() -> None:
    kubernetes = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0))
    name = "demo-0"
    obj = kubernetes._object(POD, name, "x")
    obj["metadata"]["labels"] = {**kubernetes.labels, "app.kubernetes.io/component": "other"}
    kubernetes.cache.put(POD, obj)
    assert (await kubernetes.observe()).instances[0].pod_obj is None


async def test_config_map_of_the_user_is_read_or_its_problem_reported() -> None:
    resource = cluster(*formed()[:2], replica(0), replicas=3, replicasPerMaster=0, pod=[{"configmap": "mine"}])
    kubernetes = Kubernetes(resource)
    problem = (await kubernetes.observe()).config.problem
    assert problem is not None
    assert "ConfigMap mine does not exist" in problem.message
    kubernetes.user_client.create(
        CONFIG_MAP, {"metadata": {"name": "mine", "namespace": "default"}, "data": {"a": "b"}}
    )
    problem = (await kubernetes.observe()).config.problem
    assert problem is not None
    assert f"has no key {CONFIG_KEY}" in problem.message
    kubernetes.user_client.merge(CONFIG_MAP, "default", "mine", {"data": {CONFIG_KEY: "hz 20\n"}})
    assert (await kubernetes.observe()).config.text == "hz 20\n"


async def test_keys_of_importing_and_of_recorded_foreign_slots_are_counted() -> None:
    foreign = {"foreign": [{"nodeId": node_id(0), "slots": "7000 7001"}]}
    world = Kubernetes(cluster(*formed(), status=foreign))
    world.pod(0, address="10.0.0.1")
    world.pod(1, address="10.0.0.2")
    server = StubServer(node_id(0), slots="0-5460", importing=(6000, 6001), keys={6000: 5, 7001: 2, 8000: 9, 0: 1})
    other = StubServer(node_id(1))
    seen = await world.observe(a1=server, a2=other)
    report = seen.instances[0].report
    assert report
    assert report.strays == {6000: 5, 7001: 2}
    assert other.calls == ["pipe", "closed"], "a node without any needs no request"


async def test_promoted_replica_of_a_node_with_foreign_keys_is_inspected_too() -> None:
    """The replica has copied the keys."""
    foreign = {"foreign": [{"nodeId": node_id(0), "slots": "7000"}]}
    world = Kubernetes(cluster(*formed(), status=foreign))
    world.pod(3, address="10.0.0.4")
    seen = await world.observe(a4=StubServer(node_id(3), slots="0-5460", keys={7000: 2}))
    report = seen.instances[3].report
    assert report
    assert report.strays == {7000: 2}


async def test_keys_of_slots_that_no_node_claims_are_counted() -> None:
    kubernetes = three()
    servers = reachable_nodes(*(node_id(n) for n in range(3)))
    for server, slots in zip(servers.values(), ("0-5459", "5461-10922", "10923-16383"), strict=True):
        server.slots, server.keys = slots, {5460: 0, 5461: 9}
    servers["a1"].keys = {5460: 3}
    seen = await kubernetes.observe(**servers)
    assert [instance.report.strays if instance.report else None for instance in seen.instances] == [{}, {5460: 3}, {}]


async def test_keys_are_not_counted_while_a_node_that_may_own_the_slots_is_unreachable() -> None:
    kubernetes = three()
    servers = reachable_nodes(*(node_id(n) for n in range(3)))
    for server in servers.values():
        server.slots, server.keys = "0-5459", {5460: 3}
    servers["a2"].error = Unreachable("no route to host")
    seen = await kubernetes.observe(**servers)
    assert [instance.report.strays for instance in seen.instances if instance.report] == [{}, {}]
