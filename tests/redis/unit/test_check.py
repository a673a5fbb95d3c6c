"""`helm test`: commands that it sends to a RedisCluster, and how it judges the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis.crc import key_slot

from operators.redis import check
from operators.redis.api.admission import validate
from operators.redis.api.resource import RedisCluster
from operators.redis.check import KEYS, SPEC, use
from operators.redis.client.errors import Refused, Unreachable
from operators.redis.client.server import Access, Endpoint
from shared.cli.check import Failed, NotYet
from shared.kubernetes.kinds import Obj

CLUSTER: Obj = {"status": {"endpoints": [f"demo-{number}:6379" for number in range(3)]}}


class Nodes:
    """Three primaries: each owns a third of the slots and redirects commands for other slots."""

    def __init__(self) -> None:
        self.data: dict[str, str] = {}
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
                self.data[key] = value
                return "OK"
            case "DEL", key:
                return int(self.data.pop(key, None) is not None)
            case "GET", key:
                return self.data.get(key, "").encode()
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


async def test_check_reads_back_a_key_of_every_primary_and_deletes_it(nodes: Nodes) -> None:
    assert await use(CLUSTER) == f"3 primaries returned {len(KEYS)} keys"
    assert (nodes.data, nodes.open) == ({}, 0)


async def test_wrong_value_is_a_failure(nodes: Nodes) -> None:
    nodes.answer = lambda address, command: b"another" if command[0] == "GET" else nodes.serve(address, command)
    with pytest.raises(Failed, match=r"is .* instead of"):
        await use(CLUSTER)
    assert nodes.open == 0


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Unreachable("no such name"), NotYet), (Refused("CLUSTERDOWN Hash slot not served"), Failed)],
)
async def test_unreachable_node_is_retried_and_a_refusal_fails(
    nodes: Nodes, error: Exception, kind: type[Exception]
) -> None:
    def refuse(address: str, command: tuple[str, ...]) -> Any:
        raise error

    nodes.answer = refuse
    with pytest.raises(kind, match=str(error).split(" ")[0]):
        await use(CLUSTER)


async def test_redirection_loop_is_a_failure(nodes: Nodes) -> None:
    def redirect(address: str, command: tuple[str, ...]) -> Any:
        raise Refused(f"MOVED 1 {CLUSTER['status']['endpoints'][address.startswith('demo-0')]}")

    nodes.answer = redirect
    with pytest.raises(Failed, match="too many redirects"):
        await use(CLUSTER)


def test_checked_resource_passes_admission() -> None:
    metadata = {"name": "check", "namespace": "default", "uid": "u"}
    resource = RedisCluster.parse({"metadata": metadata, "spec": SPEC})
    assert validate(resource) == []
    assert resource.primaries == 3
