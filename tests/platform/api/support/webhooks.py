"""Webhook configurations like those of the chart, but called by URL, for an operator on this machine."""

from __future__ import annotations

from typing import Any

from operators.memcached.api.resource import API
from shared.kubernetes.errors import Invalid
from shared.kubernetes.kinds import CRD, Obj
from shared.pki.trust_bundle import MUTATING, VALIDATING
from tests.platform.api.support.world import World

BAD: dict[str, Any] = {"memoryMB": 64, "maxItemSizeMB": 33}
SENTENCE = "33 is more than half of memoryMB, the maximum that memcached accepts; lower it, or raise memoryMB."

SPEC_CHANGED = "!has(object.metadata.deletionTimestamp) && (oldObject == null || object.?spec != oldObject.?spec)"
"""Updates that only remove a finalizer bypass the webhook, so that they succeed without an operator."""


def configurations(name: str, port: int, namespace: str, *, failure_policy: str = "Fail") -> list[Obj]:
    """Return both configurations for one namespace and an operator whose webhooks listen on a local port."""
    kind = API.kind
    about = {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "resources": [kind.plural],
        "scope": "Namespaced",
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}

    def webhook(path: str, **more: Any) -> Obj:
        return {
            "name": f"{path}.{kind.plural}.{kind.group}",
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{path}"},
            "rules": [{**about, "operations": ["CREATE", "UPDATE"]}],
            "matchConditions": [{"name": "spec-changed", "expression": SPEC_CHANGED}],
            "namespaceSelector": selector,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
            "failurePolicy": failure_policy,
            **more,
        }

    bodies = ((MUTATING, webhook("default", reinvocationPolicy="IfNeeded")), (VALIDATING, webhook("validate")))
    return [
        {"apiVersion": of.api_version, "kind": of.name, "metadata": {"name": name}, "webhooks": [body]}
        for of, body in bodies
    ]


def remove_rules(world: World) -> None:
    """Remove the validation rules from the CRD, so that only the webhooks and the reconcile reject specs."""
    name = f"{API.kind.plural}.{API.kind.group}"
    world.user_client.update(CRD, _without_rules(world.user_client.get(CRD, None, name)))
    world.eventually(lambda: _accepts_bad_spec(world))


def _without_rules(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_rules(inner) for inner in node]
    if isinstance(node, dict):
        return {key: _without_rules(inner) for key, inner in node.items() if key != "x-kubernetes-validations"}
    return node


def _accepts_bad_spec(world: World) -> bool:
    try:
        world.create("probe", **BAD)
    except Invalid:
        return False
    world.remove(API.kind, "probe")
    return True
