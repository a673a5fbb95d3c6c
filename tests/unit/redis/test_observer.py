"""What the operator sees of a RedisCluster: who answers, who does not, whose address it is, and which disk is whose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from operators.redis.api.resource import API, RedisCluster
from operators.redis.client.errors import Denied, Loading, RedisError, Unreachable
from operators.redis.client.server import Access, Endpoint, Server
from operators.redis.objects import names
from operators.redis.objects.redis_conf import CONFIG_KEY
from operators.redis.observe import Observed
from operators.redis.observer import ELSEWHERE, observer
from operators.redis.operator import clusters
from shared.cli.options import parse_options
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.kinds import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, POD, Kind, Obj
from shared.testing.api_server.server import ApiServer
from tests.unit.redis.world import At, cluster, formed, node_id, replica

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
class Voice:
    """A server that knows nobody: its id, or why it does not answer."""

    id: str = ""
    error: RedisError | None = None
    asked: list[str] = field(default_factory=list)

    async def pipe(self, commands: Any) -> list[Any]:
        self.asked.append("looked")
        if self.error:
            raise self.error
        line = f"{self.id} 10.0.0.1:6379@16379 myself,master - 0 0 1 connected 0-5460\n"
        user = ["flags", ["on", "nopass"], "passwords", []]
        return [INFORMATION, "cluster_state:ok\ncluster_current_epoch:1\n", line, ["masterauth", ""], user]

    async def aclose(self) -> None:
        self.asked.append("closed")


class Kubernetes:
    """An API server with nodes' pods and claims, and a cache that has seen them."""

    def __init__(self, resource: RedisCluster) -> None:
        self.resource = resource
        self.controller = clusters(OPTIONS)
        self.server = ApiServer([API.kind])
        self.cache = self.controller.cache(lambda _: None)
        self.person = self.server.actor("kubectl")
        self.labels = names.owner(resource, "redis-operator").labels(names.COMPONENT)

    def pod(self, number: int, *, address: str | None = None, now: str | None = None, phase: str = "Running") -> Obj:
        """A pod as the cache has it; and as it is now, if that is said."""
        address = f"10.0.0.{number}" if address is None else address
        name = f"demo-{number}"
        spec = {"nodeName": "host", "containers": [{"name": "redis", "image": "redis"}]}
        live = self.person.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        status = {"phase": phase, "podIP": address}
        obj = self._object(POD, name, live["metadata"]["uid"]) | {"status": status, "spec": spec}
        self.cache.put(POD, obj)
        patch = {"status": {"podIP": address if now is None else now}}
        self.person.merge(POD, "default", name, patch, subresource="status")
        return obj

    def volume(self, number: int, uid: str = "", *, exists: bool = False) -> None:
        name = f"data-demo-{number}"
        if exists:
            uid = self.person.create(PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": name, "namespace": "default"}})[
                "metadata"
            ]["uid"]
        self.cache.put(PERSISTENT_VOLUME_CLAIM, self._object(PERSISTENT_VOLUME_CLAIM, name, uid or f"disk-{number}"))

    def _object(self, kind: Kind, name: str, uid: str) -> Obj:
        about = {"name": name, "namespace": "default", "uid": uid, "labels": self.labels, "resourceVersion": "1"}
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": about}

    async def observe(self, **voices: Voice) -> Observed:
        """What is seen; each voice is at `a` and the last number of its address."""
        self.asked: list[str] = []
        self.read: list[str] = []

        def connect(endpoint: Endpoint, _: Access) -> Server:
            self.asked.append(endpoint.address)
            found: Any = voices["a" + endpoint.address.rpartition(".")[2]]
            return found  # type: ignore[no-any-return]

        look = observer(connect)
        return await look(self.resource, self.cache, Kube(self, manager="redis-operator"))

    async def request(self, request: Request) -> Response:
        """As a transport: what is asked live is noted."""
        self.read.append(request.path)
        return await self.server.request(request)


def three(**spec: Any) -> Kubernetes:
    around = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0, **spec))
    for number in range(3):
        around.pod(number)
        around.volume(number)
    return around


def reachable_nodes(*ids: str) -> dict[str, Voice]:
    return {f"a{number}": Voice(each) for number, each in enumerate(ids)}


async def test_a_healthy_cluster_is_seen_as_it_is() -> None:
    around = three()
    asked = reachable_nodes(*(node_id(n) for n in range(3)))
    seen = await around.observe(**asked)
    assert [(place.name, place.id, place.disk) for place in seen.instances] == [
        (f"demo-{n}", node_id(n), f"disk-{n}") for n in range(3)
    ]
    assert [voice.asked for voice in asked.values()] == [["looked", "closed"]] * 3, "one question a node"
    assert seen.instances[0].host == "host"


@pytest.mark.parametrize(
    ("error", "denied"), [(Unreachable("no route"), False), (Denied("WRONGPASS"), True), (Loading("LOADING"), False)]
)
async def test_one_that_does_not_answer_is_a_place_with_an_error(error: RedisError, denied: bool) -> None:
    asked = reachable_nodes(node_id(0), "", node_id(2)) | {"a1": Voice(error=error)}
    seen = await three().observe(**asked)
    place = seen.instances[1]
    assert (place.report, place.error, place.denied) == (None, str(error), denied)
    assert asked["a1"].asked == ["looked", "closed"]
    assert not seen.lost(node_id(1))


