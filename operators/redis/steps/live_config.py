"""Changes that need no restart: runtime settings, and the pods behind the client Service. Pure."""

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
    """Apply settings with CONFIG SET to each server that has not applied them."""
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
        CONFIGURING, f"{', '.join(names)} are applying settings without a restart.", *actions, requeue=GOSSIP_SECONDS
    )


def label_serving_pods(resource: RedisCluster, seen: Assessment, _now: datetime) -> Step:
    """Label the pods behind the client Service: members that own slots or are synced, except instances being removed.

    A replica that lags for a while keeps its label, because it still redirects clients to the right node.
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
