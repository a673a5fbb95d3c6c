"""The RedisCluster resource: its kind, its columns, and a parsed resource with its recorded status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from operators.redis.api.directives import RESERVED, refusal
from operators.redis.api.engine_versions import Engine, EngineName, engine_named
from operators.redis.api.node_entries import lacks_nodes, recorded_entries
from operators.redis.api.rules import VERSION_RULES
from operators.redis.api.spec import DEFAULT_VERSIONS, RedisClusterSpec
from operators.redis.api.status import (
    FormingNode,
    PlacementAttempt,
    RecordedNode,
    RedisClusterStatus,
    engine_of,
    recorded_jobs,
    recorded_moves,
    recorded_node,
)
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move, RecordedJob, RecordedMove
from shared.api.crd import READY_MESSAGE, READY_REASON, PrinterColumn, Resource, Scale
from shared.api.image import Image
from shared.api.rules import NAMES_A_SET
from shared.api.spec import CustomResource, parse
from shared.kubernetes.kinds import Kind, Obj

API = Resource(
    kind=Kind("redis.middleware.hc.cn", "v1alpha1", "RedisCluster", "redisclusters"),
    spec=RedisClusterSpec,
    status=RedisClusterStatus,
    description="A Redis or Valkey cluster that scales, recovers and upgrades while it serves clients. Replication is "
    "asynchronous: a write that a primary acknowledged is lost if the primary fails before a replica received it, and "
    "a replica takes over. docs/concepts/durability.md describes what is lost when.",
    short_names=("rec",),
    categories=("platform",),
    columns=(
        PrinterColumn("Replicas", ".spec.replicas", "integer", "Desired number of pods."),
        PrinterColumn("Ready", ".status.readyReplicas", "integer", "Number of nodes that serve clients."),
        PrinterColumn("Primaries", ".status.masters", "integer", "Number of primaries that own slots."),
        PrinterColumn("Phase", ".status.phase", "string", "Current phase."),
        READY_REASON,
        PrinterColumn("Version", ".status.version", "string", "Lowest version that a node runs."),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since creation."),
        PrinterColumn("Image", ".status.image", "string", "Image of the nodes.", wide=True),
        READY_MESSAGE,
    ),
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    rules=(NAMES_A_SET, *VERSION_RULES),
)

MINIMAL: Obj = {"replicas": 6}
"""A valid spec with only the required fields."""


@dataclass(frozen=True)
class RedisCluster(CustomResource[RedisClusterSpec]):
    """A parsed RedisCluster; `kept_primaries` is the number of primaries while replicas stay that the spec removes."""

    kept_primaries: int = 0

    @classmethod
    def parse(cls, obj: Obj, versions: Mapping[EngineName, str] = DEFAULT_VERSIONS) -> RedisCluster:
        """Parse a resource with its defaults.

        A resource with an unsupported version is parsed too, so that its status is still reported.

        Args:
            versions: versions of a new resource that names none.

        Raises:
            InvalidSpec: a field is invalid, or nothing contains the version; the message names the field.
        """
        resource = cls.read(obj, versions)
        resource.spec.target  # noqa: B018 - raises here rather than at first use
        return resource

    @classmethod
    def read(cls, obj: Obj, versions: Mapping[EngineName, str] = DEFAULT_VERSIONS) -> RedisCluster:
        """Parse a resource without checking its version, which `validate` does with all other rules.

        Args:
            versions: versions of a new resource that names none.

        Raises:
            InvalidSpec: a field is invalid.
        """
        obj = default(obj, versions)
        return cls(obj, parse(RedisClusterSpec, obj.get("spec") or {}, at="spec"))

    @cached_property
    def engine(self) -> Engine:
        """Return the engine to run."""
        return self.spec.target

    @property
    def primaries(self) -> int:
        """Return the desired number of primaries."""
        return self.kept_primaries or self.spec.primaries

    def image_reference(self, repository: str) -> str:
        """Return the image of the nodes.

        Args:
            repository: repository if the spec names none.
        """
        return self.spec.image_reference(repository)

    @property
    def has_storage(self) -> bool:
        """Return whether each node has its own volume."""
        return self.spec.storage is not None

    @property
    def config_template(self) -> str:
        """Return the name of the ConfigMap with the user's redis.conf; empty if there is none."""
        return self.spec.template.configmap or ""

    @property
    def formed(self) -> bool:
        """Return whether the cluster was created. Then empty nodes get lost slots only if a user confirms the loss."""
        return bool(self.reported.get("formed"))

    @property
    def forming(self) -> tuple[FormingNode, ...]:
        """Return the recorded primaries of the cluster that is being created."""
        found = self.reported.get("forming") or ()
        return tuple(FormingNode(node["name"], node["nodeId"], node["epoch"], node["slots"]) for node in found)

    @property
    def began_with_conditions(self) -> bool:
        """Return whether a status without status.nodes was found: then readers of the entries in conditions may exist.

        That is permanent, unless the CRD in use does not keep it. Then status.nodes is missing as well.
        """
        return bool(self.reported.get("nodesInConditions")) or lacks_nodes(self.reported)

    @property
    def has_nodes_in_conditions(self) -> bool:
        """Return whether status.conditions has an entry for each node, in addition to status.nodes.

        While status.nodes is missing, it is not known that the CRD in use keeps that field. So the entries in
        conditions are only omitted once the API server has returned status.nodes.
        """
        if lacks_nodes(self.reported):
            return True
        chosen = self.spec.nodes_in_conditions
        return chosen if chosen is not None else self.spec.has_first_fields or self.began_with_conditions

    @cached_property
    def recorded_nodes(self) -> tuple[RecordedNode, ...]:
        """Return the nodes as last recorded in the status."""
        return tuple(map(recorded_node, recorded_entries(self.reported)))

    @property
    def former_nodes(self) -> Mapping[str, str]:
        """Return the pod names of nodes that were removed permanently, by node id."""
        return {node["nodeId"]: node["name"] for node in self.reported.get("former") or ()}

    @property
    def recorded_assigned(self) -> tuple[Move, ...]:
        """Return the recorded slots that new primaries are to receive (spec.updateStrategy)."""
        found = self.reported.get("assigned") or ()
        return tuple(Move(move["from"], move["to"], Slots.parse(move["slots"])) for move in found)

    @property
    def recorded_moves(self) -> tuple[RecordedMove, ...]:
        """Return the slot moves that the status records."""
        return recorded_moves(self.reported)

    @cached_property
    def recorded_jobs(self) -> tuple[RecordedJob, ...]:
        """Migration jobs of the servers that the operator started."""
        return recorded_jobs(self.reported)

    @property
    def recorded_foreign(self) -> Mapping[str, Slots]:
        """Return the slots of which a primary holds keys without owning them, by node id."""
        return {entry["nodeId"]: Slots.parse(entry["slots"]) for entry in self.reported.get("foreign") or ()}

    @property
    def placement_attempt(self) -> PlacementAttempt | None:
        """Return the recorded attempt of a failover that spreads the primaries; None if there is none."""
        found = self.reported.get("placement")
        return PlacementAttempt(found["from"], found["to"], datetime.fromisoformat(found["since"])) if found else None


