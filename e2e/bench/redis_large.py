"""Benchmark of one reconcile of a large RedisCluster: CPU of the inspection and the plan, and how long they block.

Usage: python -m e2e.bench.redis_large. It needs no server: each node answers with the text that a real one sends.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from e2e.bench.measures import Goal
from e2e.bench.output import goals_table, run
from operators.redis.api.resource import RedisCluster
from operators.redis.client.node_inspection import report_of, request_report
from operators.redis.client.responses import NodeReport, digest
from operators.redis.client.server import REPLICATION_USER
from operators.redis.objects import names
from operators.redis.objects.pod import TEMPLATE
from operators.redis.plan import Planner
from operators.redis.security.secrets import Secrets, judge
from operators.redis.security.users import Passwords
from operators.redis.settings import Settings
from operators.redis.slots.hash_slots import SLOTS, Slots
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from operators.redis.steps.configuration import configured, live_settings
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from shared.kubernetes.secrets import encoded
from tests.redis.unit.world import assess
from tools.local.paths import REPOSITORY

SIZES = (120, 250, 500)
"""Numbers of nodes; the last one is the maximum of spec.replicas in the CRD."""

REPLICATION = "replication"
"""Password of the replicas' user, which all nodes use."""

RESULT = REPOSITORY / ".bench" / "redis_large.json"

HEARTBEAT_SECONDS = 0.001
"""Interval of the task that notices how long the event loop is blocked."""

UID = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Large:
    """Figures of one reconcile.

    Attributes:
        nodes: number of nodes.
        inspection: CPU seconds of the inspection of all nodes.
        inspection_block: longest time that the inspection blocked the event loop, in seconds.
        planning: CPU seconds of the plan, which is computed in one piece.
    """

    nodes: int
    inspection: float
    inspection_block: float
    planning: float


class _Node:
    """A server that answers an inspection with prepared texts."""

    def __init__(self, cluster: _Cluster, number: int) -> None:
        self._answers = {
            "INFO": cluster.info(number),
            "DBSIZE": 1000,
            "CLUSTER INFO": f"cluster_state:ok\r\ncluster_current_epoch:{cluster.primaries}\r\n",
            "CLUSTER NODES": cluster.table(number),
            "ACL GETUSER default": ["flags", ["on", "nopass"], "passwords", []],
            "ACL GETUSER replication": ["flags", ["on"], "passwords", [digest(REPLICATION)]],
            "CONFIG GET masterauth": ["masterauth", REPLICATION],
            "CONFIG GET masteruser": ["masteruser", REPLICATION_USER],
        }

    async def execute(self, *command: str | int | bytes) -> Any:
        (answer,) = await self.pipe([command])
        return answer

    async def pipe(self, commands: Sequence[tuple[str | int | bytes, ...]]) -> list[Any]:
        await asyncio.sleep(0)
        found = [" ".join(map(str, command)) for command in commands]
        return [self._answers.get(name, [command[-1], ""]) for name, command in zip(found, commands, strict=True)]

    async def aclose(self) -> None:
        pass


