"""The parts of the spec that say what pods are like: pod[0], its volumes, and what is read from them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from operators.redis.api.rules import POD_RULES, VOLUME_RULES
from shared.api.podspec import OPAQUE, EnvVar, LabelValue, PodSettings, ResourceRequirements, distinct
from shared.api.spec import Name, Rule, SpecModel
from shared.kubernetes.kinds import Obj

ImageName = Annotated[str, Field(max_length=512)]

HOST_DIRECTORY = "/var/lib/redis.middleware.hc.cn"
"""Where volumes of type hostPath lie on each node of Kubernetes."""

_NODE_RULES = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


class PodUpdateStrategy(SpecModel):
    """How pods that are not as the spec says come to be so."""

    type: Literal["RollingUpdate", "OnDelete"] | None = Field(
        None,
        description="RollingUpdate, if not given: the operator replaces them, replicas first, and a master after a "
        "replica of it took over. OnDelete: you do, by deleting them; the operator tells which they are.",
    )


class Volumes(SpecModel):
    """Where nodes keep their data, if not on volumes of their own (spec.storage)."""

    type: Literal["hostPath", "nfs"] = Field(
        description="nfs: one volume for all, with a directory for each pod. hostPath: a directory for each pod in "
        f"{HOST_DIRECTORY} on each node of Kubernetes; that must be there and open to all (mode 1777), the namespace "
        "must allow it, and a pod that moves to another node comes back empty. It stays as it was created."
    )
    persistent_volume_claim_name: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        None,
        description="Where type is nfs: PersistentVolumeClaim in the same namespace, which many nodes of Kubernetes "
        "may mount at once (ReadWriteMany).",
    )

    RULES: ClassVar[tuple[Rule, ...]] = VOLUME_RULES


class PodTemplate(SpecModel):
    """What pods are like; one entry is for all of them."""

    labels: Annotated[dict[str, LabelValue], Field(max_length=32)] = Field(
        default_factory=dict, description="As spec.labels."
    )
    annotations: Annotated[dict[str, str], Field(max_length=64)] = Field(
        default_factory=dict, description="As spec.annotations."
    )
    env: Annotated[list[EnvVar], AfterValidator(distinct), Field(max_length=128)] = Field(
        default_factory=list,
        description="As spec.env. MAXMEMORY sets maxmemory, in words of redis.conf such as 2gb.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    affinity: dict[str, Any] | None = Field(None, description="As spec.affinity.", json_schema_extra=OPAQUE)
    resources: ResourceRequirements = Field(
        default_factory=ResourceRequirements, description="As spec.resources: of the container that redis runs in."
    )
    update_strategy: PodUpdateStrategy = Field(
        default_factory=PodUpdateStrategy, description="How pods that are not as the spec says come to be so."
    )
    volumes: Volumes | None = Field(
        None, description="Where nodes keep their data, if not on volumes of their own (spec.storage)."
    )
    configmap: Name | None = Field(
        None,
        description="ConfigMap in the same namespace with the key redis.conf: what nodes are configured with, under "
        "spec.config and what the operator sets itself. Lines with a placeholder such as {POD_NAME}, and directives "
        "of the operator's own, are left out.",
    )
    monitor_image: ImageName | None = Field(
        None,
        description="Image of the exporter, which then runs beside each node and serves metrics on port 9121, unless "
        "spec.metrics.enabled is false. The same as spec.metrics.image.",
    )
    init_image: ImageName | None = Field(
        None,
        description="Image of a container that runs to its end, by its own entrypoint and with the data at /data, "
        "before redis starts. If not given, there is none.",
    )
    middleware_image: ImageName | None = Field(
        None,
        description="Image of the container that redis runs in; wins over spec.repository. Without a tag of its own "
        "it is pulled by spec.version.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = (*PodSettings.RULES, *POD_RULES)


def mended(affinity: Obj | None) -> Obj | None:
    """Rules of affinity as a pod takes them: those for nodes stand under nodeAffinity, and nothing is null.

    A manifest that has lost the indentation under nodeAffinity is a common one, and can be meant in one way only.
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
    """Rules for nodes that stand beside nodeAffinity rather than under it."""
    return [name for name in _NODE_RULES if (affinity or {}).get(name) is not None]


def wrong_affinity(affinity: Obj | None) -> str:
    """What no pod would take of rules of affinity; empty if nothing. What else they say, Kubernetes judges."""
    known = {"nodeAffinity", "podAffinity", "podAntiAffinity"}
    if unknown := sorted((affinity or {}).keys() - known - set(_NODE_RULES)):
        return f"{unknown[0]} is no part of it; give nodeAffinity, podAffinity or podAntiAffinity."
    for name in strayed(affinity):
        if ((affinity or {}).get("nodeAffinity") or {}).get(name) is not None:
            return f"{name} stands under nodeAffinity and beside it; remove one of the two."
    return ""
