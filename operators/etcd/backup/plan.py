"""What to do next about an EtcdBackup, and what to say of it. Pure.

A snapshot is one moment's: it is tried a few times in a row, and then never again. What became of it is written into
the status before its pod goes, so that nothing is forgotten, and nothing done twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from operators.etcd.api.backup import COMPLETE, FAILED, PENDING, RUNNING, SCHEDULED, EtcdBackup, validate
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup import locations, pods
from operators.etcd.backup.observe import Observed, choose
from operators.etcd.backup.outcome import Outcome, time
from operators.etcd.settings import Settings
from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import PASS, Apply, Delete, Plan, Step, StepOf, follow, refuse
from shared.status import conditions
from shared.status.verdict import Progress, Verdict

ATTEMPTS = 3
BACKOFF = (15.0, 60.0)
"""Seconds between an attempt's end and the next one."""

AGAIN = 10.0
"""Seconds until what is missing, or who does not answer, is looked for again: no watch tells of it."""

UNSTARTED = 600.0
"""Seconds beyond its deadline after which a pod that has not even started is given up."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans with what the operator's options give."""

    settings: Settings

    def plan(self, backup: EtcdBackup, seen: Observed, now: datetime) -> Plan:
        """The chain's answer, with the status that tells it."""
        if backup.over:
            return _at_rest(backup, seen)
        came_to = _came_to(backup, seen, now)
        if came_to is not None and came_to.succeeded:
            return _complete(backup, seen, came_to, now)
        if came_to is not None and _tried(backup, seen) >= ATTEMPTS:
            return _given_up(backup, seen, came_to, now)
        steps: tuple[StepOf[EtcdBackup, Observed], ...] = (
            refuse_contradictions,  # the same rules as at admission, for what came past it
            await_snapshot,  # one is being taken
            wait_after_failure,  # before the next try
            self.require_image,  # what takes it
            require_everything,  # the cluster, the destination, what lets in
            self.take_snapshot,  # of the best member for it
        )
        actions, verdict, requeue = follow(steps, backup, seen, now)
        return Plan(actions, verdict, _status(backup, seen), requeue)

    def require_image(self, _backup: EtcdBackup, _seen: Observed, _now: datetime) -> Step:
        """There is an image that takes snapshots: the operator's own."""
        if self.settings.agent_image:
            return PASS
        return Step.blocked(
            "NoAgentImage",
            "The operator does not know its own image, which takes snapshots: start it with --agent-image, as its "
            "chart does. Nothing was changed.",
        )

    def take_snapshot(self, backup: EtcdBackup, seen: Observed, _now: datetime) -> Step:
        """One pod takes it, of a member that has all."""
        cluster = seen.cluster
        assert cluster is not None, "require_everything waits for it"
        choice = choose(cluster, seen.sources)
        if choice is None:
            silent = "; ".join(f"{source.name}: {source.error}" for source in seen.sources if source.error)
            said = silent or ("none is a sound voter of it" if seen.sources else "none has a pod")
            message = f"No member of EtcdCluster {cluster.name} can give a snapshot: {said.rstrip('.')}."
            return Step((), Progress.WAITING, "NoMember", message, warning=True, requeue=AGAIN)
        attempt = _tried(backup, seen) + 1
        told = f"Attempt {attempt} of {ATTEMPTS}: {choice.name} gives the snapshot. {choice.caution}".strip()
        keep = _keep(backup, cluster)
        pod = pods.snapshot_pod(
            self.settings, backup, cluster, choice.name, choice.said, attempt=attempt, told=told, keep=keep
        )
        return Step.wait(RUNNING, told, Apply(POD, pod, unchanged=True))  # one that is there counts: it is looked at


def refuse_contradictions(backup: EtcdBackup, _seen: Observed, _now: datetime) -> Step:
    """A spec that contradicts itself takes no snapshot."""
    return refuse(validate(backup))


def await_snapshot(backup: EtcdBackup, seen: Observed, now: datetime) -> Step:
    """While a pod takes the snapshot, nothing else happens."""
    if seen.pod is None or _came_to(backup, seen, now) is not None:
        return PASS
    pod = Pod.of(seen.pod)
    if pod.trouble:
        message = f"{seen.told} {pod.name} does not start: {pod.trouble}"
        return Step((), Progress.WAITING, "PodNotStarting", message, warning=True, requeue=60)
    return Step.wait(RUNNING, seen.told, requeue=60)  # no event tells of one from which nothing is heard


def wait_after_failure(backup: EtcdBackup, seen: Observed, now: datetime) -> Step:
    """A failed attempt is written down, and the next waits; until then its pod stays, so that its log can be read."""
    came_to, tried = _came_to(backup, seen, now), _tried(backup, seen)
    if came_to is None:
        return PASS
    ended = came_to.finished or time(backup.reported.get("startedAt")) or now
    left = (ended + timedelta(seconds=BACKOFF[min(tried, len(BACKOFF)) - 1]) - now).total_seconds()
    message = f"{came_to.message} That was attempt {tried} of {ATTEMPTS}; the next follows."
    if left > 0 or tried != backup.reported.get("attempts"):
        return Step((), Progress.WAITING, came_to.reason, message, warning=True, requeue=max(0.0, left))
    if seen.pod is None:
        return PASS
    going = () if seen.pod["metadata"].get("deletionTimestamp") else (Delete(POD, seen.pod),)
    return Step(going, Progress.WAITING, came_to.reason, message, warning=True, requeue=1)


