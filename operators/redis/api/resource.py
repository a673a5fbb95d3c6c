"""The RedisCluster resource: what it is to Kubernetes, and what is said of one at the door and in the reconcile."""

from __future__ import annotations

from collections.abc import Mapping

from operators.redis.api.engine_versions import Engine, Version, engine_named, upgrade_refusal
from operators.redis.api.pod_template import wrong_affinity
from operators.redis.api.rules import TOO_OLD_RULES
from operators.redis.api.spec import DEFAULT_VERSIONS, MAX_MEMORY, RedisClusterSpec
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
from operators.redis.api.warnings import data_loss_of, warnings_for
from operators.redis.slots.slot_planner import CannotAssign, CannotMove, Move, assigned
from shared.api.crd import Column, Resource, Scale
from shared.api.image import Image
from shared.api.rules import NAMES_A_SET
from shared.api.spec import Admission, CustomResource, InvalidSpec, Review, contradictions, parse
from shared.kubernetes.kinds import Kind, Obj

__all__ = ["ADMISSION", "API", "FormingNode", "RecordedNode", "RedisCluster", "default", "review", "validate"]

API = Resource(
    kind=Kind("redis.middleware.hc.cn", "v1alpha1", "RedisCluster", "redisclusters"),
    spec=RedisClusterSpec,
    status=RedisClusterStatus,
    description="A Redis or Valkey cluster that grows, shrinks, heals and upgrades without losing a write.",
    short_names=("rec",),
    categories=("platform",),
    columns=(
        Column("Replicas", ".spec.replicas", "integer", "Pods wanted."),
        Column("Ready", ".status.readyReplicas", "integer", "Nodes that serve."),
        Column("Masters", ".status.masters", "integer", "Masters that own slots."),
        Column("Phase", ".status.phase", "string", "What it is doing."),
        Column("Version", ".status.version", "string", "The lowest that a node runs."),
        Column("Age", ".metadata.creationTimestamp", "date", "Time since it was created."),
        Column("Image", ".status.image", "string", "The nodes' image.", wide=True),
        Column("Message", ".status.conditions[?(@.type=='Ready')].message", "string", "Why it is as it is.", wide=True),
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
    def masters(self) -> int:
        """How many masters are wanted."""
        return self.spec.masters

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


def validate(resource: RedisCluster, before: RedisCluster | None = None) -> list[str]:
    """What makes a resource impossible: the CEL rules once more, for one that came past them, and what CEL cannot say.

    But not whether its version is too old: the plan asks that by itself (`versions.refusal`), and cares for what runs.

    Args:
        before: what it was; without it, nothing is said of the change.
    """
    wrong = contradictions(resource, (NAMES_A_SET,), before)
    if wrong:
        return wrong
    return [
        *_wrong_affinity(resource),
        *_wrong_memory(resource),
        *_mismatch(resource),
        *(_refused_change(resource, before) if before is not None else ()),
    ]


def review(new: Obj, old: Obj | None) -> Review:
    """What makes a resource, or the change to it, impossible, and what a person should know before."""
    try:
        resource = RedisCluster.read(new)
    except InvalidSpec as wrong:
        return Review(errors=(str(wrong),))
    try:
        before = RedisCluster.parse(old) if old else None
    except InvalidSpec:  # it came past admission; now it is mended
        before = None
    too_old = [rule.sentence(resource) for rule in TOO_OLD_RULES if not rule.holds(resource)]
    if errors := [*too_old, *validate(resource, before)]:
        return Review(errors=tuple(errors))
    return Review(warnings=(*warnings_for(resource), *(data_loss_of(resource, before) if before is not None else ())))


def _wrong_affinity(resource: RedisCluster) -> list[str]:
    spec = resource.spec
    given = {"spec.affinity": spec.affinity, "spec.pod[0].affinity": spec.template.affinity}
    return [f"{at}: {said}" for at, affinity in given.items() if (said := wrong_affinity(affinity))]


def _wrong_memory(resource: RedisCluster) -> list[str]:
    """What nodes may take is an amount, and given once."""
    spec = resource.spec
    named = next((variable for variable in spec.pods.env if variable.name == MAX_MEMORY), None)
    at = "spec.env" if "env" in spec.model_fields_set else "spec.pod[0].env"
    if named is not None and named.value is None:
        return [f"{at}: {MAX_MEMORY} is read when pods are made; give it a value, such as 2gb, rather than a source."]
    if named is not None and "maxmemory" in spec.config:
        return [f"spec.config: maxmemory stands in {at} ({MAX_MEMORY}), too; remove one of the two."]
    try:
        spec.max_memory  # noqa: B018 - asked for what is wrong with it
    except InvalidSpec as wrong:
        return [str(wrong)]
    return []


def _mismatch(resource: RedisCluster) -> list[str]:
    """What pods run, and what the operator asks of them, must be the same version."""
    spec = resource.spec
    try:
        tagged = Version.parse(spec.tag)
    except ValueError:
        return []
    if tagged == resource.engine.version:
        return []
    return [
        f"spec.version: says {resource.engine.version}, and the tag of pod[0].middlewareImage {tagged}: nodes would be "
        "asked for what another version can do. Make them the same, or remove version."
    ]


def _refused_change(resource: RedisCluster, before: RedisCluster) -> list[str]:
    """What a change must not do, judged by what the status last told; the reconcile asks the nodes."""
    said = []
    if resource.engine != before.engine:
        running = [node.engine for node in before.recorded_nodes if node.engine is not None]
        if refusal := upgrade_refusal(running, resource.engine):
            field = "version" if resource.spec.version != before.spec.version else "repository"
            said.append(f"spec.{field}: {refusal}")
    return [*said, *_refused_assignment(resource, before)]


def _refused_assignment(resource: RedisCluster, before: RedisCluster) -> list[str]:
    """Slots for masters that this change adds, which the nodes named do not have to give."""
    strategy = resource.spec.update_strategy
    changed = (resource.masters, strategy) != (before.masters, before.spec.update_strategy)
    if not (before.formed and changed and strategy.type == "AssignReceive"):
        return []
    owners = {node.node_id: node.slots for node in before.recorded_nodes if node.slots}
    served = owners.keys() | {move.target for move in before.recorded_assigned}
    joining = [f"new master {number + 1}" for number in range(resource.masters - len(served))]
    if not joining:
        return []
    try:
        assigned(owners, strategy.strategies, joining)
    except CannotAssign as error:
        return [str(error)]
    except CannotMove:  # slots are on their way: the reconcile judges what they have come to
        return []
    return []


ADMISSION = Admission(API.kind, default, review)
