"""Changes that need no restart: runtime settings, and the pods behind the client Service. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from operators.redis.api.directives import present_name
from operators.redis.api.resource import refused_directives
from operators.redis.client.commands import ApplyDirective, SaveSnapshot
from operators.redis.client.errors import ConfigRefused
from operators.redis.facts.assessment import Assessment
from operators.redis.migration.big_keys import NODE_TIMEOUT
from operators.redis.objects import redis_conf
from operators.redis.objects.names import APPLIED_PERSISTENCE, CLIENTS, CONFIG_MARK, SERVES
from operators.redis.objects.pod import is_started_afresh
from operators.redis.objects.redis_conf import AWAITED_REPLICA, DELAYED_SYNC, PERSISTENCE
from operators.redis.reasons import CONFIG_REFUSED, CONFIGURING, LOG_INCOMPLETE, SNAPSHOT_FAILED
from operators.redis.state.instance import Instance, endpoint, understands
from operators.redis.steps.configuration import (
    claims,
    configured,
    keeps_persistence,
    live_settings,
    note_name,
    note_of,
    persistence_to_record,
    records,
    refusal_of,
    refused_by_servers,
    reports,
    started_with,
    stops_log,
    uses,
    without_snapshot,
)
from operators.redis.steps.old_snapshot import is_undecided, may_serve_replicas
from operators.redis.steps.rollout_markers import is_applied, mark_pod, marker
from operators.redis.steps.waiting import BLOCKED_SECONDS, GOSSIP_SECONDS, SYNC_SECONDS
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.runtime.plan import PASS, Action, Attempt, Patch, Step
from shared.status.verdict import Progress

OF_START = frozenset((*DELAYED_SYNC, *AWAITED_REPLICA))
"""Directives with which a process starts until it may serve replicas (`old_snapshot`)."""

REFUSED_SECONDS = 600.0
"""Time until a cluster with refused settings is observed again."""


def apply_config(seen: Assessment) -> Step:
    """Apply settings with CONFIG SET to each server that uses others, for any reason.

    A server of another series reads the settings of the spec when its pod is recreated. Only those of its start are
    replaced before: a server that keeps them serves no replica, and the rolling update waits for replicas.

    A value that a server refuses is sent again in the next hour, or when the value changes. The other settings are
    applied, and the following steps run.
    """
    if not seen.resource.formed or seen.config_map is None:  # the file comes first: a restarted server reads it
        return PASS
    settings = live_settings(seen)
    mark = configured(settings)
    appends = redis_conf.appends(seen.resource, seen.template_text)
    loads_snapshots = appends and (not seen.starts_with_log or records(seen, log=False))
    kept_for_others = PERSISTENCE if keeps_persistence(seen) else ("appendonly",) if stops_log(seen) else ()
    actions: list[Action] = []
    names = []
    for instance in seen.instances:
        if instance.report is None or instance.leaving:
            continue
        omitted = {
            *(() if may_serve_replicas(seen, instance) else OF_START),
            *(("appendonly",) if is_undecided(seen, instance.id) else ()),
            *(("save",) if loads_snapshots and settings.get("save") == "" else ()),
            *(kept_for_others if is_started_afresh(instance.pod_obj) else ()),
            *((NODE_TIMEOUT,) if _keeps_node_timeout(seen, instance, settings.get(NODE_TIMEOUT, "")) else ()),
        }
        of_start = [name for name in instance.report.settings if present_name(name) in OF_START]
        sent = settings if understands(seen.resource, instance) else of_start
        desired = {name: settings[name] for name in settings if name in sent and present_name(name) not in omitted}
        if due := _due(seen, instance, desired, mark):
            names.append(instance.name)
            actions += due
    if not actions:
        return _await_logs(seen) if seen.awaits_log else _save_snapshots(seen)
    message = f"{', '.join(names)} are applying settings without a restart."
    return Step(tuple(actions), Progress.PROGRESSING, CONFIGURING, message, requeue=GOSSIP_SECONDS)


def _await_logs(seen: Assessment) -> Step:
    """Wait for the first append-only file of each server, which counts once it is complete, and then for redis.conf."""
    missing = {each.name: it for each in seen.instances if each.recorded and (it := each.report) and not it.has_log}
    if not missing and started_with(seen) is not seen.resource:  # other nodes are away
        return PASS
    writing = [name for name, report in missing.items() if report.settings.get("appendonly") == "yes"]
    if failed := [name for name, report in missing.items() if report.rewrite_failed]:
        repeated = "repeated" if {*failed} <= {*writing} else "repeated within an hour"  # it refused CONFIG SET
        message = (
            f"{', '.join(failed)}: writing the first append-only file failed (aof_last_bgrewrite_status in INFO), and "
            f"is {repeated}. Until it is complete, snapshots stay on. Check the space on the volume, and the memory."
        )
        return Step.progressing(LOG_INCOMPLETE, message, warning=True, requeue=GOSSIP_SECONDS)
    message = f"Writing the first append-only file of {', '.join(writing)}. Until it is complete, snapshots stay on."
    if not writing:  # such as servers of another series, which switch it on once their pods are replaced
        message = f"{', '.join(missing)}: no append-only file yet. Until it is complete, snapshots stay on."
    if not missing:
        message = "All nodes have an append-only file. Until they start with it, snapshots stay on."
    return Step.progressing(CONFIGURING, message, requeue=GOSSIP_SECONDS)


def _save_snapshots(seen: Assessment) -> Step:
    """Let each server write a snapshot, replicas first, before it switches its log off: then redis.conf follows."""
    lacking = [each for each in without_snapshot(seen) if understands(seen.resource, each)]
    if not lacking:  # other nodes are away
        return PASS
    first = [each for each in lacking if each.report and each.report.me.primary] or lacking
    idle = [each for each in first if (it := each.report) and not (it.saves or it.save_failed or it.loading)]
    calls = (SaveSnapshot(seen.secrets.access, endpoint(seen.resource, each), each.id) for each in idle)
    if failed := ", ".join(each.name for each in lacking if each.report and each.report.save_failed):
        message = (
            f"{failed}: writing a snapshot failed (rdb_last_bgsave_status in INFO). Until each node has one, "
            "append-only files stay on. Check the space on the volume, and the memory, and run BGSAVE."
        )
        return Step.progressing(SNAPSHOT_FAILED, message, *calls, warning=True, requeue=BLOCKED_SECONDS)
    names = ", ".join(each.name for each in lacking)
    message = f"Writing a snapshot of {names}. Until each node has one, append-only files stay on."
    return Step.progressing(CONFIGURING, message, *calls, requeue=SYNC_SECONDS)


def record_persistence(seen: Assessment) -> Step:
    """Record on each volume claim which file servers start with: a resource that adopts the volumes begins with it."""
    if not seen.resource.formed or not (lines := persistence_to_record(seen)):
        return PASS
    change: Obj = {"metadata": {"annotations": {APPLIED_PERSISTENCE: lines}}}
    outdated = [claim for claim in claims(seen) if annotation(claim, APPLIED_PERSISTENCE) != lines]
    return Step.do(*(Patch(PERSISTENT_VOLUME_CLAIM, claim, change) for claim in outdated))


def _keeps_node_timeout(seen: Assessment, instance: Instance, desired: str) -> bool:
    """Return whether a longer node timeout must stay: an end of a recorded move does not answer.

    It may be blocked by a MIGRATE of a large key, for which an earlier process raised the timeout (big_keys.py). With
    the desired one, the other primaries would mark the source as failed, and a replica would take over meanwhile.
    """
    present = instance.report.settings.get(NODE_TIMEOUT, "") if instance.report else ""
    if not (present.isdecimal() and desired.isdecimal() and int(present) > int(desired)):
        return False
    return any(end not in seen.reachable for move in seen.recorded_moves for end in (move.source, move.target))


def _due(seen: Assessment, instance: Instance, settings: Mapping[str, str], mark: str) -> list[Action]:
    """Return the changes of the settings of one server."""
    resource = seen.resource
    assert instance.pod_obj is not None
    actions, needs_mark = list[Action](), False
    for name, value in settings.items():
        needs_mark |= reports(resource, instance, name, value) is None
        if uses(resource, instance, name, value, mark):
            continue
        attempt = f"{note_of(value)} at {seen.now:%Y-%m-%dT%HZ}"
        if refusal_of(instance, name, value).startswith(attempt):
            continue
        call = ApplyDirective(
            seen.secrets.access, endpoint(resource, instance), instance.id, name, value, resource.engine
        )
        actions.append(Attempt(call, ConfigRefused, POD, instance.pod_obj, (note_name(name), attempt)))
    if needs_mark and not is_applied(instance, CONFIG_MARK, mark):  # every such directive was sent, now or earlier
        actions.append(mark_pod(instance, CONFIG_MARK, marker(instance, mark)))
    return actions


def report_refused_config(seen: Assessment) -> Step:
    """Report settings that the version of the spec, or a server, refuses; nodes keep the former values."""
    resource = seen.resource
    problems = [f"{name} {why}" for name, why in refused_directives(resource).items()]
    problems += [f"{name}: {words}" for name, words in refused_by_servers(seen).items()]
    if not problems:
        return PASS
    at = f" or in ConfigMap {resource.config_template}" if resource.config_template else ""
    return Step.progressing(
        CONFIG_REFUSED,
        f"Nodes keep the former values of refused settings: {'; '.join(each.rstrip('.') for each in problems)}. "
        f"Correct or remove them in spec.config{at}.",
        warning=True,
        requeue=REFUSED_SECONDS,
    )


def label_serving_pods(seen: Assessment) -> Step:
    """Label the pods behind the client Service: members that own slots, will own some, or are synced.

    Evictions count only such pods. So an instance that is removed keeps its label until no slot has to move: a rolling
    update comes before that. A replica that lags for a while keeps it too, because it still redirects clients to the
    right node. While the nodes disagree about owners, no label changes; but a new node never learns the slots of a
    lost primary, and an empty node that answers alone agrees with all that answer.
    """
    agreement = seen.agreement.without(primary.id for primary in seen.lost_primaries)
    if not seen.resource.formed or not seen.view.owned or agreement.settled:
        return PASS
    actions: list[Action] = []
    moved = not set(seen.view.owned) - set(seen.primaries)
    for instance in seen.instances:
        if instance.pod is None or instance.pod_obj is None or instance.report is None or instance.leaving:
            continue
        node, labels = seen.view.nodes[instance.id], instance.pod_obj["metadata"].get("labels") or {}
        stays, admitted = instance.number < seen.resource.spec.replicas, labels.get(SERVES) == CLIENTS
        owns = bool(seen.view.slots_of(node.id))
        serves = node.id in seen.view.cluster and (owns or node.synced or node.id in seen.primaries)
        change: Obj = {"metadata": {"labels": {SERVES: CLIENTS if stays else None}}}
        if (serves and not admitted) if stays else (moved and not owns and admitted):
            actions.append(Patch(POD, instance.pod_obj, change))
    return Step.do(*actions)
