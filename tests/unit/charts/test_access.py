"""Rights: no wildcard, no more than is used, and none beyond the namespaces that are served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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

ROLES = ("Role", "ClusterRole")
BINDINGS = ("RoleBinding", "ClusterRoleBinding")
READ_MANY = {"list", "watch", "deletecollection"}

SWITCHES = {
    "etcd-operator": {"selfSigned": ("", "secrets"), "certManager": ("cert-manager.io", "certificates")},
    "redis-operator": {"certManager": ("cert-manager.io", "certificates")},
}
"""Values under rbac that give further rights, and to what."""

MAKES_SECRETS = frozenset({"redis-operator"})
"""Charts of operators that make a Secret for each of their resources: who may enter is in it."""


@pytest.fixture(params=OPERATORS)
def operator_chart(request: pytest.FixtureRequest, charts: Path) -> Path:
    return charts / str(request.param)


def rules(objects: list[Obj]) -> Iterator[tuple[Obj, Obj]]:
    """Each rule, with the role it is in."""
    for role in objects:
        if role["kind"] in ROLES:
            yield from ((role, rule) for rule in role["rules"])


def is_for_people(role: Obj) -> bool:
    """Whether it is a role that people get, by aggregation or by a binding of their own."""
    labels = role["metadata"]["labels"]
    return any("aggregate-to-" in label for label in labels) or role["metadata"]["name"].endswith("-metrics-reader")


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_no_right_is_a_wildcard(operator_chart: Path, values: Values) -> None:
    found = list(rules(render(operator_chart, values)))
    assert found
    for role, rule in found:
        said = [
            *rule.get("apiGroups", ()),
            *rule.get("resources", ()),
            *rule["verbs"],
            *rule.get("nonResourceURLs", ()),
        ]
        assert "*" not in "".join(said), role["metadata"]["name"]


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_secrets_are_got_by_name_and_written_only_where_they_are_its_own(operator_chart: Path, values: Values) -> None:
    """Unless its resources have Secrets of its making: all of them, or some, and a value takes such a right away."""
    switches = dict.fromkeys(SWITCHES.get(operator_chart.name, ()), False)
    for role, rule in rules(render(operator_chart, {**values, "rbac": {**values.get("rbac", {}), **switches}})):
        if "secrets" not in rule.get("resources", ()):
            continue
        if set(rule["verbs"]) != {"get"} and not (operator_chart.name in MAKES_SECRETS and "resourceNames" not in rule):
            assert (role["kind"], role["metadata"]["namespace"]) == ("Role", NAMESPACE)
            assert rule["resourceNames"] == ["platform-" + operator_chart.name + "-certificates"]


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_nobody_lists_or_deletes_secrets_whatever_is_switched_on(operator_chart: Path, values: Values) -> None:
    for role, rule in rules(render(operator_chart, values)):
        if "secrets" in rule.get("resources", ()):
            assert set(rule["verbs"]) <= {"get", "create", "patch"}, role["metadata"]["name"]


def test_a_right_that_few_need_is_a_values_to_give(operator_chart: Path) -> None:
    files = {path.stem.removeprefix("rules-") for path in (operator_chart / "files").glob("rules-*.yaml")}
    known = SWITCHES.get(operator_chart.name, {})
    assert files == known.keys()
    role = named(render(operator_chart), "ClusterRole", operator_chart.name)
    for switch, (group, resource) in known.items():
        without = named(render(operator_chart, {"rbac": {switch: False}}), "ClusterRole", operator_chart.name)
        taken = [rule for rule in role["rules"] if rule not in without["rules"]]
        assert [(rule["apiGroups"], rule["resources"]) for rule in taken] == [([group], [resource])]


def test_listed_namespaces_bound_the_operators_rights(operator_chart: Path) -> None:
    everywhere, bounded = render(operator_chart), render(operator_chart, {"watchNamespaces": ["shop", "search"]})
    served = [obj for obj in of_kind(bounded, "Role") if not obj["metadata"]["name"].endswith("-own")]
    assert [obj["metadata"]["namespace"] for obj in served] == ["shop", "search"]
    full = named(everywhere, "ClusterRole", operator_chart.name)
    assert all(obj["rules"] == full["rules"] for obj in served)
    left = [obj["metadata"]["name"] for obj in of_kind(bounded, "ClusterRole") if not is_for_people(obj)]
    assert left == [f"platform-{operator_chart.name}-cluster"]
    assert {
        resource for _, rule in rules([named(bounded, "ClusterRole", "-cluster")]) for resource in rule["resources"]
    } == {
        "tokenreviews",
        "subjectaccessreviews",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }, "what belongs to no namespace, and no more"


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
def test_what_is_off_needs_no_rights(operator_chart: Path, values: Values, resources: set[str]) -> None:
    roles = [
        obj
        for obj in of_kind(render(operator_chart, values), "ClusterRole")
        if obj["metadata"]["name"].endswith("-cluster")
    ]
    assert {resource for _, rule in rules(roles) for resource in rule["resources"]} == resources


@pytest.mark.parametrize(
    ("values", "its_own"),
    [
        ({}, True),
        ({"certificates": {"source": "secret", "secretName": "mine"}}, False),
        ({"certificates": {"source": "certManager"}}, False),
        ({"webhook": {"enabled": False}, "metrics": {"secure": False}}, False),
    ],
    ids=["self", "secret", "cert-manager", "nothing-served"],
)
def test_only_certificates_that_it_makes_give_it_a_secret(operator_chart: Path, values: Values, its_own: bool) -> None:
    objects = render(operator_chart, values)
    role = named(objects, "Role", "-own")
    assert any("secrets" in rule["resources"] for rule in role["rules"]) == its_own
    assert bool(of_kind(objects, "Secret")) == its_own


def test_every_binding_gives_a_role_of_the_chart_to_an_account_of_the_chart(operator_chart: Path) -> None:
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
    people = {
        role for role in roles if any(role[2].endswith(ending) for ending in ("-view", "-edit", "-metrics-reader"))
    }
    assert bound == roles - people


def test_an_operator_can_come_without_rights_or_account(operator_chart: Path) -> None:
    objects = render(operator_chart, {"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "theirs"}})
    assert not [obj for kind in (*ROLES, *BINDINGS, "ServiceAccount") for obj in of_kind(objects, kind)]
    assert only(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "theirs"


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_only_pods_that_ask_the_api_server_have_a_token(operator_chart: Path, values: Values) -> None:
    objects = render(operator_chart, values)
    for account in (obj for obj in objects if obj["kind"] == "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False, "a pod says itself that it needs one"
    for pod in pods(objects):
        assert pod["spec"]["automountServiceAccountToken"] is True
        account = pod["spec"]["serviceAccountName"]
        assert account.startswith("check-") == is_hook(pod)
