"""Compares a plan with its execution: order, effects and durations. Pure.

Both sides have several ordered lists, each of which must be equal. The order between them is not compared: it depends
on races, such as that of a kubelet with the next pass of the operator. Nor is what depends on timing or on the gossip
of a RedisCluster (`_FREE`): its effects are compared instead.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, pairwise, zip_longest
from typing import NamedTuple

from e2e.plans.executed import Execution
from simulator.plan import Plan
from simulator.recorder import OPERATOR, STARTS, STOPS, Move, PodChange, Step

SHARE, SECONDS = 0.25, 1.0
"""Difference of a duration that is no deviation: this share of it, or these seconds. Kubernetes has whole seconds."""

_FREE: tuple[tuple[str, str], ...] = (
    (r"move slots: .*", "move slots"),
    (r"let .+ meet .+", "let nodes meet"),
    (r"let \d+ nodes forget (.+)", r"let nodes forget \1"),
    (r"give .+ epoch \d+", "give epochs"),
    (r"wait [\d.]+ s, .*", ""),
    (r"let .+ connect to its primary .+", ""),
    (r"close slots .*", ""),
)
"""Calls with numbers and nodes that depend on timing or gossip, and their form that does not; empty for none."""

_ORDINAL = re.compile(r"-\d{1,4}$")

NEW = "a new pod"
"""Name of each pod that a change creates."""


class Difference(NamedTuple):
    """A list that differs.

    Attributes:
        what: content of the list.
    """

    what: str
    predicted: tuple[str, ...]
    executed: tuple[str, ...]


def differences(plan: Plan, execution: Execution) -> list[Difference]:
    """Return the lists that differ between a plan and its execution.

    Which new pod gets which role follows from the Kubernetes nodes that the scheduler chooses: new pods have one name.
    """
    new = {pod.name for step in plan.steps for pod in step.pods if pod.effect == STARTS and _has_ordinal(pod)}

    def alike(lines: Iterable[str]) -> tuple[str, ...]:
        return tuple(re.sub(r"[\w-]+-\d+", lambda found: NEW if found[0] in new else found[0], line) for line in lines)

    def sorted_alike(lines: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(alike(lines)))

    pairs = (
        ("end", (_end(plan.reason, ready=plan.ready),), (_end(execution.reason, ready=execution.ready),)),
        ("pods", _pods(plan.steps), _pods(execution.steps)),
        ("writes", _writes(plan.steps), _writes(execution.steps)),
        ("calls", alike(_calls(plan.steps)), alike(_calls(execution.steps))),
        ("slots", sorted_alike(_slots(_moves(plan.steps))), sorted_alike(_slots(execution.moves))),
        (
            "members",
            sorted_alike(_members(_roles(plan.steps), plan)),
            sorted_alike(_members(execution.roles, plan)),
        ),
    )
    return [Difference(what, one, other) for what, one, other in pairs if one != other]


def _end(reason: str, *, ready: bool) -> str:
    return f"{reason}, {'Ready' if ready else 'not Ready'}"


def shown(steps: Iterable[Step]) -> list[Step]:
    return [step for step in steps if not step.minor]


def _pods(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the pods that start, stop and restart, in order. Those that start or stop together have none.

    Of a Deployment, only the numbers count: Kubernetes chooses names and pods.
    """
    pods = [pod for step in shown(steps) for pod in step.pods]
    found: list[str] = []
    for effect, group in groupby((pod for pod in pods if _has_ordinal(pod)), key=lambda pod: pod.effect):
        names = [pod.name for pod in group]
        found += [f"{name} {effect}" for name in (sorted(names) if effect in (STARTS, STOPS) else names)]
    others = Counter(pod.effect for pod in pods if not _has_ordinal(pod))
    return *found, *(f"pods of a Deployment: {number} {effect}" for effect, number in sorted(others.items()))


def _has_ordinal(pod: PodChange) -> bool:
    """Whether a pod is of a StatefulSet: the names of others end with five characters."""
    return _ORDINAL.search(pod.name) is not None


