"""A RedisCluster in a scenario: its status and nodes, client load, and faults."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import Any

from redis import Redis, RedisCluster, RedisError

from e2e.scenarios.redis import cli_check, versions
from e2e.scenarios.redis.clients import Load
from e2e.scenarios.redis.deaths import own_line
from e2e.scenarios.redis.replication_monitor import ReplicationMonitor
from e2e.scenarios.redis.session import PORT, TIMEOUT, Access, Address
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import Resource

SMALL = {"requests": {"cpu": "10m", "memory": "32Mi"}}
VOLUMES = {"size": "256Mi"}

SLOTS = 16384

Answer = Any


class Cluster(Resource):
    """A RedisCluster in a namespace.

    Args:
        access: credentials of clients.
    """

    API_VERSION = "redis.middleware.hc.cn/v1alpha1"
    KIND = "RedisCluster"

    def __init__(self, kubectl: Kubectl, name: str, access: Access | None = None) -> None:
        super().__init__(kubectl, name)
        self.access = access or Access()

    @classmethod
    def create(cls, kubectl: Kubectl, name: str = "demo", access: Access | None = None, **spec: Any) -> Cluster:
        """Create a RedisCluster, by default of Redis 8.0 with volumes."""
        given = {"resources": SMALL, "storage": VOLUMES, **versions.REDIS_8, **spec}
        kubectl.apply(cls.manifest(name, **{field: value for field, value in given.items() if value is not None}))
        return cls(kubectl, name, access)

    def await_ready(self, replicas: int, primaries: int = 3, *, seconds: float = 180.0) -> dict[str, Any]:
        """Wait until this number of nodes and primaries is ready, and check the cluster with the engine's own CLI."""

        def check() -> dict[str, Any]:
            now = self.ready_now()
            status, nodes = now["status"], nodes_of(now)
            assert status["replicas"] == status["readyReplicas"] == len(nodes) == replicas, status
            roles = Counter(each["role"] for each in nodes.values())
            assert roles == Counter(primary=primaries, replica=replicas - primaries), roles
            assert status["phase"] == "Running", status["phase"]
            return now

        found = until(f"{self.name} Ready with {replicas} nodes", check, seconds=seconds)
        self.check_with_cli(primaries, replicas - primaries)
        return found

    def check_with_cli(self, primaries: int, replicas: int) -> None:
        """Wait until the engine's own CLI reports this number of nodes and no problem."""
        engine = versions.engine(self.now["spec"])

        def check() -> bool:
            verdict = cli_check.check(self.addresses()[0], self.access, engine)
            assert verdict == cli_check.Verdict(primaries, replicas, ()), verdict
            return True

        until(f"{engine}-cli finds no problem in {self.name}", check, seconds=20)

    def await_reason(self, *reasons: str, seconds: float = 90.0) -> str:
        """Wait until the Ready condition has one of these reasons; return its message."""

        def check() -> str:
            reason = self.reason
            assert reason in reasons, f"{reason}: {self.message}"
            return self.message

        return until(f"{self.name} has reason {' or '.join(reasons)}", check, seconds=seconds)

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """Status of each node, by pod name."""
        return nodes_of(self.now)

    def primaries(self) -> dict[str, str]:
        """Return the node ids of the primaries by pod name, as the status has them."""
        return {name: each["nodeId"] for name, each in self.nodes.items() if each["role"] == "primary"}

    def shard(self, number: int = 0) -> tuple[str, tuple[str, ...]]:
        """Return the pods of a shard, the primary and its replicas. Shards are in the order of their primaries."""
        nodes = self.nodes
        name = sorted(pod for pod, each in nodes.items() if each["role"] == "primary")[number]
        followers = (pod for pod, each in nodes.items() if each.get("primaryId") == nodes[name]["nodeId"])
        return name, tuple(sorted(followers))

    def owners(self) -> dict[int, str]:
        """Return the id of each slot's owner, as the nodes report it; a slot without an owner is missing.

        Raises:
            AssertionError: two nodes claim a slot, or a node is unreachable.
        """
        found: dict[int, str] = {}
        for name in self.pods():
            try:
                slots_by_id = own_slots(self.execute(name, "CLUSTER", "NODES"))
            except RedisError as error:
                raise AssertionError(f"{name} is unreachable: {error}") from None
            for node_id, slots in slots_by_id.items():
                for slot in slots:
                    assert found.setdefault(slot, node_id) == node_id, f"{found[slot]} and {node_id} claim slot {slot}"
        return found

    def open_slots(self) -> frozenset[int]:
        """Return the open slots that the reachable nodes report."""
        found = ""
        for name in self.addresses_by_name():
            with suppress(RedisError):
                found += open_slots(self.execute(name, "CLUSTER", "NODES"))
        return frozenset(int(slot) for slot in re.findall(r"\[(\d+)-", found))

    @property
    def selector(self) -> str:
        return str(self.status["selector"])

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the pods that are not terminating, by name."""
        listed = self.kubectl.items("pods", "-l", self.selector)
        return {pod["metadata"]["name"]: pod for pod in listed if "deletionTimestamp" not in pod["metadata"]}

    def uids(self) -> dict[str, str]:
        """Return the UIDs of the pods, by name."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def addresses(self) -> Sequence[Address]:
        """Return the addresses of all nodes."""
        return [address for _, address in sorted(self.addresses_by_name().items())]

    def addresses_by_name(self) -> dict[str, Address]:
        """Return the addresses of all nodes by the name of the pod."""
        pods = self.pods().items()
        return {name: (pod["status"]["podIP"], PORT) for name, pod in pods if pod["status"].get("podIP")}

    def replication(self) -> AbstractContextManager[ReplicationMonitor]:
        """Sample the replication of all nodes within the block, to know what a crash may lose."""
        return ReplicationMonitor.running(self.addresses_by_name, self.access)

    def load(self, clients: int = 3, **settings: Any) -> AbstractContextManager[Load]:
        """Write old keys, and run clients that write and read within the block."""
        return Load.running(self.addresses, self.access, clients=clients, resolve=self.resolve, **settings)

    def resolve(self, host: str) -> str:
        """Return the address of a node by its host name, as the cluster's DNS does, and an address unchanged."""
        name, dot, _ = host.partition(f".{self.name}.")
        return str(self.pods()[name]["status"].get("podIP", host)) if dot else host

    @contextmanager
    def node(self, name: str) -> Iterator[Redis]:
        """Connect to one node, without following redirections."""
        pod = self.pods().get(name)
        assert pod, f"{name} does not exist"
        address = pod["status"].get("podIP")
        assert address, f"{name} has no address yet"
        with closing(Redis(address, PORT, **self._options())) as client:
            yield client

    def execute(self, name: str, *command: str | int) -> Answer:
        """Return the answer of a node to a command.

        Raises:
            redis.RedisError: the node is unreachable, or returns an error.
        """
        with self.node(name) as node:
            return node.execute_command(*command)  # type: ignore[no-untyped-call]

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Connect to the cluster, with the retries of redis-py."""
        host, port = self.addresses()[0]
        options: dict[str, Any] = self._options() | {"address_remap": lambda at: (self.resolve(at[0]), at[1])}
        with closing(RedisCluster(host, port, **options)) as client:
            yield client

    def _options(self) -> dict[str, Any]:
        return {"socket_timeout": 10 * TIMEOUT, "decode_responses": True, **self.access.options()}

    def fill(self, keys: int, size: int = 100, prefix: str = "filled") -> None:
        """Write this number of keys of this size, spread over all slots."""
        with self.client() as client:
            for begin in range(0, keys, 1000):
                with client.pipeline() as pipeline:
                    for number in range(begin, min(begin + 1000, keys)):
                        pipeline.set(f"{prefix}-{number}", "x" * size)
                    pipeline.execute()

    def keys(self) -> int:
        """Return the number of keys of all primaries."""
        return sum(int(self.execute(name, "DBSIZE")) for name in self.primaries())

    def lose(self, *names: str, volumes: bool = True) -> None:
        """Delete pods by force, and their volumes if they have any."""
        if volumes:
            self.kubectl("delete", *(f"persistentvolumeclaim/data-{name}" for name in names), "--wait=false")
        self.kubectl("delete", *(f"pod/{name}" for name in names), "--grace-period=0", "--force", "--wait=false")

    @contextmanager
    def down(self, name: str) -> Iterator[None]:
        """Keep a node down within the block: a finalizer keeps its deleted pod, so that it is not recreated."""
        hold, release = ({"metadata": {"finalizers": by}} for by in (["example.com/held"], None))
        self.kubectl("patch", "pod", name, "--type=merge", f"--patch={json.dumps(hold)}")
        try:
            self.kubectl("delete", "pod", name, "--grace-period=1", "--wait=false")
            yield
        finally:
            self.kubectl("patch", "pod", name, "--type=merge", f"--patch={json.dumps(release)}")


def nodes_of(resource: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the entries of status.nodes, by pod name."""
    return {each["name"]: each for each in resource.get("status", {}).get("nodes", ())}


def own_slots(nodes: str) -> dict[str, list[int]]:
    """Return the id and the slots of the node that answered CLUSTER NODES. Pure."""
    line = own_line(nodes)
    ranges = [part.partition("-") for part in line[8:] if not part.startswith("[")]
    return {line[0]: [slot for first, _, last in ranges for slot in range(int(first), int(last or first) + 1)]}


def open_slots(nodes: str) -> str:
    """Return the open slots of the node that answered CLUSTER NODES, as `[slot->-to][slot-<-from]`. Pure."""
    return "".join(part for part in own_line(nodes)[8:] if part.startswith("["))
