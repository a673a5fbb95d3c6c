"""Each new cluster has a bus port of its own; pods that exist keep the port that they have."""

from __future__ import annotations

from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import BUS_PORT
from operators.redis.facts.bus_port import PORTS, admitted_ports, bus_port
from operators.redis.objects.names import BUS, CONTAINER
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from shared.kubernetes.kinds import Obj
from tests.redis.unit.world import assess, cluster, formed


def resource(uid: str = "u-1", **spec: Any) -> RedisCluster:
    made = cluster(*formed(), **spec)
    return RedisCluster(made.obj | {"metadata": made.obj["metadata"] | {"uid": uid}}, made.spec)


def pod(port: int) -> Obj:
    ports = [{"name": "client", "containerPort": 6379}, {"name": BUS, "containerPort": port}]
    return {"spec": {"containers": [{"name": CONTAINER, "ports": ports}]}}


def found(*pods: int, template: int = 0) -> Observed:
    instances = tuple(Instance(number, f"demo-{number}", pod_obj=pod(port)) for number, port in enumerate(pods))
    return Observed({"spec": {"template": pod(template)}} if template else None, instances)


def test_new_clusters_have_ports_of_their_own() -> None:
    ports = {uid: bus_port(assess(resource(uid), Observed())) for uid in map(str, range(100))}
    assert set(ports.values()) <= set(PORTS)
    assert len(set(ports.values())) > 95
    assert bus_port(assess(resource("5"), Observed())) == ports["5"]


@pytest.mark.parametrize(
    ("seen", "port"),
    [
        (found(template=16379), 16379),
        (found(16379, 16379), 16379),
        (found(16379, 16379, template=25000), 16379),
        (found(25000, template=25000), 25000),
        (Observed({"spec": {"template": {"spec": {"containers": [{"name": CONTAINER}]}}}}), 16379),
    ],
    ids=["no pods", "no StatefulSet", "a template that was edited by hand", "a drawn port", "none is declared"],
)
def test_present_pods_and_their_template_keep_the_port(seen: Observed, port: int) -> None:
    assert bus_port(assess(resource(), seen)) == port


def test_nodes_reach_the_ports_of_all_pods() -> None:
    assert admitted_ports(assess(resource(), found(16379, 25000, template=25000))) == (16379, 25000)


def test_engine_without_the_directive_has_the_default_port() -> None:
    old = resource(version="6.2.14")
    assert bus_port(assess(old, Observed())) == BUS_PORT


def test_port_of_an_extra_container_is_not_drawn() -> None:
    drawn = bus_port(assess(resource(), Observed()))
    container = {"name": "log", "image": "log:1", "ports": [{"containerPort": drawn}]}
    assert bus_port(assess(resource(extraContainers=[container]), Observed())) == PORTS[PORTS.index(drawn) + 1]
