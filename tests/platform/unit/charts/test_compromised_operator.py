"""The rights of each operator are those in SECURITY.md, "A compromised operator": no more, and no less."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.platform.unit.charts.test_access import is_for_users, rules
from tests.support.charts import Obj, Values, is_hook, render

READ, CHANGE = {"get", "list", "watch"}, {"create", "patch"}
OWNED = READ | CHANGE | {"delete"}

ALL: dict[str, set[str]] = {
    "secrets": {"get"} | CHANGE,
    "services": READ | CHANGE,
    "certificates": {"get"} | CHANGE,
    "statefulsets": OWNED,
    "poddisruptionbudgets": OWNED,
    "networkpolicies": OWNED,
    "pods/resize": {"patch"},
    "events": {"get"} | CHANGE,
}
"""Rights of every operator in the namespaces that it serves, by resource."""

FURTHER: dict[str, dict[str, set[str]]] = {
    "etcd-operator": {
        "etcdclusters": READ,
        "etcdbackups": OWNED,
        "pods": OWNED,
        "pods/eviction": {"create"},
        "persistentvolumeclaims": OWNED,
    },
    "redis-operator": {
        "redisclusters": READ,
        "configmaps": READ | CHANGE,
        "pods": READ | {"patch", "delete"},
        "pods/eviction": {"create"},
        "persistentvolumeclaims": READ | {"patch", "delete"},
    },
    "memcached-operator": {
        "memcacheds": READ,
        "deployments": OWNED,
        "replicasets": {"get"},
        "pods": READ | {"patch"},
        "horizontalpodautoscalers": OWNED,
    },
}

REVIEWS: dict[str, set[str]] = {"tokenreviews": {"create"}, "subjectaccessreviews": {"create"}}
WEBHOOKS: dict[str, set[str]] = {
    f"{kind}webhookconfigurations": {"get", "watch", "patch"} for kind in ("mutating", "validating")
}


@pytest.fixture(params=sorted(FURTHER))
def chart(request: pytest.FixtureRequest, charts: Path) -> Path:
    return charts / str(request.param)


def granted(chart: Path, values: Values | None = None, *, ending: str = "-operator") -> dict[str, set[str]]:
    """Return the verbs by resource of the operator's roles whose name has an ending, without status and finalizers."""
    found = defaultdict[str, set[str]](set)
    for role, rule in rules(render(chart, values or {})):
        if role["metadata"]["name"].endswith(ending) and not is_for_users(role) and not is_hook(role):
            for resource in rule.get("resources", ()):
                found[resource] |= {*rule["verbs"]}
    return {name: verbs for name, verbs in found.items() if not name.endswith(("/status", "/finalizers"))}


def test_operator_has_exactly_the_documented_rights_in_the_namespaces_that_it_serves(chart: Path) -> None:
    assert granted(chart) == ALL | FURTHER[chart.name]


def test_operator_has_exactly_the_documented_rights_in_the_cluster(chart: Path) -> None:
    nodes: dict[str, set[str]] = {"nodes": {"get"}} if chart.name == "redis-operator" else {}
    assert granted(chart, ending="-cluster") == REVIEWS | WEBHOOKS | nodes


def test_webhook_configurations_are_limited_to_those_of_the_operator(chart: Path) -> None:
    named = [rule for _, rule in rules(render(chart)) if "admissionregistration.k8s.io" in rule.get("apiGroups", ())]
    assert [rule["resourceNames"] for rule in named] == [[f"platform-{chart.name}"]]


@pytest.mark.parametrize(
    "values", [{"certificates": {"source": "certManager"}}, {"webhook": {"enabled": False}}], ids=["certManager", "off"]
)
def test_right_to_change_webhook_configurations_can_be_taken_away(chart: Path, values: Values) -> None:
    assert not granted(chart, values, ending="-cluster").keys() & WEBHOOKS.keys()


FORBIDDEN = {
    *("roles", "rolebindings", "clusterroles", "clusterrolebindings", "serviceaccounts", "serviceaccounts/token"),
    *("pods/log", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"),
    *("namespaces", "customresourcedefinitions", "pods/ephemeralcontainers", "persistentvolumes"),
}


def test_operator_can_change_no_roles_read_no_logs_and_execute_no_commands(chart: Path) -> None:
    everything: list[Obj] = render(chart)
    found = {resource for role, rule in rules(everything) if not is_for_users(role) for resource in rule["resources"]}
    verbs = {verb for role, rule in rules(everything) if not is_for_users(role) for verb in rule["verbs"]}
    assert not found & FORBIDDEN
    assert not verbs & {"escalate", "bind", "impersonate", "deletecollection"}


def test_users_cannot_write_the_status(chart: Path) -> None:
    """The status records which Secrets the operator made."""
    for role, rule in rules(render(chart)):
        if is_for_users(role) and any(name.endswith("/status") for name in rule.get("resources", ())):
            assert {*rule["verbs"]} <= READ


@pytest.mark.parametrize("name", ["etcd-operator", "memcached-operator"])
def test_right_to_write_secrets_can_be_taken_away(charts: Path, name: str) -> None:
    assert granted(charts / name, {"rbac": {"writeSecrets": False}})["secrets"] == {"get"}
