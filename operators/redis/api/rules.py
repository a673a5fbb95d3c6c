"""Rules between the fields of a RedisCluster, and between old and new values: each in CEL, and the same in Python.

The models import their rules, so the Python halves take their model as `Any`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from operators.redis.api.engine_versions import ADVICE, NAMES_VALKEY, TAGGED, TOO_OLD
from operators.redis.api.engine_versions import FORM as VERSION
from operators.redis.api.reserved_directives import FORM as DIRECTIVE
from operators.redis.api.reserved_directives import OURS
from shared.api.image import FORM as IMAGE
from shared.api.image import NAME_FORM
from shared.api.podspec import number_cel, smaller
from shared.api.rules import ISSUER_RULES, not_ours, stays
from shared.api.spec import Rule, Transition

OWN_KEYS = "redis.middleware.hc.cn/"
"""What labels and annotations of the operator's own begin with."""

OWN_VARIABLES = ("POD_IP", "POD_NAME")
"""Environment variables that the operator sets: what a node says of itself is made of them."""

SHARED = ("labels", "annotations", "env", "affinity", "resources")
"""Settings of pods that may stand in spec or in pod[0]."""

MIN_PRIMARIES = 3
"""Fewer cannot agree that one of them is gone."""

_PIPELINE = "^[1-9][0-9]{0,3}$"


def _image(field: str, form: str, advice: str, read: Callable[[Any], str | None]) -> Rule:
    """A field is an image, or is not given."""
    return Rule(
        f"!has(self.{field}) || self.{field}.matches({json.dumps(form)})",
        lambda model: read(model) is None or re.fullmatch(form, read(model) or "") is not None,
        f"'{{}}' is {advice}",
        at=field,
        value=(f"self.{field}", read),
    )


_NO_IMAGE = "no image; write it with lower-case letters, maybe with a registry before it and a tag after it."

_OWN_VARIABLES = Rule(
    f"!has(self.env) || !self.env.exists(variable, variable.name in {json.dumps(OWN_VARIABLES)})",
    lambda model: not any(variable.name in OWN_VARIABLES for variable in model.env),
    f"{' and '.join(OWN_VARIABLES)} are the operator's to set; remove them.",
    at="env",
)

STRATEGY_RULES = (
    Rule(
        f"self.pipeline.matches({json.dumps(_PIPELINE)})",
        lambda given: re.fullmatch(_PIPELINE, given.pipeline) is not None,
        "'{}' is no number of keys; give one from 1 to 9999, in quotes, such as \"100\".",
        at="pipeline",
        value=("self.pipeline", lambda given: given.pipeline),
    ),
)

VOLUME_RULES = (
    Rule(
        "self.type != 'nfs' || has(self.persistentVolumeClaimName)",
        lambda given: given.type != "nfs" or given.persistent_volume_claim_name is not None,
        "is missing: with type nfs it names the volume that all pods share; give it.",
        at="persistentVolumeClaimName",
    ),
    Rule(
        "self.type != 'hostPath' || !has(self.persistentVolumeClaimName)",
        lambda given: given.type != "hostPath" or given.persistent_volume_claim_name is None,
        "type hostPath takes directories of the nodes and no claim; remove it, or make the type nfs.",
        at="persistentVolumeClaimName",
    ),
)

POD_RULES = (
    not_ours("labels", OWN_KEYS),
    not_ours("annotations", OWN_KEYS),
    _OWN_VARIABLES,
    _image("monitorImage", IMAGE, _NO_IMAGE, lambda given: given.monitor_image),
    _image("initImage", IMAGE, _NO_IMAGE, lambda given: given.init_image),
    _image("middlewareImage", IMAGE, _NO_IMAGE, lambda given: given.middleware_image),
)

METRICS_RULES = (_image("image", IMAGE, _NO_IMAGE, lambda given: given.image),)

