"""Validation rules between fields of a RedisCluster, and of changes: each in CEL, and the same in Python.

The models import their rules, so the Python halves take their model as `Any`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from operators.redis.api.directives import FORM as DIRECTIVE
from operators.redis.api.directives import RESERVED
from operators.redis.api.engine_versions import ADVICE, NAMES_VALKEY, TAGGED, UNSUPPORTED
from operators.redis.api.engine_versions import FORM as VERSION
from shared.api.image import NAME_FORM, is_name
from shared.api.rules import image_rule, immutable, reserved_prefix
from shared.api.spec import Rule

OWN_KEYS = "redis.middleware.hc.cn/"
"""Prefix of the operator's own labels and annotations."""

OWN_VARIABLES = ("POD_IP", "POD_NAME", "PLATFORM_POD_UID", "PLATFORM_LAST_RUN")
"""Environment variables that the operator sets: with them, nodes announce themselves and name their files."""

SHARED = ("labels", "annotations", "env", "affinity", "resources")
"""Pod settings that may be set in spec or in pod[0]."""

MIN_PRIMARIES = 3
"""Minimum number of primaries: fewer have no majority when one fails."""

_PIPELINE = "^[1-9][0-9]{0,3}$"

_NO_IMAGE = "not an image; use lower-case letters, optionally with a registry and a tag, such as redis:8.0.2."

_OWN_VARIABLES = Rule(
    f"!has(self.env) || !self.env.exists(variable, variable.name in {json.dumps(OWN_VARIABLES)})",
    lambda model: not any(variable.name in OWN_VARIABLES for variable in model.env),
    f"{', '.join(OWN_VARIABLES)} are set by the operator; remove them.",
    at="env",
)

STRATEGY_RULES = (
    Rule(
        f"self.pipeline.matches({json.dumps(_PIPELINE)})",
        lambda given: re.fullmatch(_PIPELINE, given.pipeline) is not None,
        "'{}' is not a number of keys; use 1 to 9999, in quotes, such as \"100\".",
        at="pipeline",
        value=("self.pipeline", lambda given: given.pipeline),
    ),
)

VOLUME_RULES = (
    Rule(
        "self.type != 'nfs' || has(self.persistentVolumeClaimName)",
        lambda given: given.type != "nfs" or given.persistent_volume_claim_name is not None,
        "is required with type nfs: set the claim that all pods share.",
        at="persistentVolumeClaimName",
    ),
    Rule(
        "self.type != 'hostPath' || !has(self.persistentVolumeClaimName)",
        lambda given: given.type != "hostPath" or given.persistent_volume_claim_name is None,
        "is not allowed with type hostPath; remove it, or use type nfs.",
        at="persistentVolumeClaimName",
    ),
)

POD_RULES = (
    reserved_prefix("labels", OWN_KEYS),
    reserved_prefix("annotations", OWN_KEYS),
    _OWN_VARIABLES,
    image_rule("monitorImage", _NO_IMAGE, lambda given: given.monitor_image),
    image_rule("initImage", _NO_IMAGE, lambda given: given.init_image),
    image_rule("middlewareImage", _NO_IMAGE, lambda given: given.middleware_image),
)

METRICS_RULES = (image_rule("image", _NO_IMAGE, lambda given: given.image),)

_POD_CEL = "has(self.pod) && size(self.pod) > 0"
_MIDDLEWARE_CEL = f"{_POD_CEL} && has(self.pod[0].middlewareImage)"
_IMAGE_CEL = f"({_MIDDLEWARE_CEL} ? self.pod[0].middlewareImage : has(self.repository) ? self.repository : '')"
_VERSION_TEXT_CEL = f"(has(self.version) ? self.version : {_IMAGE_CEL})"
_ENGINE_CEL = (
    f"(has(self.engine) ? self.engine : {_IMAGE_CEL}.matches({json.dumps(NAMES_VALKEY)}) ? 'valkey' : 'redis')"
)
_VOLUMES_CEL = (
    f"(!({_POD_CEL} && has(self.pod[0].volumes)) ? 'without volumes' : 'with volumes ' + self.pod[0].volumes.type + "
    "(has(self.pod[0].volumes.persistentVolumeClaimName) ? ' ' + self.pod[0].volumes.persistentVolumeClaimName : ''))"
)
_ELSEWHERE = "Create another RedisCluster, and copy the data."


