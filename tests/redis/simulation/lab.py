"""Servers of `FakeRedis` without Kubernetes, for the conformance scripts."""

from __future__ import annotations

from operators.redis.client.server import Access, Endpoint, Server
from simulator.clock import Clock
from simulator.harness import NOW
from simulator.redis.client import KEYS, OLD_KEYS, Entry
from simulator.redis.command_line import Command
from simulator.redis.process import Process
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.recorded_conformance import Recorder, form

TIMEOUT = 1000


class FakeLab:
    """`tests.support.redis.recorded_conformance.Lab` in memory; every server is in a pod named demo-<name>."""

    def __init__(self, redis: FakeRedis | None = None) -> None:
        self.transcript: list[str] = []
        self.clock = Clock(NOW)
        self.redis = redis or FakeRedis(clock=self.clock)
        self.redis.client.idle = True
        self.redis.guard.disabled = True
        self._connect = self.redis.connect
        self._made = 0
        self._addresses: dict[str, str] = {}
        self._disks: dict[str, str] = {}
        self._pods: dict[str, str] = {}

    async def start(self, name: str, *, address: str = "", appendonly: str = "yes") -> None:
        self._made += 1
        uid = self._pods[name] = f"pod-{self._made}"
        known = self._addresses.setdefault(name, f"10.0.0.{'abcdefghijx'.index(name) + 1}")
        self._addresses[name] = self._addresses.get(address, address) or known
        disk = self._disks.setdefault(name, f"disk-{name}-{self._made}")
        settings = {"cluster-node-timeout": str(TIMEOUT), "appendonly": appendonly, "save": ""}
        self.redis.advance()
        command = Command(disk, name, settings=settings)
        self.redis.begin(uid, f"demo-{name}", self._addresses[name], command)

    async def move(self, name: str) -> None:
        self._made += 1
        self._addresses[name] = f"10.0.{self._made}.1"

    async def stop(self, name: str) -> None:
        self.redis.end(self._pods.pop(name))

    async def wipe(self, name: str) -> None:
        self.redis.end(self._disks.pop(name))

    async def hang(self, name: str, *, hangs: bool = True) -> None:
        self.redis.hang(f"demo-{name}", hangs=hangs)

    async def wait(self, seconds: float) -> None:
        self.clock.wait(seconds)
        self.redis.advance()

    def address(self, name: str) -> tuple[str, int]:
        return self._addresses[name], 6379

    def process(self, name: str) -> Process:
        return self.redis.processes[self._pods[name]]

    def server(self, name: str) -> Server:
        return self._connect(Endpoint(name, self._addresses[name], name), Access())


class GuardedLab(FakeLab):
    """A cluster of three primaries and three replicas, with the guard enabled and a client that writes."""

    recorder: Recorder

    @classmethod
    async def begin(cls, replicas: str = "def") -> GuardedLab:
        lab = cls()
        lab.recorder = await form(lab, replicas)
        redis = lab.redis
        redis.guard.disabled = redis.client.idle = False
        redis.guard.formed.add("demo")
        for _ in range(2):  # the second time, replicas receive the first writes
            redis.settle("the cluster starts")
        assert redis.guard.records.keys() == {*KEYS, *OLD_KEYS}
        return lab

    async def cluster(self, name: str, *words: str | int) -> object:
        return await self.server(name).execute("CLUSTER", *words)

    def keys(self, name: str) -> dict[bytes, Entry]:
        """Return a copy of the data set of a server."""
        return dict(self.process(name).node.keys)

    def id(self, name: str) -> str:
        return self.recorder.ids[name]

    async def opened(self, slot: int) -> tuple[str, str]:
        """Open a slot for migration; return its owner and the importing primary."""
        source = next(name for name in "abc" if self.process(name).node.me.slots >> slot & 1)
        target = next(name for name in "abc" if name != source)
        await self.cluster(target, "SETSLOT", slot, "IMPORTING", self.id(source))
        await self.cluster(source, "SETSLOT", slot, "MIGRATING", self.id(target))
        return source, target
