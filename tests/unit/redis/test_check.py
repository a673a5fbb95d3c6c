"""`helm test`: what it does to a RedisCluster, and what it makes of what it finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from operators.redis import check
from operators.redis.api.admission import validate
from operators.redis.api.resource import RedisCluster
from operators.redis.check import KEYS, SPEC, use
from operators.redis.client.errors import Refused, Unreachable
from operators.redis.client.server import Access, Endpoint
from operators.redis.slots.hash_slots import key_slot
from shared.cli.check import Failed, NotYet
from shared.kubernetes.kinds import Obj

CLUSTER: Obj = {"status": {"endpoints": [f"demo-{number}:6379" for number in range(3)]}}


class Nodes:
    """Three masters; each has a third of the slots, and sends on who asks for others."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.open = 0
        self.answer: Callable[[str, tuple[str, ...]], Any] = self.serve

    def connect(self, endpoint: Endpoint, _: Access) -> Node:
        self.open += 1
        return Node(self, f"{endpoint.host}:{endpoint.port}")

    def serve(self, address: str, command: tuple[str, ...]) -> Any:
        owner = CLUSTER["status"]["endpoints"][key_slot(command[1].encode()) * 3 // 16384]
        if address != owner:
            raise Refused(f"MOVED {key_slot(command[1].encode())} {owner}")
        match command:
            case "SET", key, value:
                self.held[key] = value
                return "OK"
            case "DEL", key:
                return int(self.held.pop(key, None) is not None)
            case "GET", key:
                return self.held.get(key, "").encode()
        raise AssertionError(command)


class Node:
    def __init__(self, nodes: Nodes, address: str) -> None:
        self.nodes, self.address = nodes, address

    async def execute(self, *command: str) -> Any:
        return self.nodes.answer(self.address, command)

    async def aclose(self) -> None:
        self.nodes.open -= 1


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    found = Nodes()
    monkeypatch.setattr(check, "connect", found.connect)
    return found


async def test_every_master_gives_back_what_it_took_and_nothing_is_left(nodes: Nodes) -> None:
    assert await use(CLUSTER) == f"3 masters gave back {len(KEYS)} keys"
    assert (nodes.held, nodes.open) == ({}, 0)


async def test_a_value_that_is_not_given_back_is_a_failure(nodes: Nodes) -> None:
    nodes.answer = lambda address, command: b"another" if command[0] == "GET" else nodes.serve(address, command)
    with pytest.raises(Failed, match=r"was to be .*, and is"):
        await use(CLUSTER)
    assert nodes.open == 0


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Unreachable("no such name"), NotYet), (Refused("CLUSTERDOWN Hash slot not served"), Failed)],
)
async def test_what_may_come_is_waited_for_and_what_is_refused_is_told(
    nodes: Nodes, error: Exception, kind: type[Exception]
) -> None:
    def refuse(address: str, command: tuple[str, ...]) -> Any:
        raise error

    nodes.answer = refuse
    with pytest.raises(kind, match=str(error).split(" ")[0]):
        await use(CLUSTER)


async def test_nodes_that_send_one_in_a_circle_are_a_failure(nodes: Nodes) -> None:
    def send_on(address: str, command: tuple[str, ...]) -> Any:
        raise Refused(f"MOVED 1 {CLUSTER['status']['endpoints'][address.startswith('demo-0')]}")

    nodes.answer = send_on
    with pytest.raises(Failed, match="sent on and on"):
        await use(CLUSTER)


def test_what_is_made_is_a_cluster_that_the_operator_takes() -> None:
    metadata = {"name": "check", "namespace": "default", "uid": "u"}
    resource = RedisCluster.parse({"metadata": metadata, "spec": SPEC})
    assert validate(resource) == []
    assert resource.primaries == 3
