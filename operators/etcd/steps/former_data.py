"""The data that a recovery did not use: kept until a user releases it with spec.recovery.release. Pure.

That is the volumes of other survivors, and the former data directory next to the new one on the survivor's volume. Both
have log entries that no remaining member had applied, and which may have been acknowledged.
"""

from __future__ import annotations

from operators.etcd.backup.outcome import ended_for, outcome, removal
from operators.etcd.backup.pods import TOKEN, cleaning_pod, cleaning_pod_name, started
from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects.names import SET_ASIDE
from operators.etcd.reasons import FORMER_DATA_KEPT, RELEASING_DATA
from operators.etcd.state.observed import Instance, Observed
from operators.etcd.state.recovery_marks import tokens, without
from operators.etcd.steps.guards import stray
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import POD
from shared.kubernetes.pods import Pod
from shared.runtime.plan import PASS, Apply, Step
from shared.status.reasons import FOREIGN_OBJECT
from shared.status.verdict import Progress

POLL_SECONDS = 30.0
"""Interval at which the pod that deletes former data is checked, and after which a failed one is replaced."""


def report_kept_volumes(seen: Assessment) -> Step:
    """Report volumes that a recovery kept, and on which no member may start."""
    kept = {}
    for number in seen.kept_numbers:
        instance = seen.instance(number)
        if instance is not None:
            kept[instance.name] = next(iter(_set_aside(instance)), instance.kept_by)  # the earlier one first
    if not kept:
        return PASS
    token = min(kept.values())
    names = ", ".join(name for name, by in kept.items() if by == token)
    led = ", ".join(each.name for each in seen.instances if each.name in kept and each.status and each.status.leader)
    again = f"{led} have a leader again: their data may be newer. " if led else ""
    message = (
        f"{names}: the volumes are kept since recovery {token}, with data of the former cluster that the recovery "
        f"did not use. {again}These members are not replaced before the release. If you do not need that data, "
        f"set spec.recovery.release to {token}: it is deleted."
    )
    return Step.progressing(FORMER_DATA_KEPT, message, warning=True)


def delete_former_data(seen: Assessment) -> Step:
    """Delete the former data directory of a released recovery, next to the data of a running member.

    On a volume that a later recovery keeps, it is deleted together with the volume.
    """
    resource = seen.resource
    pod, token = seen.job_pods.get(cleaning_pod_name(resource)), resource.released_recovery
    volumes = [each.volume for each in seen.instances if each.volume and each.kept_by and token in _set_aside(each)]
    if unmarked := [patch for volume in volumes if (patch := without(volume, SET_ASIDE, token))]:
        return Step.do(*unmarked)
    instance = next((each for each in seen.healthy_voters if token in _set_aside(each)), None)
    if instance is None or instance.volume is None:
        return Step.do(*removal(pod))
    message = f"Recovery {token} is released: deleting its former data on the volume of {instance.name}."
    if (other := seen.stray_pods.get(cleaning_pod_name(resource))) is not None:
        kept = stray(other, f"The former data of recovery {token} stays until you delete that pod.")
        return Step.progressing(FOREIGN_OBJECT, kept, warning=True, requeue=POLL_SECONDS)
    if pod is None:
        # A stale plan could delete data that is no longer released.
        node = str(((instance.pod_obj or {}).get("spec") or {}).get("nodeName") or "")
        made = started(cleaning_pod(seen.settings, resource, instance.number, node, token), seen.now)
        return Step((Apply(POD, made, unchanged=True),), Progress.PROGRESSING, RELEASING_DATA, message)
    result = outcome(pod)
    if annotation(pod, TOKEN) != token or (result is not None and not result.succeeded):
        message += f" {result.message}" if result is not None else ""
        deletion = removal(pod) if result is None or ended_for(pod, seen.now) >= POLL_SECONDS else ()
        return Step.progressing(RELEASING_DATA, message, *deletion, warning=True, requeue=POLL_SECONDS)
    if result is None:
        problem = Pod.of(pod).hindrance
        message += f" Pod {cleaning_pod_name(resource)} {problem}." if problem else ""
        return Step.progressing(RELEASING_DATA, message, warning=bool(problem), requeue=POLL_SECONDS)
    unmark = without(instance.volume, SET_ASIDE, token)
    return Step.do(*([unmark] if unmark else ()), *removal(pod))


def size_note(seen: Observed) -> str:
    """Return the volumes with former data that is not released, as a sentence; empty if there are none."""
    kept = [f"{each.name} (recovery {token})" for each in seen.instances for token in _set_aside(each)]
    if not kept:
        return ""
    return f"Former data uses space on the volume of {', '.join(kept)} until spec.recovery.release has that token."


def _set_aside(instance: Instance) -> tuple[str, ...]:
    """Return the tokens of recoveries whose former data is on the volume of an instance."""
    return tokens(instance.volume, SET_ASIDE)
