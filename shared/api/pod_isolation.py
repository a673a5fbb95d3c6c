"""Settings of pods that Kubernetes would accept, and that reach beyond the pod and its namespace. Pure.

Annotations are free text, and affinity is passed on unchanged, so that both are searched for these settings. The fields
of security contexts have none of them: the models of `pod_extensions.py` do not have those fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_PROFILES = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
)
"""Annotations that replace the AppArmor or seccomp profile of a container; kubelets still obey the first one."""

_CONFINED = ("runtime/default", "docker/default", "localhost/")

_POD_RULES = ("podAffinity", "podAntiAffinity")


def unconfined_annotation(annotations: Mapping[str, str]) -> str:
    """Return an annotation that removes the AppArmor or seccomp profile of a container; empty if there is none."""
    return next(
        (key for key, value in annotations.items() if key.startswith(_PROFILES) and not value.startswith(_CONFINED)), ""
    )


def reaches_other_namespaces(affinity: Mapping[str, Any] | None) -> bool:
    """Whether an affinity selects pods of other namespaces: its own pods could keep them from their nodes."""
    return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(affinity or {}))


def _terms(affinity: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the terms of rules about pods; Kubernetes rejects what has another type."""
    for name in _POD_RULES:
        rules = affinity.get(name)
        for terms in rules.values() if isinstance(rules, dict) else ():
            for term in terms if isinstance(terms, list) else ():
                preferred = term.get("podAffinityTerm") if isinstance(term, dict) else None
                found = preferred if preferred is not None else term
                if isinstance(found, dict):
                    yield found
