"""Steps that apply redis.conf, which is built from the spec and the user's template. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime

from operators.redis.api.engine_versions import Version
from operators.redis.api.resource import RedisCluster
from operators.redis.instance import Instance
from operators.redis.objects import config_map, names, redis_conf
from operators.redis.objects.names import CONFIG_MARK, READ_ONCE
from operators.redis.objects.redis_conf import CONFIG_KEY, WITHDRAWN
from operators.redis.observe import Observed
from operators.redis.settings import Settings
from operators.redis.steps.rolling_update import permitted
from operators.redis.steps.rollout_markers import is_applied
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import CONFIG_MAP, Obj
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import PASS, Apply, Step
from shared.steps import provisioning

TEMPLATE_KEY = "template.conf"
"""Key in the operator's ConfigMap: the last valid version of the user's redis.conf."""


def require_config(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Require the ConfigMap that the spec names; an existing cluster continues with its last valid version."""
    problem = _config_problem(resource, seen)
    if problem is None:
        return PASS
    if seen.config_map is None:
        return provisioning.report_unusable_secret(problem)
    message = f"{problem.message} Nodes keep its last valid version."
    return Step.progressing(problem.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)


def _config_problem(resource: RedisCluster, seen: Observed) -> SecretProblem | None:
    return seen.config.problem or redis_conf.problem(resource, seen.config.text)


def template_text(resource: RedisCluster, seen: Observed) -> str:
    """Return the user's redis.conf, or its last valid version if the current one is invalid or missing."""
    if _config_problem(resource, seen) is None:
        return seen.config.text
    return str(((seen.config_map or {}).get("data") or {}).get(TEMPLATE_KEY, ""))


def configured(resource: RedisCluster, seen: Observed) -> str:
    """Return a digest of the settings that servers accept at runtime."""
    settings = sorted(redis_conf.live(resource, template_text(resource, seen)).items())
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]


def config_digest(resource: RedisCluster, seen: Observed) -> str:
    """Return a digest of the settings that need a restart."""
    return _configuration(resource, seen)[1][READ_ONCE]


def config_mark(resource: RedisCluster, seen: Observed) -> str:
    """Return the marker of the runtime settings that new servers read from the file and running ones have applied."""
    return _configuration(resource, seen)[1][CONFIG_MARK]


def ensure_config_map(settings: Settings, resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Apply the ConfigMap with redis.conf; while a version is refused, for the version that nodes run."""
    content, annotations = _configuration(permitted(resource, seen), seen)
    made = config_map.config_map(resource, names.owner(resource, settings.operator), content)
    made["metadata"]["annotations"] = dict(annotations)
    return Step.do(Apply(CONFIG_MAP, made))


def _configuration(resource: RedisCluster, seen: Observed) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the content of the ConfigMap, and its annotations, which the pod template copies.

    Runtime settings are written once the running servers accepted them: a setting that they refuse would prevent the
    next
    restarted node from starting.
    """
    text, before = template_text(resource, seen), seen.config_map
    mark = configured(resource, seen)
    if before is not None and READ_ONCE in _annotations(before) and _is_refused_yet(resource, seen, mark):
        return before["data"], {
            name: value for name, value in _annotations(before).items() if name in _CONFIG_ANNOTATIONS
        }
    content = {CONFIG_KEY: redis_conf.render(resource, text)} | ({TEMPLATE_KEY: text} if text else {})
    annotations = {CONFIG_MARK: mark, READ_ONCE: redis_conf.digest(resource, text, before)}
    times = redis_conf.withdrawn(resource, text, before)
    return content, annotations | ({WITHDRAWN: str(times)} if times else {})


def _is_refused_yet(resource: RedisCluster, seen: Observed, mark: str) -> bool:
    """Return whether a server that supports the runtime settings has not accepted them yet, or is unreachable.

    Unless its pod fails: then the server may need the new settings to start.
    """
    if not resource.formed or annotation(seen.config_map, CONFIG_MARK) == mark:
        return False
    staying = [instance for instance in seen.instances if instance.number < resource.spec.replicas]
    if any(instance.report is None and not (instance.pod and instance.pod.problem) for instance in staying):
        return True
    supporting = [instance for instance in staying if understands(resource, instance)]
    return any(not is_applied(instance, CONFIG_MARK, mark) for instance in supporting)


def understands(resource: RedisCluster, instance: Instance) -> bool:
    """Return whether a server can apply the settings: it is reachable and runs the series of the spec.

    Other servers read them when their pods are recreated.
    """
    if instance.report is None or instance.leaving:
        return False
    version = Version.parse(instance.report.version)
    return (instance.report.engine, version.series) == (resource.engine.name, resource.engine.version.series)


_CONFIG_ANNOTATIONS = (CONFIG_MARK, READ_ONCE, WITHDRAWN)


def _annotations(obj: Obj) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}
