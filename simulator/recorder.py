"""Records what an operator does in a simulated cluster, step by step, with the reason and the effects."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

from shared.kubernetes import accessors
from shared.kubernetes.kinds import DEPLOYMENT, EVENT, LEASE, POD, REPLICA_SET, SECRET, STATEFUL_SET, Obj
from shared.kubernetes.ownership import controller_of
from shared.runtime.controller import Controller
from shared.runtime.plan import Call, Record
from shared.runtime.plan import Plan as Pass
from shared.status.verdict import Verdict
from simulator.api_server.requests import TargetedRequest
from simulator.api_server.server import ApiServer
from simulator.differences import changes
from simulator.durations import DEFAULT, Durations

OPERATOR, KUBERNETES = "operator", "kubernetes"

STARTS, RESTARTS, STOPS = "starts", "restarts", "stops"

METADATA = ("metadata.", "spec.template.metadata.")
"""Beginnings of fields in which the operator keeps records."""

_MEETING = re.compile(r"let (.+) meet (.+)")
_INVENTED = re.compile(r" \([0-9a-f]{16}\)| at \d+\.\d+\.\d+\.\d+(:\d+)?")
"""Ids and addresses in texts: those of new servers are of the simulation only."""


@dataclass(frozen=True)
class PodChange:
    """Start, restart or end of a pod.

    Attributes:
        effect: starts, restarts or stops.
        why: fields of its template that differ, as "path: old → new".
    """

    name: str
    effect: str
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemberChange:
    """A member or node whose role changes; an empty role is that of one that does not belong to the database."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Move:
    """Slots that move to another primary.

    Attributes:
        keys: estimated number of their keys; None if it is not known.
    """

    source: str
    target: str
    slots: int
    keys: int | None = None


@dataclass(frozen=True)
class View:
    """State of a database, as far as a step may change it.

    Attributes:
        members: role of each member, by name.
        slots: number of slots that each primary owns, by name.
        redundancy: number of servers that may fail at the same time without a loss of service; of the weakest part.
        text: the same in words.
        names: names of members by the ids that texts have.
    """

    members: Mapping[str, str]
    slots: Mapping[str, int]
    redundancy: int
    text: str
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """An executed step.

    Attributes:
        by: the operator, or one of Kubernetes' controllers.
        action: create, change, delete, evict, call, starts, restarts or stops.
        target: kind and name of the object, or the description of the call.
        fields: changed fields, as "path: old → new".
        reason, message: reason of the operator's pass, as in the condition Ready.
        redundancy: servers that may fail at the same time during and after it, and `redundancy_text` in words.
        seconds: estimated time until the next step begins; of the last one, until the operator reports its result.
        minor: whether it only keeps records: labels, annotations and Secrets of the operator.
        count: number of equal steps in a row.
        others: targets of those in a row that are not `target`, such as the same setting of other servers.
    """

    by: str
    action: str
    target: str
    fields: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    pods: tuple[PodChange, ...] = ()
    members: tuple[MemberChange, ...] = ()
    moves: tuple[Move, ...] = ()
    redundancy: int = 0
    redundancy_text: str = ""
    seconds: float = 0.0
    minor: bool = False
    count: int = 1
    others: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        if self.by == KUBERNETES:
            return f"{self.target} {self.action}"
        return self.target if self.action == "call" else f"{self.action} {self.target}"

    @property
    def restarts(self) -> bool:
        """Whether a server that runs is interrupted."""
        return any(pod.effect == RESTARTS for pod in self.pods)


@dataclass
class _Draft:
    by: str
    action: str
    target: str
    began: datetime
    fields: list[str] = field(default_factory=list)
    reason: str = ""
    message: str = ""
    pods: dict[str, PodChange] = field(default_factory=dict)
    members: dict[str, MemberChange] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    view: View | None = None
    minor: bool = False


