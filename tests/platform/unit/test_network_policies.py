"""NetworkPolicies of all kinds, evaluated for every pair of pods of a scenario and every port."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from operators.etcd.operator import clusters as etcd_clusters
from operators.memcached.operator import controller as memcached_controller
from operators.redis.facts import bus_port
from operators.redis.operator import clusters as redis_clusters
from shared.cli.options import parse_options
from shared.kubernetes.kinds import NETWORK_POLICY, POD, Obj
from tests.harness.scenario import ScenarioStep, Subject, apply
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd import scenarios as etcd
from tests.support.issuing import issued
from tests.support.memcached import scenarios as memcached
from tests.support.network_policies import NAMESPACE_NAME, Peer, admits
from tests.support.redis import scenarios as redis

SYSTEM = "platform-system"
OPERATOR_LABELS = {"app.kubernetes.io/name": "an-operator", "app.kubernetes.io/instance": "platform"}
OPERATOR_PEERS = [
    {
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: SYSTEM}},
        "podSelector": {"matchLabels": OPERATOR_LABELS},
    }
]

BUILDS: dict[str, Callable[[Any, Any], Any]] = {
    "memcached": lambda options, servers: memcached_controller(options, servers.connect),
    "etcd": lambda options, servers: dataclasses.replace(etcd_clusters(options, servers.connect), issue=issued),
    "redis": lambda options, servers: dataclasses.replace(redis_clusters(options, servers.connect), issue=issued),
}


@dataclass(frozen=True)
class Case:
    """A kind, and the ports of its pods."""

    subject: Subject
    create: Callable[..., ScenarioStep]
    clients: int
    metrics: int
    peers: int | None

    @property
    def ports(self) -> list[int]:
        return [self.clients, self.metrics, *([self.peers] if self.peers else [])]


PEERS = 20000
"""Port of the bus of each RedisCluster in these tests."""

CASES = [
    Case(memcached.MEMCACHED, lambda **spec: apply(size=2, metrics={}, **spec), 11211, 9150, None),
    Case(etcd.ETCD, lambda **spec: etcd.cluster(3, **spec), 2379, 2381, 2380),
    Case(redis.REDIS, lambda **spec: redis.cluster(6, metrics={}, **spec), 6379, 9121, PEERS),
]
KINDS = pytest.mark.parametrize("case", CASES, ids=lambda case: case.subject.name)


@pytest.fixture(autouse=True)
def one_bus_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_port, "PORTS", range(PEERS, PEERS + 1))


def running(subject: Subject, peers: list[Obj]) -> Subject:
    """Return the operator with the peers that its chart passes."""
    flags = ["--agent-image", "example.com/operator:1", "--operator-peers", json.dumps(peers) if peers else ""]
    options = parse_options(f"{subject.name}-operator", subject.name, flags, {})
    return dataclasses.replace(subject, controller=lambda servers: BUILDS[subject.name](options, servers))


async def world_of(case: Case, peers: list[Obj], **spec: Any) -> World:
    world = World(running(case.subject, peers))
    await ScenarioRun(world).run_steps((case.create(**spec),))
    return world


def policies(world: World) -> dict[str, Obj]:
    return {obj["metadata"]["name"]: obj for _, obj in world.server.objects(NETWORK_POLICY)}


def servers(world: World) -> list[Peer]:
    found = [Peer.of(obj) for _, obj in world.server.objects(POD)]
    assert len(found) > 1
    return found


def condition(world: World, kind: str = "Ready") -> Obj:
    resource = world.subject.controller(world.database).kind
    [(_, obj)] = world.server.objects(resource)
    found: Obj = next(each for each in obj["status"]["conditions"] if each["type"] == kind)
    return found


def others(own: Peer) -> dict[str, Peer]:
    """Return pods that do not belong to the resource, by name."""
    instance, namespace = "app.kubernetes.io/instance", own.namespace
    return {
        "client": Peer(namespace, {"app": "web"}),
        "client elsewhere": Peer("shop", {"app": "web"}),
        "Prometheus": Peer("monitoring", {"app": "prometheus"}),
        "another resource": Peer(namespace, {**own.labels, instance: "another"}),
        "same name elsewhere": Peer("shop", own.labels),
        "operator": Peer(SYSTEM, OPERATOR_LABELS),
        "same labels as the operator elsewhere": Peer("shop", OPERATOR_LABELS),
        "outside": Peer(address="10.1.2.3"),
        "outside, excepted": Peer(address="10.1.9.9"),
    }


def admitted(world: World, case: Case) -> dict[str, set[int]]:
    """Return the ports to which each pod may connect, the same for each server."""
    given = list(policies(world).values())
    found: dict[str, set[int]] = {}
    for target in servers(world):
        for name, source in {"server": target, **others(target)}.items():
            ports = {port for port in case.ports if admits(given, source, target, port)}
            assert found.setdefault(name, ports) == ports
    return found


@KINDS
async def test_peer_ports_admit_only_the_pods_of_the_resource_and_the_operator(case: Case) -> None:
    found = admitted(await world_of(case, OPERATOR_PEERS), case)
    everything, public = set(case.ports), {case.clients, case.metrics}
    assert {name for name, ports in found.items() if ports == everything} >= {"server", "operator"}
    for name, ports in found.items():
        assert ports == (everything if name in ("server", "operator") else public), name


@KINDS
async def test_clients_are_restricted_to_those_that_the_spec_admits(case: Case) -> None:
    network = {
        "allowFrom": [
            {"podSelector": {"matchLabels": {"app": "web"}}},
            {"ipBlock": {"cidr": "10.1.0.0/16", "except": ["10.1.9.0/24"]}},
        ],
        "metricsFrom": [
            {
                "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: "monitoring"}},
                "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["prometheus"]}]},
            }
        ],
    }
    found = admitted(await world_of(case, OPERATOR_PEERS, network=network), case)
    assert {name: ports for name, ports in found.items() if ports} == {
        "server": set(case.ports),
        "operator": set(case.ports),
        "client": {case.clients},
        "outside": {case.clients},
        "Prometheus": {case.metrics},
    }


@KINDS
async def test_ports_of_extra_containers_are_for_clients(case: Case) -> None:
    log = {"name": "log", "image": "log:1", "ports": [{"containerPort": 8080}]}
    world = await world_of(case, OPERATOR_PEERS, extraContainers=[log], network={"allowFrom": [{"podSelector": {}}]})
    given = list(policies(world).values())
    for target in servers(world):
        found = others(target)
        assert admits(given, found["client"], target, 8080)
        assert not admits(given, found["client elsewhere"], target, 8080)


@KINDS
async def test_empty_list_admits_no_client(case: Case) -> None:
    network: Obj = {"allowFrom": [], "metricsFrom": []}
    found = admitted(await world_of(case, OPERATOR_PEERS, network=network), case)
    assert {name for name, ports in found.items() if ports} == {"server", "operator"}


@KINDS
async def test_operator_without_known_peers_is_not_cut_off(case: Case) -> None:
    world = await world_of(case, [], network={"allowFrom": [], "metricsFrom": []})
    found = admitted(world, case)
    assert found["operator"] == {case.clients, case.metrics}  # everyone is admitted there
    assert found["another resource"] == {case.clients, case.metrics}  # and no one to the ports of peers
    ready = condition(world)
    assert (ready["status"], ready["reason"]) == ("True", "OperatorNotAdmitted")
    assert "spec.network.allowFrom and spec.network.metricsFrom: not applied" in ready["message"]


@KINDS
async def test_operator_without_known_peers_keeps_what_restricts_clients(case: Case) -> None:
    world = await world_of(case, OPERATOR_PEERS, network={"allowFrom": []})
    before = policies(world)
    world.subject = running(case.subject, [])
    await ScenarioRun(world).run_steps((case.create(network={"allowFrom": [{"podSelector": {}}]}),))
    assert policies(world) == before
    assert condition(world)["reason"] == "OperatorNotAdmitted"
    world.subject = running(case.subject, OPERATOR_PEERS)
    await ScenarioRun(world).run_steps((case.create(network={"allowFrom": [{"podSelector": {}}]}),))
    assert admitted(world, case)["client"] == {case.clients, case.metrics}
    assert condition(world)["reason"] == "Ready"


@KINDS
async def test_policy_is_deleted_when_the_spec_disables_it(case: Case) -> None:
    world = await world_of(case, OPERATOR_PEERS)
    assert list(policies(world)) == ["cache-network"]
    await ScenarioRun(world).run_steps((case.create(network={"enabled": False}),))
    assert not policies(world)


PAUSES = {"etcd": "paused", "redis": "pause"}


@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: case.subject.name)
async def test_paused_cluster_admits_an_operator_that_moved(case: Case) -> None:
    """Otherwise the operator could not repair the cluster: it is reinstalled in another namespace during the pause."""
    world = await world_of(case, OPERATOR_PEERS, network={"allowFrom": []})
    moved = [{"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: "operators"}}, "podSelector": {}}]
    paused = case.create(network={"allowFrom": []}, **{PAUSES[case.subject.name]: True})
    world.subject = running(case.subject, moved)
    await ScenarioRun(world).run_steps((paused,))
    given = list(policies(world).values())
    assert all(admits(given, Peer("operators", {}), target, case.clients) for target in servers(world))
    assert not any(admits(given, Peer(SYSTEM, OPERATOR_LABELS), target, case.clients) for target in servers(world))


async def test_snapshots_reach_members_that_admit_no_client() -> None:
    world = await world_of(CASES[1], OPERATOR_PEERS, network={"allowFrom": [], "metricsFrom": []})
    labels = {"app.kubernetes.io/name": "etcd-backup", "app.kubernetes.io/managed-by": "etcd-operator"}
    given = list(policies(world).values())
    for target in servers(world):
        snapshot = Peer(target.namespace, labels)
        assert [port for port in CASES[1].ports if admits(given, snapshot, target, port)] == [2379]
