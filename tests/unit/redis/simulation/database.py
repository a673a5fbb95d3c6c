"""Redis Cluster that is not there: servers as processes in pods, nodes on their disks, what they tell each other.

`FakeRedis` is a database of the crash harness whose processes run where pods run (`shared.testing.kubelet.kubelet`),
and which answers the operator (`connect`). Its nodes gossip as time passes (`clock`), so what one says may be old. A
client writes whenever anything happens. What may cost an acknowledged write is a violation
(`tests.unit.redis.simulation.guard`), and names the action that did it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from operators.redis.client.server import PORT, Connect
from shared.kubernetes.kinds import Obj
from shared.testing.api_server.requests import Aimed
from shared.testing.harness.harness import NOW
from shared.testing.harness.scenario import Clock
from shared.testing.kubelet.kubelet import Fate
from tests.unit.redis.simulation import data, server
from tests.unit.redis.simulation.command_line import Command, command
from tests.unit.redis.simulation.data import KEYS, Client
from tests.unit.redis.simulation.election import live
from tests.unit.redis.simulation.guard import Guard
from tests.unit.redis.simulation.node import ALL, Known, Node, made_up, slot_of
from tests.unit.redis.simulation.process import Election, Process

TICK = 0.25
"""Seconds after which every node has said something."""

LONGEST = 30.0
"""Seconds of which what happens is played; before, nothing new would."""


@dataclass
class FakeRedis:
    """Every server there is.

    Attributes:
        clock: the time; a world gives its own.
        cut_off: whether the operator reaches no server.
        failing: why pods do not start, by their name.
        missing: tags of images that cannot be pulled.
        lagging: pods whose replica gets nothing from its master.
        full: pods whose memory is used up.
        islands: which side of a split network a pod is on, by its name.
        client: who writes.
        disks: nodes by the UID of the claim or pod that holds them.
        processes: by the pods' UIDs, in order of the pods' numbers.
        done: how often what was done.
        commanded: commands that change something, in order.
        fault: what befalls such a command, see `strike`.
        given_up: ids of nodes whose disk the operator deleted.
        now: until when it was played, in seconds.
        turn: how many ticks there were.
    """

    clock: Any = field(default_factory=lambda: Clock(NOW))
    cut_off: bool = False
    failing: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    lagging: set[str] = field(default_factory=set)
    full: set[str] = field(default_factory=set)
    islands: dict[str, int] = field(default_factory=dict)
    client: Client = field(default_factory=Client)
    disks: dict[str, Node] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    guard: Guard = field(default_factory=Guard)
    commanded: list[str] = field(default_factory=list)
    fault: Callable[[str], bool | None] | None = None
    given_up: set[str] = field(default_factory=set)
    now: float = 0.0
    turn: int = 0
    begun: int = 0
    reads_files: bool = True

    # What the crash harness asks.

    @property
    def violations(self) -> list[str]:
        return self.guard.violations

    def state(self) -> Any:
        """Shapes, not who is what: which pod is a master is a matter of luck."""
        self.advance()
        return [self._shape(cluster) for cluster in sorted({process.cluster for process in self.running})]

    def counts(self) -> Counter[str]:
        return self.done

    def witness(self, asked: Aimed, live: Obj | None) -> None:
        """The operator has written this to the API server."""
        self.advance()
        self.guard.witness(self, asked, live)

    def _shape(self, cluster: str) -> Obj:
        nodes = [process.node for process in self.running if process.cluster == cluster]
        owned = sorted(node.me.slots.bit_count() for node in nodes if not node.me.primary)
        return {
            "nodes": len(nodes),
            "clusters": len({node.family for node in nodes}),
            "slots by master": owned,
            "replicas by master": sorted(
                sum(other.me.primary == node.id for other in nodes) for node in nodes if not node.me.primary
            ),
            "open slots": sum(len(node.migrating) + len(node.importing) for node in nodes),
            "agree": len({tuple(sorted((known.id, known.slots) for known in n.known.values())) for n in nodes}) == 1,
            "well": all(process.serves for process in self.running if process.cluster == cluster),
        }

    # What runs in pods.

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> Fate:
        """Start a pod's server, unless it runs, and tell how it fares."""
        self.advance()
        asked = command(pod, claims)
        if asked is None:
            return Fate()
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        process = self.processes.get(uid)
        if name in self.failing or (process is None and self.missing & {asked.tag, f"{name} {asked.tag}"}):
            if process is not None and not process.said:
                self.stop(process, "killed")
            return Fate(self.failing.get(name, "ImagePullBackOff"))
        if process is None or process.said:
            process = self.begin(uid, name, pod["status"]["podIP"], asked)
        return Fate("CrashLoopBackOff", said=process.said) if process.said else Fate()

    def begin(self, uid: str, name: str, address: str, asked: Command) -> Process:
        """A server starts on its disk."""
        self.begun += 1
        node = self.disks.setdefault(asked.disk, Node(asked.place))
        if not node.id:
            node.id = made_up("node", asked.disk, self.begun)
            node.family, node.cluster = node.id, name.rpartition("-")[0]
            self.client.home = self.client.home or node.cluster
            node.known[node.id] = Known(node.id, address)
        process = Process(uid, name, address, asked.disk, node, asked.engine, asked.version, began=self.now)
        process.settings, process.passwords, process.tls = dict(asked.settings), set(asked.passwords), asked.tls
        process.run_id = made_up("run", uid, self.begun)
        node.history, node.offset, node.former = made_up("history", self.begun), 0, ""
        if process.says("appendonly") != "yes":
            node.keys = {}
        for known in node.known.values():
            known.heard = self.now
        node.known = {known.id: known for known in node.known.values() if not known.shakes}
        node.me.address, node.me.port = address, process.port
        if any(other.disk == asked.disk for other in self.running):
            process.said = "Sorry, the cluster configuration file nodes.conf is already used by a different node"
        everybody = {**self.processes, uid: process}
        self.processes = dict(sorted(everybody.items(), key=lambda item: item[1].number))
        self.guard.began(process)
        self.settle(f"a server began in {name}")
        return process

    def end(self, uid: str) -> None:
        """A pod or a claim is gone."""
        self.advance()
        process = self.processes.pop(uid, None)
        if process is not None:
            self.guard.ended(process)
            self.settle(f"pod {process.pod} ended")
        node = self.disks.pop(uid, None)
        if node is not None and node.id:
            self.guard.lost(self, node)
            self.settle(f"the disk of {node.place} is gone")

    def stop(self, process: Process, said: str) -> None:
        """A server ends by itself; its pod's container is started again."""
        process.said, process.linked = said, False
        self.guard.ended(process)
        self.settle(f"the server in {process.pod} ended: {said}")

    def hang(self, pod: str, *, hangs: bool = True) -> None:
        """A server answers nobody any more, or again."""
        for process in self.processes.values():
            if process.pod == pod:
                process.hangs = hangs
                self.guard.ended(process)
        self.settle(f"{pod} {'hangs' if hangs else 'is well'}")

    # What servers make of it.

    @property
    def running(self) -> list[Process]:
        """In order of the numbers of their pods."""
        return [process for process in self.processes.values() if process.runs]

    def at(self, address: str, port: int = PORT) -> Process | None:
        """Who answers at an address."""
        for process in self.processes.values():
            if process.address == address and process.port == port and process.runs:
                return process
        return None

    def reached(self, process: Process, address: str, port: int = PORT) -> Process | None:
        """Whom a server finds at an address."""
        other = self.at(address, port) if address else None
        if other is None or self.islands.get(process.pod, 0) != self.islands.get(other.pod, 0):
            return None
        return other

    def named(self, pod: str) -> Process:
        """The server in a pod."""
        return next(process for process in self.processes.values() if process.pod == pod)

    def node(self, node_id: str) -> Node | None:
        """The node of an id, if its disk is there."""
        return next((node for node in self.disks.values() if node.id == node_id), None) if node_id else None

    def name(self, node_id: str) -> str:
        """What people call a node."""
        node = self.node(node_id)
        return node.place if node else f"node {node_id[:8]}"

    def process_of(self, node: Node) -> Process | None:
        return next((process for process in self.running if process.node is node), None)

    def replicas_of(self, process: Process) -> list[Process]:
        return [other for other in self.running if other.node.me.primary == process.node.id]

    def advance(self) -> None:
        """Play what happened since the last time that anybody looked."""
        now = self.clock().timestamp()
        if not self.now:
            self.now = now
        if now - self.now > LONGEST:
            self._skip(now - LONGEST - self.now)
        while now - self.now >= TICK:
            self.now += TICK
            self.turn += 1
            for process in self.running:
                live(self, process)
            self.settle("time passes")

    def pass_by(self, seconds: float) -> None:
        """Let some time pass, where the time is ours."""
        if isinstance(self.clock, Clock):
            self.clock.wait(seconds)

    def _skip(self, seconds: float) -> None:
        """Nothing new happens for so long."""
        self.now += seconds
        for process in self.processes.values():
            process.alone += seconds
            for known in process.node.known.values():
                known.heard += seconds
                known.reports = {node_id: since + seconds for node_id, since in known.reports.items()}

    def settle(self, action: str) -> None:
        """Let replicas follow and the client write; then see whether all is safe."""
        for process in self.running:
            if process.node.me.primary:
                self.replicate(process)
            else:
                process.linked, process.since, process.syncing = False, None, 0.0
        if not self.client.idle:
            self.client.write(self)
        self.guard.inspect(self, action)

    def touch(self, keys: Sequence[bytes], action: str) -> None:
        """Let the client write some keys, and see whether they are safe."""
        said = [key for key in keys if key in self.client.acknowledged]
        if said and not self.client.idle:
            self.client.write(self, said)
        self.guard.inspect(self, action, said)

    def touch_slot(self, slot: int, action: str) -> None:
        self.touch([key for key in KEYS if slot_of(key) == slot], action)

    def strike(self, what: str) -> bool | None:
        """A command that changes something is under way.

        Returns:
            Whether it is carried out although its answer is lost; None if nothing befalls it.

        Raises:
            Crash: the operator's process ends here.
        """
        self.commanded.append(what)
        return self.fault(what) if self.fault else None

    def replicate(self, process: Process) -> None:
        data.replicate(self, process)

    def follow(self, process: Process, primary: Known) -> None:
        """A node becomes a replica, or one of another."""
        node = process.node
        node.me.slots, node.me.primary = 0, primary.id
        node.migrating, node.importing = {}, {}
        process.linked, process.since, process.syncing = False, None, 0.0
        process.election, process.paused, process.news = Election(), 0.0, True

    def take_over(self, process: Process, epoch: int, action: str) -> None:
        """A replica becomes master in the place of its own."""
        node = process.node
        lead = node.lead
        assert lead is not None
        self.done["failovers"] += 1
        node.me.primary, node.me.epoch = "", epoch
        node.me.slots, lead.slots = node.me.slots | lead.slots, 0
        node.turn(made_up("history", node.unique("history")))
        process.linked, process.since, process.syncing = False, None, 0.0
        process.election, process.news = Election(), True
        self.settle(action)

    def lose_keys(self, process: Process, slots: int, action: str) -> None:
        """A server deletes keys of slots that it lost."""
        node = process.node
        if any(slots >> slot_of(key) & 1 for key in node.keys):
            node.drop(slots)
            data.wrote(self, process)
            self.guard.inspect(self, action)

    # What others ask.

    @property
    def connect(self) -> Connect:
        """Makes connections for one process of the operator."""
        return partial(server.FakeServer, self, server.Life())

    def owner(self, slot: int, cluster: str) -> str:
        """Id of who owns a slot of a cluster by the newest claim that is on a disk; empty if nobody ever did."""
        bit = 1 << slot
        claims = [
            (known.epoch, known.id)
            for node in self.disks.values()
            if node.cluster == cluster
            for known in node.known.values()
            if known.slots & bit
        ]
        return max(claims)[1] if claims else ""

    def owners(self, cluster: str) -> dict[str, int]:
        """The same of all slots: masks by the owners' ids."""
        claims = [
            (known.epoch, known.id, known.slots)
            for node in self.disks.values()
            if node.cluster == cluster
            for known in node.known.values()
            if known.slots
        ]
        found: dict[str, int] = {}
        left = ALL
        for _, node_id, slots in sorted(claims, reverse=True):
            found[node_id] = found.get(node_id, 0) | (slots & left)
            left &= ~slots
        return {node_id: slots for node_id, slots in found.items() if slots}
