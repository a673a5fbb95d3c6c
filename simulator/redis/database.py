"""Simulated Redis Cluster: server processes in pods, nodes on disks, and the bus between them.

The processes of `SimulatedRedis` run where the pods run (`simulator.kubelet.kubelet`), and it answers the operator
through `connect`. Nodes gossip as time passes (`clock`), so the view of a node may be stale. A client writes after
every event, unless it is idle.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from operators.redis.client.server import PORT, Connect
from shared.kubernetes.kinds import Kind, Obj
from simulator.api_server.requests import TargetedRequest
from simulator.clock import Clock
from simulator.harness import NOW
from simulator.kubelet.kubelet import ProcessStatus
from simulator.redis import data, server, tls
from simulator.redis.bus import ping
from simulator.redis.client import Client, Entry
from simulator.redis.command_line import Command, command
from simulator.redis.election import tick
from simulator.redis.invariants import Invariants
from simulator.redis.node import ALL, NOADDR, Known, Node, fake_id, slot_of
from simulator.redis.process import Election, Process

TICK = 0.25
"""Seconds of one tick: every node sends its messages once."""

LONGEST = 30.0
"""Longest interval that is simulated tick by tick, in seconds. Nothing new happens before that."""


@dataclass
class SimulatedRedis:
    """All servers of the simulated world.

    Attributes:
        clock: current time; the world sets its own.
        cut_off: whether the operator reaches no server.
        hidden: pods whose servers only the operator cannot reach.
        tidy: whether the directory of a node that was forgotten is deleted. Otherwise, the node comes back with what it
            had, and serves it until its peers contact it.
        stop_missed: UIDs of pods whose server got SIGTERM before it handled it, so that it runs on until it is killed.
        failing: reasons for which pods do not start, by pod name.
        missing: tags of images that cannot be pulled.
        lagging: pods whose replica receives nothing from its primary.
        full: pods whose memory is used up.
        stalled: pods that execute the next MIGRATE only after its timeout.
        late: commands of such a MIGRATE.
        lateness: seconds after which a target executes them; 0 for when it is contacted next.
        databases: databases of each Valkey server.
        unknown_fields: fields that the CRD of RedisClusters, or the present build of the operator, does not have.
        refused: settings, as name and value, that servers accept neither live nor when they start.
        partitions: side of a split network that a pod is on, by pod name.
        cut: pairs of pods that do not reach each other, by their names, while both reach others.
        client: client that writes all the time.
        disks: nodes by the UID of the claim or pod that stores them.
        files: name of the present nodes.conf by the UID of its claim or pod. Without persistence, keys of another
            process are not on it.
        unused: nodes of the other nodes.conf on each disk, with their snapshots, by that UID and the name of the file.
        processes: servers by pod UID, ordered by pod number.
        done: number of operations of each kind.
        commanded: commands that change something, in order.
        fault: fault that hits such a command, see `strike`.
        after: called after such a command was carried out.
        links: pairs of servers that are connected with TLS, by their run ids.
        stall: seconds that pass before the current batch of commands is answered. The operator's connection has given
            up by then (`Unreachable`), so it never acts on answers that are older than the node timeout.
        batch: number of the last batch of commands.
        now: time up to which the world is simulated, in seconds.
        turn: number of ticks so far.
        longest: longest interval that is simulated tick by tick, in seconds: nothing new happens before that.
        greets: whether a server has contacted its peers by the time the operator observes it: on a cluster, that takes
            0.1 s of the seconds until its container is reported (clusterCron). Otherwise they learn its address later.
        objects: returns the objects of a kind; the world sets it.
    """

    clock: Any = field(default_factory=lambda: Clock(NOW))
    cut_off: bool = False
    hidden: set[str] = field(default_factory=set)
    tidy: bool = False
    stop_missed: set[str] = field(default_factory=set)
    failing: dict[str, str] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    lagging: set[str] = field(default_factory=set)
    full: set[str] = field(default_factory=set)
    stalled: set[str] = field(default_factory=set)
    late: list[data.Late] = field(default_factory=list)
    lateness: float = 0.0
    databases: int = 1
    unknown_fields: set[str] = field(default_factory=set)
    refused: set[tuple[str, str]] = field(default_factory=set)
    partitions: dict[str, int] = field(default_factory=dict)
    cut: set[frozenset[str]] = field(default_factory=set)
    client: Client = field(default_factory=Client)
    disks: dict[str, Node] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    unused: dict[tuple[str, str], Node] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    guard: Invariants = field(default_factory=Invariants)
    commanded: list[str] = field(default_factory=list)
    links: set[frozenset[str]] = field(default_factory=set)
    fault: Callable[[str], bool | None] | None = None
    after: Callable[[str], object] = str
    stall: float = 0.0
    batch: int = 0
    now: float = 0.0
    turn: int = 0
    begun: int = 0
    longest: float = LONGEST
    greets: bool = False
    reads_files: bool = True
    objects: Callable[[Kind], list[tuple[Kind, Obj]]] = field(default_factory=lambda: lambda _: [])

    # Interface of the crash harness.

    @property
    def violations(self) -> list[str]:
        return self.guard.violations

    def state(self) -> Any:
        """Return the shape of each cluster; which pod is a primary is a matter of chance."""
        self.advance()
        return [self._shape(cluster) for cluster in sorted({process.cluster for process in self.running})]

    def counts(self) -> Counter[str]:
        return self.done

    def check_write(self, target: TargetedRequest, live: Obj | None) -> None:
        """Check a write that the operator made to the API server."""
        self.advance()
        self.guard.check_write(self, target, live)

    def _shape(self, cluster: str) -> Obj:
        nodes = [process.node for process in self.running if process.cluster == cluster]
        owned = sorted(node.me.slots.bit_count() for node in nodes if not node.me.primary)
        return {
            "nodes": len(nodes),
            "clusters": len({node.family for node in nodes}),
            "slots by primary": owned,
            "replicas by primary": sorted(
                sum(other.me.primary == node.id for other in nodes) for node in nodes if not node.me.primary
            ),
            "open slots": sum(len(node.migrating) + len(node.importing) for node in nodes),
            "consistent": len({tuple(sorted((known.id, known.slots) for known in n.known.values())) for n in nodes})
            == 1,
            "keys that clients do not find": len(self.guard.unresolved(self)) if cluster == self.client.home else 0,
            "healthy": all(process.serves for process in self.running if process.cluster == cluster),
        }

    # Processes in pods.

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> ProcessStatus:
        """Start the server of a pod unless it runs, and return its state."""
        self.advance()
        start = command(pod, claims)
        if start is None:
            return ProcessStatus()
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        process = self.processes.get(uid)
        if self.refused & start.settings.items() and (process is None or process.exit_message):
            return ProcessStatus("CrashLoopBackOff", termination_message="FATAL CONFIG FILE ERROR")
        if name in self.failing or (process is None and self.missing & {start.tag, f"{name} {start.tag}"}):
            if process is not None and not process.exit_message:
                self.stop(process, "killed")
            return ProcessStatus(self.failing.get(name, "ImagePullBackOff"))
        has_files = not start.tls or tls.loaded(start.settings, start.files) is not None
        if process is None or process.exit_message:
            if not has_files:
                return ProcessStatus("ContainerCreating")
            process = self.begin(uid, name, pod["status"]["podIP"], start)
        elif has_files:  # of a Secret that was deleted, the kubelet keeps the files
            process.files = start.files
        return (
            ProcessStatus("CrashLoopBackOff", termination_message=process.exit_message)
            if process.exit_message
            else ProcessStatus()
        )

    def begin(self, uid: str, name: str, address: str, start: Command) -> Process:
        """Start a server on its disk."""
        self.begun += 1
        file = start.settings.get("cluster-config-file", "nodes.conf")
        used, self.files[start.disk] = self.files.get(start.disk, file), file
        if used != file and (former := self.disks.pop(start.disk, None)):  # its directory may have been deleted
            self.unused[start.disk, used] = former
            node = self.unused.pop((start.disk, file), None) or Node(start.name)
            if start.settings.get("appendonly") == "yes":  # the log of writes is in another file, and is loaded
                node.keys, node.logged = former.keys, former.logged
            else:
                self.guard.lost(self, former)
            self.disks[start.disk] = node
        node = self.disks.setdefault(start.disk, Node(start.name))
        if not node.id:
            node.id = fake_id("node", start.disk, self.begun)
            node.family, node.cluster = node.id, name.rpartition("-")[0]
            self.client.home = self.client.home or node.cluster
            node.known[node.id] = Known(node.id, address)
        process = Process(uid, name, address, start.disk, node, start.engine, start.version, began=self.now)
        process.settings, process.passwords, process.files = dict(start.settings), set(start.passwords), start.files
        if self.databases > 1 and start.engine == "valkey":
            process.settings["cluster-databases"] = str(self.databases)
        process.tls = tls.loaded(process.settings, process.files) if start.tls else None
        process.users = {name: set(passwords) for name, passwords in start.users.items()}
        process.rules = {name: rules for name, rules in start.rules.items() if name in process.users}
        process.run_id = fake_id("run", uid, self.begun)
        if wrong := [rule for rules in process.rules.values() for rule in rules if ("acl", rule) in self.refused]:
            process.exit_message = f"Error while parsing ACL rule '{wrong[0]}'"
        continued = node.saved_at if process.saves and process.continues_snapshots else ("", 0)
        node.history = fake_id("history", self.begun)
        node.former, node.offset = continued
        node.forked_at = node.backlog = node.offset
        had, is_covered = node.keys, node.covered or not node.logged or not process.saves
        if not process.persistent:
            node.keys = dict(node.saved) if process.saves else {}
        elif not node.logged:  # with an append-only file, it loads no snapshot (loadDataFromDisk in server.c)
            node.keys = {}
        node.logged, node.covered = process.persistent, process.has_save_points
        for known in node.known.values():
            known.last_response, known.last_message, known.meets = self.now, self.now, False
        node.known = {known.id: known for known in node.known.values() if not known.in_handshake}
        node.mark_stray_keys(deletes=start.engine == "valkey" and int(start.version.split(".")[0]) >= 8)
        node.me.address, node.me.port, node.me.bus = address, process.port, process.bus
        if any(other.disk == start.disk for other in self.running):
            process.exit_message = (
                "Sorry, the cluster configuration file nodes.conf is already used by a different node"
            )
        processes = {**self.processes, uid: process}
        self.processes = dict(sorted(processes.items(), key=lambda item: item[1].number))
        if node.keys != had:
            self.guard.unloaded(self, process, had, is_covered=is_covered)
        self._greet(process)
        self.settle(f"a server started in {name}")
        return process

    def _greet(self, process: Process) -> None:
        """Let a server contact its peers at their former addresses, if the world is that of `greets`."""
        if self.greets and process.runs:
            for known in process.node.others:
                ping(self, process, known)

    def end(self, uid: str) -> None:
        """Remove the process or the disk of a deleted pod or claim."""
        self.advance()
        if uid in self.processes:
            self._announce(self.processes[uid])
        process = self.processes.pop(uid, None)
        if process is not None:
            if process.runs and uid not in self.stop_missed:  # SIGTERM
                process.save_last()
            self.guard.ended(self, process)
            self.settle(f"pod {process.pod} ended")
        node = self.disks.pop(uid, None)
        self.unused = {each: other for each, other in self.unused.items() if each[0] != uid}
        if node is not None and node.id:
            self.guard.lost(self, node)
            self.settle(f"the disk of {node.name} is deleted")

    def ignores_stop(self, pod: Obj) -> bool:
        """Whether the server of a deleted pod runs on."""
        uid = pod["metadata"]["uid"]
        return uid in self.stop_missed and not self.processes[uid].exit_message

    def shut_down(self, process: Process) -> None:
        """End a server as SHUTDOWN does: with a snapshot, if it has save points."""
        process.save_last()
        self.stop(process, "User requested shutdown...")

    def stop(self, process: Process, message: str) -> None:
        """Terminate a server; the kubelet restarts the container of its pod."""
        self._announce(process)
        process.exit_message, process.linked = message, False
        self.guard.ended(self, process)
        self.settle(f"the server in {process.pod} ended: {message}")

    def hang(self, pod: str, *, hangs: bool = True) -> None:
        """Make a server stop responding, or resume."""
        for process in self.processes.values():
            if process.pod == pod:
                self._announce(process)
                process.hangs, process.resumed = hangs, not hangs
                if hangs:
                    self.guard.ended(self, process)
        self.settle(f"{pod} {'hangs' if hangs else 'recovers'}")

    def _announce(self, process: Process) -> None:
        """Send what a server that is about to end has to broadcast: it does so with the command, not in the next tick.

        Source: clusterBroadcastPong after SETSLOT NODE, in clusterCommand in cluster.c of Redis 7.0.
        """
        if process.broadcast_pending and process.runs:
            process.broadcast_pending = False
            for known in process.node.others:
                if known.id in process.node.known:
                    ping(self, process, known)

    # Disks that are not what they were.

    def snapshot(self, pod: str) -> dict[bytes, Entry]:
        """Return the data set of a node as an old RDB file or a truncated log has it."""
        return dict(self.disk(pod).keys)

    def roll_back(self, pod: str, keys: Mapping[bytes, Entry]) -> None:
        """Give a node that does not run older data than it had; its nodes.conf stays."""
        node = self.disk(pod)
        had, node.keys = node.keys, dict(keys)
        self.guard.rolled_back(self, node, had)

    def copy_of_disk(self, pod: str) -> Node:
        """Return the disk of a pod as a snapshot of its volume has it."""
        return copy.deepcopy(self.disk(pod))

    def restore_disk(self, pod: str, disk: Node) -> None:
        """Restore the volume of a node that does not run, nodes.conf included."""
        node = self.disk(pod)
        self.disks[next(uid for uid, each in self.disks.items() if each is node)] = disk
        self.guard.rolled_back(self, disk, node.keys)

    def lose_identity(self, pod: str) -> None:
        """Delete the nodes.conf of a node that does not run: its server gets another id, and keeps the data.

        The log and the snapshot are other files, which it loads (container test
        `test_node_that_lost_nodes_conf_takes_its_slots_back_with_their_keys`).
        """
        node = self.disk(pod)
        new = Node(node.name, fake_id("node", node.id, "again"), cluster=node.cluster, family=node.family)
        new.keys, new.logged, new.saved, new.saved_at = node.keys, node.logged, node.saved, node.saved_at
        new.known[new.id] = Known(new.id, node.me.address)
        self.disks[next(uid for uid, disk in self.disks.items() if disk is node)] = new

    def replace_disk(self, pod: str, other: str) -> None:
        """Give a node that does not run the disk of another pod, as it is now. Its pod keeps its address."""
        node, source = self.disk(pod), self.disk(other)
        self.guard.replaced[node.id] = pod
        self.disks[next(uid for uid, disk in self.disks.items() if disk is node)] = copy.deepcopy(source)
        self.guard.lost(self, node)

    def delete_directory(self, node: Node) -> None:
        """Delete the directory of a forgotten node on which no server runs, and that has no only copy."""
        if self.tidy and self.process_of(node) is None and not self.guard.only_copies(self, node):
            self.disks = {uid: other for uid, other in self.disks.items() if other is not node}

    def discard(self, slots: int) -> None:
        """Destroy the keys of some slots on the disks on which no server runs, and those disks that have no others."""
        used = {id(process.node) for process in self.running}
        for uid, node in list(self.disks.items()):
            if id(node) in used or not any(slots >> slot_of(key) & 1 for key in node.keys):
                continue
            node.drop(slots)
            node.saved = {key: entry for key, entry in node.saved.items() if not slots >> slot_of(key) & 1}
            if not node.keys:
                del self.disks[uid]

    def unmount(self, pod: str, *, mounts: bool = False) -> None:
        """Let a node that does not run find the directory below its mount point, or its volume again (`mounts`)."""
        process = self.named(pod)
        below, above = f"below {process.disk}", f"above {process.disk}"
        hides, shows = (below, above) if mounts else (above, below)
        if hides in self.disks or (mounts and shows not in self.disks):
            return
        self.disks[hides] = self.disks.pop(process.disk)
        self.disks[process.disk] = self.disks.pop(shows, Node(process.node.name))
        process.node = self.disks[process.disk]

    def disk(self, pod: str) -> Node:
        """Return the node on the disk of a pod."""
        return next(node for node in self.disks.values() if node.id and node.name in (pod, f"data-{pod}"))

    # Connections and views of the servers.

    @property
    def running(self) -> list[Process]:
        """Running processes, ordered by pod number."""
        return [process for process in self.processes.values() if process.runs]

    def at(self, address: str, port: int = PORT) -> Process | None:
        """Return the process that answers at an address."""
        for process in self.processes.values():
            if process.address == address and process.port == port and process.runs:
                return process
        return None

    def reached(self, process: Process, address: str, port: int = PORT) -> Process | None:
        """Return the process that a server reaches at an address."""
        return self._connected(process, self.at(address, port) if address else None)

    def peer(self, process: Process, address: str, bus: int) -> Process | None:
        """Return the process whose cluster bus a server reaches at an address."""
        there = (each for each in self.processes.values() if each.address == address and each.runs)
        return self._connected(process, next((each for each in there if each.bus == bus), None)) if address else None

    def _connected(self, process: Process, other: Process | None) -> Process | None:
        if other is None or self.partitions.get(process.pod, 0) != self.partitions.get(other.pod, 0):
            return None
        if frozenset((process.pod, other.pod)) in self.cut:
            return None
        return other if tls.connects(self, process, other) else None

    def named(self, pod: str) -> Process:
        """Return the server in a pod."""
        return next(process for process in self.processes.values() if process.pod == pod)

    def node(self, node_id: str) -> Node | None:
        """Return the node with an id, if its disk exists."""
        return next((node for node in self.disks.values() if node.id == node_id), None) if node_id else None

    def name(self, node_id: str) -> str:
        """Return the name of a node for messages."""
        node = self.node(node_id)
        return node.name if node else f"node {node_id[:8]}"

    def process_of(self, node: Node) -> Process | None:
        return next((process for process in self.running if process.node is node), None)

    def replicas_of(self, process: Process) -> list[Process]:
        """Return the servers that are replicas of a node by their cluster view."""
        return [other for other in self.running if other.node.me.primary == process.node.id]

    def connected_to(self, process: Process) -> list[Process]:
        """Return the servers that replicate from the address of a server, also those of other clusters."""
        at = (process.address, process.port)
        return [other for other in self.running if other.source == at and (other.linked or other.syncing)]

    def advance(self) -> None:
        """Simulate the time that passed since the last call."""
        now = self.clock().timestamp()
        if not self.now:
            self.now = now
        if now - self.now > self.longest:
            self._skip(now - self.longest - self.now)
        while now - self.now >= TICK:
            self.now += TICK
            self.turn += 1
            for process in self.running:
                process.resumed = False
                tick(self, process)
            self.settle("time passes")

    def pass_by(self, seconds: float) -> None:
        """Let time pass, if the clock belongs to the simulation."""
        if isinstance(self.clock, Clock):
            self.clock.wait(seconds)

    def pass_stall(self) -> bool:
        """Let the time of `stall` pass; return whether there was any."""
        seconds, self.stall = self.stall, 0.0
        if seconds:
            self.pass_by(seconds)
            self.advance()
        return bool(seconds)

    def _skip(self, seconds: float) -> None:
        """Skip time in which nothing new happens."""
        self.now += seconds
        for process in self.processes.values():
            process.alone += seconds
            for known in process.node.known.values():
                if not known.unhealthy and NOADDR not in known.flags:  # otherwise it answers nothing
                    known.last_response += seconds
                known.last_message += seconds
                known.last_data += seconds
                known.reports = {node_id: since + seconds for node_id, since in known.reports.items()}

    def settle(self, action: str) -> None:
        """Let replicas replicate and the client write, then inspect safety."""
        for process in self.running:
            if process.node.me.primary:
                if not process.resumed:
                    self.replicate(process)
            else:
                process.linked, process.since, process.syncing = False, None, 0.0
        if not self.client.idle:
            self.client.write(self)
        self.guard.inspect(self, action)

    def touch(self, keys: Sequence[bytes], action: str) -> None:
        """Let the client write some keys, then inspect whether they are safe."""
        if not self.client.idle:
            self.client.touch(self, keys)
        self.guard.inspect(self, action, keys)

    def touch_slot(self, slot: int, action: str) -> None:
        self.touch([key for key in self.guard.records if slot_of(key) == slot], action)

    def write(
        self, process: Process, key: bytes, operation: str, number: int, *, redirected: bool
    ) -> tuple[Entry | None, Entry | None]:
        return data.write(self, process, key, operation, number, redirected=redirected)

    def strike(self, what: str) -> bool | None:
        """Record a command that changes something, and apply the configured fault.

        Returns:
            Whether the command is carried out although its answer is lost; None without a fault.

        Raises:
            Crash: the operator's process ends here.
        """
        self.commanded.append(what)
        return self.fault(what) if self.fault else None

    def replicate(self, process: Process) -> None:
        data.replicate(self, process)

    def follow(self, process: Process, primary: Known) -> None:
        """Make a node a replica, or the replica of another primary."""
        node = process.node
        node.me.slots, node.me.primary = 0, primary.id
        node.migrating, node.importing = {}, {}
        process.source = primary.address, primary.port
        process.linked, process.since, process.syncing = False, None, 0.0
        process.election, process.paused, process.broadcast_pending = Election(), 0.0, True

    def take_over(self, process: Process, epoch: int, action: str) -> None:
        """Promote a replica to the primary of its shard."""
        node = process.node
        lead = node.lead
        assert lead is not None
        self.guard.takes_over(self, process)
        self.done["failovers"] += 1
        node.me.primary, node.me.epoch = "", epoch
        node.me.slots, lead.slots = node.me.slots | lead.slots, 0
        if not process.keeps_unclaimed_marks:
            process.unclaimed &= ~node.me.slots
        node.fork_history(fake_id("history", node.unique("history")))
        process.source, process.linked, process.since, process.syncing = ("", 0), False, None, 0.0
        process.election, process.broadcast_pending = Election(), True
        self.settle(action)

    def lose_keys(self, process: Process, slots: int, action: str) -> None:
        """Delete the keys of slots that a server lost."""
        node = process.node
        if any(slots >> slot_of(key) & 1 for key in node.keys):
            node.drop(slots)
            data.wrote(process)
            self.guard.inspect(self, action)

    # Interface of operator and tests.

    @property
    def connect(self) -> Connect:
        """Connections of one process of the operator."""
        return partial(server.FakeServer, self, server.Life())

    def owner(self, slot: int, cluster: str) -> str:
        """Return the id of a slot's owner by the newest claim on any disk; empty if the slot was never owned."""
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
        """Return the owners of all slots of a cluster, as masks by node id."""
        claims = {  # of most nodes the same
            (known.epoch, known.id, known.slots)
            for node in self.disks.values()
            if node.cluster == cluster
            for known in node.known.values()
            if known.slots
        }
        found: dict[str, int] = {}
        left = ALL
        for _, node_id, slots in sorted(claims, reverse=True):
            found[node_id] = found.get(node_id, 0) | (slots & left)
            left &= ~slots
        return {node_id: slots for node_id, slots in found.items() if slots}
