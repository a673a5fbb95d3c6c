"""What fields of an EtcdCluster must be to each other and to what they were: in CEL, and the same in Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from operators.etcd.api.reserved_arguments import FORM as ARGUMENT
from operators.etcd.api.reserved_arguments import REJECTS_EXPERIMENTAL_FLAGS, REMOVED_FLAGS, RESERVED_FLAGS
from operators.etcd.api.versions import FORM as VERSION
from shared.api.image import FORM as IMAGE
from shared.api.podspec import number_cel, smaller
from shared.api.rules import ISSUER_RULES, not_ours, stays
from shared.api.spec import Rule, Transition
from shared.kubernetes.quantity import parse_quantity

OWN_KEYS = "etcd.ydzs.io/"
"""What labels and annotations of the operator's own begin with."""

_TAGGED = rf"^[^@]*:{VERSION[1:-1]}(@.*)?$"
"""An image whose tag is a version."""

_SUPPORTED = r"(^|:)v?3\.[4-7]\.[0-9]+[^/]*$"
_VERSION_CEL = "(has(self.version) ? self.version : self.image)"

MIN_VOLUME_SIZE = "256Mi"
"""Two segments of the write-ahead log are there from the first second, 64 MiB each, and a database beside them."""


def _version_text(spec: Any) -> str:
    return spec.version if spec.version is not None else spec.image or ""


def _has_version(spec: Any) -> bool:
    return spec.version is not None or re.fullmatch(_TAGGED, spec.image or "") is not None


def _arguments(
    fine: str, advice: str, *, refused: bool = True, where: tuple[str, Callable[..., object]] | None = None
) -> Rule:
    """No argument is of a pattern, or all are.

    Args:
        refused: whether those of the pattern are refused; else those that are not of it.
        where: when that matters, in CEL and in Python; always if not given.
    """
    cel = f"argument, {'' if refused else '!'}argument.matches({json.dumps(fine)})"
    applies_cel, applies = where or ("true", lambda _: True)

    def found(spec: Any) -> list[str]:
        return [argument for argument in spec.extra_args if (re.match(fine, argument) is not None) == refused]

    return Rule(
        f"{f'!{applies_cel} || ' if where else ''}!has(self.extraArgs) || !self.extraArgs.exists({cel})",
        lambda spec: not applies(spec) or not found(spec),
        advice,
        at="extraArgs",
        value=(f"self.extraArgs.filter({cel})[0]", lambda spec: found(spec)[0]),
    )


AUTO_COMPACTION_RULES = (
    Rule(
        "self.mode != 'periodic' || self.retention.matches('[hms]$')",
        lambda given: given.mode != "periodic" or given.retention[-1] in "hms",
        "{} is no time, which mode periodic takes; write it with its unit, such as 1h, or make the mode revision.",
        at="retention",
        value=("self.retention", lambda given: given.retention),
    ),
    Rule(
        "self.mode != 'revision' || self.retention.matches('^[0-9]+$')",
        lambda given: given.mode != "revision" or given.retention.isdecimal(),
        "{} is no number of revisions, which mode revision takes; give one, such as 1000, or make the mode periodic.",
        at="retention",
        value=("self.retention", lambda given: given.retention),
    ),
)

_SECRETS_CEL = "has(self.peer) && has(self.peer.secretName)", "has(self.client) && has(self.client.secretName)"


def _secrets(tls: Any) -> tuple[bool, bool]:
    return tls.peer.secret_name is not None, tls.client.secret_name is not None


TLS_RULES = (
    Rule(
        f"self.mode != 'secret' || {' && '.join(_SECRETS_CEL)}",
        lambda tls: tls.mode != "secret" or all(_secrets(tls)),
        "secret takes your certificates; name their Secrets in peer.secretName and client.secretName.",
        at="mode",
    ),
    Rule(
        f"self.mode == 'secret' || !({_SECRETS_CEL[0]} || {_SECRETS_CEL[1]})",
        lambda tls: tls.mode == "secret" or not any(_secrets(tls)),
        "{} takes no certificates of yours; remove peer.secretName and client.secretName, or make the mode secret.",
        at="mode",
        value=("self.mode", lambda tls: tls.mode),
    ),
    *ISSUER_RULES,
)

_SIZE_CEL = number_cel("self.storage.size")