async def test_nobody_is_asked_whose_pod_has_no_address_or_has_ended() -> None:
    around = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0))
    around.pod(0, address="")
    around.pod(1, phase="Failed")
    seen = await around.observe()
    assert around.asked == []
    assert [place.pod is None for place in seen.instances] == [False, True, True]


async def test_a_new_node_is_heard_if_it_is_the_pod_s_address_still() -> None:
    around = Kubernetes(cluster(replicas=3, replicasPerMaster=0, begun=False))
    around.pod(0)
    around.pod(1, now="10.0.0.9")
    around.pod(2)
    around.person.delete(POD, "default", "demo-2", gracePeriodSeconds=0)
    seen = await around.observe(**reachable_nodes(node_id(0), node_id(1), node_id(2)))
    assert [place.id for place in seen.instances] == [node_id(0), "", ""]
    assert [place.error for place in seen.instances[1:]] == [ELSEWHERE, ELSEWHERE]


async def test_another_cluster_s_node_at_an_old_address_is_not_heard() -> None:
    """Two clusters whose pods have swapped addresses must not be told to meet."""
    around = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0))
    for number in range(3):
        around.pod(number, now="10.0.0.9" if number == 1 else None)
        around.volume(number)
    seen = await around.observe(**reachable_nodes(node_id(0), "f" * 40, node_id(2)))
    assert (seen.instances[1].report, seen.instances[1].error) == (None, ELSEWHERE)
    assert not seen.lost(node_id(1)), "nothing is known of it"


async def test_a_node_that_answers_at_two_addresses_is_where_it_is_recorded() -> None:
    seen = await three().observe(**reachable_nodes(node_id(0), node_id(0), node_id(2)))
    assert [place.id for place in seen.instances] == [node_id(0), "", node_id(2)]


async def test_a_node_that_is_where_it_was_is_heard_without_asking_kubernetes() -> None:
    around = three()
    await around.observe(**reachable_nodes(*(node_id(n) for n in range(3))))
    assert [path for path in around.read if "secrets" not in path] == []


@pytest.mark.parametrize("exists", [True, False])
async def test_a_disk_that_seems_to_be_another_is_looked_at_live(exists: bool) -> None:
    """What is not there tells nothing yet: the one that comes in its place does."""
    around = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0))
    for number in range(3):
        around.pod(number)
        around.volume(number, "another" if number == 1 else "", exists=exists and number == 1)
    seen = await around.observe(**reachable_nodes(node_id(0), "", node_id(2)) | {"a1": Voice(error=Unreachable("…"))})
    assert seen.instances[1].disk not in ("another", "disk-1")
    assert seen.lost(node_id(1)) is exists


async def test_another_node_on_the_same_disk_tells_that_the_former_one_is_gone() -> None:
    seen = await three().observe(**reachable_nodes(node_id(0), node_id(1, 1), node_id(2)))
    assert seen.instances[1].id == node_id(1, 1)
    assert seen.lost(node_id(1))
    assert not seen.lost(node_id(1, 1))


async def test_without_volumes_the_pod_is_the_disk() -> None:
    around = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0, storage=None))
    pods = [around.pod(number) for number in range(3)]
    seen = await around.observe(**{f"a{n}": Voice(error=Unreachable("…")) for n in range(3)})
    assert [place.disk for place in seen.instances] == [pod["metadata"]["uid"] for pod in pods]
    assert seen.lost(node_id(1)), "the pod is another than the recorded one"


@pytest.mark.parametrize(
    ("volumes", "disk"),
    [({"type": "hostPath"}, "host"), ({"type": "nfs", "persistentVolumeClaimName": "shared"}, "shared")],
)
async def test_where_all_share_a_volume_that_is_the_disk(volumes: Obj, disk: str) -> None:
    around = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0, storage=None, pod=[{"volumes": volumes}]))
    around.pod(0)
    seen = await around.observe(a0=Voice(error=Unreachable("…")))
    assert seen.instances[0].disk == disk


async def test_places_are_all_that_are_wanted_recorded_or_there() -> None:
    around = Kubernetes(cluster(*formed()[:3], *[At()] * 2, replicas=3, replicasPerMaster=0))
    around.volume(7)
    seen = await around.observe()
    assert [place.number for place in seen.instances] == [0, 1, 2, 3, 4, 7]
    assert seen.instances[5].volume


async def test_pods_of_others_are_none_of_ours() -> None:
    around = Kubernetes(cluster(*formed()[:3], replicasPerMaster=0))
    name = "demo-0"
    obj = around._object(POD, name, "x")
    obj["metadata"]["labels"] = {**around.labels, "app.kubernetes.io/component": "errand"}
    around.cache.put(POD, obj)
    assert (await around.observe()).instances[0].pod_obj is None


async def test_a_config_map_of_the_user_s_is_read_or_told_of() -> None:
    resource = cluster(*formed()[:2], replica(0), replicas=3, replicasPerMaster=0, pod=[{"configmap": "mine"}])
    around = Kubernetes(resource)
    problem = (await around.observe()).config.problem
    assert problem is not None
    assert "there is no ConfigMap mine" in problem.message
    around.person.create(CONFIG_MAP, {"metadata": {"name": "mine", "namespace": "default"}, "data": {"a": "b"}})
    problem = (await around.observe()).config.problem
    assert problem is not None
    assert f"has no {CONFIG_KEY}" in problem.message
    around.person.merge(CONFIG_MAP, "default", "mine", {"data": {CONFIG_KEY: "hz 20\n"}})
    assert (await around.observe()).config.text == "hz 20\n"
