"""Webhooks, serving certificates and metrics of the charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.charts import EVERYTHING, OPERATORS, VARIANTS, Obj, Values, manifest, named, of_kind, only, render

WEBHOOKS = {"MutatingWebhookConfiguration": "default", "ValidatingWebhookConfiguration": "validate"}
SECRET = {"certificates": {"source": "secret", "secretName": "provided"}}
CERT_MANAGER = {"certificates": {"source": "certManager"}}


@pytest.fixture(params=OPERATORS)
def operator_chart(request: pytest.FixtureRequest, charts: Path) -> Path:
    return charts / str(request.param)


def flags(objects: list[Obj]) -> dict[str, str]:
    container = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return dict(argument.removeprefix("--").partition("=")[::2] for argument in container["args"])


def mounted(objects: list[Obj]) -> dict[str, str]:
    """Return the mounted Secrets by mount path."""
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod.get("volumes", ())}
    mounts = pod["containers"][0].get("volumeMounts", ())
    assert all(mount["readOnly"] and "subPath" not in mount for mount in mounts), "a subPath mount is never updated"
    return {mount["mountPath"]: secrets[mount["name"]] for mount in mounts}


@pytest.mark.parametrize(("kind", "operation"), WEBHOOKS.items())
def test_each_crd_has_webhooks_that_call_the_operators_service(operator_chart: Path, kind: str, operation: str) -> None:
    objects = render(operator_chart)
    crds = of_kind(objects, "CustomResourceDefinition")
    webhooks = only(objects, kind)["webhooks"]
    assert [webhook["name"] for webhook in webhooks] == [f"{operation}.{crd['metadata']['name']}" for crd in crds]
    service = named(objects, "Service", "-webhook")
    for crd, webhook in zip(crds, webhooks, strict=True):
        (rule,) = webhook["rules"]
        assert rule["apiGroups"] == [crd["spec"]["group"]]
        assert rule["apiVersions"] == [version["name"] for version in crd["spec"]["versions"]]
        assert rule["resources"] == [crd["spec"]["names"]["plural"]], "no subresources, such as status"
        assert rule["operations"] == ["CREATE", "UPDATE"], "deletions must work without an operator"
        called = webhook["clientConfig"]["service"]
        assert (called["name"], called["namespace"]) == (service["metadata"]["name"], service["metadata"]["namespace"])
        assert (called["path"], called["port"]) == (f"/{operation}", service["spec"]["ports"][0]["port"])
        assert webhook["failurePolicy"] == "Fail"


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_charts_render_no_private_key_and_no_ca_bundle(operator_chart: Path, values: Values) -> None:
    text = manifest(operator_chart, values)
    assert "caBundle" not in text
    assert "PRIVATE KEY" not in text
    for secret in of_kind(render(operator_chart, values), "Secret"):
        assert not {"data", "stringData"} & secret.keys()


@pytest.mark.parametrize("kind", WEBHOOKS)
def test_webhook_selects_watched_namespaces_and_the_namespace_selector(operator_chart: Path, kind: str) -> None:
    def selector(**values: Any) -> Obj:
        found, *others = (
            webhook["namespaceSelector"] for webhook in only(render(operator_chart, values), kind)["webhooks"]
        )
        assert all(other == found for other in others)
        return dict(found)

    watched = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop", "search"]}
    assert selector() == {}
    assert selector(watchNamespaces=["shop", "search"]) == {"matchExpressions": [watched]}
    given = EVERYTHING["webhook"]["namespaceSelector"]
    assert selector(webhook={"namespaceSelector": given}) == given
    assert selector(webhook={"namespaceSelector": given}, watchNamespaces=["shop", "search"]) == {
        "matchLabels": given["matchLabels"],
        "matchExpressions": [*given["matchExpressions"], watched],
    }


@pytest.mark.parametrize("kind", WEBHOOKS)
def test_values_set_failure_policy_and_timeout(operator_chart: Path, kind: str) -> None:
    given = {"webhook": {"failurePolicy": "Ignore", "timeoutSeconds": 3}}
    webhooks = only(render(operator_chart, given), kind)["webhooks"]
    assert {(webhook["failurePolicy"], webhook["timeoutSeconds"]) for webhook in webhooks} == {("Ignore", 3)}


def test_disabled_webhook_renders_no_webhook_objects(operator_chart: Path) -> None:
    objects = render(operator_chart, {"webhook": {"enabled": False}})
    assert not [obj for kind in WEBHOOKS for obj in of_kind(objects, kind)]
    assert flags(objects)["webhook-bind-address"] == "0"
    assert "webhook-configurations" not in flags(objects)


def test_operator_issues_its_certificate_by_default(operator_chart: Path) -> None:
    objects = render(operator_chart)
    full = f"platform-{operator_chart.name}"
    assert only(objects, "Secret")["metadata"]["name"] == f"{full}-certificates"
    assert flags(objects)["certificates"] == f"self:platform-system/{full}-certificates"
    assert flags(objects)["webhook-configurations"] == full
    services = {f"{service['metadata']['name']}.platform-system.svc" for service in of_kind(objects, "Service")}
    hosts = set(flags(objects)["certificate-hosts"].split(","))
    assert hosts == services | {f"{service}.cluster.local" for service in services}
    assert mounted(objects) == {}


def test_provided_certificate_is_mounted(operator_chart: Path) -> None:
    objects = render(operator_chart, SECRET)
    assert mounted(objects) == {flags(objects)["certificates"]: "provided"}
    assert flags(objects)["webhook-configurations"] == f"platform-{operator_chart.name}"
    assert "certificate-hosts" not in flags(objects)
    assert not of_kind(objects, "Secret")


@pytest.mark.parametrize(
    ("issuer", "creates_issuer"),
    [
        ({}, True),
        ({"issuerRef": {"name": "company", "kind": "ClusterIssuer"}}, False),
    ],
    ids=["own-issuer", "company-issuer"],
)
def test_cert_manager_issues_the_certificate_and_injects_its_ca(
    operator_chart: Path, issuer: Obj, creates_issuer: bool
) -> None:
    objects = render(operator_chart, {"certificates": {"source": "certManager", **issuer}})
    certificate = only(objects, "Certificate")
    assert mounted(objects) == {flags(objects)["certificates"]: certificate["spec"]["secretName"]}
    assert "webhook-configurations" not in flags(objects), "cert-manager injects the caBundle"
    source = f"{certificate['metadata']['namespace']}/{certificate['metadata']['name']}"
    for kind in WEBHOOKS:
        assert only(objects, kind)["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": source}
    services = {f"{service['metadata']['name']}.platform-system.svc" for service in of_kind(objects, "Service")}
    assert services <= set(certificate["spec"]["dnsNames"])
    reference = certificate["spec"]["issuerRef"]
    assert bool(of_kind(objects, "Issuer")) == creates_issuer
    if creates_issuer:
        assert reference["name"] == only(objects, "Issuer")["metadata"]["name"]
    else:
        assert (reference["name"], reference["kind"]) == ("company", "ClusterIssuer")


def test_no_certificate_without_webhook_and_secure_metrics(operator_chart: Path) -> None:
    for source in ({}, SECRET, CERT_MANAGER):
        objects = render(operator_chart, {**source, "webhook": {"enabled": False}, "metrics": {"secure": False}})
        assert "certificates" not in flags(objects)
        assert mounted(objects) == {}
        assert not [obj for kind in ("Secret", "Certificate", "Issuer") for obj in of_kind(objects, kind)]


@pytest.mark.parametrize("source", [{}, SECRET, CERT_MANAGER], ids=["self", "secret", "cert-manager"])
def test_prometheus_verifies_the_certificate_and_authenticates(operator_chart: Path, source: Obj) -> None:
    values = {**source, "metrics": {"serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "p"}}}}
    objects = render(operator_chart, values)
    monitor = named(objects, "ServiceMonitor", operator_chart.name)
    assert monitor["metadata"]["labels"]["release"] == "p"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["interval"]) == ("https", "15s")
    assert endpoint["bearerTokenFile"]
    service = named(objects, "Service", "-metrics")
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    tls = endpoint["tlsConfig"]
    assert tls["serverName"] == f"{service['metadata']['name']}.platform-system.svc"
    secret = flags(objects)["certificates"].rpartition("/")[2] if not source else next(iter(mounted(objects).values()))
    assert tls["ca"]["secret"] == {"name": secret, "key": "ca.crt"}


def test_insecure_metrics_are_scraped_over_http(operator_chart: Path) -> None:
    objects = render(operator_chart, {"metrics": {"secure": False, "serviceMonitor": {"enabled": True}}})
    (endpoint,) = named(objects, "ServiceMonitor", operator_chart.name)["spec"]["endpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "scheme": "http", "honorLabels": True}
    assert "no-metrics-secure" in flags(objects)


def test_operand_monitor_selects_all_databases_of_the_operator(operator_chart: Path) -> None:
    def monitors(**values: Any) -> list[Obj]:
        return of_kind(render(operator_chart, values), "ServiceMonitor")

    on = {"serviceMonitor": {"enabled": True}}
    (spec,) = (obj["spec"] for obj in monitors(metrics=on) if obj["metadata"]["name"].endswith("-operands"))
    assert spec["selector"]["matchLabels"] == {"app.kubernetes.io/managed-by": operator_chart.name}
    assert spec["namespaceSelector"] == {"any": True}
    bounded = monitors(metrics=on, watchNamespaces=["shop"])
    (spec,) = (obj["spec"] for obj in bounded if obj["metadata"]["name"].endswith("-operands"))
    assert spec["namespaceSelector"] == {"matchNames": ["shop"]}
    assert len(monitors(metrics={"serviceMonitor": {"enabled": True, "operands": {"enabled": False}}})) == 1
    assert monitors() == []


def test_metrics_can_be_disabled(operator_chart: Path) -> None:
    objects = render(operator_chart, {"metrics": {"enabled": False}})
    assert flags(objects)["metrics-bind-address"] == "0"
    assert {obj["metadata"]["name"] for obj in of_kind(objects, "Service")} == {
        f"platform-{operator_chart.name}-webhook"
    }


def test_webhook_can_require_certificates_of_its_clients(operator_chart: Path) -> None:
    objects = render(operator_chart, {"webhook": {"clientCA": "webhook-clients"}})
    assert flags(objects)["webhook-client-ca"] == "/webhook-client-ca/ca.crt"
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "webhook-client-ca", "configMap": {"name": "webhook-clients"}} in pod["volumes"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == ("webhook-client-ca", "/webhook-client-ca")
    assert "webhook-client-ca" not in flags(render(operator_chart))
    off = render(operator_chart, {"webhook": {"enabled": False, "clientCA": "webhook-clients"}})
    assert "webhook-client-ca" not in flags(off)
