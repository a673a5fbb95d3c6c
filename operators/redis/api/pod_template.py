"""The pod settings of the spec: pod[0] and its volumes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from operators.redis.api.rules import POD_RULES, VOLUME_RULES
from shared.api.podspec import OPAQUE, EnvVar, LabelValue, PodSettings, ResourceRequirements, distinct
from shared.api.spec import AtMost, Name, Rule, SpecModel
from shared.kubernetes.kinds import Obj

ImageName = Annotated[str, Field(max_length=512)]

HOST_DIRECTORY = "/var/lib/redis.middleware.hc.cn"
"""Directory of hostPath volumes on each Kubernetes node."""

_NODE_RULES = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


class PodUpdateStrategy(SpecModel):
    """How outdated pods are replaced."""

    type: Literal["RollingUpdate", "OnDelete"] | None = Field(
        None,
        description="RollingUpdate (default): the operator recreates outdated pods one at a time, replicas first, and "
        "each primary after a replica took over. OnDelete: delete the pods yourself; the Ready condition names them. "
        "A change takes effect at once and restarts nothing.",
    )


class Volumes(SpecModel):
    """Where nodes keep their data, instead of on volumes of their own (spec.storage)."""

    type: Literal["hostPath", "nfs"] = Field(
        description="nfs: one shared volume, with a directory for each pod. hostPath: a directory for each pod in "
        f"{HOST_DIRECTORY} on its Kubernetes node. That directory must exist with mode 1777, the namespace must allow "
        "hostPath, and a pod that moves to another Kubernetes node starts empty: its data is on the former one. "
        "Immutable."
    )
    persistent_volume_claim_name: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        None,
        description="PersistentVolumeClaim in the same namespace with access mode ReadWriteMany. Required with type "
        "nfs, not allowed otherwise.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = VOLUME_RULES


class PodTemplate(SpecModel):
    """Settings of all pods; the list has at most one entry."""

    labels: Annotated[dict[str, LabelValue], AtMost(32)] = Field(
        default_factory=dict, description="Labels added to the pods. Same as spec.labels; set only one of the two."
    )
    annotations: Annotated[dict[str, str], AtMost(64)] = Field(
        default_factory=dict,
        description="Annotations added to the pods. Same as spec.annotations; set only one of the two.",
    )
    env: Annotated[list[EnvVar], Field(max_length=128), distinct("name")] = Field(
        default_factory=list,
        description="Environment variables of the containers. Same as spec.env; set only one of the two. MAXMEMORY "
        "sets maxmemory, in the format of redis.conf, such as 2gb. Other changes restart the pods one by one.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    affinity: dict[str, Any] | None = Field(
        None,
        description="Affinity rules of the pods. Same as spec.affinity; set only one of the two.",
        json_schema_extra=OPAQUE,
    )
    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements,
        description="Resources of the redis container. Same as spec.resources; set only one of the two. A change "
        "restarts the pods one by one.",
    )
    update_strategy: PodUpdateStrategy = Field(
        default_factory=PodUpdateStrategy, description="How outdated pods are replaced."
    )
    volumes: Volumes | None = Field(None, description="Storage of the nodes, instead of spec.storage. Immutable.")
    configmap: Name | None = Field(
        None,
        description="ConfigMap in the same namespace with the key redis.conf, the base configuration of the nodes. "
        "spec.config and directives of the operator override it. Lines with a placeholder such as {POD_NAME}, and "
        "directives that only the operator sets, are ignored; users and renamed commands are refused. Changes apply "
        "live where the engine allows it, else by restarting the pods one by one.",
    )
    monitor_image: ImageName | None = Field(
        None,
        description="Image of the metrics exporter, which runs in each pod and serves metrics on port 9121, unless "
        "spec.metrics.enabled is false. Same as spec.metrics.image. A change restarts the pods one by one.",
    )
    init_image: ImageName | None = Field(
        None,
        description="Image of an init container. It runs its own entrypoint, with the data mounted at /data, before "
        "redis starts. Default: none. A change restarts the pods one by one.",
    )
    middleware_image: ImageName | None = Field(
        None,
        description="Image of the redis container; overrides spec.repository. Without a tag, spec.version is the tag. "
        "A change restarts the pods one by one.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = (*PodSettings.RULES, *POD_RULES)


def normalized_affinity(affinity: Obj | None) -> Obj | None:
    """Return affinity rules as a pod accepts them: node rules under nodeAffinity, and no null values.

    Manifests that lost the indentation under nodeAffinity are common, and have only one possible meaning.
    """
    if affinity is None:
        return None
    kept = {name: rules for name, rules in affinity.items() if rules is not None and name not in _NODE_RULES}
    strayed = {name: affinity[name] for name in _NODE_RULES if affinity.get(name) is not None}
    if not strayed:
        return kept
    nodes = kept.get("nodeAffinity")
    return kept | {"nodeAffinity": strayed | (nodes if isinstance(nodes, dict) else {})}


def strayed(affinity: Obj | None) -> list[str]:
    """Return the node rules that are next to nodeAffinity instead of under it."""
    return [name for name in _NODE_RULES if (affinity or {}).get(name) is not None]


def wrong_affinity(affinity: Obj | None) -> str:
    """Return why affinity rules are invalid; empty if they are not. Kubernetes validates the rules themselves."""
    known = {"nodeAffinity", "podAffinity", "podAntiAffinity"}
    if unknown := sorted((affinity or {}).keys() - known - set(_NODE_RULES)):
        return f"{unknown[0]} is not an affinity; use nodeAffinity, podAffinity or podAntiAffinity."
    for name in strayed(affinity):
        if ((affinity or {}).get("nodeAffinity") or {}).get(name) is not None:
            return f"{name} is set both under nodeAffinity and next to it; remove one of the two."
    return ""
