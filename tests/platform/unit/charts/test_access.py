"""RBAC rules: no wildcards, least privilege, limited to the watched namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.charts import (
    NAMESPACE,
    OPERATORS,
    VARIANTS,
    Obj,
    Values,
    is_hook,
    named,
    of_kind,
    only,
    pods,
    render,
)
from tools.local.paths import REPOSITORY

ROLES = ("Role", "ClusterRole")
BINDINGS = ("RoleBinding", "ClusterRoleBinding")
READ_MANY = {"list", "watch", "deletecollection"}

SWITCHES = {
    "memcached-operator": {"writeSecrets": ("", "secrets"), "certManager": ("cert-manager.io", "certificates")},
    "etcd-operator": {"writeSecrets": ("", "secrets"), "certManager": ("cert-manager.io", "certificates")},
    "redis-operator": {"certManager": ("cert-manager.io", "certificates")},
}
"""Values under rbac that grant optional permissions: API group and resource of each, by chart."""

CLUSTER_SWITCHES = {"redis-operator": {"nodes": ("", "nodes")}}
"""The same for cluster-scoped objects."""

WRITES_SECRETS = frozenset({"redis-operator"})
"""Charts of operators that create a Secret with ACL users for every resource."""


@pytest.fixture(params=OPERATORS)
def operator_chart(request: pytest.FixtureRequest, charts: Path) -> Path:
    return charts / str(request.param)


def rules(objects: list[Obj]) -> Iterator[tuple[Obj, Obj]]:
    """Yield each rule with its role."""
    for role in objects:
        if role["kind"] in ROLES:
            yield from ((role, rule) for rule in role["rules"])


def is_for_users(role: Obj) -> bool:
    """Return whether a role is meant for users, by aggregation or with a binding that they create."""
    labels = role["metadata"]["labels"]
    return any("aggregate-to-" in label for label in labels) or role["metadata"]["name"].endswith("-metrics-reader")


def test_leases_have_the_priority_of_leader_election(operator_chart: Path) -> None:
    """Otherwise they wait behind all other service accounts, and an API server under load costs the leader."""
    objects = render(operator_chart)
    flow = only(objects, "FlowSchema")
    assert flow["spec"]["priorityLevelConfiguration"] == {"name": "leader-election"}
    (rule,) = flow["spec"]["rules"]
    account = only(objects, "ServiceAccount")["metadata"]
    (subject,) = rule["subjects"]
    assert subject["serviceAccount"] == {"name": account["name"], "namespace": account["namespace"]}
    (granted,) = rule["resourceRules"]
    assert (granted["resources"], granted["namespaces"]) == (["leases"], [NAMESPACE])
    leases = [rule for _, rule in rules(objects) if rule.get("resources") == ["leases"]]
    assert set(granted["verbs"]) == {verb for rule in leases for verb in rule["verbs"]}


@pytest.mark.parametrize("values", [{"leaderElection": {"flowSchema": False}}, {"watchNamespaces": ["shop"]}])
def test_leases_have_no_priority_of_their_own_if_that_needs_other_rights(operator_chart: Path, values: Values) -> None:
    assert not of_kind(render(operator_chart, values), "FlowSchema")


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_rules_contain_no_wildcards(operator_chart: Path, values: Values) -> None:
    found = list(rules(render(operator_chart, values)))
    assert found
    for role, rule in found:
        entries = [
            *rule.get("apiGroups", ()),
            *rule.get("resources", ()),
            *rule["verbs"],
            *rule.get("nonResourceURLs", ()),
        ]
        assert "*" not in "".join(entries), role["metadata"]["name"]


def test_watched_objects_are_read_by_name_too(operator_chart: Path) -> None:
    """Of the change of a large object, only the name waits."""
    found = [
        (rule["resources"], rule["verbs"])
        for role, rule in rules(render(operator_chart))
        if "watch" in rule["verbs"] and not is_for_users(role)
    ]
    assert found
    assert [(resources, verbs) for resources, verbs in found if "get" not in verbs] == []


def test_secrets_are_watched_only_if_requested_and_never_listed(operator_chart: Path) -> None:
    for values, expected in (({}, set()), ({"rbac": {"watchSecrets": True}}, {"watch"})):
        verbs = [
            verb
            for role, rule in rules(render(operator_chart, values))
            if "secrets" in rule.get("resources", ()) and "resourceNames" not in rule and not is_for_users(role)
            for verb in rule["verbs"]
        ]
        assert READ_MANY & set(verbs) == expected


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_operator_reads_secrets_by_name_and_writes_only_its_own(operator_chart: Path, values: Values) -> None:
    """Optional permissions are switched off; the Redis operator writes the ACL Secrets of its resources."""
    switches = dict.fromkeys(SWITCHES.get(operator_chart.name, ()), False)
    for role, rule in rules(render(operator_chart, {**values, "rbac": {**values.get("rbac", {}), **switches}})):
        if "secrets" not in rule.get("resources", ()):
            continue
        if set(rule["verbs"]) != {"get"} and not (
            operator_chart.name in WRITES_SECRETS and "resourceNames" not in rule
        ):
            assert (role["kind"], role["metadata"]["namespace"]) == ("Role", NAMESPACE)
            assert rule["resourceNames"] == ["platform-" + operator_chart.name + "-certificates"]


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_secrets_are_never_listed_or_deleted(operator_chart: Path, values: Values) -> None:
    """Only the Secret with the operator's own certificate is watched, by its name."""
    for role, rule in rules(render(operator_chart, values)):
        if "secrets" in rule.get("resources", ()):
            own = {"watch"} if "resourceNames" in rule else set()
            assert set(rule["verbs"]) <= {"get", "create", "patch"} | own, role["metadata"]["name"]


