"""Disturbances of a scenario: faults at each write, missed watch events, and stale views.

Patterns: intermediate, stale and unobserved states (Sieve, OSDI'22), network faults, and a former leader whose last
write arrives late.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.kinds import Kind, Obj
from simulator.faults import Crash, Faults
from simulator.harness import View, list_view
from tests.harness.outcome import HISTORY
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import Database
from tests.harness.scenario_runner import ScenarioRun, World


class Overwritten(Exception):
    """An operator with a stale view changed or deleted a newer object."""


@dataclass(frozen=True)
class Disturbance:
    """A fault that can be injected at certain points of a scenario.

    Attributes:
        points: descriptions of the points of a reference run at which it can be injected.
        play: runs the scenario to its end with the disturbance at the nth point; raises Overwritten.
        counts: how the numbers of created and deleted objects must compare with the reference run.
        unstable: fields that may end differently from the reference run, as keys at any depth.
        sees_past: whether the operator sees, and reports, a state that has passed.
    """

    name: str
    points: Callable[[ReferenceRun], list[str]]
    play: Callable[[ReferenceRun, int], Awaitable[ScenarioRun]]
    counts: Literal["equal", "at most", "any"] = "equal"
    unstable: tuple[str, ...] = ()
    sees_past: bool = False

    def __str__(self) -> str:
        return self.name


def _writes(course: ReferenceRun) -> list[str]:
    return [occasion.text for occasion in course.writes]


def _fault_at_write(name: str, script: Callable[[Faults, int], None], *, lags: bool = False) -> Disturbance:
    """Inject a fault at the nth write."""

    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        play, steps, nth = course.play(course.writes, nth)
        faults = play.world.server.faults
        script(faults, nth)
        if lags:
            faults.on_strike = partial(setattr, play, "lags", True)
        await play.run_steps(steps)
        # If timing decides the number of writes, there may be no nth write.
        struck = not faults.pending or not course.scenario.exact_counts
        assert struck, "the fault did not strike: the run diverged from the reference run before it"
        return play

    return Disturbance(name, _writes, play)


def _late_events() -> Disturbance:
    async def play(course: ReferenceRun, _: int) -> ScenarioRun:
        play = ScenarioRun(course.snapshots[0].fork())
        play.lags = True
        await play.run_steps(course.scenario.steps)
        return play

    return Disturbance("all events late", lambda _: ["from the start"], play)


def _leader_change(name: str, *, steps_later: bool) -> Disturbance:
    """Let the leader lose its lease during its nth write; the write lands when another process leads."""

    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        play, steps, nth = course.play(course.writes, nth)
        play.world.server.faults.crash_before(nth + 1)
        in_flight: list[Crash] = []
        rests = 0

        async def on_crash(crash: Crash) -> None:
            if steps_later:
                in_flight.append(crash)
            else:
                await play.carry_out(crash)

        async def after_step() -> bool:
            nonlocal rests
            rests += bool(in_flight)
            lands = rests > 1 and bool(in_flight)
            if lands:
                await play.carry_out(in_flight.pop())
            return lands

        play.on_crash, play.after_step = on_crash, after_step
        await play.run_steps(steps)
        for crash in in_flight:  # no later step followed
            await play.carry_out(crash)
            await play.settle()
        return play

    if steps_later:
        return Disturbance(name, _writes, play, counts="any", unstable=HISTORY)
    return Disturbance(name, _writes, play)


def _shard_moves() -> Disturbance:
    """Let another replica lead the shard from the nth write on: its cache is warm, but behind since the step began.

    The write lands when the other replica leads. Events reach it only when it is idle.
    """

    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        play, steps, nth = course.play(course.writes, nth)
        other = play.world.operator()
        other.lags = True
        other.follow()
        play.world.server.faults.crash_before(nth + 1)

        async def on_crash(crash: Crash) -> None:
            play.end()
            play.operator, play.lags = other, True
            other.lead()
            await play.carry_out(crash)

        play.on_crash = on_crash
        await play.run_steps(steps)
        return play

    return Disturbance("shard moves to a replica with late events", _writes, play, counts="any", unstable=HISTORY)


def _stale_view() -> Disturbance:
    """Restart the operator with a list that was current earlier; afterwards its watch delivers all later events."""

    def targets(course: ReferenceRun) -> list[tuple[int, int]]:
        return [
            (index, halt)
            for index, (step, _) in enumerate(course.views)
            for halt in range(step, len(course.scenario.steps))
            if course.scenario.steps[halt].turns is None
        ]

    def points(course: ReferenceRun) -> list[str]:
        steps = course.scenario.steps
        return [
            f"after '{steps[halt]}', with the view during '{steps[course.views[index][0]]}' (view {index + 1})"
            for index, halt in targets(course)
        ]

    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        index, halt = targets(course)[nth]
        _, view = course.views[index]
        play = ScenarioRun(course.snapshots[halt + 1].fork())
        before = play.world.fork()
        play.begin(view)
        operator = play.operator
        assert operator is not None
        operator.broken_watches.update(view)
        for _ in range(3):  # a request that fails once is retried
            play.resync()
            await operator.run()
        _require_newer_objects_unchanged(before, play.world, view)
        # A spec that an operator could see is carried out already; acting on an older one is an error.
        if not course.scenario.steps[halt].absent:
            _require_same_database(before.database, play.world.database)
        operator.deliver_missed_events()
        await play.settle()
        await play.run_steps(course.scenario.steps[halt + 1 :])
        return play

    return Disturbance("stale view", points, play, counts="any", unstable=HISTORY, sees_past=True)


def _require_same_database(before: Database, after: Database) -> None:
    (was, done), (now, did) = [(database.state(), dict(database.counts())) for database in (before, after)]
    if (was, done) != (now, did):
        raise Overwritten(f"acting on an old spec, the operator changed the database from {was} {done} to {now} {did}")


def _require_newer_objects_unchanged(before: World, after: World, view: View) -> None:
    """Require that every object missing from the view is unchanged, and that every newer object still exists.

    The operator may apply an outdated spec to an object in its view, or to one that it read since. Such a write carries
    the UID or resourceVersion, and the newer spec follows with the next view. The operator must not delete a newer
    object, nor change an object only because the name matches.
    """
    new = after.server.log.all_writes[len(before.server.log.all_writes) :]
    unconditional = {(write.kind, write.name) for write in new if write.changed and not write.pinned}
    known = {obj["metadata"]["uid"]: resource_version(obj) for listing in view.values() for obj in listing["items"]}
    now = {obj["metadata"]["uid"]: obj for _, obj in after.server.objects()}
    for kind, obj in before.server.objects():
        uid, what = obj["metadata"]["uid"], f"{kind} {obj['metadata']['name']}"
        if uid not in now and resource_version(obj) > known.get(uid, 0):
            raise Overwritten(f"{what} was deleted, but it is newer than the operator's view")
        if uid not in known and (kind.name, obj["metadata"]["name"]) in unconditional and now[uid] != obj:
            raise Overwritten(f"{what} was changed by name, but it is not in the operator's view")


def _missed_event() -> Disturbance:
    """Break a watch at an event, and relist once another event about the same object follows."""

    def superseded(course: ReferenceRun) -> list[int]:
        last = {event.about: number for number, event in enumerate(course.events)}
        return [number for number, event in enumerate(course.events) if number < last[event.about]]

    def points(course: ReferenceRun) -> list[str]:
        return [course.events[number].text for number in superseded(course)]

    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        play, steps, left = course.play(course.events, superseded(course)[nth])
        missing: list[tuple[Kind, str]] = []

        def receive(kind: Kind, event: Obj) -> None:
            nonlocal left
            operator, what = play.operator, (kind, event["object"]["metadata"]["name"])
            if operator is None:
                return
            if not missing and left:
                left -= 1
            elif not missing:
                missing.append(what)
                operator.broken_watches.add(kind)
            elif missing == [what] and kind in operator.broken_watches:
                operator.relist({kind: list_view(operator.controller, play.world.server)[kind]})

        for kind in play.world.subject.controller(play.world.database).kinds:
            play.world.server.subscribe(lambda event, kind=kind: receive(kind, event), kind)  # type: ignore[misc]
        await play.run_steps(steps)
        return play

    return Disturbance("missed event", points, play, counts="at most", unstable=HISTORY)


DISTURBANCES = (
    _fault_at_write("crash before a write", lambda faults, nth: faults.crash_before(nth + 1)),
    _fault_at_write("crash after a write", lambda faults, nth: faults.crash_after(nth + 1)),
    _fault_at_write("lost response", lambda faults, nth: faults.lose_answer(skip=nth)),
    _fault_at_write("lost response, events late", lambda faults, nth: faults.lose_answer(skip=nth), lags=True),
    _fault_at_write("409", lambda faults, nth: faults.answer(409, skip=nth)),
    _fault_at_write("429", lambda faults, nth: faults.answer(429, skip=nth, retry_after=1)),
    _fault_at_write("500", lambda faults, nth: faults.answer(500, skip=nth)),
    _late_events(),
    _leader_change("leader change, last write lands at once", steps_later=False),
    _leader_change("leader change, last write lands a step later", steps_later=True),
    _shard_moves(),
    _stale_view(),
    _missed_event(),
)