def require_everything(_backup: EtcdBackup, seen: Observed, _now: datetime) -> Step:
    """Cluster, destination and credentials are there; it waits for what is missing."""
    if seen.problem is None:
        return PASS
    return Step((), Progress.WAITING, seen.problem.reason, seen.problem.message, warning=True, requeue=AGAIN)


def _tried(backup: EtcdBackup, seen: Observed) -> int:
    """How many attempts were begun."""
    return max(seen.attempt, int(backup.reported.get("attempts") or 0))


def _came_to(backup: EtcdBackup, seen: Observed, now: datetime) -> Outcome | None:
    """How the present attempt ended; a pod that is gone, or does not even start for long, is one that failed."""
    if seen.pod is None:
        return Outcome(False, "PodGone", "Its pod is gone.") if _tried(backup, seen) else None
    if seen.outcome is not None:
        return seen.outcome
    made = time(seen.pod["metadata"].get("creationTimestamp"))
    deadline = int(seen.pod["spec"].get("activeDeadlineSeconds") or 0) + UNSTARTED
    if made is None or (now - made).total_seconds() < deadline:
        return None
    trouble = Pod.of(seen.pod).trouble or "nothing was heard of it"
    return Outcome(False, "PodNotStarting", f"Its pod was not done within {deadline / 60:.0f} minutes: {trouble}.")


def _complete(backup: EtcdBackup, seen: Observed, came_to: Outcome, now: datetime) -> Plan:
    said, store = came_to.said, locations.store_of(backup.spec.destination)
    location = locations.location(store, str(said["file"])) if store else ""
    size = int(said["size"])
    found = _status(backup, seen) | {
        "phase": COMPLETE,
        "location": location,
        "file": said["file"],
        "member": said["member"],
        "revision": said["revision"],
        "sizeBytes": size,
        "size": _for_people(size),
        "sha256": said["sha256"],
        **({"etcdVersion": said["version"]} if said["version"] else {}),
        **_times(came_to, now),
    }
    warning = str(said.get("warning") or "")
    message = f"Revision {said['revision']} ({_for_people(size)}) is kept as {location}. {warning}".strip()
    verdict = Verdict(Progress.DONE, COMPLETE, message, warning=bool(warning))
    return Plan((), verdict, found, requeue=0)  # then the pod goes


def _given_up(backup: EtcdBackup, seen: Observed, came_to: Outcome, now: datetime) -> Plan:
    message = f"{came_to.message} It was tried {ATTEMPTS} times; make another EtcdBackup once that is mended."
    found = _status(backup, seen) | {"phase": FAILED, **_times(came_to, now)}
    return Plan((), Verdict(Progress.BLOCKED, came_to.reason, message, warning=True), found, requeue=0)


def _at_rest(backup: EtcdBackup, seen: Observed) -> Plan:
    """What is over stays as it is; of a failed attempt the pod stays, too, for its log, unless it could still run."""
    before = accessors.condition(backup.obj, conditions.READY)
    reported = {k: v for k, v in backup.reported.items() if k not in ("conditions", "observedGeneration")}
    is_complete = backup.phase == COMPLETE
    progress = Progress.DONE if is_complete else Progress.BLOCKED
    verdict = Verdict(progress, before.get("reason") or backup.phase, before.get("message") or "", not is_complete)
    idle = seen.pod is None or seen.pod["metadata"].get("deletionTimestamp") or not (is_complete or seen.alive)
    return Plan((Delete(POD, seen.pod),) if seen.pod and not idle else (), verdict, reported)


def _status(backup: EtcdBackup, seen: Observed) -> Obj:
    """What is told before it is over."""
    found: Obj = {"phase": RUNNING if seen.alive else PENDING}
    if attempts := _tried(backup, seen):
        found["attempts"] = attempts
    began = ((seen.pod or {}).get("metadata") or {}).get("creationTimestamp") or backup.reported.get("startedAt")
    return found | ({"startedAt": began} if began else {})


def _times(came_to: Outcome, now: datetime) -> Obj:
    ended = came_to.finished or now
    found: Obj = {"completedAt": ended.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    if came_to.started is not None and came_to.finished is not None:
        found["durationSeconds"] = (came_to.finished - came_to.started).total_seconds()
    return found


def _keep(backup: EtcdBackup, cluster: EtcdCluster) -> int | None:
    """How many snapshots of the schedule this one leaves; None if no schedule asked for it, 0 for all of them."""
    labels = backup.obj["metadata"].get("labels") or {}
    if labels.get(SCHEDULED) != cluster.uid:
        return None
    wanted = cluster.spec.backup
    return wanted.retention if wanted and wanted.destination == backup.spec.destination else 0


def _for_people(size: int) -> str:
    for power, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f}{unit}"
    return str(size)
