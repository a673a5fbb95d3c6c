"""Keeps nodes without persistence from resuming as empty primaries. Pure.

A container that is restarted keeps its volume and its address. With its nodes.conf, the server resumes as the primary
that it was, but without its keys. Its replicas copy that empty data set before anyone elects one of them.

So the next process must not read that file. It is named after the UID of the pod and after the process that ran before
(annotation LAST_RUN of the pod, which the kubelet passes to each start of the container). The operator sets the
annotation before the node becomes a member: so no member can resume, even if the operator does not run at that time.
The returning node has a new id, which proves that the former node lost its data (`Observed.lost`): a replica takes
over (`failover.replace_failed`), and the node joins again as an empty one.

A new id is not enough: the replicas connect to the address of their primary, whichever node is there, and would copy
its empty data set within seconds. So each process starts with settings that keep them waiting
(`redis_conf.DELAYED_SYNC`). The operator applies the desired ones once the node is a member and the former one is
forgotten (`live_config`).

The files of the time before stay on the volumes: nodes that the cluster has forgotten, their addresses, and their keys.
So when persistence is switched on again, the names of nodes.conf and of the snapshot get another number.
"""

from __future__ import annotations

from operators.redis.facts.assessment import Assessment
from operators.redis.objects.names import CONTAINER, FILES, LAST_RUN
from operators.redis.objects.pod import is_started_afresh
from operators.redis.objects.redis_conf import number_in
from operators.redis.reasons import PREPARING_RESTART
from operators.redis.state.instance import Instance
from operators.redis.steps.rollout_markers import mark_pod
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import container_of
from shared.runtime.plan import PASS, Step

MAX_RECORDED = 999_999
"""Greatest number of files that a claim may record, which any client may write: the template counts on from it."""


def prepare_restarts(seen: Assessment) -> Step:
    """Record the running process of each node without persistence, so that the next process gets another identity."""
    unprepared = [instance for instance in seen.instances if _resumes(instance)]
    if not unprepared:
        return PASS
    names = ", ".join(instance.name for instance in unprepared)
    marks = (mark_pod(instance, LAST_RUN, instance.report.run_id) for instance in unprepared if instance.report)
    message = f"Recording the process of {names}: without persistence, the next process must not resume as this node."
    return Step.wait(PREPARING_RESTART, message, *marks, requeue=0)


def _resumes(instance: Instance) -> bool:
    """Return whether the next process of a node would have the id of the running one."""
    if instance.report is None or instance.pod_obj is None or instance.leaving:
        return False
    return is_started_afresh(instance.pod_obj) and annotation(instance.pod_obj, LAST_RUN) != instance.report.run_id


def files_number(seen: Assessment, *, afresh: bool) -> int:
    """Return the number of the files of the next pods; of those without persistence, which start with none, the last.

    The command lines of pods that use their files are the record, or else the pod template, which clients may change.
    Volume claims and the ConfigMap, which outlive pods and StatefulSet, have the number that follows.
    """
    pods = [each.pod_obj for each in seen.instances if each.pod_obj]
    used = [_used(each) for each in pods if not is_started_afresh(each)]
    made = seen.stateful_set
    number = max(used or map(_number, [made["spec"]["template"]] if made else pods), default=0)
    if afresh or used or (made and not seen.starts_afresh):
        return number
    recorded = (seen.config_map, *(each.volume for each in seen.instances))
    return max(number + bool(pods), *(min(_number(each), MAX_RECORDED) for each in recorded))


def is_switching_off(seen: Assessment) -> bool:
    """Return whether only some pods start with their files: no number fits the data of all, until none of them does."""
    using = [each for each in seen.instances if each.pod_obj and not is_started_afresh(each.pod_obj)]
    begun = seen.starts_afresh if seen.stateful_set else any(is_started_afresh(each.pod_obj) for each in seen.instances)
    return begun and bool(using) and sum(not each.leaving for each in using) < len(seen.instances)


def _used(pod: Obj) -> int:
    words = [each for each in container_of(pod, CONTAINER).get("args") or () if each.startswith("nodes-")]
    return number_in(words[0].removesuffix(".conf").partition(".")[2]) if words else 0


def _number(obj: Obj | None) -> int:
    return number_in(annotation(obj, FILES))