class _Cluster:
    """Texts of a healthy cluster: the first half are primaries, the others their replicas."""

    def __init__(self, nodes: int) -> None:
        self._random = random.Random(nodes)
        self.ids = [f"{self._random.getrandbits(160):040x}" for _ in range(nodes)]
        self.primaries = nodes // 2

    def info(self, number: int) -> str:
        facts: dict[str, object] = {
            "redis_version": "8.0.2",
            "role": "master" if number < self.primaries else "slave",
            "run_id": self.ids[number],
            "loading": 0,
            "used_memory": 1 << 30,
            "maxmemory": 0,
            "maxmemory_policy": "noeviction",
            "master_link_status": "up",
            "master_sync_in_progress": 0,
            "slave_repl_offset": 1000,
            "master_repl_offset": 1000,
            "db0": "keys=1000,expires=0,avg_ttl=0",
        }
        return "".join(f"{name}:{value}\r\n" for name, value in facts.items())

    def table(self, number: int) -> str:
        return "".join(f"{self._line(number, other)}\n" for other in range(len(self.ids)))

    def slots(self, number: int) -> str:
        if number >= self.primaries:
            return ""
        bounds = (SLOTS * number // self.primaries, SLOTS * (number + 1) // self.primaries - 1)
        return f"{bounds[0]}-{bounds[1]}"

    def _line(self, number: int, other: int) -> str:
        role = "master" if other < self.primaries else "slave"
        flags = f"myself,{role}" if other == number else role
        primary = "-" if other < self.primaries else self.ids[other % self.primaries]
        pong = 0 if other == number else self._random.randrange(10**12, 2 * 10**12)
        at = f"{self.address(other)}:6379@16379,demo-{other}.demo-nodes.default.svc"
        epoch = other % self.primaries + 1
        return f"{self.ids[other]} {at} {flags} {primary} 0 {pong} {epoch} connected {self.slots(other)}".rstrip()

    @staticmethod
    def address(number: int) -> str:
        return f"10.0.{number >> 8}.{number & 255}"

    def resource(self) -> RedisCluster:
        nodes = [
            {
                "name": f"demo-{number}",
                "role": "primary" if number < self.primaries else "replica",
                "nodeId": node_id,
                "primaryId": self.ids[number % self.primaries] if number >= self.primaries else "",
                "disk": f"disk-{number}",
                "status": "True",
                "slots": self.slots(number),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for number, node_id in enumerate(self.ids)
        ]
        metadata = {"name": "demo", "namespace": "default", "uid": UID, "generation": 1}
        spec = {"replicas": len(self.ids), "version": "8.0.2", "storage": {}}
        status = {"phase": "Running", "observedGeneration": 1, "nodes": nodes, "formed": True}
        return RedisCluster.parse({"metadata": metadata, "spec": spec, "status": status})

    def instance(self, resource: RedisCluster, number: int, report: NodeReport) -> Instance:
        name = f"demo-{number}"
        pod: Obj = {
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": f"pod-{number}"}
            | {"labels": {names.SERVES: names.CLIENTS}, "annotations": _marks(resource)},
            "spec": {"nodeName": f"host-{number // 10}", "containers": []},
            "status": {
                "podIP": self.address(number),
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": names.CONTAINER, "ready": True, "state": {"running": {}}}],
            },
        }
        recorded = next(known for known in resource.recorded_nodes if known.name == name)
        volume = {"metadata": {"name": f"data-{name}", "uid": f"disk-{number}", "labels": {names.CLUSTER_UID: UID}}}
        return Instance(
            number,
            name,
            pod=Pod.of(pod, container=names.CONTAINER),
            pod_obj=pod,
            volume=volume,
            report=report,
            disk=f"disk-{number}",
            recorded=recorded,
        )


def _secrets(resource: RedisCluster) -> Secrets:
    name = names.users_secret(resource)
    metadata = {"name": name, "namespace": "default", "uid": "users", "labels": {names.CLUSTER_UID: UID}}
    content = Passwords("", exporter="exporter", replication=REPLICATION, uses_replication=True).content()
    return judge(resource, {name: {"kind": "Secret", "metadata": metadata, "data": encoded(content)}})


def _marks(resource: RedisCluster) -> dict[str, str]:
    """Return the annotations of pods that have applied everything."""
    return {
        TEMPLATE: "current",
        names.CONFIG_MARK: configured(live_settings(assess(resource, Observed()))),
        names.USERS_MARK: _secrets(resource).users_mark,
    }


def _stateful_set(resource: RedisCluster) -> Obj:
    metadata = {"name": "demo", "namespace": "default", "uid": "set", "labels": {names.CLUSTER_UID: UID}}
    containers = [{"name": names.CONTAINER, "image": "example.com/redis:8.0.2"}]
    template = {"metadata": {"annotations": _marks(resource)}, "spec": {"containers": containers}}
    spec = {"replicas": resource.spec.replicas, "template": template}
    return {"kind": "StatefulSet", "metadata": metadata, "spec": spec}


async def measure(nodes: int) -> Large:
    """Inspect and plan a cluster once."""
    cluster = _Cluster(nodes)
    servers = [_Node(cluster, number) for number in range(nodes)]
    blocks: list[float] = []
    beating = asyncio.create_task(_beat(blocks))
    await asyncio.sleep(10 * HEARTBEAT_SECONDS)
    blocks.clear()
    began = time.process_time()
    turn = asyncio.Lock()
    reports = await asyncio.gather(*(_inspect(server, turn) for server in servers))
    inspected = time.process_time() - began
    await asyncio.sleep(10 * HEARTBEAT_SECONDS)
    beating.cancel()
    resource = cluster.resource()
    instances = tuple(cluster.instance(resource, number, report) for number, report in enumerate(reports))
    assert Slots.union(report.me.slots for report in reports) == Slots.all()
    observed = Observed(_stateful_set(resource), instances, _secrets(resource))
    began = time.process_time()
    plan = Planner(Settings("redis-operator", "example.com/redis")).plan(resource, observed, datetime.now(UTC))
    planned = time.process_time() - began
    if not plan.verdict.done:
        raise RuntimeError(f"The plan of a healthy cluster is not done: {plan.verdict.message}")
    return Large(nodes, inspected, max(blocks), planned)


async def _inspect(server: _Node, turn: asyncio.Lock) -> NodeReport:
    """Inspect a node as the observer does."""
    found = await request_report(server)
    async with turn:
        await asyncio.sleep(0)
        return report_of(found)


async def _beat(blocks: list[float]) -> None:
    """Record by how much each wake-up is late."""
    while True:
        before = time.perf_counter()
        await asyncio.sleep(HEARTBEAT_SECONDS)
        blocks.append(time.perf_counter() - before - HEARTBEAT_SECONDS)


def goals(found: Sequence[Large]) -> list[Goal]:
    """Return the goals with the measured values, of the largest cluster."""
    most = found[-1]
    return [
        Goal(f"{most.nodes} nodes: CPU of the plan, which blocks the event loop, in seconds", most.planning, 0.1),
        Goal(f"{most.nodes} nodes: CPU of the inspection, in seconds", most.inspection, 1.0),
        Goal(f"{most.nodes} nodes: longest block by the inspection, in seconds", most.inspection_block, 0.05),
    ]


def _measure(console: Console) -> list[Large]:
    console.print(f"… Inspecting and planning clusters of {', '.join(map(str, SIZES))} nodes")
    return [asyncio.run(measure(nodes)) for nodes in SIZES]


def _show(console: Console, found: Sequence[Large], results: list[Goal]) -> None:
    table = Table("nodes", "inspection", "longest block", "plan", box=None, pad_edge=False)
    for each in found:
        block, plan = 1000 * each.inspection_block, 1000 * each.planning
        table.add_row(str(each.nodes), f"{each.inspection:.2f} s", f"{block:.0f} ms", f"{plan:.0f} ms")
    console.print(table)
    console.print()
    console.print(goals_table(results))


def main() -> int:
    """Run the benchmark and return the exit code."""

    def figures(found: Sequence[Large]) -> dict[str, Any]:
        return {"sizes": [asdict(each) for each in found]}

    return run(_measure, goals=goals, show=_show, figures=figures, output=RESULT)


if __name__ == "__main__":
    sys.exit(main())
