"""Parts of a pod template for which no pod is restarted: a new value is adopted with the next other change. Pure.

A new version of an operator may prefer another probe, or bring another image of a sidecar. Neither is worth a restart
of every server. While nothing else in the template changes, the workload therefore keeps its current values of these
parts. The first other change of the template adopts the new values with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shared.kubernetes import managed_fields
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj

_TEMPLATE = "spec.template"


class Deferred(NamedTuple):
    """A field of a container that does not restart pods by itself.

    Attributes:
        container: name of the container.
        field: field of the container, such as `image` or `livenessProbe`.
    """

    container: str
    field: str


class Digest(NamedTuple):
    """How outdated pods of a workload with the strategy OnDelete are found.

    Attributes:
        annotation: annotation of templates and pods with the digest.
        of: returns the digest of a template. Parts that restart no pod are not in it.
    """

    annotation: str
    of: Callable[[Obj], str]


def keep_deferred(
    desired: Obj,
    current: Obj | None,
    parts: Sequence[Deferred],
    manager: str,
    digest: Digest | None = None,
) -> Obj:
    """Return the workload to apply: with the current deferred parts if no other change restarts its pods.

    Without a record of what this manager applied, nothing is known about the origin of the current values, and the
    desired ones are returned.

    Args:
        desired: Deployment or StatefulSet as built from the spec.
        current: the workload as observed; None if it does not exist.
        manager: field manager that applies the workload.
        digest: changes of the template that restart pods; None if every change does.
    """
    applied = _containers(managed_fields.applied(current, manager) or {}) if current is not None else {}
    if current is None or not applied:
        return desired
    kept = copy.deepcopy(desired)
    for container, field in parts:
        if container in applied:
            _set(_containers(kept).get(container, {}), field, applied[container].get(field))
    if digest is not None:
        template = kept["spec"]["template"]
        template["metadata"]["annotations"][digest.annotation] = digest.of(template)
    return desired if restarts_pods(kept, current, manager, digest) else kept


def restarts_pods(desired: Obj, current: Obj, manager: str, digest: Digest | None = None) -> bool:
    """Return whether applying a workload restarts its pods.

    Args:
        digest: changes of the template that restart pods; None if every change does.
    """
    if digest is not None:
        one, other = (annotation(each["spec"]["template"], digest.annotation) for each in (desired, current))
        return one != other
    return any(map(_changes_template, managed_fields.difference(desired, current, manager)))


def _changes_template(path: str) -> bool:
    return _TEMPLATE.startswith(path) or path.startswith(f"{_TEMPLATE}.")


def _containers(workload: Obj) -> dict[str, Obj]:
    """Return the containers of a workload's template by name."""
    pod: Obj = workload.get("spec", {}).get("template", {}).get("spec", {})
    return {container["name"]: container for container in pod.get("containers", ())}


def _set(container: Obj, field: str, value: Any) -> None:
    """Set a field of a container, or remove it if the value is None."""
    container.pop(field, None)
    if value is not None:
        container[field] = value
