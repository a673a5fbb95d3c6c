"""How a plan looks: a table of its steps, the pods that restart and why, and what it ends with. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from plugin.overview import duration
from shared.api.applied_spec import APPROVAL

if TYPE_CHECKING:
    from simulator.plan import Plan
    from simulator.recorder import Move, Step

EXIT_CODES: Mapping[str, int] = {"nothing": 0, "unknown": 1, "safe": 2, "restarts": 3, "person": 4, "refused": 5}
"""Exit code by the outcome of a plan."""

COLUMNS = ("STEP", "ACTION", "REASON", "EFFECT", "REDUNDANCY", "ABOUT")


def rows(plan: Plan, *, everything: bool = False) -> Iterator[list[str]]:
    """Yield a row for each step.

    Args:
        everything: whether steps that only keep records have one as well.
    """
    shown = [step for step in plan.steps if everything or not step.minor]
    for number, step in enumerate(shown, 1):
        times = f" ({step.count} times)" if step.count > 1 else ""
        yield [
            str(number),
            f"{step.title}{times}",
            step.reason,
            "; ".join(_effects(step)) or "-",
            step.redundancy_text,
            about(step.seconds),
        ]


def blocks(rows: Iterable[list[str]]) -> Iterator[str]:
    """Yield the lines of steps for a terminal in which their table does not fit."""
    for number, action, reason, effect, redundancy, about in rows:
        yield f"{number}. {action}"
        for name, value in zip(COLUMNS[2:], (reason, effect, redundancy, about), strict=True):
            if value and value != "-":
                yield f"   {name.lower()}: {value}"


def width(rows: Iterable[list[str]]) -> int:
    """Return the width of a table of steps, in characters."""
    return sum(max(map(len, column)) + 2 for column in zip(COLUMNS, *rows, strict=True))


def about(seconds: float) -> str:
    """Return an estimated duration."""
    return "<1s" if seconds < 1 else duration(round(seconds))


def _effects(step: Step) -> Iterator[str]:
    for pod in step.pods:
        if not (step.action == pod.effect and step.target == f"Pod {pod.name}"):
            yield f"{pod.name} {pod.effect}"
    for member in step.members:
        if not member.before:
            yield f"{member.name} joins as {member.after}"
        elif not member.after:
            yield f"{member.name} leaves"
        else:
            yield f"{member.name}: {member.before} → {member.after}"
    yield from map(_moved, step.moves)
    if not step.pods:
        yield from step.fields


def _moved(move: Move) -> str:
    keys = f" (about {move.keys} keys)" if move.keys is not None else ""
    return f"{move.slots} slots from {move.source} to {move.target}{keys}"


def restarts(plan: Plan) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yield the pods that are replaced with the fields that differ: pods with the same fields together."""
    found: dict[tuple[str, ...], list[str]] = {}
    for step in plan.steps:
        for pod in step.pods:
            if pod.effect == "restarts" or (pod.effect == "stops" and pod.why):
                found.setdefault(pod.why, []).append(pod.name)
    for why, pods in found.items():
        yield pods, why


def summary(plan: Plan) -> str:
    """Return the outcome in one sentence."""
    shown = [step for step in plan.steps if not step.minor]
    if plan.outcome == "refused":
        return f"The API server refuses the manifest: {plan.message}"
    if plan.outcome == "unknown" and not shown:
        return f"There is no plan: {plan.message}"
    if plan.outcome == "nothing":
        return "Nothing to do."
    if not shown and plan.person is not None:
        return "No step is possible now."
    if plan.outcome == "unknown":
        return f"{len(shown)} steps, and what follows is not known."
    replaced = sum(len(pods) for pods, _ in restarts(plan))
    least = None if plan.creates else min(shown, key=lambda step: step.redundancy, default=None)
    parts = [
        f"{len(shown)} steps, {'less than 1s' if plan.seconds < 1 else f'about {about(plan.seconds)}'}",
        f"{replaced} pods restart" if replaced else "no pod restarts",
        *([f"least redundancy: {least.redundancy_text}"] if least else []),
    ]
    return f"{'; '.join(parts)}."


def end(plan: Plan) -> Iterable[str]:
    """Yield how the plan ends, if it does not end with a resource that is Ready, and what it needs to begin."""
    shown = [step for step in plan.steps if not step.minor]
    if plan.approval:
        yield f"The change begins once it is approved: annotate the resource with {APPROVAL}={plan.approval}"
    if plan.person is not None:
        yield f"{'Then it' if shown else 'It'} waits for a person. {plan.person.reason}: {plan.person.message}"
        if plan.person.token:
            yield f"Token of this decision: {plan.person.token} (kubectl platform confirm)"
    elif shown and not plan.ready:
        yield f"The plan ends here. {plan.reason}: {plan.message}"
