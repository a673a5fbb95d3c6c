"""Rules that fields of an EtcdCluster must satisfy together, and rules for changes: in CEL and in Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from operators.etcd.api.arguments import ACCEPTED, RESERVED_FLAGS, REWRITTEN, Series, absent
from operators.etcd.api.versions import FORM as VERSION
from operators.etcd.api.versions import SUPPORTED
from shared.api.catalogue import dotted
from shared.api.podspec import number_cel, smaller
from shared.api.rules import ISSUER_RULES, image_rule, immutable, reserved_prefix
from shared.api.spec import Rule
from shared.kubernetes.quantity import parse_quantity

OWN_KEYS = "etcd.ydzs.io/"
"""Prefix of the operator's own labels and annotations."""

_PLAIN = r"^v?(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})(-[0-9]+)?$"
"""Version in spec.version, perhaps with the number of a build: without an image, it is a tag that must exist."""

_TAGGED = rf"^[^@]*:{VERSION[1:-1]}(@.*)?$"
"""Image whose tag is a version."""

_SUPPORTED = rf"(^|:)v?3\.[{SUPPORTED[0][1]}-{SUPPORTED[-1][1]}]\.[0-9]+[^/]*$"
_VERSION_CEL = "(has(self.version) ? self.version : self.image)"

MIN_VOLUME_SIZE = "256Mi"
"""Minimum size of a volume: two 64 MiB segments of the write-ahead log from the start, and a database."""


def _version_text(spec: Any) -> str:
    return spec.version if spec.version is not None else spec.image or ""


def _has_version(spec: Any) -> bool:
    return spec.version is not None or re.fullmatch(_TAGGED, spec.image or "") is not None


def _arguments(
    fine: str, advice: str, *, refused: bool = True, where: tuple[str, Callable[..., object]] | None = None
) -> Rule:
    """Require that no argument matches a pattern, or that all do.

    Args:
        refused: whether matching arguments are rejected; otherwise those that do not match.
        where: condition of the rule, in CEL and in Python; always if not given.
    """
    cel = f"argument, {'' if refused else '!'}argument.matches({json.dumps(fine)})"
    applies_cel, applies = where or ("true", lambda _: True)

    def found(spec: Any) -> list[str]:
        return [argument for argument in spec.extra_args if (re.fullmatch(fine, argument) is not None) == refused]

    return Rule(
        f"{f'!{applies_cel} || ' if where else ''}!has(self.extraArgs) || !self.extraArgs.exists({cel})",
        lambda spec: not applies(spec) or not found(spec),
        advice,
        at="extraArgs",
        value=(f"self.extraArgs.filter({cel})[0]", lambda spec: found(spec)[0]),
    )


def _absent_arguments(series: Series) -> Rule:
    """Require that a series has all flags in extraArgs."""
    target = rf"(^|:)v?{series[0]}\.{series[1]}\.[0-9]+[^/]*$"
    return _arguments(
        absent(series),
        f"'{{}}' does not exist in etcd {dotted(series)}: it would not start. Remove it, or use one of that version.",
        where=(f"{_VERSION_CEL}.matches({json.dumps(target)})", lambda spec: re.search(target, _version_text(spec))),
    )


AUTO_COMPACTION_RULES = (
    Rule(
        "self.mode != 'periodic' || self.retention.matches('[hms]$')",
        lambda given: given.mode != "periodic" or given.retention[-1] in "hms",
        "'{}' is not a duration, which mode periodic requires. Add a unit, such as 1h, or set mode to revision.",
        at="retention",
        value=("self.retention", lambda given: given.retention),
    ),
    Rule(
        "self.mode != 'revision' || self.retention.matches('^[0-9]+$')",
        lambda given: given.mode != "revision" or given.retention.isdecimal(),
        "'{}' is not a number of revisions, which mode revision requires. Set a number such as 1000, or set mode "
        "to periodic.",
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
        "mode secret requires your own certificates. Set peer.secretName and client.secretName to their Secrets.",
        at="mode",
    ),
    Rule(
        f"self.mode == 'secret' || !({_SECRETS_CEL[0]} || {_SECRETS_CEL[1]})",
        lambda tls: tls.mode == "secret" or not any(_secrets(tls)),
        "mode {} does not use your own certificates. Remove peer.secretName and client.secretName, or set mode "
        "to secret.",
        at="mode",
        value=("self.mode", lambda tls: tls.mode),
    ),
    *ISSUER_RULES,
)

_SIZE_CEL = number_cel("self.storage.size")

