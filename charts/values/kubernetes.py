"""Parts of a pod as Kubernetes defines them, closed: a typo in one is refused by Helm, with its path.

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
    """One condition on a label; Gt and Lt compare labels of nodes only."""

    key: Text
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class LabelSelector(SpecModel):
    """Objects by their labels; what is given must all hold."""

    match_labels: Labels | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(SpecModel):
    """Nodes by their labels and fields."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(SpecModel):
    """Nodes for which one of the terms holds."""

    node_selector_terms: Annotated[list[NodeSelectorTerm], Field(min_length=1)]


class PreferredNodes(SpecModel):
    """Nodes to prefer, with how much."""

    weight: Weight
    preference: NodeSelectorTerm


class NodeAffinity(SpecModel):
    """On which nodes the pods run."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodes] | None = None


class PodAffinityTerm(SpecModel):
    """Other pods, and what of nodes makes being near to them."""

    topology_key: Text
    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredPods(SpecModel):
    """Other pods to prefer being near to or far from, with how much."""

    weight: Weight
    pod_affinity_term: PodAffinityTerm


class PodAffinity(SpecModel):
    """Near to which other pods the pods run, or far from which."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredPods] | None = None


class Affinity(SpecModel):
    """Where pods run, as in a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class KeyOf(SpecModel):
    """A key of a Secret or a ConfigMap."""

    name: Text
    key: Text
    optional: bool | None = None


class FieldOf(SpecModel):
    """A field of the pod."""

    field_path: Text
    api_version: str | None = None


class ResourceOf(SpecModel):
    """A request or a limit of a container."""

    resource: Text
    container_name: str | None = None
    divisor: str | None = None


class VariableSource(SpecModel):
    """Where a variable's value comes from."""

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
    """The name of an object in the release's namespace."""

    name: Text
