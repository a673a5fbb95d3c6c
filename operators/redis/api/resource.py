"""The RedisCluster resource: its kind, its columns, and one parsed object with what its status recorded."""

from __future__ import annotations

from collections.abc import Mapping

from operators.redis.api.engine_versions import Engine, engine_named
from operators.redis.api.rules import TOO_OLD_RULES
from operators.redis.api.spec import DEFAULT_VERSIONS, RedisClusterSpec
from operators.redis.api.status import (
    FormingNode,
    RecordedNode,
    RedisClusterStatus,
    assigned_moves,
    engine_of,
    former_nodes,
    forming_nodes,
    recorded_nodes,
)
from operators.redis.slots.slot_planner import Move
from shared.api.crd import PrinterColumn, Resource, Scale
from shared.api.image import Image
from shared.api.rules import NAMES_A_SET
from shared.api.spec import CustomResource, parse
from shared.kubernetes.kinds import Kind, Obj

API = Resource(
    kind=Kind("redis.middleware.hc.cn", "v1alpha1", "RedisCluster", "redisclusters"),
    spec=RedisClusterSpec,
    status=RedisClusterStatus,
    description="A Redis or Valkey cluster that grows, shrinks, heals and upgrades without losing a write.",
    short_names=("rec",),
    categories=("platform",),
    columns=(
        PrinterColumn("Replicas", ".spec.replicas", "integer", "Pods wanted."),
        PrinterColumn("Ready", ".status.readyReplicas", "integer", "Nodes that serve."),
        PrinterColumn("Masters", ".status.masters", "integer", "Masters that own slots."),
        PrinterColumn("Phase", ".status.phase", "string", "What it is doing."),
        PrinterColumn("Version", ".status.version", "string", "The lowest that a node runs."),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since it was created."),
        PrinterColumn("Image", ".status.image", "string", "The nodes' image.", wide=True),
        PrinterColumn(
            "Message", ".status.conditions[?(@.type=='Ready')].message", "string", "Why it is as it is.", wide=True
        ),
    ),
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    rules=(NAMES_A_SET, *TOO_OLD_RULES),
)


class RedisCluster(CustomResource[RedisClusterSpec]):
    """One RedisCluster, parsed."""

    @classmethod
    def parse(cls, obj: Obj) -> RedisCluster:
        """The resource as a model, with what `default` fills in.

        One of a version that the operator does not work with is parsed, too: what runs is reported all the same.

        Raises:
            InvalidSpec: a field is wrong, or nothing tells the version; the message says which and what to give.
        """
        resource = cls.read(obj)
        resource.spec.target  # noqa: B018 - refused now, rather than wherever it is asked first
        return resource

    @classmethod
    def read(cls, obj: Obj) -> RedisCluster:
        """The same, of which nobody asks the version yet: `validate` has more to say than that it is missing.

        Raises:
            InvalidSpec: a field is wrong.
        """
        obj = default(obj)
        return cls(obj, parse(RedisClusterSpec, obj.get("spec") or {}, at="spec"))

    @property
    def engine(self) -> Engine:
        """What nodes are to run."""
        return self.spec.target

    @property
    def primaries(self) -> int:
        """How many masters are wanted."""
        return self.spec.primaries

    def image_reference(self, repository: str) -> str:
        """The nodes' image, from a repository where the spec names none."""
        return self.spec.image_reference(repository)

    @property
    def has_storage(self) -> bool:
        """Whether each node has a volume of its own."""
        return self.spec.storage is not None

    @property
    def config_template(self) -> str:
        """Name of the ConfigMap with the user's redis.conf; empty if there is none."""
        return self.spec.template.configmap or ""

    @property
    def formed(self) -> bool:
        """Whether it ever was a cluster: then no slot is given to a node that is empty, unless a person allows it."""
        return bool(self.reported.get("formed"))

    @property
    def forming(self) -> tuple[FormingNode, ...]:
        """The masters of the cluster that is about to begin, as they were written down."""
        return forming_nodes(self.reported)

    @property
    def recorded_nodes(self) -> tuple[RecordedNode, ...]:
        """Its nodes as the status last told of them."""
        return recorded_nodes(self.reported)

    @property
    def former_nodes(self) -> Mapping[str, str]:
        """Names of the pods that nodes were in that are gone for good, by the nodes' ids."""
        return former_nodes(self.reported)

    @property
    def recorded_assigned(self) -> tuple[Move, ...]:
        """What new masters were to take (spec.updateStrategy), as it was written down."""
        return assigned_moves(self.reported)

    @property
    def recovery_token(self) -> str:
        """What spec.recovery.confirm must say to give up lost slots' keys; empty if nothing is to be confirmed."""
        return str((self.reported.get("recovery") or {}).get("token") or "")


def default(obj: Obj) -> Obj:
    """A version where nothing tells one: what runs, so that a newer operator upgrades nobody unasked; else ours."""
    spec = obj.get("spec")
    if not isinstance(spec, dict) or spec.get("version") is not None:
        return obj
    image, engine = _given_image(spec), spec.get("engine")
    try:
        if Image.parse(image).tag or Image.parse(image).digest:
            return obj
    except ValueError:
        pass  # none is given, or it is refused for what it is
    if engine != "redis" and engine != "valkey":
        engine = engine_named(image)
    running = engine_of(obj.get("status") or {})
    version = str(running.version) if running and running.name == engine else DEFAULT_VERSIONS[engine]
    return {**obj, "spec": {**spec, "version": version}}


def _given_image(spec: Obj) -> str:
    """What `RedisClusterSpec.image_name` is, of a spec that may be wrong."""
    pods = spec.get("pod")
    first = pods[0] if isinstance(pods, list) and pods else None
    image = (first.get("middlewareImage") if isinstance(first, dict) else None) or spec.get("repository")
    return image if isinstance(image, str) else ""
