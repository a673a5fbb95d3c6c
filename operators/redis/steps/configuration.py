"""Steps that keep the configuration of nodes: their redis.conf, from the spec and a template of the user's. Pure."""

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
"""Key of our ConfigMap: the user's redis.conf as it was when it last served."""


def require_config(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """The redis.conf that the spec names is there and serves; once it was, the cluster goes on with that."""
    problem = _config_problem(resource, seen)
    if problem is None:
        return PASS
    if seen.config_map is None:
        return provisioning.lacking(problem)
    message = f"{problem.message} Nodes keep what it last was."
    return Step.progressing(problem.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)


def _config_problem(resource: RedisCluster, seen: Observed) -> SecretProblem | None:
    return seen.config.problem or redis_conf.problem(resource, seen.config.text)


def template_text(resource: RedisCluster, seen: Observed) -> str:
    """The user's redis.conf: as it is, or as it was when it last served."""
    if _config_problem(resource, seen) is None:
        return seen.config.text
    return str(((seen.config_map or {}).get("data") or {}).get(TEMPLATE_KEY, ""))


def configured(resource: RedisCluster, seen: Observed) -> str:
    """Tells settings apart that servers take while they run."""
    settings = sorted(redis_conf.live(resource, template_text(resource, seen)).items())
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]


def config_digest(resource: RedisCluster, seen: Observed) -> str:
    """Tells apart what servers would have to be restarted for."""
    return _configuration(resource, seen)[1][READ_ONCE]


def config_mark(resource: RedisCluster, seen: Observed) -> str:
    """Tells settings apart that servers to come will have read, and those that run were told."""
    return _configuration(resource, seen)[1][CONFIG_MARK]


def ensure_config_map(settings: Settings, resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """The ConfigMap has what nodes read at their start; while a version is refused, as those that run understand it."""
    content, annotations = _configuration(permitted(resource, seen), seen)
    made = config_map.config_map(resource, names.owner(resource, settings.operator), content)
    made["metadata"]["annotations"] = dict(annotations)
    return Step.do(Apply(CONFIG_MAP, made))


def _configuration(resource: RedisCluster, seen: Observed) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What the ConfigMap is to hold, and its annotations, which pods are made with.

    A setting that servers take while they run comes there when they took it: one that they refuse would keep the next
    that restarts from starting.
    """
    text, before = template_text(resource, seen), seen.config_map
    mark = configured(resource, seen)
    if before is not None and READ_ONCE in _annotations(before) and _is_refused_yet(resource, seen, mark):
        return before["data"], {name: value for name, value in _annotations(before).items() if name in _OURS}
    content = {CONFIG_KEY: redis_conf.render(resource, text)} | ({TEMPLATE_KEY: text} if text else {})
    annotations = {CONFIG_MARK: mark, READ_ONCE: redis_conf.digest(resource, text, before)}
    times = redis_conf.withdrawn(resource, text, before)
    return content, annotations | ({WITHDRAWN: str(times)} if times else {})


def _is_refused_yet(resource: RedisCluster, seen: Observed, mark: str) -> bool:
    """Whether settings have yet to be taken by a server that could take them."""
    if not resource.formed or annotation(seen.config_map, CONFIG_MARK) == mark:
        return False
    staying = (instance for instance in seen.instances if instance.number < resource.spec.replicas)
    asked = [instance for instance in staying if understands(resource, instance)]
    return any(not is_applied(instance, CONFIG_MARK, mark) for instance in asked)


def understands(resource: RedisCluster, instance: Instance) -> bool:
    """Whether a server can be told what the spec says: it answers, and is of the series that the spec is for.

    Others read it when their pods are made anew.
    """
    if instance.report is None or instance.leaving:
        return False
    told = Version.parse(instance.report.version)
    return (instance.report.engine, told.series) == (resource.engine.name, resource.engine.version.series)


_OURS = (CONFIG_MARK, READ_ONCE, WITHDRAWN)


def _annotations(obj: Obj) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}
