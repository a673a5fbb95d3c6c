"""A RedisCluster as a scenario sees it: what it says of itself, its nodes, and what can happen to them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

from redis import Redis, RedisCluster, RedisError

from e2e.scenarios.redis import judge, versions
from e2e.scenarios.redis.clients import Load
from e2e.scenarios.redis.session import PORT, TIMEOUT, Access, Address
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import Resource

SMALL = {"requests": {"cpu": "10m", "memory": "32Mi"}}
VOLUMES = {"size": "256Mi"}

SLOTS = 16384

Answer = Any


class Cluster(Resource):
    """One RedisCluster in a namespace.

    Args:
        access: what its clients must bring.
    """

    API_VERSION = "redis.middleware.hc.cn/v1alpha1"
    KIND = "RedisCluster"

    def __init__(self, kubectl: Kubectl, name: str, access: Access | None = None) -> None:
        super().__init__(kubectl, name)
        self.access = access or Access()

    @classmethod
    def create(cls, kubectl: Kubectl, name: str = "demo", access: Access | None = None, **spec: Any) -> Cluster:
        """Create one; of Redis 8.0 and with volumes, if nothing else is said."""
        given = {"resources": SMALL, "storage": VOLUMES, **versions.REDIS_8, **spec}
        kubectl.apply(cls.manifest(name, **{field: value for field, value in given.items() if value is not None}))
        return cls(kubectl, name, access)

    def await_ready(self, replicas: int, masters: int = 3, *, seconds: float = 180.0) -> dict[str, Any]:
        """Wait until the current spec is reality: so many nodes and masters, and the independent judge agrees."""

        def look() -> dict[str, Any]:
            now = self.ready_now()
            status, instances = now["status"], instances_of(now)
            assert status["replicas"] == status["readyReplicas"] == len(instances) == replicas, status
            roles = Counter(each["type"] for each in instances.values())
            assert roles == Counter(master=masters, slave=replicas - masters), roles
            assert status["phase"] == "Running", status["phase"]
            return now

        found = until(f"{self.name} Ready with {replicas} nodes", look, seconds=seconds)
        self.judged(masters, replicas - masters)
        return found

    def judged(self, masters: int, replicas: int) -> None:
        """The independent judge finds so many nodes, and nothing wrong; replicas may still be heard of by some."""
        engine = versions.engine(self.now["spec"])

        def look() -> bool:
            verdict = judge.check(self.addresses()[0], self.access, engine)
            assert verdict == judge.Verdict(masters, replicas, ()), verdict
            return True

        until(f"{engine}-cli finds {self.name} in order", look, seconds=20)

    def await_reason(self, *reasons: str, seconds: float = 90.0) -> str:
        """Wait until its Ready condition gives one of these reasons; the message that comes with it."""

        def look() -> str:
            reason = self.reason
            assert reason in reasons, f"{reason}: {self.message}"
            return self.message

        return until(f"{self.name} says {' or '.join(reasons)}", look, seconds=seconds)

    @property
    def instances(self) -> dict[str, dict[str, Any]]:
        """What its status says of each node, by the name of its pod."""
        return instances_of(self.now)

    def masters(self) -> dict[str, str]:
        """The ids of its masters, by the names of their pods, as the status has them."""
        return {name: each["nodeId"] for name, each in self.instances.items() if each["type"] == "master"}

    def shard(self, number: int = 0) -> tuple[str, tuple[str, ...]]:
        """A master's pod, and those of its replicas: of the master whose pod has the lowest number, or the next…"""
        instances = self.instances
        name = sorted(pod for pod, each in instances.items() if each["type"] == "master")[number]
        own = instances[name]["nodeId"]
        followers = (pod for pod, each in instances.items() if each["type"] == "slave" and each["masterNodeId"] == own)
        return name, tuple(sorted(followers))

    def owners(self) -> dict[int, str]:
        """Who owns each slot, as its nodes say, by id; a slot without an owner is missing.

        Raises:
            AssertionError: two nodes claim a slot, or one does not answer.
        """
        found: dict[int, str] = {}
        for name in self.pods():
            try:
                told = own_slots(self.ask(name, "CLUSTER", "NODES"))
            except RedisError as error:
                raise AssertionError(f"{name} does not answer: {error}") from None
            for node_id, slots in told.items():
                for slot in slots:
                    assert found.setdefault(slot, node_id) == node_id, f"{found[slot]} and {node_id} claim slot {slot}"
        return found

    @property
    def selector(self) -> str:
        return str(self.status["selector"])

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods of its nodes that are not on their way out, by name."""
        listed = self.kubectl.items("pods", "-l", self.selector)
        return {pod["metadata"]["name"]: pod for pod in listed if "deletionTimestamp" not in pod["metadata"]}

    def uids(self) -> dict[str, str]:
        """The UIDs of its pods, by name."""
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def addresses(self) -> Sequence[Address]:
        """Where clients may try."""
        pods = sorted(self.pods().items())
        return [(pod["status"]["podIP"], PORT) for _, pod in pods if pod["status"].get("podIP")]

    def load(self, clients: int = 3, **settings: Any) -> AbstractContextManager[Load]:
        """Clients that write and read within the block."""
        return Load.going_on(self.addresses, self.access, clients=clients, resolve=self.resolve, **settings)

    def resolve(self, host: str) -> str:
        """The address of a node by its name, as the cluster's DNS would tell it; an address stays as it is."""
        name, dot, _ = host.partition(f".{self.name}.")
        return str(self.pods()[name]["status"].get("podIP", host)) if dot else host

    @contextmanager
    def node(self, name: str) -> Iterator[Redis]:
        """A client of one node, which follows nobody elsewhere."""
        pod = self.pods().get(name)
        assert pod, f"{name} is gone"
        address = pod["status"].get("podIP")
        assert address, f"{name} has no address yet"
        with closing(Redis(address, PORT, **self._options())) as client:
            yield client

    def ask(self, name: str, *command: str | int) -> Answer:
        """What a node answers to a command.

        Raises:
            redis.RedisError: it does not answer, or says no.
        """
        with self.node(name) as node:
            return node.execute_command(*command)  # type: ignore[no-untyped-call]

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client of the cluster, with redis-py's own patience."""
        host, port = self.addresses()[0]
        options: dict[str, Any] = self._options() | {"address_remap": lambda at: (self.resolve(at[0]), at[1])}
        with closing(RedisCluster(host, port, **options)) as client:
            yield client

    def _options(self) -> dict[str, Any]:
        return {"socket_timeout": 10 * TIMEOUT, "decode_responses": True, **self.access.options()}

    def fill(self, keys: int, size: int = 100, prefix: str = "filled") -> None:
        """Write so many keys of so many bytes, all over the slots."""
        with self.client() as client:
            for begin in range(0, keys, 1000):
                with client.pipeline() as pipeline:
                    for number in range(begin, min(begin + 1000, keys)):
                        pipeline.set(f"{prefix}-{number}", "x" * size)
                    pipeline.execute()

    def keys(self) -> int:
        """How many keys its masters hold."""
        return sum(int(self.ask(name, "DBSIZE")) for name in self.masters())

    def lose(self, *names: str, volumes: bool = True) -> None:
        """Pods of nodes are gone for good, and their volumes if they have any."""
        if volumes:
            self.kubectl("delete", *(f"persistentvolumeclaim/data-{name}" for name in names), "--wait=false")
        self.kubectl("delete", *(f"pod/{name}" for name in names), "--grace-period=0", "--force", "--wait=false")

    @contextmanager
    def down(self, name: str) -> Iterator[None]:
        """A node does not run within the block, and no other pod can take its name: somebody holds on to this one."""
        hold, release = ({"metadata": {"finalizers": by}} for by in (["example.com/held"], None))
        self.kubectl("patch", "pod", name, "--type=merge", f"--patch={json.dumps(hold)}")
        try:
            self.kubectl("delete", "pod", name, "--grace-period=1", "--wait=false")
            yield
        finally:
            self.kubectl("patch", "pod", name, "--type=merge", f"--patch={json.dumps(release)}")


def instances_of(resource: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The entries of a resource's conditions that are of nodes, by the names of their pods."""
    listed = resource.get("status", {}).get("conditions", ())
    return {each["name"]: each for each in listed if each["type"] in ("master", "slave")}


def own_slots(nodes: str) -> dict[str, list[int]]:
    """What the node that says so claims for itself in CLUSTER NODES: its id, and its slots. Pure."""
    line = _own_line(nodes)
    ranges = [part.partition("-") for part in line[8:] if not part.startswith("[")]
    return {line[0]: [slot for first, _, last in ranges for slot in range(int(first), int(last or first) + 1)]}


def opened(nodes: str) -> str:
    """The slots that the node that says so has open in CLUSTER NODES, as `[slot->-to][slot-<-from]`. Pure."""
    return "".join(part for part in _own_line(nodes)[8:] if part.startswith("["))


def _own_line(nodes: str) -> list[str]:
    [line] = [words for words in (line.split() for line in nodes.splitlines()) if "myself" in words[2].split(",")]
    return line