CLUSTER_RULES = (
    image_rule(
        "image",
        "not a valid image. Use a form such as etcd:v3.6.16, in lower case, optionally with a registry before it.",
        lambda spec: spec.image,
    ),
    Rule(
        f"!has(self.version) || self.version.matches({json.dumps(_PLAIN)})",
        lambda spec: spec.version is None or re.fullmatch(_PLAIN, spec.version) is not None,
        "'{}' is not a version of etcd. Set a version of 3.4, 3.5, 3.6 or 3.7, such as 3.6.16. For an image with "
        "another tag, set image, and version to the version that it contains.",
        at="version",
        value=("self.version", lambda spec: spec.version),
    ),
    Rule(
        f"has(self.version) || has(self.image) && self.image.matches({json.dumps(_TAGGED)})",
        _has_version,
        "is missing, and the image has no tag that is a version. Set it, for example to 3.6.16.",
        at="version",
    ),
    Rule(
        f"!has(self.version) && !has(self.image) || !{_VERSION_CEL}.matches('[0-9]+[.][0-9]+[.][0-9]+') || "
        f"{_VERSION_CEL}.matches({json.dumps(_SUPPORTED)})",
        lambda spec: (
            not re.search(r"[0-9]+[.][0-9]+[.][0-9]+", _version_text(spec))
            or bool(re.search(_SUPPORTED, _version_text(spec)))
        ),
        "{} is not in a supported series. Set a version of "
        f"{', '.join(map(dotted, SUPPORTED[:-1]))} or {dotted(SUPPORTED[-1])}.",
        at="version",
        value=(_VERSION_CEL, _version_text),
    ),
    Rule(
        "self.electionTimeout >= 5 * self.heartbeatInterval",
        lambda spec: spec.election_timeout >= 5 * spec.heartbeat_interval,
        "must be at least five times heartbeatInterval: etcd rejects less, because one late heartbeat would "
        "trigger an election. Set at least {}.",
        at="electionTimeout",
        value=("5 * self.heartbeatInterval", lambda spec: 5 * spec.heartbeat_interval),
    ),
    Rule(
        f"self.storage.medium == 'Memory' || {_SIZE_CEL} >= {parse_quantity(MIN_VOLUME_SIZE)}.0",
        lambda spec: spec.storage.medium == "Memory" or not smaller(spec.storage.size, MIN_VOLUME_SIZE),
        f"{{}} is too small for the write-ahead log and a database. Set at least {MIN_VOLUME_SIZE}.",
        at="storage.size",
        value=("string(self.storage.size)", lambda spec: spec.storage.size),
    ),
    Rule(
        f"!has(self.quotaBackendBytes) || double(self.quotaBackendBytes) < {_SIZE_CEL}",
        lambda spec: spec.quota_backend_bytes is None or spec.quota_backend_bytes < parse_quantity(spec.storage.size),
        "{} is not below storage.size: the volume would be full before the quota is used up, and etcd exits if "
        "its volume is full. Lower quotaBackendBytes, raise storage.size, or remove quotaBackendBytes to derive "
        "it from storage.size.",
        at="quotaBackendBytes",
        value=("self.quotaBackendBytes", lambda spec: spec.quota_backend_bytes),
    ),
    _arguments(
        f"{ACCEPTED}|{RESERVED_FLAGS}|{REWRITTEN}",
        "'{}' is not a flag with its value that etcd accepts, or the operator does not know it. Write one flag per "
        "entry, such as --max-txn-ops=256 (see etcd --help).",
        refused=False,
    ),
    _arguments(
        RESERVED_FLAGS, "'{}' is set by another field or by the operator, or conflicts with the operator. Remove it."
    ),
    _arguments(REWRITTEN, "'{}' contains $(NAME), which Kubernetes replaces by a variable. Write the value itself."),
    *map(_absent_arguments, ((3, 4), (3, 5), (3, 7))),
    Rule(
        "!has(self.env) || !self.env.exists(variable, variable.name.startsWith('ETCD_'))",
        lambda spec: not any(variable.name.startswith("ETCD_") for variable in spec.env),
        "variables that begin with ETCD_ set flags of etcd, and etcd exits if a flag is set twice. Use a field "
        "of the spec or extraArgs.",
        at="env",
    ),
    reserved_prefix("labels", OWN_KEYS),
    reserved_prefix("annotations", OWN_KEYS),
    Rule(
        "!has(self.hibernate) || !self.hibernate || self.storage.medium == 'Volume'",
        lambda spec: not spec.hibernate or spec.storage.medium == "Volume",
        "members in memory would lose all data with their pods. Set storage.medium to Volume, or remove hibernate.",
        at="hibernate",
    ),
    Rule(
        "!has(self.restore) || self.storage.medium == 'Volume'",
        lambda spec: spec.restore is None or spec.storage.medium == "Volume",
        "a restore needs a volume, on which the data is created before a member starts. Set storage.medium to Volume.",
        at="restore",
    ),
    Rule(
        "!has(self.adopt) || self.storage.medium == 'Volume'",
        lambda spec: spec.adopt is None or spec.storage.medium == "Volume",
        "members in memory have no volumes that could be adopted. Set storage.medium to Volume, or remove adopt.",
        at="adopt",
    ),
    Rule(
        "!has(self.adopt) || !has(self.restore)",
        lambda spec: spec.adopt is None or spec.restore is None,
        "a cluster starts either with adopted volumes or with a snapshot. Remove adopt or restore.",
        at="adopt",
    ),
    immutable(
        "storage.medium",
        "self.storage.medium",
        lambda spec: spec.storage.medium,
        "data cannot be moved between the media. Restore a backup into another EtcdCluster.",
    ),
    immutable(
        "storage.storageClassName",
        "(has(self.storage.storageClassName) ? self.storage.storageClassName : '')",
        lambda spec: spec.storage.storage_class_name or "",
        "the class of an existing volume cannot be changed. Restore a backup into another EtcdCluster.",
    ),
    immutable(
        "tls.mode",
        "(has(self.tls) ? self.tls.mode : 'none')",
        lambda spec: spec.tls.mode,
        "members with different modes do not trust each other. Restore a backup into another EtcdCluster.",
    ),
)
