"""Settings that a hibernating RedisCluster keeps, and the order in which its nodes stop. Pure.

While a replica runs, Valkey 9 lets it take over from a primary that gets SIGTERM, and other engines may elect it. So
the pods of all replicas are deleted first. The StatefulSet has no replicas before it could create them again, unless
the deletions take seconds: then a replica that has returned may take over, in sync, and keeps that role.
Both is one chain of actions: no stage can be paused, and no time of another machine counts. If the operator ends in
between, the replicas return as those of any deleted pod.
"""

from __future__ import annotations

from dataclasses import replace

from operators.redis.client.commands import Pause
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import redis_conf
from operators.redis.objects.pod import starts_afresh, stop_delay
from operators.redis.topology.view_conflicts import brief
from shared.kubernetes.kinds import POD
from shared.runtime.plan import Action, Delete
from shared.status.messages import grouped
from shared.steps import hibernation

MIN_HEAD_START_SECONDS, MAX_HEAD_START_SECONDS = 0.5, 2.0
"""Bounds of the time between the deletions of replicas and of primaries: half of what their preStop hooks sleep."""


def hold(seen: Assessment) -> Assessment:
    """Return the view with the size and the persistence with which the nodes stopped, until all are back.

    A node that starts with a new append-only file ignores its snapshot, and one without persistence is a new node.
    """
    stopped: Assessment = hibernation.hold(seen)
    keeps = stopped is not seen or _would_begin_empty(stopped)
    kept = {name: redis_conf.joined(lines) for name, lines in seen.persistence.items() if keeps}
    if not kept or kept.items() <= redis_conf.live(stopped.resource, stopped.template_text).items():
        return stopped
    return replace(stopped, resource=stopped.resource.changed_to({"config": stopped.resource.spec.config | kept}))


def _would_begin_empty(seen: Assessment) -> bool:
    """Whether the template would begin to ignore the data on volumes while a node is away, which has it there.

    Its pod may be created from this template at any time. Once all nodes were there, the rolling update has begun.
    """
    if not seen.resource.formed or seen.starts_afresh or not starts_afresh(seen.resource, seen.template_text):
        return False
    return any(each.recorded is not None and each.report is None for each in seen.instances)


def why_running(seen: Assessment) -> str:
    """Return why the pods must not stop although everything matches the spec; empty if they may."""
    if ends := {each.name: f"would lose keys ({why})" for each in seen.instances if (why := seen.why_keys_end(each))}:
        return " ".join(grouped(ends, seen.resource.spec.replicas))
    return f"another client is moving {brief(seen.view.open)}." if seen.view.open else ""


def stop_replicas(seen: Assessment) -> tuple[Action, ...]:
    """Return the actions by which the servers of replicas get SIGTERM before those of primaries."""
    replicas = [seen.reachable[node.id] for node in seen.view.reachable_nodes if node.is_replica]
    pods = [each.pod_obj for each in replicas if each.pod_obj]
    if not pods:
        return ()
    seconds = min(MAX_HEAD_START_SECONDS, max(MIN_HEAD_START_SECONDS, min(map(stop_delay, pods)) / 2))
    pause = Pause(seen.secrets.access, seconds, "so that replicas stop before primaries")
    return (*(Delete(POD, each) for each in pods), pause)