CLUSTER_RULES = (
    Rule(
        f"!has(self.image) || self.image.matches({json.dumps(IMAGE)})",
        lambda spec: spec.image is None or re.fullmatch(IMAGE, spec.image) is not None,
        "'{}' is no image; write it as etcd:v3.6.16, with lower-case letters, or with a registry before it.",
        at="image",
        value=("self.image", lambda spec: spec.image),
    ),
    Rule(
        f"!has(self.version) || self.version.matches({json.dumps(VERSION)})",
        lambda spec: spec.version is None or re.fullmatch(VERSION, spec.version) is not None,
        "'{}' is no version of etcd; give one such as 3.6.16.",
        at="version",
        value=("self.version", lambda spec: spec.version),
    ),
    Rule(
        f"has(self.version) || has(self.image) && self.image.matches({json.dumps(_TAGGED)})",
        _has_version,
        "is missing, and no image tells it by its tag; give it, such as 3.6.16.",
        at="version",
    ),
    Rule(
        f"!has(self.version) && !has(self.image) || !{_VERSION_CEL}.matches('[0-9]+[.][0-9]+[.][0-9]+') || "
        f"{_VERSION_CEL}.matches({json.dumps(_SUPPORTED)})",
        lambda spec: (
            not re.search(r"[0-9]+[.][0-9]+[.][0-9]+", _version_text(spec))
            or bool(re.search(_SUPPORTED, _version_text(spec)))
        ),
        "{} is of no series that this operator knows; give a version of 3.4, 3.5, 3.6 or 3.7.",
        at="version",
        value=(_VERSION_CEL, _version_text),
    ),
    Rule(
        "self.electionTimeout >= 5 * self.heartbeatInterval",
        lambda spec: spec.election_timeout >= 5 * spec.heartbeat_interval,
        "less than five heartbeats, which etcd refuses: a late one would cost the leader its place; give at least {}.",
        at="electionTimeout",
        value=("5 * self.heartbeatInterval", lambda spec: 5 * spec.heartbeat_interval),
    ),
    Rule(
        f"self.storage.medium == 'Memory' || {_SIZE_CEL} >= {parse_quantity(MIN_VOLUME_SIZE)}.0",
        lambda spec: spec.storage.medium == "Memory" or not smaller(spec.storage.size, MIN_VOLUME_SIZE),
        f"{{}} is too small for etcd's log and a database beside it; give at least {MIN_VOLUME_SIZE}.",
        at="storage.size",
        value=("string(self.storage.size)", lambda spec: spec.storage.size),
    ),
    Rule(
        f"!has(self.quotaBackendBytes) || double(self.quotaBackendBytes) < {_SIZE_CEL}",
        lambda spec: spec.quota_backend_bytes is None or spec.quota_backend_bytes < parse_quantity(spec.storage.size),
        "{} is all that storage.size has, or more: the volume would be full before the quota, and a full volume ends "
        "etcd. Lower it, raise storage.size, or leave it out: it then follows storage.size.",
        at="quotaBackendBytes",
        value=("self.quotaBackendBytes", lambda spec: spec.quota_backend_bytes),
    ),
    _arguments(
        ARGUMENT, "'{}' is no flag with its value; write one entry a flag, as --max-txn-ops=256.", refused=False
    ),
    _arguments(
        RESERVED_FLAGS, "'{}' is for another field or for the operator to set, or keeps it from its work; remove it."
    ),
    _arguments(
        REMOVED_FLAGS,
        "'{}' is of a flag that 3.7 no longer has: etcd would not start; give what replaced it (etcd --help lists it).",
        where=(
            f"{_VERSION_CEL}.matches({json.dumps(REJECTS_EXPERIMENTAL_FLAGS)})",
            lambda spec: re.search(REJECTS_EXPERIMENTAL_FLAGS, _version_text(spec)),
        ),
    ),
    Rule(
        "!has(self.env) || !self.env.exists(variable, variable.name.startsWith('ETCD_'))",
        lambda spec: not any(variable.name.startswith("ETCD_") for variable in spec.env),
        "variables that begin with ETCD_ are flags to etcd, which ends where one is given twice; use a field or "
        "extraArgs.",
        at="env",
    ),
    not_ours("labels", OWN_KEYS),
    not_ours("annotations", OWN_KEYS),
    Rule(
        "!has(self.restore) || self.storage.medium == 'Volume'",
        lambda spec: spec.restore is None or spec.storage.medium == "Volume",
        "data is restored onto a volume, before a member starts; make storage.medium Volume.",
        at="restore",
    ),
    stays(
        "storage.medium",
        "self.storage.medium",
        lambda spec: spec.storage.medium,
        "data does not move from one to the other. Restore a backup into another EtcdCluster.",
    ),
    stays(
        "storage.storageClassName",
        "(has(self.storage.storageClassName) ? self.storage.storageClassName : '')",
        lambda spec: spec.storage.storage_class_name or "",
        "volumes do not change their class. Restore a backup into another EtcdCluster.",
    ),
    Transition(
        f"self.storage.medium == 'Memory' || {_SIZE_CEL} >= {number_cel('oldSelf.storage.size')}",
        lambda spec, before: spec.storage.medium == "Memory" or not smaller(spec.storage.size, before.storage.size),
        "is below the {} that volumes have, and volumes do not shrink; give that, or restore a backup into another "
        "EtcdCluster.",
        at="storage.size",
        value=("string(oldSelf.storage.size)", lambda _, before: before.storage.size),
    ),
    stays(
        "tls.mode",
        "(has(self.tls) ? self.tls.mode : 'none')",
        lambda spec: spec.tls.mode,
        "members of two modes do not trust each other. Restore a backup into another EtcdCluster.",
    ),
)
