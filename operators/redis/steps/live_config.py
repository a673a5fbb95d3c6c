"""What changes without a restart: settings that nodes take while they run, and whom clients are sent to. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.client.commands import Configure
from operators.redis.instance import endpoint
from operators.redis.objects import redis_conf
from operators.redis.objects.names import CLIENTS, CONFIG_MARK, SERVES
from operators.redis.reasons import CONFIGURING
from operators.redis.steps.configuration import configured, template_text, understands
from operators.redis.steps.rollout_markers import is_applied, mark_pod, marker
from operators.redis.steps.waiting import GOSSIP_SECONDS
from shared.kubernetes.kinds import POD, Obj
from shared.runtime.plan import PASS, Action, Patch, Step


def apply_config(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Settings that servers take while they run are told to each that has not heard of them."""
    if not resource.formed:
        return PASS
    settings, mark = redis_conf.live(resource, template_text(resource, seen)), configured(resource, seen)
    actions: list[Action] = []
    names = []
    for instance in seen.staying:
        if not understands(resource, instance) or is_applied(instance, CONFIG_MARK, mark):
            continue
        names.append(instance.name)
        actions.append(Configure(seen.secrets.access, endpoint(resource, instance), instance.id, settings))
        actions.append(mark_pod(instance, CONFIG_MARK, marker(instance, mark)))
    if not actions:
        return PASS
    return Step.wait(
        CONFIGURING, f"{', '.join(names)} take settings without a restart.", *actions, requeue=GOSSIP_SECONDS
    )


def label_serving_pods(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Clients are sent to members that have what their role asks for, once there is a cluster; not to who is let go.

    Whoever lags for a while stays among them: it sends clients on to the right node all the same.
    """
    if not resource.formed:
        return PASS
    actions: list[Action] = []
    for instance in seen.instances:
        if instance.pod is None or instance.pod_obj is None or instance.report is None or instance.leaving:
            continue
        node, labels = seen.view.nodes[instance.id], instance.pod_obj["metadata"].get("labels") or {}
        stays, admitted = instance.number < resource.spec.replicas, labels.get(SERVES) == CLIENTS
        serves = node.id in seen.view.cluster and (bool(seen.view.slots_of(node.id)) or node.synced)
        change: Obj = {"metadata": {"labels": {SERVES: CLIENTS if stays else None}}}
        if (stays and serves and not admitted) or (not stays and admitted and not seen.view.slots_of(node.id)):
            actions.append(Patch(POD, instance.pod_obj, change))
    return Step.do(*actions)
