"""Steps that apply redis.conf, which is built from the spec and the user's template. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from operators.redis.api.directives import same
from operators.redis.api.resource import RedisCluster, refused_directives
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import config_map, names, redis_conf
from operators.redis.objects.config_map import TEMPLATE_KEY
from operators.redis.objects.names import CONFIG_MARK, CONTAINER, FILES, READ_ONCE
from operators.redis.objects.pod import is_started_afresh, is_started_waiting, starts_afresh, starts_waiting
from operators.redis.objects.redis_conf import CONFIG_KEY, WITHDRAWN
from operators.redis.state.instance import Instance, understands
from operators.redis.state.observed import Observed
from operators.redis.steps.fresh_identity import files_number
from operators.redis.steps.rolling_update import permitted
from operators.redis.steps.rollout_markers import is_applied
from shared.kubernetes import managed_fields
from shared.kubernetes.accessors import annotation, is_terminating
from shared.kubernetes.kinds import CONFIG_MAP, Obj
from shared.kubernetes.pods import container_status
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS
from shared.runtime.plan import PASS, Apply, Step
from shared.steps import provisioning

REFUSED = "redis.middleware.hc.cn/refused."
"""Prefix of the annotations of pods that record refused settings."""

SNAPSHOT_SECONDS = 3600.0
"""Greatest age of a snapshot that replaces an append-only file: that of the default save points."""


def require_config(seen: Assessment) -> Step:
    """Require the ConfigMap that the spec names; an existing cluster continues with its last valid version."""
    problem = seen.config_problem
    if problem is None:
        return PASS
    if seen.config_map is None:
        return provisioning.report_unusable_secret(problem)
    message = f"{problem.message} Nodes keep its last valid version."
    return Step.progressing(problem.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)


def live_settings(seen: Assessment) -> Mapping[str, str]:
    """Return the settings that running servers should have."""
    text, kept, started = seen.template_text, _kept(seen), started_with(seen)
    desired = redis_conf.live(seen.resource, text, kept)
    if started is seen.resource:  # servers switch their log off after the file, with which they start
        return {**desired, "appendonly": "yes"} if stops_log(seen) else desired
    persistence = {name: desired[name] for name in redis_conf.PERSISTENCE}
    return {**redis_conf.live(started, text, kept), **persistence}


def started_with(seen: Assessment) -> RedisCluster:
    """Return the resource with the persistence with which servers may start: without a log until all have one.

    A server that starts with an append-only file loads no snapshot. So the file stays as it is until each node, also
    one that is away, has reported a complete log (`NodeReport.has_log`).
    """
    has_log = (each.report is not None and each.report.has_log for each in may_have_data(seen))
    return seen.resource if all(has_log) else as_started(seen)


def may_have_data(seen: Assessment) -> Iterator[Instance]:
    """Yield the instances that may have data, whether the status records their nodes or has lost the records."""
    return (each for each in seen.instances if each.recorded or each.pod_obj or each.volume)


def as_started(seen: Assessment) -> RedisCluster:
    """Return the resource with the persistence of pods: without a log until the applied file has it.

    Until then, a server loads its snapshot, and must keep replicas waiting that may have newer keys (`old_snapshot`).
    """
    if not seen.awaits_log:
        return seen.resource
    former = {name: redis_conf.joined(lines) for name, lines in seen.persistence.items()}
    return seen.resource.changed_to({"config": seen.resource.spec.config | former})


def _kept(seen: Assessment) -> redis_conf.Kept:
    """Return the directives whose desired value must not be used yet: refused ones, and known ones of persistence.

    Of an unknown persistence, the spec is the best that is known; a default could be a log, which hides snapshots.
    """
    kept, known = redis_conf.kept_values(seen.resource, seen.applied_config), seen.persistence
    refused = {name: known.get(name, []) for name in redis_conf.PERSISTENCE if name in kept}
    return {**kept, **refused, **(known if keeps_persistence(seen) else {})}


def keeps_persistence(seen: Assessment) -> bool:
    """Return whether persistence must not be switched off yet, as the spec requests.

    A server without persistence must start as a new node (`fresh_identity`), and one without an append-only file must
    keep its replicas waiting (`old_snapshot`): matters of its pod. Until all pods do that, a container that restarts
    resumes as the node that it was, and needs its data. So does a node that is away, until no member knows it. Then
    snapshots replace the append-only files.
    """
    refused = stops_log(seen) and "save" in refused_directives(seen.resource)  # the present value may be nothing
    return refused or _awaits_pods(seen) or bool(without_snapshot(seen))


def _awaits_pods(seen: Assessment) -> bool:
    text = seen.template_text
    if not starts_waiting(seen.resource, text):
        return False
    is_ready = is_started_afresh if starts_afresh(seen.resource, text) else is_started_waiting
    return any(
        (each.pod_obj is not None and not is_ready(each.pod_obj))
        or (each.recorded is not None and each.id != each.recorded.node_id)
        for each in seen.instances
    )


def stops_log(seen: Assessment) -> bool:
    """Return whether servers still start with an append-only file, which the spec switches off."""
    return seen.starts_with_log and not redis_conf.appends(seen.resource, seen.template_text)


def without_snapshot(seen: Assessment) -> Sequence[Instance]:
    """Return the instances that have their data in an append-only file alone, which snapshots are to replace.

    By default, a server with a log writes no snapshots, and would load an old one, or none.
    """
    if not stops_log(seen) or not redis_conf.persists(seen.resource, seen.template_text) or _awaits_pods(seen):
        return ()
    return [
        each
        for each in may_have_data(seen)
        if each.report is None or not understands(seen.resource, each) or each.report.snapshot_age > SNAPSHOT_SECONDS
    ]


def configured(settings: Mapping[str, str]) -> str:
    """Return the marker of servers to which all these runtime settings were sent."""
    return _digest(json.dumps(sorted(settings.items())))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def config_marks(seen: Assessment) -> tuple[str, str, str]:
    """Return the digest of the settings that need a restart, the marker of the runtime settings, and the persistence.

    The runtime settings are those that new servers read from the file and that running ones have applied.
    """
    content, annotations = _configuration(seen)
    return annotations[READ_ONCE], annotations[CONFIG_MARK], config_map.persistence(content)


def persistence_to_record(seen: Assessment) -> str:
    """Return the lines of persistence for the volume claims: that of redis.conf, but without a log before redis.conf.

    So servers write what the record of their claim has, whenever the resource is deleted (`_configuration`).
    """
    next_lines = config_map.persistence(_configuration(permitted(seen), awaits_record=False)[0])
    return seen.persistence_lines if _has_log(next_lines) else next_lines


def records(seen: Assessment, *, log: bool) -> bool:
    """Return whether a volume claim records a persistence with an append-only file, or one without."""
    return any(_has_log(lines) == log for lines in {*map(config_map.recorded, claims(seen))} - {""})


def claims(seen: Assessment) -> Sequence[Obj]:
    """Return the volume claims whose data another resource could adopt."""
    return [each.volume for each in seen.instances if each.volume and not is_terminating(each.volume)]


def _has_log(lines: str) -> bool:  # compares text: each claim may record other lines, and parsing takes a millisecond
    return "\nappendonly no\n" not in f"\n{lines}\n".lower()


def ensure_config_map(seen: Assessment) -> Step:
    """Apply the ConfigMap with redis.conf; while a version is refused, for the version that nodes run."""
    content, annotations = _configuration(permitted(seen))
    made = config_map.config_map(seen.resource, names.owner(seen.resource, seen.settings.operator), content)
    number = files_number(seen, afresh=False)
    made["metadata"]["annotations"] = {**annotations, **({FILES: str(number)} if number else {})}
    return Step.do(Apply(CONFIG_MAP, made))


def _configuration(seen: Assessment, *, awaits_record: bool = True) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the content of the ConfigMap, and its annotations, which the pod template copies.

    Runtime settings are written once the running servers accepted them: a setting that they refuse would prevent the
    next restarted node from starting.

    Args:
        awaits_record: whether servers write both files until the volume claims record which one they start with.
    """
    resource, text, before = started_with(seen), seen.template_text, seen.config_map
    unaccepted, applied = _unaccepted(seen), seen.applied_config
    refused = refused_by_servers(seen) if unaccepted else {}
    if applied is not None and READ_ONCE in _annotations(applied) and unaccepted - refused.keys():
        own = {key: text for key, text in applied["data"].items() if managed_fields.is_applied(applied, "data", key)}
        return own, {name: value for name, value in _annotations(applied).items() if name in _CONFIG_ANNOTATIONS}
    present = redis_conf.present(applied) if refused else {}
    kept = {**_kept(seen), **{name: present.get(name, []) for name in refused}}
    kept |= seen.persistence if unaccepted & seen.persistence.keys() else {}  # one without the other may be nothing
    if awaits_record and records(seen, log=not (appends := redis_conf.appends(resource, text))):
        kept |= {name: lines for name, lines in seen.persistence.items() if name == "save" or not appends}
    content = {CONFIG_KEY: redis_conf.render(resource, text, kept)} | ({TEMPLATE_KEY: text} if text else {})
    mark = configured(redis_conf.live(resource, text, kept))  # of this file: new servers lack what is refused
    times = redis_conf.withdrawn(resource, text, before, kept, unread=_unread(seen), times=_recorded_times(seen))
    annotations = {CONFIG_MARK: mark, READ_ONCE: redis_conf.digest(resource, text, kept, times)}
    return content, annotations | ({WITHDRAWN: str(times)} if times else {})