def test_optional_permissions_follow_their_rbac_values(operator_chart: Path) -> None:
    files = {path.stem.removeprefix("rules-") for path in (operator_chart / "files").glob("rules-*.yaml")}
    known = SWITCHES.get(operator_chart.name, {})
    assert files == known.keys()
    role = named(render(operator_chart), "ClusterRole", operator_chart.name)
    for switch, (group, resource) in known.items():
        without = named(render(operator_chart, {"rbac": {switch: False}}), "ClusterRole", operator_chart.name)
        taken = [rule for rule in role["rules"] if rule not in without["rules"]]
        assert [(rule["apiGroups"], rule["resources"]) for rule in taken] == [([group], [resource])]


@pytest.mark.parametrize("namespaces", [[], ["shop"]], ids=["everywhere", "one-namespace"])
def test_optional_cluster_scoped_permissions_follow_their_rbac_values(
    operator_chart: Path, namespaces: list[str]
) -> None:
    paths = (operator_chart / "files").glob("cluster-rules-*.yaml")
    files = {path.stem.removeprefix("cluster-rules-") for path in paths}
    known = CLUSTER_SWITCHES.get(operator_chart.name, {})
    assert files == known.keys()
    for switch, (group, resource) in known.items():
        granted = {"watchNamespaces": namespaces}
        role = named(render(operator_chart, granted), "ClusterRole", "-cluster")
        without = named(render(operator_chart, {**granted, "rbac": {switch: False}}), "ClusterRole", "-cluster")
        taken = [rule for rule in role["rules"] if rule not in without["rules"]]
        assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in taken] == [
            ([group], [resource], ["get"])
        ]


def test_permissions_are_limited_to_the_watched_namespaces(operator_chart: Path) -> None:
    everywhere, bounded = render(operator_chart), render(operator_chart, {"watchNamespaces": ["shop", "search"]})
    roles = [obj for obj in of_kind(bounded, "Role") if not obj["metadata"]["name"].endswith("-own")]
    assert [obj["metadata"]["namespace"] for obj in roles] == ["shop", "search"]
    full = named(everywhere, "ClusterRole", operator_chart.name)
    assert all(obj["rules"] == full["rules"] for obj in roles)
    left = [obj["metadata"]["name"] for obj in of_kind(bounded, "ClusterRole") if not is_for_users(obj)]
    assert left == [f"platform-{operator_chart.name}-cluster"]
    assert {
        resource for _, rule in rules([named(bounded, "ClusterRole", "-cluster")]) for resource in rule["resources"]
    } == {
        "tokenreviews",
        "subjectaccessreviews",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        *(resource for _, resource in CLUSTER_SWITCHES.get(operator_chart.name, {}).values()),
    }, "only cluster-scoped resources"


