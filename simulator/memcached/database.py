"""Simulated memcached: servers in pods, with the items of their clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from operators.memcached.client.errors import TLSFailed, Unreachable
from operators.memcached.objects.pod import speaks_ascii
from shared.kubernetes.kinds import Kind, Obj
from shared.kubernetes.secrets import content_of
from simulator.api_server.requests import TargetedRequest
from simulator.kubelet.kubelet import ProcessStatus
from simulator.memcached.clients import Clients
from simulator.memcached.fake_servers import Connected, Fleet


@dataclass
class Invariants:
    """Called before or after what happens. A subclass records a violation and raises an error; this one does nothing.

    Attributes:
        violations: violations so far, in order.
        listening: port on which the server at an address listens.
    """

    violations: list[str] = field(default_factory=list)
    listening: dict[str, int] = field(default_factory=dict)

    def check_write(self, servers: SimulatedMemcached, target: TargetedRequest, live: Obj | None) -> None:
        """After a write of the operator to the API server."""

    def password_sent(self, address: str) -> None:
        """When a program that is no server has received a password."""

    def started(self, servers: SimulatedMemcached, pod: Obj) -> None:
        """When a server has started."""

    def ended(self, servers: SimulatedMemcached) -> None:
        """When a server has ended."""

    def loaded(self, pod: Obj, users: str) -> None:
        """When a server has a users file."""


@dataclass
class SimulatedMemcached(Fleet):
    """Servers in pods: each has items, which end with it.

    Attributes:
        filled: UIDs of the pods that hold items.
        emptied: number of servers that ended with their items.
        loaded: times at which servers loaded their files, by address.
        clock: clock of the world.
        images: version of the program that a pod has pulled, by its UID.
        programs: version of the program in an image, if it is not that of its tag.
        clients: clients of the servers, which fill them.
        uids: UID of the pod at an address.
        guard: called before or after what happens.
        objects: objects of the world, of a kind.
    """

    filled: set[str] = field(default_factory=set)
    emptied: int = 0
    loaded: dict[str, datetime] = field(default_factory=dict)
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    reads_files: bool = True
    images: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    clients: Clients = field(default_factory=Clients)
    uids: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    guard: Invariants = field(default_factory=Invariants)
    objects: Callable[[Kind], list[tuple[Kind, Obj]]] = field(default=lambda _: [])

    def __post_init__(self) -> None:
        self.volumes = self._mounted_at  # a method, so that the fork of a world has that of its own servers

    @property
    def violations(self) -> list[str]:
        return self.guard.violations

    def _mounted_at(self, address: str) -> Mapping[str, Mapping[str, str]]:
        return self.secrets.get(address, {})

    def state(self) -> Any:
        return None

    def counts(self) -> Counter[str]:
        """Count what must not happen more often than without a disturbance; a certificate may be reloaded twice."""
        return Counter({"server emptied": self.emptied})

    def run(self, pod: Obj, volumes: Mapping[str, Obj]) -> ProcessStatus:
        address, uid = pod["status"]["podIP"], pod["metadata"]["uid"]
        self._mount(address, pod, volumes.get("tls"))
        former = self.secrets.get(address, {}).get("auth")
        self.secrets[address] = {name: content_of(volume) for name, volume in volumes.items()}
        if uid in self.filled and former != self.secrets[address].get("auth"):
            self.load(address)  # SIGHUP: since 1.6.40, memcached then loads its certificate too
        self.uids[address] = uid
        self.clients.pass_time(self.clock())
        if uid not in self.filled:
            self.filled.add(uid)
            self.clients.start(uid, pod["metadata"]["name"], self.clock())
            for known in (self.served, self.trusted):
                known.pop(address, None)
            self.load(address)
            self.guard.listening[address] = pod["spec"]["containers"][0]["ports"][0]["containerPort"]
            self.guard.started(self, pod)
        if users := self.secrets[address].get("auth", {}).get("users"):
            self.guard.loaded(pod, users)
        if not speaks_ascii(pod):
            self.mute.add(address)
        server = pod["spec"]["containers"][0]
        hangs = address in self.hung and "httpGet" in server["readinessProbe"]
        if uid not in self.images:
            self.images[uid] = self.programs.get(server["image"]) or server["image"].rpartition(":")[2]
        self.versions[address] = version = self.images[uid]
        return ProcessStatus("Unready" if hangs else "", image_id=f"sha256:{version}")

    def _mount(self, address: str, pod: Obj, secret: Obj | None) -> None:
        """Update the files of a server at once; without the Secret or a key that is listed, they stay as they are."""
        volume = next((each for each in pod["spec"].get("volumes", ()) if each["name"] == "tls"), None)
        if volume is None:
            self.mounted.pop(address, None)
        elif secret is not None:
            content, keys = content_of(secret), [item["key"] for item in volume["secret"]["items"]]
            if content.keys() >= {*keys}:
                self.mounted[address] = {key: content[key] for key in keys}

    async def connect(self, host: str, port: int, **options: Any) -> Connected:
        encrypts, tls = host in self.mounted, options.get("tls") is not None
        if port != self.guard.listening.get(host, port):
            raise Unreachable(f"{host}:{port} refuses connections.")
        if host in self.uids and encrypts and not tls:
            raise Unreachable(f"{host}:{port} closed the connection: it may require TLS.")
        if host in self.uids and tls and not encrypts:
            raise TLSFailed(f"{host}:{port}: no TLS handshake: record layer failure.")
        known = len(self.passwords)
        try:
            return await super().connect(host, port, **options)
        finally:
            if host in self.impostors and len(self.passwords) > known:
                self.guard.password_sent(host)

    def load(self, host: str) -> None:
        super().load(host)
        self.loaded[host] = self.clock()

    def age(self, host: str) -> float:
        return (self.clock() - self.loaded[host]).total_seconds()

    def end(self, uid: str) -> None:
        self.emptied += uid in self.filled
        self.filled.discard(uid)
        self.clients.end(uid, self.clock())
        self.guard.ended(self)

    def statistics(self, host: str) -> dict[str, str]:
        return self.clients.stats(self.uids[host], self.clock())

    def check_write(self, target: TargetedRequest, live: Obj | None) -> None:
        self.guard.check_write(self, target, live)