def _unread(seen: Assessment) -> frozenset[str]:
    """Return the directives of the present file that no server has applied: each reports another value.

    Another client changed the file, which is restored, and no server started since.
    """
    processes = [instance for instance in seen.instances if instance.pod_obj is not None]
    if not processes or any(instance.report is None for instance in processes):
        return frozenset()
    present = redis_conf.present(seen.config_map)
    return frozenset(
        name
        for name, lines in present.items()
        if all(reports(seen.resource, instance, name, redis_conf.joined(lines)) is False for instance in processes)
    )


def _recorded_times(seen: Observed) -> int:
    template = seen.stateful_set["spec"]["template"] if seen.stateful_set else {"metadata": {}}
    return redis_conf.number_in(annotation(template, READ_ONCE).partition(".")[2])


def _unaccepted(seen: Assessment) -> set[str]:
    """Return the runtime settings that differ from the present file, and that servers have not accepted yet.

    While no server is reachable, the file stays as it is, unless it may be the reason: then servers end repeatedly.
    """
    resource = seen.resource
    if not resource.formed:
        return set()
    present, desired = redis_conf.present(seen.applied_config), live_settings(seen)
    # All persistence stays in the file until all have a log; servers stop their snapshots after that file.
    stays = ("save",) if started_with(seen) is resource else redis_conf.PERSISTENCE
    kept = stays if seen.awaits_log else ()
    changed = {
        name: value
        for name, value in desired.items()
        if name not in kept and (name not in present or redis_conf.joined(present[name]) != value)
    }
    if not changed:
        return set()
    staying = [instance for instance in seen.instances if instance.number < resource.spec.replicas]
    supporting = [instance for instance in staying if understands(resource, instance)]
    of_others = any(instance.report for instance in staying) or any(map(_ends_repeatedly, staying))
    if not supporting and of_others:
        return changed.keys() & refused_by_servers(seen).keys()
    mark = configured(desired)
    return {
        name
        for name, value in changed.items()
        if not supporting or not all(uses(resource, instance, name, value, mark) for instance in supporting)
    }