class Recorder:
    """Records what happens from now on.

    Args:
        server: API server of the simulation.
        clock: time of the simulation.
        view: returns what a step may change in the database.
        durations: how long calls, writes and moves of slots take, which takes no time in the simulation.

    Attributes:
        verdict: verdict of the operator's last pass.
    """

    def __init__(
        self,
        server: ApiServer,
        clock: Callable[[], datetime],
        view: Callable[[], View],
        durations: Durations = DEFAULT,
    ) -> None:
        self._server, self._clock, self._view, self._durations = server, clock, view, durations
        self._reason = self._message = ""
        self.verdict = Verdict()
        self._is_done = True
        self._verdict_since = clock()
        self._drafts: list[_Draft] = []
        self._unexplained: list[_Draft] = []
        self._stopped: dict[str, _Draft] = {}
        self._templates: dict[str, Obj] = {}
        self._former: dict[str, Obj] = {}
        self._leaving: set[str] = set()
        for _, pod in server.objects(POD):
            self._note_template(pod)
        self._names: dict[str, str] = {}  # also of nodes that were replaced
        self._last = self._noted_view()
        self._check_write = server.check_write
        server.check_write = self._written
        server.subscribe(self._pod_changed, POD)

    def attached(self, controller: Controller[Any, Any]) -> Controller[Any, Any]:
        """Return a controller whose passes and calls are recorded."""

        def planned(*given: Any) -> Pass:
            made = controller.plan(*given)
            self._reason, self._message = str(made.verdict.reason), self._plain(made.verdict.message)
            if (made.verdict.done, made.verdict.reason) != (self.verdict.done, self.verdict.reason):
                self._verdict_since = self._clock()
            self.verdict = made.verdict
            if not made.verdict.done:  # a pass that finds the spec met has no words for what it changes
                for draft in self._unexplained:
                    draft.reason, draft.message = self._reason, self._message
            self._unexplained = []
            self._is_done = made.verdict.done
            return made

        async def called(call: Call, record: Record) -> None:
            began = self._clock()
            await controller.call(call, record)
            self._add(_Draft(OPERATOR, "call", self._plain(str(call)), began))

        return dataclasses.replace(controller, plan=planned, call=called)

    def forget(self) -> None:
        """Forget the steps so far."""
        self._drafts.clear()
        self._unexplained.clear()
        self._stopped.clear()

    def finished(self) -> tuple[Step, ...]:
        """Return the recorded steps. Equal ones in a row are one, with their count."""
        self._observe()
        steps: list[Step] = []
        waits = self._waits()
        for draft in self._drafts:
            step = _step(draft, 0.0 if draft.minor else next(waits) + self._took(draft))
            if steps and _is_alike(steps[-1], step):
                steps[-1] = _joined(steps[-1], step)
            else:
                steps.append(step)
        return tuple(steps)

    def _waits(self) -> Iterator[float]:
        """Yield the seconds of the simulation from each step that is not minor to the next one, or to the result."""
        begins = [draft.began for draft in self._drafts if not draft.minor]
        times = accumulate([*begins, self._verdict_since], max)
        yield from ((end - begin).total_seconds() for begin, end in pairwise(times))

    def _took(self, draft: _Draft) -> float:
        """Return the seconds of what takes no time in the simulation."""
        moves = sum(move.slots for move in draft.moves) / self._durations.slots
        if draft.by == KUBERNETES:
            return moves
        return moves + (self._durations.call if draft.action == "call" else self._durations.write)

    # What happens.

    def _written(self, target: TargetedRequest, live: Obj | None) -> None:
        self._check_write(target, live)
        if target.kind in (EVENT, LEASE) or target.subresource == "status":
            return
        after = self._server.stored(target.kind, target.namespace, target.name)
        if target.verb in ("DELETE", "EVICT"):
            action = target.verb.lower()
        elif live is None:
            action = "create"
        elif after is None or accessors.resource_version(after) == accessors.resource_version(live):
            return
        else:
            action = target.subresource if target.subresource == "resize" else "change"
        is_change = action in ("change", "resize")
        fields = tuple(changes(live or {}, after or {}, target.kind)) if is_change else ()
        is_minor = action == "change" and all(each.startswith(METADATA) for each in fields)
        name = target.name or (after or {}).get("metadata", {}).get("name", "")
        is_minor, fields = is_minor or target.kind == SECRET, _relevant(fields)
        described, shown = f"{target.kind.name} {name}", [] if is_minor else list(fields)
        draft = _Draft(OPERATOR, action, described, self._clock(), shown, minor=is_minor)
        if target.stops_pod:
            former = self._stopped.get(name)
            if former is None:
                draft.pods[name] = PodChange(name, STOPS)
                self._stopped[name] = draft
            elif former.by == KUBERNETES:  # it ended within the request
                former.by, former.action, former.target = OPERATOR, action, draft.target
                former.reason, former.message = self._reason, self._message
                return
        self._add(draft)

    def _pod_changed(self, event: Obj) -> None:
        pod, name, uid = event["object"], event["object"]["metadata"]["name"], event["object"]["metadata"]["uid"]
        is_removed = event["type"] == "DELETED"
        stops = uid not in self._leaving and (is_removed or bool(pod["metadata"].get("deletionTimestamp")))
        if stops:
            self._leaving.add(uid)
        if (controller_of(pod) or {}).get("kind") == REPLICA_SET.name:
            self._replica_changed(event["type"], pod, name, stops=stops)
        elif event["type"] == "ADDED":
            self._note_template(pod)
            self._started(pod, name)
        elif stops and name not in self._stopped:
            self._stopped[name] = self._add(self._of_pod(PodChange(name, STOPS)))
        if is_removed:
            self._former[name] = self._templates.pop(uid, {})
        self._observe()

    def _replica_changed(self, event_type: str, pod: Obj, name: str, *, stops: bool) -> None:
        """Note a pod of a Deployment: its replacement has another name, and may start before it stops."""
        deployment = self._deployment(pod)
        if event_type == "ADDED":
            self._note_template(pod)
            self._add(self._of_pod(PodChange(f"{deployment} (new)", STARTS)))
        elif stops:
            template = self._templates.get(pod["metadata"]["uid"], {})
            owner = self._server.stored(DEPLOYMENT, pod["metadata"]["namespace"], deployment)
            why = _relevant(changes(template, owner["spec"]["template"], POD)) if owner else ()
            self._add(self._of_pod(PodChange(name, STOPS, why)))

    def _of_pod(self, change: PodChange) -> _Draft:
        """Return a step of Kubernetes."""
        return _Draft(KUBERNETES, change.effect, f"Pod {change.name}", self._clock(), pods={change.name: change})

    def _deployment(self, pod: Obj) -> str:
        return str((controller_of(pod) or {}).get("name", "")).rpartition("-")[0]

    def _started(self, pod: Obj, name: str) -> None:
        template = self._templates.get(pod["metadata"]["uid"], {})
        stopped = self._stopped.pop(name, None)
        if stopped is None:
            self._add(self._of_pod(PodChange(name, STARTS)))
            return
        why = _relevant(changes(self._former.pop(name, {}), template, POD))
        stopped.pods[name] = PodChange(name, RESTARTS, why)
        if stopped.action == STOPS:
            stopped.action = RESTARTS

    def _note_template(self, pod: Obj) -> None:
        """Remember the template of a pod, as its workload has it now."""
        owner = controller_of(pod) or {}
        kind = {"StatefulSet": STATEFUL_SET, "ReplicaSet": REPLICA_SET}.get(str(owner.get("kind")))
        found = self._server.stored(kind, pod["metadata"]["namespace"], owner["name"]) if kind else None
        if found is not None:
            self._templates[pod["metadata"]["uid"]] = found["spec"]["template"]

    def _add(self, draft: _Draft) -> _Draft:
        self._drafts.append(draft)
        if self._is_done:
            self._unexplained.append(draft)
        else:
            draft.reason, draft.message = self._reason, self._message
        self._observe()
        return draft

    def _plain(self, text: str) -> str:
        self._noted_view()
        return plain(text, self._names)

    def _noted_view(self) -> View:
        """Return the present state of the database, and note the names of its members."""
        found = self._view()
        self._names |= found.names
        return found

    def _observe(self) -> None:
        """Note what has changed in the database, as an effect of the last step."""
        before, self._last = self._last, self._noted_view()
        if not self._drafts:
            return
        draft = self._drafts[-1]
        if draft.view is None or self._last.redundancy < draft.view.redundancy:
            draft.view = self._last
        if before is self._last or before == self._last:
            return
        for name in {*before.members, *self._last.members}:
            role, now = before.members.get(name, ""), self._last.members.get(name, "")
            if role == now:
                continue
            known = draft.members.pop(name, None)
            if known is None or known.before != now:  # one that restarts comes back with its role
                draft.members[name] = MemberChange(name, known.before if known else role, now)
        if before.members == self._last.members:
            draft.moves += moved(before.slots, self._last.slots)