def refused_directives(resource: RedisCluster) -> dict[str, str]:
    """Return the directives of spec.config that the version of the spec refuses, with the reasons.

    Directives of modules are unknown here; the user's redis.conf may load some.
    """
    config = resource.spec.config
    modules = "loadmodule" in config or bool(resource.config_template)
    found = {
        name: refusal(name, value, resource.engine, modules=modules)
        for name, value in config.items()
        if name not in RESERVED
    }
    return {name: why for name, why in found.items() if why}


def default(obj: Obj, versions: Mapping[EngineName, str] = DEFAULT_VERSIONS) -> Obj:
    """Return the resource with a default version: the running one, so that a new operator upgrades no cluster.

    Args:
        versions: versions of a new resource.
    """
    spec = obj.get("spec")
    if not isinstance(spec, dict) or spec.get("version") is not None:
        return obj
    image, engine = _given_image(spec), spec.get("engine")
    try:
        if Image.parse(image).tag or Image.parse(image).digest:
            return obj
    except ValueError:
        pass  # no image, or an invalid one, which validation reports
    if engine != "redis" and engine != "valkey":
        engine = engine_named(image)
    running = engine_of(obj.get("status") or {})
    version = str(running.version) if running and running.name == engine else versions[engine]
    return {**obj, "spec": {**spec, "version": version}}


def _given_image(spec: Obj) -> str:
    """Return `RedisClusterSpec.image_name` of a spec that may be invalid."""
    pods = spec.get("pod")
    first = pods[0] if isinstance(pods, list) and pods else None
    image = (first.get("middlewareImage") if isinstance(first, dict) else None) or spec.get("repository")
    return image if isinstance(image, str) else ""
