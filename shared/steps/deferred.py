"""Parts of a pod template for which no pod is restarted: a new value is adopted with the next other change. Pure.

A new version of an operator may prefer another probe, or bring another image of a sidecar. Neither is worth a restart
of every server. While nothing else in the template changes, the workload therefore keeps its current values of these
parts. The first other change of the template adopts the new values with it. A value that the spec sets, or no longer
sets, is applied at once; an annotation of the workload records which values are from the spec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from shared.kubernetes import managed_fields
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj

_TEMPLATE = "spec.template"
_POD = ("spec", "template", "spec")
_CONTAINERS = (*_POD, "containers")

FROM_SPEC = "platform.ydzs.io/from-spec"
"""Annotation of a workload: the deferred parts whose present values are from the spec, separated by commas."""


class Deferred(NamedTuple):
    """A field of a container, or of the pod, that does not restart pods by itself.

    Attributes:
        container: name of the container; empty for a field of the pod.
        field: the field, such as `image` or `livenessProbe`.
    """

    container: str
    field: str

    def __str__(self) -> str:
        return f"{self.container}.{self.field}" if self.container else self.field


AFFINITY = Deferred("", "affinity")
"""Affinity of the pods: by default, operators spread them over zones."""


def without(template: Obj, parts: Collection[Deferred]) -> Obj:
    """Return a template without deferred parts."""
    pod = {name: value for name, value in template["spec"].items() if Deferred("", name) not in parts}
    pod["containers"] = [
        {name: value for name, value in each.items() if Deferred(each["name"], name) not in parts}
        for each in pod["containers"]
    ]
    return {**template, "spec": pod}


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
    *,
    from_spec: Sequence[Deferred] = (),
) -> Obj:
    """Return the workload to apply: with the current deferred parts if no other change restarts its pods.

    Without a record of what this manager applied, nothing is known about the origin of the current values, and the
    desired ones are returned.

    Args:
        desired: Deployment or StatefulSet as built from the spec.
        current: the workload as observed; None if it does not exist.
        manager: field manager that applies the workload.
        digest: changes of the template that restart pods; None if every change does.
        from_spec: parts that the spec sets; they are not deferred.
    """
    desired = _recording(desired, from_spec)
    given, present = {*annotation(current, FROM_SPEC).split(","), *map(str, from_spec)}, _holders(desired)
    parts = [part for part in parts if part.container in present and str(part) not in given]
    if current is None or not (parts or digest):
        return desired
    names = [(*_CONTAINERS, managed_fields.named(container), "name") for container in present if container]
    applied = _holders(managed_fields.applied(current, manager, *names, *map(_path, parts)) or {})
    if not applied:
        return desired
    parts = [part for part in parts if part.container in applied]
    values = {part: applied[part.container].get(part.field) for part in parts}
    if digest is None and all(present[part.container].get(part.field) == value for part, value in values.items()):
        return desired
    kept = _with_own_parts(desired)
    holders = _holders(kept)
    for part, value in values.items():
        _set(holders[part.container], part.field, value)
    if digest is not None:
        template = kept["spec"]["template"]
        template["metadata"]["annotations"][digest.annotation] = digest.of(template)
    return desired if restarts_pods(kept, current, manager, digest) else kept


def _with_own_parts(workload: Obj) -> Obj:
    """Return a copy of a workload whose pod, its containers, and annotations of the template can be changed."""
    spec, template = workload["spec"], dict(workload["spec"]["template"])
    template["spec"] = template["spec"] | {"containers": [dict(each) for each in template["spec"]["containers"]]}
    if annotations := template.get("metadata", {}).get("annotations"):
        template["metadata"] = template["metadata"] | {"annotations": dict(annotations)}
    return {**workload, "spec": spec | {"template": template}}


def _recording(workload: Obj, from_spec: Sequence[Deferred]) -> Obj:
    """Return the workload with the annotation that names the parts from the spec."""
    if not from_spec:
        return workload
    metadata = workload["metadata"]
    recorded = {FROM_SPEC: ",".join(sorted(map(str, from_spec)))}
    return {**workload, "metadata": metadata | {"annotations": metadata.get("annotations", {}) | recorded}}


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


def _holders(workload: Obj) -> dict[str, Obj]:
    """Return the holders of deferred parts in a workload's template: its pod (with an empty name) and containers."""
    pod: Obj = workload.get("spec", {}).get("template", {}).get("spec", {})
    containers = {container["name"]: container for container in pod.get("containers", ())}
    return {"": pod} | containers if containers else {}


def _path(part: Deferred) -> tuple[str, ...]:
    """Return the path of a part in a workload (`managed_fields.applied`)."""
    holder = (*_CONTAINERS, managed_fields.named(part.container)) if part.container else _POD
    return (*holder, part.field)


def _set(holder: Obj, field: str, value: Any) -> None:
    """Set a field of a container or a pod, or remove it if the value is None."""
    holder.pop(field, None)
    if value is not None:
        holder[field] = value
