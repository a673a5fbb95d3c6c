"""Parts of the pod API with unknown keys rejected: Helm reports a typo with its path.

Source: https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#podspec-v1-core
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.api.podspec import LabelValue
from shared.api.spec import SpecModel

Text = Annotated[str, Field(min_length=1)]
Weight = Annotated[int, Field(ge=1, le=100)]
Labels = dict[str, LabelValue]
Strings = dict[str, str]


class Requirement(SpecModel):
    """A label selector requirement. Gt and Lt are valid for node labels only."""

    key: Text
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class LabelSelector(SpecModel):
    """A label selector; all requirements must hold."""

    match_labels: Labels | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(SpecModel):
    """Requirements on node labels and fields; all must hold."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(SpecModel):
    """A node selector; at least one term must hold."""

    node_selector_terms: Annotated[list[NodeSelectorTerm], Field(min_length=1)]


class PreferredNodes(SpecModel):
    """A preferred node selector term with a weight."""

    weight: Weight
    preference: NodeSelectorTerm


class NodeAffinity(SpecModel):
    """Node affinity of the pods."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodes] | None = None


class PodAffinityTerm(SpecModel):
    """A set of pods and the topology domain in which to be, or not to be, co-located with them."""

    topology_key: Text
    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredPods(SpecModel):
    """A preferred pod affinity term with a weight."""

    weight: Weight
    pod_affinity_term: PodAffinityTerm


class PodAffinity(SpecModel):
    """Affinity or anti-affinity to other pods."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredPods] | None = None


class Affinity(SpecModel):
    """Scheduling constraints, as in a pod's spec.affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class KeyOf(SpecModel):
    """Reference to a key of a Secret or ConfigMap."""

    name: Text
    key: Text
    optional: bool | None = None


class FieldOf(SpecModel):
    """Reference to a field of the pod."""

    field_path: Text
    api_version: str | None = None


class ResourceOf(SpecModel):
    """Reference to a resource request or limit of a container."""

    resource: Text
    container_name: str | None = None
    divisor: str | None = None


class VariableSource(SpecModel):
    """Source of an environment variable's value."""

    secret_key_ref: KeyOf | None = None
    config_map_key_ref: KeyOf | None = None
    field_ref: FieldOf | None = None
    resource_field_ref: ResourceOf | None = None


class EnvironmentVariable(SpecModel):
    """An environment variable of a container."""

    name: Text
    value: str | None = None
    value_from: VariableSource | None = None


class LocalName(SpecModel):
    """Reference to an object in the release's namespace."""

    name: Text