def plain(text: str, names: Mapping[str, str]) -> str:
    """Return a text with the names of members instead of their ids, and without addresses.

    Args:
        names: names of members by their ids.
    """
    for node, name in names.items():
        text = text.replace(node, name)
    text = _INVENTED.sub("", text)
    if found := _MEETING.fullmatch(text):  # they are in the order of their ids
        members = sorted(found[1].split(", "), key=lambda name: (len(name), name))
        text = f"let {', '.join(members)} meet {found[2]}"
    return text


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Move]:
    """Yield the slots that moved between primaries, from how many each owned."""
    names = sorted({*before, *after})
    gains = {name: after.get(name, 0) - before.get(name, 0) for name in names}
    sources = [[name, -gain] for name, gain in gains.items() if gain < 0]
    for name, gain in gains.items():
        left = gain
        while left > 0 and sources:
            source: list[Any] = sources[0]
            part = min(left, source[1])
            yield Move(source[0], name, part)
            left, source[1] = left - part, source[1] - part
            if not source[1]:
                sources.pop(0)


def _relevant(fields: Iterable[str]) -> tuple[str, ...]:
    """Return the fields other than labels and annotations, in which the operator keeps records; those if all are."""
    found = tuple(fields)
    return tuple(each for each in found if not each.startswith(METADATA)) or found


