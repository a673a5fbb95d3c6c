"""Templates of a workload, present and former, and which of them a pod was created from. Pure.

Kubernetes keeps the former templates of a StatefulSet as ControllerRevisions, and those of a Deployment as ReplicaSets
(ten of each, by default). Both copy the annotations of the workload, so that they also have the spec of the resource
that was applied with the template.

Source: newRevision in pkg/controller/statefulset/stateful_set_utils.go and SetNewReplicaSetAnnotations in
pkg/controller/deployment/util/deployment_util.go of Kubernetes 1.33.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shared.api.applied_spec import APPLIED_SPEC
from shared.kubernetes import accessors
from shared.kubernetes.encoding import decode
from shared.kubernetes.kinds import POD, Kind, Obj
from shared.kubernetes.ownership import controller_of
from simulator.differences import changes

CONTROLLER_REVISION = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")

REVISION = "controller-revision-hash"
"""Label of a pod of a StatefulSet: name of the ControllerRevision that it was created from."""

ROLLOUT = "deployment.kubernetes.io/revision"
"""Annotation of a ReplicaSet: number of its template."""

DIGEST = "/template"
"""End of the annotation in which an operator records the digest of what a restart needs.

Templates with the same digest replace no pods: they differ in what servers apply while they run.
"""


@dataclass(frozen=True, slots=True)
class Template:
    """A template that a workload has, or had.

    Attributes:
        name: name of the ControllerRevision or ReplicaSet.
        number: number of the template: a larger one was used later.
        made: time at which it was used first. A return to a former template keeps its time.
        content: the pod template.
        spec: spec of the resource that was applied when it was used first; None if that is not recorded.
    """

    name: str
    number: int
    made: str
    content: Obj
    spec: Obj | None = None

    @property
    def key(self) -> str:
        """Value that is the same in templates between which no pod is replaced."""
        annotations = self.content["metadata"].get("annotations") or {}
        return next((str(text) for name, text in annotations.items() if name.endswith(DIGEST)), self.name)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a template that replaces pods.

    Attributes:
        before, after: the templates.
        made: time of the change; empty if the workload returned to a former template, which has an earlier time.
        fields: fields that differ, as "path: old → new".
    """

    before: Template
    after: Template
    made: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The workload of a resource with its templates.

    Attributes:
        workload: None if there is none, or it cannot be read.
        templates: in the order in which they were used.
        unread: why something of it cannot be read; empty if all was read.
    """

    workload: Obj | None = None
    templates: tuple[Template, ...] = ()
    unread: str = ""

    @property
    def present(self) -> Template | None:
        return self.templates[-1] if self.templates else None

    def of_pod(self, pod: Obj) -> Template | None:
        """Return the template that a pod was created from; None if it is not kept."""
        names = {accessors.label(pod, REVISION), (controller_of(pod) or {}).get("name")}
        return next((each for each in self.templates if each.name in names), None)

    def change_to(self, template: Template) -> Change | None:
        """Return the change by which the workload got a template; None if no earlier one that differs is kept."""
        at = self.templates.index(template)
        while at and self.templates[at - 1].key == template.key:
            at -= 1
        return _change(self.templates[at - 1], self.templates[at]) if at else None

    def change_since(self, template: Template) -> Change | None:
        """Return what the present template changes for the pods of a former one; None if it replaces no pods."""
        present = self.present
        if present is None or present.key == template.key:
            return None
        last = self.change_to(present)
        return _change(template, present if last is None else last.after)


def templates(workload: Obj, kept: Iterable[Obj], resource: Obj) -> tuple[Template, ...]:
    """Return the templates of a workload, in the order in which they were used.

    Args:
        kept: ControllerRevisions and ReplicaSets of the namespace; those of other workloads are left out.
        resource: resource of the workload.
    """
    uid = workload["metadata"].get("uid")
    own = [each for each in kept if (controller_of(each) or {}).get("uid") == uid]
    found = [_template(each, noted(each, resource)) for each in own]
    return tuple(sorted(filter(None, found), key=lambda each: each.number))


def noted(obj: Obj | None, resource: Obj) -> Obj | None:
    """Return the spec of a resource that its operator noted with a workload; None if there is none.

    The annotation is that of `shared.api.applied_spec`.
    """
    try:
        found = decode(accessors.annotation(obj, APPLIED_SPEC) or "{}")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("uid") != resource["metadata"].get("uid"):
        return None
    spec = found.get("spec")
    return spec if isinstance(spec, dict) else None


def _template(kept: Obj, spec: Obj | None) -> Template | None:
    """Return the template of a ControllerRevision or ReplicaSet; None for one that has none."""
    data = kept.get("data")
    holder = (data if isinstance(data, dict) else kept).get("spec")
    content = holder.get("template") if isinstance(holder, dict) else None
    number = kept.get("revision") or accessors.annotation(kept, ROLLOUT)
    if not isinstance(content, dict) or not isinstance(content.get("metadata"), dict) or not str(number).isdecimal():
        return None
    metadata = kept["metadata"]
    return Template(metadata["name"], int(number), str(metadata.get("creationTimestamp") or ""), content, spec)


def _change(before: Template, after: Template) -> Change:
    made = after.made if after.made >= before.made else ""
    return Change(before, after, made, tuple(changes(_plain(before), _plain(after), POD)))


def _plain(template: Template) -> Obj:
    return {key: value for key, value in template.content.items() if not key.startswith("$")}