def _writes(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return what the operator writes to each object, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for step in shown(steps):
        if step.by == OPERATOR and step.action != "call":
            found[step.target] += ["change" if step.action == "resize" else step.action] * step.count
    return tuple(f"{target}: {', '.join(actions)}" for target, actions in sorted(found.items()))


def _calls(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the calls of the operator in order, each once: a real server may refuse one until it is ready for it.

    Settings of several servers have no order.
    """
    calls = [text for step in shown(steps) if step.action == "call" for text in (step.target, *step.others)]
    called = dict.fromkeys(form for text in calls if (form := _form(text)))
    found: list[str] = []
    for is_setting, group in groupby(called, key=lambda text: text.startswith("set ")):
        texts = list(group)
        found += sorted(texts) if is_setting else texts
    return tuple(found)


def _form(call: str) -> str:
    """Return a call without what depends on timing or gossip; empty for one without an effect of its own."""
    for pattern, form in _FREE:
        if (found := re.fullmatch(pattern, call)) is not None:
            return found.expand(form)
    return call


def _key(step: Step) -> str:
    """Return what both sides have of a step."""
    return _form(step.target) if step.action == "call" else f"{step.action} {step.target}"


def _moves(steps: Iterable[Step]) -> Iterator[Move]:
    for step in steps:
        yield from step.moves


def _slots(moves: Iterable[Move]) -> tuple[str, ...]:
    """Return how many slots each node gains."""
    gains: dict[str, int] = defaultdict(int)
    for move in moves:
        gains[move.source] -= move.slots
        gains[move.target] += move.slots
    return tuple(f"{name}: {gain:+d} slots" for name, gain in sorted(gains.items()) if gain)


def _roles(steps: Iterable[Step]) -> dict[str, tuple[str, ...]]:
    """Return the roles of each member or node that changes, in order."""
    found: dict[str, list[str]] = {}
    for step in steps:
        for change in step.members:
            found.setdefault(change.name, [change.before]).append(change.after)
    return {name: tuple(roles) for name, roles in found.items()}


def _members(roles: Mapping[str, Sequence[str]], plan: Plan) -> tuple[str, ...]:
    """Return the roles of each member or node that changes.

    One that restarts keeps its role. Of a new one only the last role counts: how it joins is in the calls. A database
    that hibernates keeps its members, none of which runs.
    """
    if plan.reason == "Hibernated":
        return ()
    found = []
    for name, each in sorted(roles.items()):
        before, after = each[0], each[-1]
        had = [role for role, _ in groupby(role for role in each if role)]
        if not before and after:
            found.append(f"{name} joins as {after}")
        elif before and not after:
            found.append(f"{name} leaves")
        elif before and len(had) > 1:
            found.append(f"{name}: {' → '.join(had)}")
    return tuple(found)


# Durations.


@dataclass(frozen=True)
class Duration:
    """Predicted and taken seconds of a step, with those that follow it until the next step that both sides have."""

    step: str
    predicted: float
    taken: float

    @property
    def ratio(self) -> float | None:
        """Predicted seconds for each that was taken; None if it took no time."""
        return round(self.predicted / self.taken, 2) if self.taken >= 0.01 else None

    @property
    def agrees(self) -> bool:
        return abs(self.predicted - self.taken) <= max(SHARE * self.taken, SECONDS)


def durations(plan: Plan, execution: Execution) -> list[Duration]:
    """Return the durations of the steps that both sides have."""
    predicted = [(_key(step), step.seconds) for step in shown(plan.steps)]
    executed = [(_key(step), at) for step, at in zip(execution.steps, execution.begins, strict=True) if not step.minor]
    ends = [*(at for _, at in executed), max(execution.ended, *(at for _, at in executed), 0.0)]
    matcher = SequenceMatcher(None, [form for form, _ in predicted], [form for form, _ in executed], autojunk=False)
    both = [
        (block.a + offset, block.b + offset) for block in matcher.get_matching_blocks() for offset in range(block.size)
    ]
    found = []
    for (one, other), (next_one, next_other) in pairwise([*both, (len(predicted), len(executed))]):
        seconds = sum(each for _, each in predicted[one:next_one])
        found.append(Duration(predicted[one][0], round(seconds, 1), round(ends[next_other] - ends[other], 1)))
    return found


# For people.


def side_by_side(plan: Plan, execution: Execution, found: Sequence[Difference]) -> str:
    """Return the differences, and all steps of both sides, in two columns."""
    lines = [f"{plan.kind} {plan.namespace}/{plan.name}: the plan and what was executed differ in {len(found)} lists"]
    for each in found:
        lines += ["", *_columns(each.what, each.predicted, each.executed)]
    lines += ["", *_columns("all steps, with seconds", list(_timed(plan)), list(_at(execution)))]
    lines.append(f"reasons: {', '.join(dict.fromkeys(step.reason for step in plan.steps))}")
    lines.append(f"reported: {', '.join(execution.reasons)}")
    return "\n".join(lines)


def _timed(plan: Plan) -> Iterator[str]:
    for step in shown(plan.steps):
        times = f" ({step.count} times)" if step.count > 1 else ""
        yield f"{step.seconds:5.1f}  {step.title}{times}{_effects(step)}"


def _at(execution: Execution) -> Iterator[str]:
    steps = [each for each in zip(execution.begins, execution.steps, strict=True) if not each[1].minor]
    ends = [*(at for at, _ in steps[1:]), execution.ended]
    for (at, step), end in zip(steps, ends, strict=False):
        yield f"{max(0.0, end - at):5.1f}  {step.title}{_effects(step)}"


def _effects(step: Step) -> str:
    pods = [
        f"{pod.name} {pod.effect}" for pod in step.pods if step.target != f"Pod {pod.name}" or step.by == "operator"
    ]
    return f": {', '.join(pods)}" if pods else ""


def _columns(heading: str, predicted: Sequence[str], executed: Sequence[str]) -> Iterator[str]:
    width = max(map(len, ("predicted", *predicted)))
    yield f"{heading}:"
    yield f"    {'predicted':<{width}}   executed"
    for one, other in zip_longest(predicted, executed, fillvalue=""):
        yield f"  {' ' if one == other else '≠'} {one:<{width}}   {other}".rstrip()