TLS_RULES = (
    Rule(
        "self.mode != 'secret' || has(self.secretName)",
        lambda tls: tls.mode != "secret" or tls.secret_name is not None,
        "is missing: mode secret takes your certificate; give the Secret that holds it.",
        at="secretName",
    ),
    Rule(
        "self.mode == 'secret' || !has(self.secretName)",
        lambda tls: tls.mode == "secret" or tls.secret_name is None,
        "mode {} takes no certificate of yours; remove it, or make the mode secret.",
        at="secretName",
        value=("self.mode", lambda tls: tls.mode),
    ),
    *ISSUER_RULES,
)

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
_ELSEWHERE = "Make another RedisCluster, and copy the data there."
_SIZE_CEL = number_cel("self.storage.size")


def _volumes(spec: Any) -> str:
    """The same as _VOLUMES_CEL."""
    given = spec.template.volumes
    if given is None:
        return "without volumes"
    claim = f" {given.persistent_volume_claim_name}" if given.persistent_volume_claim_name else ""
    return f"with volumes {given.type}{claim}"


def _class(spec: Any) -> str:
    """What spec.storage is, as far as it stays."""
    if spec.storage is None:
        return "without volumes"
    name = spec.storage.storage_class_name
    return f"of class {name}" if name else "of the default class"


def _once(field: str) -> Rule:
    """What both spec and pod[0] may have stands in one of them."""
    return Rule(
        f"!({_POD_CEL} && has(self.pod[0].{field}) && has(self.{field}))",
        lambda spec: field not in spec.model_fields_set or field not in spec.template.model_fields_set,
        "stands in pod[0], too; remove one of the two.",
        at=field,
    )


def _ours(spec: Any) -> list[str]:
    return [directive for directive in OURS if directive in spec.config]


def _malformed(spec: Any) -> list[str]:
    return [directive for directive in spec.config if re.fullmatch(DIRECTIVE, directive) is None]


