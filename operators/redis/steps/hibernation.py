"""Settings that a hibernating RedisCluster keeps, and the order in which its nodes stop. Pure.

While a replica runs, Valkey 9 lets it take over from a primary that gets SIGTERM, and other engines may elect it. So
the pods of all replicas are deleted first. The StatefulSet has no replicas before it could create them again.
"""

from __future__ import annotations

from dataclasses import replace

from operators.redis.api.node_entries import REPLICA_ROLE
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import redis_conf
from operators.redis.objects.pod import stop_delay
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.instance import Instance
from operators.redis.steps.configuration import template_text
from operators.redis.topology.view_conflicts import brief
from shared.kubernetes.pods import deleted_for
from shared.steps import hibernation


def hold(seen: Assessment) -> Assessment:
    """Return the view with the size and the persistence with which the nodes stopped, until all are back.

    A node that starts with a new append-only file ignores its snapshot, and one without persistence is a new node.
    """
    stopped: Assessment = hibernation.hold(seen)
    kept = {name: redis_conf.joined(lines) for name, lines in seen.persistence.items() if stopped is not seen}
    if not kept or kept.items() <= redis_conf.live(stopped.resource, template_text(stopped)).items():
        return stopped
    return replace(stopped, resource=stopped.resource.changed_to({"config": stopped.resource.spec.config | kept}))


def why_running(seen: Assessment) -> str:
    """Return why the pods must not stop although everything matches the spec; empty if they may."""
    given = seen.resource, template_text(seen)
    nosave = "nosave" in redis_conf.live(*given).get("shutdown-on-sigterm", "").lower()
    if not redis_conf.persists(*given) or (nosave and not redis_conf.appends(*given)):
        return 'with appendonly "no", and save "" or shutdown-on-sigterm "nosave", writes would end with the pods.'
    if failed := [each.name for each in seen.instances if each.report and each.report.unsaved]:
        return f"{', '.join(failed)} could not write the last snapshot. Check the space on the volume, and run BGSAVE."
    slots = Slots.of(*(each.slot for each in seen.view.open))
    return f"another client is moving {brief(slots)}." if slots else ""


def replicas_to_stop(seen: Assessment) -> list[Instance]:
    """Return the replicas whose servers would not get SIGTERM two seconds before those of pods that are deleted now."""
    found = [each for each in seen.instances if each.recorded and each.recorded.role == REPLICA_ROLE]
    pods = [(each, each.pod_obj, deleted_for(each.pod_obj, seen.now)) for each in found if each.pod_obj]
    return [each for each, pod, since in pods if since is None or since < min(2, stop_delay(pod) - 3)]
