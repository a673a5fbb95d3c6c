"""Migration jobs of Valkey 9: the operator cancels only its own, and a job that a person cancelled stays cancelled."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from operators.redis.api.status import recorded_jobs
from operators.redis.client.errors import SlotStuck
from operators.redis.client.server import Access, Endpoint
from operators.redis.migration import server_side
from operators.redis.migration.commands import MoveSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from shared.kubernetes.errors import Conflict
from shared.kubernetes.kinds import Obj
from simulator.redis import atomic_migration
from simulator.redis.process import Migration
from tests.redis.simulation.lab import GuardedLab


@dataclass
class Bed:
    """Three primaries of Valkey 9, and the status; slots move from the first to the second."""

    lab: GuardedLab
    status: Obj = field(default_factory=dict)
    refuses: bool = False

    @classmethod
    async def begin(cls) -> Bed:
        lab = await GuardedLab.begin("")
        for name in "abc":
            lab.process(name).engine, lab.process(name).version = "valkey", "9.1.0"
        return cls(lab)

    @property
    def jobs(self) -> list[Migration]:
        return self.lab.process("a").migrations

    async def record(self, fields: Obj) -> None:
        if self.refuses:
            raise Conflict("the resource has changed")
        self.status |= fields

    async def start(self, first: int, last: int, to: str = "b") -> None:
        """Start a job as a person does."""
        await self.lab.cluster("a", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", self.lab.id(to))

    async def move(self, slots: str, budget: float = 5.0) -> None:
        nodes = {self.lab.id(name): Endpoint(name, self.lab.address(name)[0], name) for name in "abc"}
        moves = (Move(self.lab.id("a"), self.lab.id("b"), Slots.parse(slots)),)
        jobs = frozenset(recorded_jobs(self.status))
        call = MoveSlots(Access(), moves, nodes, acknowledge=False, jobs=jobs, budget=budget)
        await call.carry_out_recorded(self.lab.redis.connect, self.record)


@pytest.fixture
async def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    """Servers whose jobs do not end by themselves."""
    found = await Bed.begin()
    monkeypatch.setattr(server_side, "OTHERS_SECONDS", 0.0)
    monkeypatch.setattr(atomic_migration, "POLLS", 1000)
    monkeypatch.setattr(atomic_migration, "DURATION_SECONDS", 1000)
    return found


async def test_job_of_another_client_is_not_cancelled(bed: Bed) -> None:
    await bed.start(100, 199)
    with pytest.raises(SlotStuck) as error:
        await bed.move("0-9")
    assert [job.state for job in bed.jobs] == ["migrating"]
    assert str(error.value).startswith("Another client migrates slots 100-199 from a to b (job ")
    assert len(str(error.value)) <= 400


async def test_obsolete_job_is_not_cancelled_together_with_one_of_another_client(bed: Bed) -> None:
    """CLUSTER CANCELSLOTMIGRATIONS cancels all jobs of the node."""
    await bed.move("0-9", budget=0.1)
    await bed.start(100, 199)
    with pytest.raises(SlotStuck, match="Another client migrates slots 100-199"):
        await bed.move("20-29")
    assert [job.state for job in bed.jobs] == ["migrating", "migrating"]


async def test_obsolete_job_of_the_operator_is_cancelled_and_the_next_one_starts_at_once(bed: Bed) -> None:
    await bed.move("0-9", budget=0.1)
    await bed.move("20-29", budget=0.1)
    assert [(job.slots, job.state) for job in bed.jobs] == [
        (Slots.parse("0-9").mask, "cancelled"),
        (Slots.parse("20-29").mask, "migrating"),
    ]
    await bed.lab.cluster("a", "CANCELSLOTMIGRATIONS")
    await bed.move("0-9", budget=0.1)
    assert bed.jobs[-1].state == "migrating", "the cancellation by the operator was no decision of a person"


async def test_cancelled_job_is_started_again_only_after_a_while(bed: Bed) -> None:
    """A person cancels a job of the operator, while it does not look."""
    for delay in (60, 120):
        await bed.move("0-9", budget=0.1)
        count = len(bed.jobs)
        assert bed.jobs[-1].state == "migrating"
        await bed.lab.cluster("a", "CANCELSLOTMIGRATIONS")
        await bed.lab.wait(1)
        with pytest.raises(SlotStuck, match=f"The operator tries again in {delay - 1} s") as error:
            await bed.move("0-9")
        assert len(str(error.value)) <= 400
        assert len(bed.jobs) == count
        await bed.lab.wait(delay)


async def test_job_counts_as_the_operators_only_once_it_is_recorded(bed: Bed) -> None:
    bed.refuses = True
    with pytest.raises(Conflict):
        await bed.move("0-9", budget=0.1)
    bed.refuses = False
    with pytest.raises(SlotStuck, match="Another client migrates slots 0-9"):
        await bed.move("20-29", budget=0.1)
    assert [job.state for job in bed.jobs] == ["migrating"]
    bed.jobs[0].begun = -2000.0
    await bed.lab.wait(1)
    await bed.move("20-29", budget=0.1)
    assert bed.jobs[0].state == "success"
    assert [job["name"] for job in bed.status["jobs"]] == [bed.jobs[1].name]