def _volumes(spec: Any) -> str:
    """Return the same text as _VOLUMES_CEL."""
    given = spec.template.volumes
    if given is None:
        return "without volumes"
    claim = f" {given.persistent_volume_claim_name}" if given.persistent_volume_claim_name else ""
    return f"with volumes {given.type}{claim}"


def _class(spec: Any) -> str:
    """Return the immutable part of spec.storage."""
    if spec.storage is None:
        return "without volumes"
    name = spec.storage.storage_class_name
    return f"of class {name}" if name else "of the default class"


def _once(field: str) -> Rule:
    """Return the rule that a setting is not both in spec and in pod[0]."""
    return Rule(
        f"!({_POD_CEL} && has(self.pod[0].{field}) && has(self.{field}))",
        lambda spec: field not in spec.model_fields_set or field not in spec.template.model_fields_set,
        "is also set in pod[0]; remove one of the two.",
        at=field,
    )


def _reserved(spec: Any) -> list[str]:
    return [directive for directive in RESERVED if directive in spec.config]


def _malformed(spec: Any) -> list[str]:
    return [directive for directive in spec.config if re.fullmatch(DIRECTIVE, directive) is None]


CLUSTER_RULES = (
    image_rule(
        "repository",
        "not an image without a tag; use the form library/redis, optionally with a registry; version is the tag.",
        lambda spec: spec.repository,
        NAME_FORM,
        is_name,
    ),
    Rule(
        f"!has(self.version) || self.version.matches({json.dumps(VERSION)})",
        lambda spec: spec.version is None or re.fullmatch(VERSION, spec.version) is not None,
        "'{}' is not a version of redis or valkey; use a version such as 8.0.2.",
        at="version",
        value=("self.version", lambda spec: spec.version),
    ),
    Rule(
        f"has(self.version) || !({_MIDDLEWARE_CEL}) || {_IMAGE_CEL}.matches({json.dumps(TAGGED)}) || "
        f"{_IMAGE_CEL}.matches({json.dumps(NAME_FORM)})",
        lambda spec: spec.version is not None or not spec.template.middleware_image or _names_version(spec.image_name),
        "is missing, and pod[0].middlewareImage has no tag with a version; set it, for example to 8.0.2.",
        at="version",
    ),
    Rule(
        f"!has(self.engine) || self.engine != 'valkey' || {_IMAGE_CEL} != ''",
        lambda spec: spec.engine != "valkey" or bool(spec.image_name),
        "is required with engine valkey: the default image contains redis; set it, for example to valkey/valkey.",
        at="repository",
    ),
    Rule(
        f"self.replicas >= {MIN_PRIMARIES} * (1 + self.replicasPerMaster)",
        lambda spec: spec.replicas >= MIN_PRIMARIES * (1 + spec.replicas_per_master),
        "is too small: a cluster needs at least three primaries with replicasPerMaster replicas each; use {} or more, "
        "or lower replicasPerMaster. What else there is for fewer pods: docs/concepts/topologies.md.",
        at="replicas",
        value=(
            f"{MIN_PRIMARIES} * (1 + self.replicasPerMaster)",
            lambda spec: MIN_PRIMARIES * (1 + spec.replicas_per_master),
        ),
    ),
    *map(_once, SHARED),
    reserved_prefix("labels", OWN_KEYS),
    reserved_prefix("annotations", OWN_KEYS),
    _OWN_VARIABLES,
    Rule(
        f"!has(self.config) || self.config.all(directive, directive.matches({json.dumps(DIRECTIVE)}))",
        lambda spec: not _malformed(spec),
        "'{}' is not a directive of redis.conf; use lower-case letters, digits and '-'.",
        at="config",
        value=(
            f"self.config.filter(directive, !directive.matches({json.dumps(DIRECTIVE)}))[0]",
            lambda spec: _malformed(spec)[0],
        ),
    ),
    Rule(
        f"!has(self.config) || !{json.dumps(RESERVED)}.exists(directive, directive in self.config)",
        lambda spec: not _reserved(spec),
        "{} is set by another field or by the operator; remove it.",
        at="config",
        value=(
            f"{json.dumps(RESERVED)}.filter(directive, directive in self.config)[0]",
            lambda spec: _reserved(spec)[0],
        ),
    ),
    Rule(
        f"!has(self.metrics) || !has(self.metrics.image) || !({_POD_CEL} && has(self.pod[0].monitorImage))",
        lambda spec: spec.metrics is None or spec.metrics.image is None or spec.template.monitor_image is None,
        "is also set in pod[0].monitorImage; remove one of the two.",
        at="metrics.image",
    ),
    Rule(
        f"!has(self.storage) || !({_POD_CEL} && has(self.pod[0].volumes))",
        lambda spec: spec.storage is None or spec.template.volumes is None,
        "cannot be combined with pod[0].volumes; remove one of the two.",
        at="storage",
    ),
    Rule(
        "!has(self.hibernate) || !self.hibernate || has(self.storage)",
        lambda spec: not spec.hibernate or spec.storage is not None,
        "nodes without storage would lose all data with their pods. Set storage, or remove hibernate.",
        at="hibernate",
    ),
    Rule(
        "!has(self.adopt) || has(self.storage)",
        lambda spec: spec.adopt is None or spec.storage is not None,
        "nodes without storage have no volumes that could be adopted. Set storage, or remove adopt.",
        at="adopt",
    ),
    immutable(
        "storage",
        "(!has(self.storage) ? 'without volumes' : has(self.storage.storageClassName) ? "
        "'of class ' + self.storage.storageClassName : 'of the default class')",
        _class,
        f"volumes cannot change their class, and data is not moved. {_ELSEWHERE}",
    ),
    immutable("pod", _VOLUMES_CEL, _volumes, f"the data of nodes is not moved. {_ELSEWHERE}"),
    immutable(
        "tls.mode",
        "(has(self.tls) ? self.tls.mode : 'none')",
        lambda spec: spec.tls.mode,
        f"nodes with different modes cannot connect to each other. {_ELSEWHERE}",
    ),
)


def _names_version(image: str) -> bool:
    """Return whether the tag of an image contains a version, or the image has no tag: then spec.version is the tag."""
    return re.fullmatch(TAGGED, image) is not None or re.fullmatch(NAME_FORM, image) is not None


def _at_root(cel: str) -> str:
    return cel.replace("self.", "self.spec.")


VERSION_RULES = tuple(
    Rule(
        _at_root(f"{_ENGINE_CEL} != '{name}' || !{_VERSION_TEXT_CEL}.matches({json.dumps(pattern)})"),
        lambda resource, name=name, pattern=pattern: (
            resource.spec.engine_name != name or re.match(pattern, resource.spec.version_text) is None
        ),
        f"{name} {{}} is not supported: older versions lack users with two passwords, TLS between nodes or failover "
        f"without lost writes, and newer ones are unknown to this release of the operator. {ADVICE}",
        at="spec.version",
        value=(_at_root(_VERSION_TEXT_CEL), lambda resource: resource.spec.version_text),
    )
    for name, pattern in UNSUPPORTED.items()
)
"""Rules of a whole resource. They are not rules of the spec, because the reconcile checks versions differently
(`engine_versions.refusal`): a running cluster is maintained, whichever version its spec requests.
"""