def test_operator_in_one_namespace_needs_no_rights_in_the_cluster(operator_chart: Path) -> None:
    """With the values that the documentation names."""
    guide = (REPOSITORY / "docs/how-to/install.md").read_text()
    _, _, begun = guide.partition("# one-namespace.yaml\n")
    values: Values = yaml.safe_load(begun.partition("```")[0])
    if operator_chart.name != "redis-operator":
        del values["rbac"]["nodes"]
    made = render(operator_chart, values)
    cluster_scoped = {"CustomResourceDefinition", "Namespace", "Node", "PersistentVolume", "PriorityClass"}
    found = {obj["kind"] for obj in made}
    assert (
        not {kind for kind in found if kind.startswith(("Cluster", "Validating", "Mutating"))} | found & cluster_scoped
    )
    assert {"Deployment", "Role", "RoleBinding", "ServiceAccount"} <= found


@pytest.mark.parametrize(
    ("values", "resources"),
    [
        ({"webhook": {"enabled": False}}, {"tokenreviews", "subjectaccessreviews"}),
        ({"certificates": {"source": "certManager"}}, {"tokenreviews", "subjectaccessreviews"}),
        (
            {"metrics": {"secure": False}},
            {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
        ),
        ({"metrics": {"enabled": False}, "webhook": {"enabled": False}}, set()),
    ],
    ids=["no-webhook", "cert-manager", "plain-metrics", "neither"],
)
def test_disabled_features_get_no_permissions(operator_chart: Path, values: Values, resources: set[str]) -> None:
    switches = {"rbac": dict.fromkeys(CLUSTER_SWITCHES.get(operator_chart.name, ()), False)}
    roles = [
        obj
        for obj in of_kind(render(operator_chart, {**values, **switches}), "ClusterRole")
        if obj["metadata"]["name"].endswith("-cluster")
    ]
    assert {resource for _, rule in rules(roles) for resource in rule["resources"]} == resources


@pytest.mark.parametrize(
    ("values", "self_signed"),
    [
        ({}, True),
        ({"certificates": {"source": "secret", "secretName": "provided"}}, False),
        ({"certificates": {"source": "certManager"}}, False),
        ({"webhook": {"enabled": False}, "metrics": {"secure": False}}, False),
    ],
    ids=["self", "secret", "cert-manager", "nothing-served"],
)
def test_operator_gets_a_secret_only_for_self_signed_certificates(
    operator_chart: Path, values: Values, self_signed: bool
) -> None:
    objects = render(operator_chart, values)
    role = named(objects, "Role", "-own")
    assert any("secrets" in rule["resources"] for rule in role["rules"]) == self_signed
    assert bool(of_kind(objects, "Secret")) == self_signed


def test_bindings_connect_roles_and_service_accounts_of_the_chart(operator_chart: Path) -> None:
    objects = render(operator_chart)
    accounts = {
        (obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in objects if obj["kind"] == "ServiceAccount"
    }
    roles = {
        (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])
        for obj in objects
        if obj["kind"] in ROLES
    }
    bound = set()
    for binding in (obj for obj in objects if obj["kind"] in BINDINGS):
        reference = binding["roleRef"]
        bound.add((reference["kind"], binding["metadata"].get("namespace"), reference["name"]))
        assert {(subject["namespace"], subject["name"]) for subject in binding["subjects"]} <= accounts
    for_users = {
        role for role in roles if any(role[2].endswith(ending) for ending in ("-view", "-edit", "-metrics-reader"))
    }
    assert bound == roles - for_users


def test_rbac_objects_and_service_account_can_be_disabled(operator_chart: Path) -> None:
    values = {"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "external"}}
    objects = render(operator_chart, values)
    assert not [obj for kind in (*ROLES, *BINDINGS, "ServiceAccount") for obj in of_kind(objects, kind)]
    assert only(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "external"


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_service_account_tokens_are_mounted_only_into_pods_that_need_them(operator_chart: Path, values: Values) -> None:
    objects = render(operator_chart, values)
    for account in (obj for obj in objects if obj["kind"] == "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False, "each pod requests its token explicitly"
    for pod in pods(objects):
        assert pod["spec"]["automountServiceAccountToken"] is True
        account = pod["spec"]["serviceAccountName"]
        assert account.startswith("check-") == is_hook(pod)
