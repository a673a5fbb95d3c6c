"""Status of an EtcdBackup: while it runs, when it is complete, and when all attempts failed. Pure."""

from __future__ import annotations

from operators.etcd.api.backup import COMPLETE, FAILED, PENDING, RUNNING, EtcdBackup
from operators.etcd.backup import locations
from operators.etcd.backup.assessment import Assessment
from operators.etcd.backup.observe import Observed
from operators.etcd.backup.outcome import Outcome, removal
from operators.etcd.reasons import NOT_CURRENT
from shared.kubernetes import accessors
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan
from shared.status import conditions
from shared.status.verdict import Progress, Verdict

NO_PROOF = (
    "{} did not confirm by a linearizable read that it had all changes: any that only other members have are missing."
)

RETRIES = "The operator retries."
"""End of a message about something that the operator waits for; it is not true of one that ended."""


def status(seen: Assessment) -> Obj:
    """Return the status of an EtcdBackup that is not finished."""
    found: Obj = {"phase": RUNNING if seen.observed.alive else PENDING}
    if seen.attempts:
        found["attempts"] = seen.attempts
    return found | ({"startedAt": rfc3339(seen.started)} if seen.started else {})


def finished(seen: Assessment) -> Plan | None:
    """Return the plan of a finished EtcdBackup; None while an attempt runs or is left."""
    if seen.resource.over:
        return _at_rest(seen.resource, seen.observed)
    if seen.outcome is not None and seen.outcome.succeeded:
        return _complete(seen, seen.outcome)
    if seen.outcome is not None and seen.gives_up:
        return _given_up(seen, seen.outcome)
    return None


def _complete(seen: Assessment, outcome: Outcome) -> Plan:
    result, store = outcome.result, locations.store_of(seen.resource.spec.destination)
    location = locations.location(store, str(result["file"])) if store else ""
    size, is_current = int(result["size"]), result.get("current", True) is True  # an earlier version does not report it
    found = status(seen) | {
        "phase": COMPLETE,
        "location": location,
        "file": result["file"],
        "member": result["member"],
        "revision": result["revision"],
        "sizeBytes": size,
        "size": _human_readable(size),
        "sha256": result["sha256"],
        **({"current": is_current} if "current" in result else {}),
        **({"etcdVersion": result["version"]} if result["version"] else {}),
        **_times(seen, outcome),
    }
    caution = seen.observed.message.partition(f"from {result['member']}. ")[2]  # as the attempt reported it
    stale = "" if is_current else NO_PROOF.format(result["member"])
    warning = " ".join(filter(None, (stale, caution, result.get("warning"))))
    message = f"Snapshot of revision {result['revision']} ({_human_readable(size)}) stored as {location}. {warning}"
    reason = COMPLETE if is_current else NOT_CURRENT
    verdict = Verdict(Progress.DONE, reason, message.strip(), warning=bool(warning))
    return Plan((), verdict, found, requeue=0, is_final=True)  # the pod is deleted next


def _given_up(seen: Assessment, outcome: Outcome) -> Plan:
    message = f"{outcome.message} All {seen.attempts} attempts failed. Fix the cause, then create another EtcdBackup."
    found = status(seen) | {"phase": FAILED, **_times(seen, outcome)}
    return Plan((), Verdict(Progress.BLOCKED, outcome.reason, message, warning=True), found, requeue=0, is_final=True)


def expired(seen: Assessment, waits: Verdict) -> Plan:
    """Return the plan of a scheduled EtcdBackup that still waits when the next one is due.

    Args:
        waits: verdict about what it waits for; about a pod that the API server refuses, the status has the refusal.
    """
    last = accessors.condition(seen.resource.obj, conditions.READY) if waits.reason == RUNNING else {}
    reason, message = last.get("reason") or waits.reason, str(last.get("message") or waits.message)
    message = f"{message.removesuffix(RETRIES).rstrip()} No snapshot was taken before the next one was due."
    found = status(seen) | {"phase": FAILED, "completedAt": rfc3339(seen.now)}
    return Plan((), Verdict(Progress.BLOCKED, reason, message, warning=True), found, requeue=0, is_final=True)


def _at_rest(backup: EtcdBackup, observed: Observed) -> Plan:
    """Keep the status; delete the pod, but keep that of a failed attempt for its log, unless it could still run."""
    before = accessors.condition(backup.obj, conditions.READY)
    reported = {k: v for k, v in backup.reported.items() if k not in ("conditions", "observedGeneration")}
    is_complete = backup.phase == COMPLETE
    progress = Progress.DONE if is_complete else Progress.BLOCKED
    verdict = Verdict(progress, before.get("reason") or backup.phase, before.get("message") or "", not is_complete)
    ends = removal(observed.pod) if is_complete or observed.alive else ()
    return Plan((ends,) if ends else (), verdict, reported, is_final=True)


def _times(seen: Assessment, outcome: Outcome) -> Obj:
    found: Obj = {"completedAt": rfc3339(seen.ended)}
    return found if outcome.seconds is None else found | {"durationSeconds": outcome.seconds}


def _human_readable(size: int) -> str:
    for power, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size >= 1 << power:
            return f"{size / (1 << power):.1f}{unit}"
    return str(size)