def _step(draft: _Draft, seconds: float) -> Step:
    view = draft.view
    return Step(
        draft.by,
        draft.action,
        draft.target,
        tuple(draft.fields),
        draft.reason,
        draft.message,
        tuple(draft.pods.values()),
        tuple(draft.members.values()),
        tuple(draft.moves),
        view.redundancy if view else 0,
        view.text if view else "",
        round(seconds, 1),
        draft.minor,
    )


def _is_alike(one: Step, other: Step) -> bool:
    """Whether two steps in a row are shown as one: the same call or the same bookkeeping, for the same reason."""
    if one.action != other.action or one.reason != other.reason or one.minor != other.minor:
        return False
    if one.action == "call" and one.target == other.target:
        return True
    if one.action == "call":
        return one.target.split(" ")[0] == other.target.split(" ")[0] and not (one.members or other.members)
    return one.target == other.target and one.fields == other.fields


def _joined(one: Step, other: Step) -> Step:
    moves: dict[tuple[str, str], Move] = {}
    for move in (*one.moves, *other.moves):
        known = moves.get((move.source, move.target))
        moves[move.source, move.target] = dataclasses.replace(move, slots=move.slots + (known.slots if known else 0))
    return dataclasses.replace(
        one,
        count=one.count + other.count,
        others=tuple(dict.fromkeys(each for each in (*one.others, other.target, *other.others) if each != one.target)),
        members=(*one.members, *other.members),
        moves=tuple(moves.values()),
        pods=(*one.pods, *other.pods),
        seconds=round(one.seconds + other.seconds, 1),
        redundancy=min(one.redundancy, other.redundancy),
    )


def pods_of_workload(server: ApiServer, workload: Obj) -> Iterable[Obj]:
    """Yield the pods of a StatefulSet or Deployment that are not being deleted."""
    sets = {workload["metadata"]["uid"]}
    if workload["kind"] == DEPLOYMENT.name:
        sets = {
            each["metadata"]["uid"]
            for _, each in server.objects(REPLICA_SET)
            if (controller_of(each) or {}).get("uid") in sets
        }
    for _, pod in server.objects(POD):
        if (controller_of(pod) or {}).get("uid") in sets and not accessors.is_terminating(pod):
            yield pod
