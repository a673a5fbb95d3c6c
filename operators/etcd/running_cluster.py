"""The cluster as it runs: the state that is healed while the spec is paused, invalid or not applied. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects import names
from operators.etcd.objects.command_line import QUOTA, number_given
from operators.etcd.state.observed import Instance
from operators.etcd.steps.adoption import is_adopting
from operators.etcd.steps.guards import is_foreign
from operators.etcd.steps.version_change import running_image, running_version


def as_it_runs(seen: Assessment, /) -> Assessment:
    """Return the cluster with its present size and settings, instead of the spec's, and without foreign volumes."""
    own = _without_foreign(seen)
    running = seen.resource.changed_to({"size": _size(own)} | _template(own))
    return replace(own, resource=running, spec_applies=False)


def _without_foreign(seen: Assessment) -> Assessment:
    """Return the observed state without volumes of another cluster, which are neither used nor deleted.

    A member on such a volume stays, but nothing counts as evidence that its data is lost. Volumes that are adopted now
    are kept: the status records them.
    """
    resource = seen.resource
    if is_adopting(seen):
        return seen

    def own(instance: Instance) -> Instance:
        if not is_foreign(resource, instance):
            return instance
        return replace(instance, volume=None, disk="", empty=None)

    kept = (each for each in seen.instances if each.member or each.pod_obj or not is_foreign(resource, each))
    return replace(seen, instances=tuple(map(own, kept)))


def _size(seen: Assessment) -> int:
    """Return the number of members, with those that are being replaced."""
    resource = seen.resource
    recorded = (names.number_of(resource, member.name) for member in resource.recorded_members if member.stays)
    present = (instance.number for instance in seen.instances if instance.member)
    numbers = [number for number in (*recorded, *present) if number is not None]
    return 1 + max(numbers) if numbers else resource.spec.size


def _template(seen: Assessment) -> dict[str, Any]:
    """Return the fields of the spec that follow from the StatefulSet's template."""
    if seen.stateful_set is None:
        return {}
    found: dict[str, Any] = {"image": running_image(seen)}
    if running := running_version(seen):
        found["version"] = str(running)
    quota = number_given(seen.stateful_set["spec"]["template"], QUOTA)
    return found | ({"quota_backend_bytes": quota} if quota else {})
