"""Validation of RedisClusters, at admission and in the reconcile, and admission warnings. Pure."""

from __future__ import annotations

from operators.redis.api.engine_versions import Version, upgrade_refusal
from operators.redis.api.memory import parse_memory
from operators.redis.api.pod_template import wrong_affinity
from operators.redis.api.resource import API, RedisCluster, default, refused_directives
from operators.redis.api.rules import VERSION_RULES
from operators.redis.api.spec import MAX_MEMORY
from operators.redis.api.warnings import SENSIBLE_MEMORY, data_loss_of, notes_for, warnings_for
from operators.redis.slots.slot_planner import CannotAssign, CannotMove, assigned
from shared.api.rules import NAMES_A_SET
from shared.api.spec import Admission, Exposure, InvalidSpec, Review, contradictions
from shared.kubernetes.kinds import Obj

MIN_MEMORY = 16 << 20
"""Least memory limit in bytes: an empty node of redis 8.0 or valkey 9.1 uses about 15 MiB."""


def validate(resource: RedisCluster, before: RedisCluster | None = None) -> list[str]:
    """Return the errors of a resource: the CEL rules, for a resource that bypassed them, and rules that CEL cannot
    express.

    The supported versions are checked by a step of the plan (`refuse_version`), so that running nodes are still
    maintained.

    Args:
        before: the resource before the change; without it, the change is not validated.
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
    """Return the errors and the warnings of a resource or a change."""
    try:
        resource = RedisCluster.read(new)
    except InvalidSpec as wrong:
        return Review(errors=(str(wrong),))
    try:
        before = RedisCluster.parse(old) if old else None
    except InvalidSpec:  # it bypassed admission, and is now being corrected
        before = None
    unsupported = [rule.sentence(resource) for rule in VERSION_RULES if not rule.holds(resource)]
    errors = [*unsupported, *validate(resource, before)]
    if not errors:  # directives are judged for a valid version
        errors = [*_refused_config(resource, before), *_too_small(resource, before)]
    if errors:
        return Review(errors=tuple(errors))
    data_loss = data_loss_of(resource, before) if before is not None else []
    return Review(warnings=(*warnings_for(resource), *data_loss), notes=tuple(notes_for(resource)))


def _wrong_affinity(resource: RedisCluster) -> list[str]:
    spec = resource.spec
    given = {"spec.affinity": spec.affinity, "spec.pod[0].affinity": spec.template.affinity}
    return [f"{at}: {problem}" for at, affinity in given.items() if (problem := wrong_affinity(affinity))]


def _wrong_memory(resource: RedisCluster) -> list[str]:
    """Return errors of maxmemory: the amount must be valid, and given only once."""
    spec = resource.spec
    named = next((variable for variable in spec.pods.env if variable.name == MAX_MEMORY), None)
    at = "spec.env" if "env" in spec.model_fields_set else "spec.pod[0].env"
    if named is not None and named.value is None:
        return [f"{at}: {MAX_MEMORY} needs a value, such as 2gb; valueFrom is not supported."]
    if named is not None and "maxmemory" in spec.config:
        return [f"spec.config: maxmemory is also set in {at} ({MAX_MEMORY}); remove one of the two."]
    try:
        parse_memory((named.value if named is not None else None) or "0")
    except ValueError as error:
        return [f"spec.{MAX_MEMORY}: {error}."]
    return []


def _refused_config(resource: RedisCluster, before: RedisCluster | None) -> list[str]:
    """Return the errors of directives that are new, changed, or newly refused by a change of the version.

    A value that the resource already has does not prevent other changes: `report_refused_config` reports it.
    """
    kept = {} if before is None else {name: before.spec.config.get(name) for name in refused_directives(before)}
    return [
        f"spec.config: {name} {why}; it is set to '{value}'. Correct or remove it."
        for name, why in refused_directives(resource).items()
        if kept.get(name) != (value := resource.spec.config[name])
    ]


def _too_small(resource: RedisCluster, before: RedisCluster | None) -> list[str]:
    """Return the error of a memory limit in which the engine cannot start, unless the resource already has it."""
    limit = resource.spec.memory_limit
    if limit is None or limit >= MIN_MEMORY or (before is not None and before.spec.memory_limit == limit):
        return []
    given = resource.spec.pods.resources.limits["memory"]
    return [
        f"spec.resources: limits.memory is {given}, but an empty node uses about 15 MiB: its container would be killed "
        f"when it starts. Use at least {SENSIBLE_MEMORY >> 20}Mi."
    ]


def _mismatch(resource: RedisCluster) -> list[str]:
    """Return an error if the version differs from the tag of the image."""
    spec = resource.spec
    try:
        tagged = Version.parse(spec.tag)
    except ValueError:
        return []
    if tagged == resource.engine.version:
        return []
    return [
        f"spec.version: {resource.engine.version} differs from the tag of pod[0].middlewareImage, {tagged}; the "
        "operator selects features by version. Make them equal, or remove version."
    ]


def _refused_change(resource: RedisCluster, before: RedisCluster) -> list[str]:
    """Return the errors of a change, judged by the recorded status; the reconcile inspects the nodes."""
    errors = []
    if resource.engine != before.engine:
        running = [node.engine for node in before.recorded_nodes if node.engine is not None]
        if refusal := upgrade_refusal(running, resource.engine):
            field = "version" if resource.spec.version != before.spec.version else "repository"
            errors.append(f"spec.{field}: {refusal}")
    return [*errors, *_refused_assignment(resource, before)]


def _refused_assignment(resource: RedisCluster, before: RedisCluster) -> list[str]:
    """Return the errors of manual assignments for new primaries, if the named nodes own too few slots."""
    strategy = resource.spec.update_strategy
    changed = (resource.primaries, strategy) != (before.primaries, before.spec.update_strategy)
    if not (before.formed and changed and strategy.type == "AssignReceive"):
        return []
    owners = {node.node_id: node.slots for node in before.recorded_nodes if node.slots}
    served = owners.keys() | {move.target for move in before.recorded_assigned}
    joining = [f"new primary {number + 1}" for number in range(resource.primaries - len(served))]
    if not joining:
        return []
    try:
        assigned(owners, strategy.strategies, joining)
    except CannotAssign as error:
        return [str(error)]
    except CannotMove:  # a migration is running: the reconcile decides
        return []
    return []


def exposure(resource: RedisCluster) -> Exposure:
    """Return how far a resource is open."""
    spec, template = resource.spec, resource.spec.template
    given = "spec.pod[0].middlewareImage" if template.middleware_image else "spec.repository"
    exporter = "spec.pod[0].monitorImage" if template.monitor_image else "spec.metrics.image"
    images = {given: spec.image_name, exporter: spec.exporter_image, "spec.pod[0].initImage": template.init_image}
    return Exposure(
        tls=spec.tls.mode != "none",
        auth=spec.auth is not None,
        restricted=spec.network.restricts_clients,
        images={field: image for field, image in images.items() if image} | spec.extra_images,
        host_path="spec.pod[0].volumes" if template.volumes and template.volumes.type == "hostPath" else "",
    )


ADMISSION = Admission(API.kind, default, review, lambda obj: exposure(RedisCluster.read(obj)))