def _ends_repeatedly(instance: Instance) -> bool:
    restarts = container_status(instance.pod_obj, CONTAINER).get("restartCount") or 0
    return instance.pod is not None and not instance.runs and restarts > 0


def uses(resource: RedisCluster, instance: Instance, name: str, value: str, mark: str) -> bool:
    """Return whether a server uses a setting, according to its report.

    Of a directive that the table does not know, the server may report another form of the value: then it counts that
    the operator has sent the settings of `mark` to this process.
    """
    found = reports(resource, instance, name, value)
    if found is None:
        return is_applied(instance, CONFIG_MARK, mark) and not refusal_of(instance, name, value)
    return found


def reports(resource: RedisCluster, instance: Instance, name: str, value: str) -> bool | None:
    """Return whether a server reports a setting; None if it is not known."""
    assert instance.report is not None
    actual = instance.report.settings.get(name)
    return same(name, value, actual, resource.engine) if actual is not None else None


def note_name(name: str) -> str:
    """Return the annotation of pods that records that the server refused a value of a directive."""
    return f"{REFUSED}{name[:40].rstrip('-_.')}"


def note_of(value: str) -> str:
    """Return the beginning of the note about a refused value: its digest, because values may be secret."""
    return _digest(value)


def refusal_of(instance: Instance, name: str, value: str) -> str:
    """Return the note that the server of an instance refused a value of a directive; empty if there is none."""
    note = annotation(instance.pod_obj, note_name(name))
    return note if note.startswith(note_of(value)) else ""


def refused_by_servers(seen: Assessment) -> Mapping[str, str]:
    """Return the settings that a server refused, with the words of the first such server."""
    resource = seen.resource
    found: dict[str, str] = {}
    staying = [instance for instance in seen.instances if instance.number < resource.spec.replicas]
    noting = [each for each in staying if each.pod_obj and any(REFUSED in name for name in _annotations(each.pod_obj))]
    if not noting:
        return found
    settings = live_settings(seen)
    mark = configured(settings)
    for name, value in settings.items():
        for instance in noting:
            note = refusal_of(instance, name, value)
            if note and not (understands(resource, instance) and uses(resource, instance, name, value, mark)):
                found.setdefault(name, note.partition(": ")[2])
    return found


_CONFIG_ANNOTATIONS = (CONFIG_MARK, READ_ONCE, WITHDRAWN)


def _annotations(obj: Obj) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}
