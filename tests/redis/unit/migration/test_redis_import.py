"""Atomic slot migration of Redis 8.4 and later, on a fake after its documentation and source: no image is available."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from operators.redis.client.errors import Refused, SlotStuck, TargetFull
from operators.redis.client.server import Access, Command, Endpoint, Server
from operators.redis.migration import coordinator, server_side
from operators.redis.migration.journal import Journal
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move, RecordedJob

ONE, TWO, THREE, FOUR = (letter * 40 for letter in "abcd")


@dataclass
class Task:
    """Migration task. A node takes part in one at a time; a task completes after two polls."""

    id: str
    source: str
    target: str
    slots: Slots
    state: str = "streaming-buffer"
    error: str = ""
    retries: int = 0
    polls: int = 0


@dataclass
class Fake:
    """Servers that report the slots in `owned`."""

    owned: dict[str, Slots]
    version: str = "8.4.0"
    max_memory: int = 0
    failing: str = ""
    tasks: list[Task] = field(default_factory=list)
    received: list[str] = field(default_factory=list)
    max_parallel: int = 0  # maximum number of parallel tasks
    ids: Any = field(default_factory=lambda: itertools.count(1))
    journal: Journal = field(default_factory=Journal)

    def connect(self, endpoint: Endpoint, _: Access) -> Server:
        return _Node(self, endpoint.id)

    def answer(self, me: str, command: Command) -> Any:
        words = [str(word) for word in command]
        self.received.append(f"{me[0]} {' '.join(words)}")
        match words:
            case ["INFO"]:
                return (
                    f"redis_version:{self.version}\nrun_id:x\nloading:0\nused_memory:1000000\nrole:master\n"
                    f"maxmemory:{self.max_memory}\nmaster_repl_offset:0\n"
                )
            case ["DBSIZE"]:
                return 0
            case ["CLUSTER", "INFO"]:
                return "cluster_state:ok\ncluster_current_epoch:3\n"
            case ["CLUSTER", "NODES"]:
                return "".join(
                    f"{node_id} 10.0.0.1:6379@16379 {'myself,' * (node_id == me)}master - 0 0 1 connected {slots}\n"
                    for node_id, slots in self.owned.items()
                )
            case ["CONFIG", "GET", "masterauth" | "masteruser" as name]:
                return [name, ""]
            case ["ACL", "GETUSER", name]:
                return ["flags", ["on", "nopass"], "passwords", []] if name == "default" else None
            case ["TIME"]:
                return ["1000000", "0"]
            case ["FUNCTION", "LIST", "WITHCODE"]:
                return []
            case ["CLUSTER", "MIGRATION", "STATUS", "ALL"]:
                return self._status(me)
            case ["CLUSTER", "MIGRATION", "IMPORT", *bounds]:
                return self._start(me, [int(bound) for bound in bounds])
            case ["CLUSTER", "MIGRATION", "CANCEL", "ID", task_id]:
                (task,) = (task for task in self.tasks if task.id == task_id)
                task.state = "canceled"
                return 1
        raise AssertionError(f"the fake has no answer to {words}")

    def _running(self) -> list[Task]:
        return [task for task in self.tasks if task.state not in ("completed", "canceled")]

    def _start(self, me: str, bounds: list[int]) -> str:
        slots = Slots.of(*(range(a, b + 1) for a, b in zip(bounds[::2], bounds[1::2], strict=True)))
        (source,) = (node_id for node_id, owned in self.owned.items() if not slots - owned)
        if any({me, source} & {task.source, task.target} for task in self._running()):
            raise Refused("ERR another ASM task is already in progress")
        self.tasks.append(Task(f"task-{next(self.ids)}", source, me, slots))
        self.max_parallel = max(self.max_parallel, len(self._running()))
        return self.tasks[-1].id

    def _status(self, me: str) -> list[list[Any]]:
        for task in self._running():
            if me not in (task.source, task.target):
                continue
            task.polls += 1
            if self.failing:
                task.state, task.error, task.retries = "failed", self.failing, task.retries + 1
            elif task.polls > 1:
                task.state = "completed"
                self.owned[task.source] -= task.slots
                self.owned[task.target] |= task.slots
        return [
            [
                *("id", task.id, "slots", str(task.slots), "source", task.source, "dest", task.target),
                *("operation", "import" if task.target == me else "migrate", "state", task.state),
                *("last_error", task.error, "retries", task.retries, "create_time", 1, "start_time", 1),
                *("end_time", 1, "write_pause_ms", 0),
            ]
            for task in reversed(self.tasks)
            if me in (task.source, task.target)
        ]


@dataclass
class _Node:
    fake: Fake
    id: str

    async def execute(self, *command: str | int | bytes) -> Any:
        return self.fake.answer(self.id, command)

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        return [self.fake.answer(self.id, command) for command in commands]

    async def aclose(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_side, "POLL_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(server_side, "OTHERS_SECONDS", 0.0)


def three() -> Fake:
    return Fake({ONE: Slots.of(range(8000)), TWO: Slots.all() - Slots.of(range(8000)), THREE: Slots()})


async def move(fake: Fake, *moves: Move, budget: float = 5.0) -> None:
    nodes = {node_id: Endpoint(node_id[0], "10.0.0.1", node_id[0], id=node_id) for node_id in fake.owned}
    await coordinator.move(fake.connect, Access(), nodes, moves, budget=budget, journal=fake.journal)


MOVES = (Move(ONE, THREE, Slots.parse("0-9 20")), Move(TWO, THREE, Slots.parse("9000-9009")))


async def test_destination_imports_from_one_source_at_a_time() -> None:
    fake = three()
    await move(fake, *MOVES)
    assert fake.owned[THREE] == Slots.parse("0-9 20 9000-9009")
    started = [received for received in fake.received if "IMPORT" in received]
    assert started == ["c CLUSTER MIGRATION IMPORT 0 9 20 20", "c CLUSTER MIGRATION IMPORT 9000 9009"]
    fake.received.clear()
    await move(fake, *MOVES)
    assert not [received for received in fake.received if "IMPORT" in received]


async def test_disjoint_pairs_migrate_in_parallel() -> None:
    fake = three()
    fake.owned[FOUR] = Slots()
    moves = [
        Move(source, target, Slots.parse(slots))
        for source, target, slots in (
            *((ONE, THREE, "0-9"), (ONE, FOUR, "10-19")),
            *((TWO, THREE, "9000-9009"), (TWO, FOUR, "9010-9019")),
        )
    ]
    await move(fake, *moves)
    assert fake.owned[THREE] == Slots.parse("0-9 9000-9009")
    assert fake.owned[FOUR] == Slots.parse("10-19 9010-9019")
    assert fake.max_parallel == 2


async def test_running_task_is_adopted_after_a_restart() -> None:
    fake = three()
    await move(fake, *MOVES, budget=0.0)
    assert fake.tasks == []  # no task is started when the time is up
    fake.tasks.append(Task("task-0", ONE, THREE, MOVES[0].slots))
    fake.journal.jobs = frozenset({RecordedJob(THREE, "task-0")})
    await move(fake, *MOVES)
    assert fake.owned[THREE] == Slots.parse("0-9 20 9000-9009")
    assert len(fake.tasks) == 2


async def test_task_of_another_client_is_awaited_and_not_cancelled() -> None:
    fake = three()
    fake.tasks.append(Task("task-0", ONE, THREE, Slots.parse("100-200"), polls=-5))
    with pytest.raises(SlotStuck, match=r"Another client migrates slots 100-200 from a to c \(job task-0\)"):
        await move(fake, *MOVES)
    assert (len(fake.tasks), fake.tasks[0].state) == (1, "streaming-buffer")
    fake.tasks[0].polls = 2
    await move(fake, *MOVES)
    assert fake.owned[THREE] == Slots.parse("0-9 20 100-200 9000-9009")


async def test_obsolete_task_is_cancelled() -> None:
    fake = three()
    fake.tasks.append(Task("task-0", ONE, THREE, Slots.parse("100-200")))
    fake.journal.jobs = frozenset({RecordedJob(THREE, "task-0")})
    await move(fake, *MOVES)
    assert fake.tasks[0].state == "canceled"
    assert fake.owned[THREE] == Slots.parse("0-9 20 9000-9009")


async def test_repeatedly_failing_task_is_cancelled_and_reported() -> None:
    fake = three()
    fake.failing = "Failed to sync with the source node"
    with pytest.raises(SlotStuck, match=r"Slots 0-9 20 cannot be moved from a to c \(failed\): Failed to sync"):
        await move(fake, *MOVES)
    assert [task.state for task in fake.tasks] == ["canceled"]
    assert fake.owned == three().owned


async def test_path_whose_tasks_failed_too_often_is_moved_key_by_key(caplog: pytest.LogCaptureFixture) -> None:
    fake = three()
    fake.failing = "Failed to sync with the source node"
    with pytest.raises(SlotStuck, match="attempt 3 of 3; after the last one these slots are moved key by key"):
        await move(fake, MOVES[0])
    started = len(fake.tasks)
    for _ in range(3):
        with pytest.raises(AssertionError, match="cluster-node-timeout"):  # a command of key-by-key migration
            await move(fake, MOVES[0])
    assert len(fake.tasks) == started
    assert "failed 3 times in a row to move slots from a to c (Failed to sync with the source node)" in caplog.text


async def test_failures_before_a_success_do_not_count() -> None:
    fake = three()
    slots = MOVES[0].slots
    fake.tasks = [Task(f"old-{number}", ONE, THREE, slots, "canceled", "error", 3) for number in range(5)]
    fake.tasks.append(Task("old-5", ONE, THREE, slots, "completed"))
    fake.failing = "error"
    with pytest.raises(SlotStuck, match="attempt 3 of 3"):
        await move(fake, MOVES[0])
    assert len(fake.tasks) == 7


async def test_destination_without_memory_starts_no_task() -> None:
    fake = three()
    fake.max_memory = 1_000_500
    with pytest.raises(TargetFull, match="c uses 1000000 of 1000500 bytes"):
        await move(fake, *MOVES)
    assert fake.tasks == []


async def test_slots_move_key_by_key_before_8_4() -> None:
    fake = three()
    fake.version = "8.2.1"
    with pytest.raises(AssertionError, match="cluster-node-timeout"):  # key-by-key migration sends other commands
        await move(fake, *MOVES)
    assert fake.tasks == []