CLUSTER_RULES = (
    _image(
        "repository",
        NAME_FORM,
        "no image without a tag; write it as library/redis, maybe with a registry before it; the tag is version.",
        lambda spec: spec.repository,
    ),
    Rule(
        f"!has(self.version) || self.version.matches({json.dumps(VERSION)})",
        lambda spec: spec.version is None or re.fullmatch(VERSION, spec.version) is not None,
        "'{}' is no version of redis or valkey; give one such as 8.0.2.",
        at="version",
        value=("self.version", lambda spec: spec.version),
    ),
    Rule(
        f"has(self.version) || !({_MIDDLEWARE_CEL}) || {_IMAGE_CEL}.matches({json.dumps(TAGGED)}) || "
        f"{_IMAGE_CEL}.matches({json.dumps(NAME_FORM)})",
        lambda spec: spec.version is not None or not spec.template.middleware_image or _names_version(spec.image_name),
        "is missing, and pod[0].middlewareImage does not tell it by its tag; give it, such as 8.0.2.",
        at="version",
    ),
    Rule(
        f"!has(self.engine) || self.engine != 'valkey' || {_IMAGE_CEL} != ''",
        lambda spec: spec.engine != "valkey" or bool(spec.image_name),
        "is missing: valkey is not in the operator's own image of redis; give it, such as valkey/valkey.",
        at="repository",
    ),
    Rule(
        f"self.replicas >= {MIN_PRIMARIES} * (1 + self.replicasPerMaster)",
        lambda spec: spec.replicas >= MIN_PRIMARIES * (1 + spec.replicas_per_master),
        "too few: a cluster is three masters at least, with replicasPerMaster replicas each; give at least {}, or "
        "lower replicasPerMaster.",
        at="replicas",
        value=(
            f"{MIN_PRIMARIES} * (1 + self.replicasPerMaster)",
            lambda spec: MIN_PRIMARIES * (1 + spec.replicas_per_master),
        ),
    ),
    *map(_once, SHARED),
    not_ours("labels", OWN_KEYS),
    not_ours("annotations", OWN_KEYS),
    _OWN_VARIABLES,
    Rule(
        f"!has(self.config) || self.config.all(directive, directive.matches({json.dumps(DIRECTIVE)}))",
        lambda spec: not _malformed(spec),
        "'{}' is no directive of redis.conf; write it with small letters, digits and '-'.",
        at="config",
        value=(
            f"self.config.filter(directive, !directive.matches({json.dumps(DIRECTIVE)}))[0]",
            lambda spec: _malformed(spec)[0],
        ),
    ),
    Rule(
        f"!has(self.config) || !{json.dumps(OURS)}.exists(directive, directive in self.config)",
        lambda spec: not _ours(spec),
        "{} is for another field or for the operator to set; remove it.",
        at="config",
        value=(
            f"{json.dumps(OURS)}.filter(directive, directive in self.config)[0]",
            lambda spec: _ours(spec)[0],
        ),
    ),
    Rule(
        f"!has(self.metrics) || !has(self.metrics.image) || !({_POD_CEL} && has(self.pod[0].monitorImage))",
        lambda spec: spec.metrics is None or spec.metrics.image is None or spec.template.monitor_image is None,
        "stands in pod[0].monitorImage, too; remove one of the two.",
        at="metrics.image",
    ),
    Rule(
        f"!has(self.storage) || !({_POD_CEL} && has(self.pod[0].volumes))",
        lambda spec: spec.storage is None or spec.template.volumes is None,
        "data lies on volumes of the nodes' own or on pod[0].volumes; remove one of the two.",
        at="storage",
    ),
    stays(
        "storage",
        "(!has(self.storage) ? 'without volumes' : has(self.storage.storageClassName) ? "
        "'of class ' + self.storage.storageClassName : 'of the default class')",
        _class,
        f"neither do volumes change their class, nor is data moved onto others. {_ELSEWHERE}",
    ),
    Transition(
        f"!has(self.storage) || !has(oldSelf.storage) || {_SIZE_CEL} >= {number_cel('oldSelf.storage.size')}",
        lambda spec, before: (
            spec.storage is None or before.storage is None or not smaller(spec.storage.size, before.storage.size)
        ),
        f"is below the {{}} that volumes have, and volumes do not shrink; give that. {_ELSEWHERE}",
        at="storage.size",
        value=("string(oldSelf.storage.size)", lambda _, before: before.storage.size),
    ),
    stays("pod", _VOLUMES_CEL, _volumes, f"nodes' data is not moved. {_ELSEWHERE}"),
    stays(
        "tls.mode",
        "(has(self.tls) ? self.tls.mode : 'none')",
        lambda spec: spec.tls.mode,
        f"nodes of two modes do not trust each other. {_ELSEWHERE}",
    ),
)


def _names_version(image: str) -> bool:
    """Whether an image tells its version by its tag, or has no tag: then the version is one."""
    return re.fullmatch(TAGGED, image) is not None or re.fullmatch(NAME_FORM, image) is not None


def _at_root(cel: str) -> str:
    return cel.replace("self.", "self.spec.")


TOO_OLD_RULES = tuple(
    Rule(
        _at_root(f"{_ENGINE_CEL} != '{name}' || !{_VERSION_TEXT_CEL}.matches({json.dumps(pattern)})"),
        lambda resource, name=name, pattern=pattern: (
            resource.spec.engine_name != name or re.match(pattern, resource.spec.version_text) is None
        ),
        f"{name} {{}} is older than the operator works with, which rests on users with two passwords, TLS among nodes "
        f"and failover without a lost write. {ADVICE}",
        at="spec.version",
        value=(_at_root(_VERSION_TEXT_CEL), lambda resource: resource.spec.version_text),
    )
    for name, pattern in TOO_OLD.items()
)
"""Over a whole resource. Of the spec's own rules they are none, for the reconcile says the same in another way
(`versions.refusal`): a cluster that runs is cared for, whatever version it is told to become."""
