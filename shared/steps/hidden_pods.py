"""Pods of a StatefulSet that exist, but lack a label by which the operator and its StatefulSet find them.

Without a label of its selector, the StatefulSet controller removes its owner reference from a pod at once, and can
create no other pod of that name. No proof is left that the pod belongs to the resource: a label on another pod would
give it the clients of the database. So a user restores the label; the StatefulSet then adopts the pod again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from shared.kubernetes.accessors import is_terminating, label
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import TooLarge
from shared.kubernetes.kinds import POD, Obj
from shared.kubernetes.kubectl import command
from shared.kubernetes.ownership import COMPONENT, INSTANCE, MANAGED_BY, NAME
from shared.steps.instance import Instance

MAX_READS = 3
"""Number of missing pods that a reconcile reads by name."""

InstanceT = TypeVar("InstanceT", bound=Instance)


async def with_hidden(kube: Kube, stateful_set: Obj | None, instances: Sequence[InstanceT]) -> tuple[InstanceT, ...]:
    """Return the instances with the reason why the operator does not see an existing pod."""
    if stateful_set is None:
        return tuple(instances)
    hidden = await _hidden(kube, stateful_set, {each.name for each in instances if each.pod_obj})
    return tuple(replace(each, hidden=hidden.get(each.name, "")) for each in instances)


async def _hidden(kube: Kube, stateful_set: Obj, present: Collection[str]) -> dict[str, str]:
    """Return, by name, why pods that should exist are not among the present ones, as `Instance.hidden`."""
    metadata = stateful_set["metadata"]
    labels = {key: label(stateful_set, key) for key in (NAME, INSTANCE, COMPONENT, MANAGED_BY)}
    names = (f"{metadata['name']}-{number}" for number in range(stateful_set["spec"]["replicas"]))
    missing = islice((name for name in names if name not in present), MAX_READS)  # of any number of replicas
    found = {name: await _why_hidden(kube, metadata["namespace"], name, labels) for name in missing}
    return {name: why for name, why in found.items() if why}


async def _why_hidden(kube: Kube, namespace: str, name: str, expected: Mapping[str, str]) -> str:
    try:
        pod = await kube.find(POD, namespace, name)
    except TooLarge:
        edit = command("edit", f"pod {name}", namespace)
        return f"cannot be read, and is not managed. Remove what others have added to it: {edit}"
    lost = [f"{key}={value}" for key, value in expected.items() if label(pod, key) != value]
    if pod is None or not lost or is_terminating(pod):  # it was created since, or will be replaced
        return ""
    restore = command("label", f"pod {name}", namespace, *lost, "--overwrite")
    return f"lacks the label {' and '.join(lost)}, and is not managed. Run {restore}, or delete the pod"
