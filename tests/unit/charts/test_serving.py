"""Webhooks, certificates and metrics: what is served, by which certificate, to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.charts import EVERYTHING, OPERATORS, VARIANTS, Obj, Values, manifest, named, of_kind, only, render

WEBHOOKS = {"MutatingWebhookConfiguration": "default", "ValidatingWebhookConfiguration": "validate"}
SECRET = {"certificates": {"source": "secret", "secretName": "mine"}}
CERT_MANAGER = {"certificates": {"source": "certManager"}}


@pytest.fixture(params=OPERATORS)
def operator_chart(request: pytest.FixtureRequest, charts: Path) -> Path:
    return charts / str(request.param)


def flags(objects: list[Obj]) -> dict[str, str]:
    container = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return dict(argument.removeprefix("--").partition("=")[::2] for argument in container["args"])


def mounted(objects: list[Obj]) -> dict[str, str]:
    """Which Secret is mounted where."""
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod.get("volumes", ())}
    mounts = pod["containers"][0].get("volumeMounts", ())
    assert all(mount["readOnly"] and "subPath" not in mount for mount in mounts), "a subPath would never be updated"
    return {mount["mountPath"]: secrets[mount["name"]] for mount in mounts}


@pytest.mark.parametrize(("kind", "does"), WEBHOOKS.items())
def test_each_crd_has_a_webhook_that_its_service_leads_to_the_operator(
    operator_chart: Path, kind: str, does: str
) -> None:
    objects = render(operator_chart)
    crds = of_kind(objects, "CustomResourceDefinition")
    webhooks = only(objects, kind)["webhooks"]
    assert [webhook["name"] for webhook in webhooks] == [f"{does}.{crd['metadata']['name']}" for crd in crds]
    service = named(objects, "Service", "-webhook")
    for crd, webhook in zip(crds, webhooks, strict=True):
        (rule,) = webhook["rules"]
        assert rule["apiGroups"] == [crd["spec"]["group"]]
        assert rule["apiVersions"] == [version["name"] for version in crd["spec"]["versions"]]
        assert rule["resources"] == [crd["spec"]["names"]["plural"]], "no subresource: status is the operator's"
        assert rule["operations"] == ["CREATE", "UPDATE"], "what is to go, goes"
        called = webhook["clientConfig"]["service"]
        assert (called["name"], called["namespace"]) == (service["metadata"]["name"], service["metadata"]["namespace"])
        assert (called["path"], called["port"]) == (f"/{does}", service["spec"]["ports"][0]["port"])
        assert webhook["failurePolicy"] == "Fail"


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_no_private_key_and_no_authority_is_rendered(operator_chart: Path, values: Values) -> None:
    text = manifest(operator_chart, values)
    assert "caBundle" not in text
    assert "PRIVATE KEY" not in text
    for secret in of_kind(render(operator_chart, values), "Secret"):
        assert not {"data", "stringData"} & secret.keys()


@pytest.mark.parametrize("kind", WEBHOOKS)
def test_the_webhook_is_asked_about_what_the_operator_serves_and_the_value_selects(
    operator_chart: Path, kind: str
) -> None:
    def selector(**values: Any) -> Obj:
        found, *others = (
            webhook["namespaceSelector"] for webhook in only(render(operator_chart, values), kind)["webhooks"]
        )
        assert all(other == found for other in others)
        return dict(found)

    served = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop", "search"]}
    assert selector() == {}
    assert selector(watchNamespaces=["shop", "search"]) == {"matchExpressions": [served]}
    given = EVERYTHING["webhook"]["namespaceSelector"]
    assert selector(webhook={"namespaceSelector": given}) == given
    assert selector(webhook={"namespaceSelector": given}, watchNamespaces=["shop", "search"]) == {
        "matchLabels": given["matchLabels"],
        "matchExpressions": [*given["matchExpressions"], served],
    }


@pytest.mark.parametrize("kind", WEBHOOKS)
def test_the_webhooks_values_reach_it(operator_chart: Path, kind: str) -> None:
    given = {"webhook": {"failurePolicy": "Ignore", "timeoutSeconds": 3}}
    webhooks = only(render(operator_chart, given), kind)["webhooks"]
    assert {(webhook["failurePolicy"], webhook["timeoutSeconds"]) for webhook in webhooks} == {("Ignore", 3)}


def test_without_a_webhook_there_is_nothing_of_it(operator_chart: Path) -> None:
    objects = render(operator_chart, {"webhook": {"enabled": False}})
    assert not [obj for kind in WEBHOOKS for obj in of_kind(objects, kind)]
    assert flags(objects)["webhook-bind-address"] == "0"
    assert "webhook-configurations" not in flags(objects)


def test_the_operator_makes_the_certificate_where_nobody_else_does(operator_chart: Path) -> None:
    objects = render(operator_chart)
    full = f"platform-{operator_chart.name}"
    assert only(objects, "Secret")["metadata"]["name"] == f"{full}-certificates"
    assert flags(objects)["certificates"] == f"self:platform-system/{full}-certificates"
    assert flags(objects)["webhook-configurations"] == full
    services = {f"{service['metadata']['name']}.platform-system.svc" for service in of_kind(objects, "Service")}
    hosts = set(flags(objects)["certificate-hosts"].split(","))
    assert hosts == services | {f"{service}.cluster.local" for service in services}
    assert mounted(objects) == {}


def test_a_certificate_that_is_brought_is_mounted_whole(operator_chart: Path) -> None:
    objects = render(operator_chart, SECRET)
    assert mounted(objects) == {flags(objects)["certificates"]: "mine"}
    assert flags(objects)["webhook-configurations"] == f"platform-{operator_chart.name}"
    assert "certificate-hosts" not in flags(objects)
    assert not of_kind(objects, "Secret")


@pytest.mark.parametrize(
    ("issuer", "made"),
    [
        ({}, True),
        ({"issuerRef": {"name": "company", "kind": "ClusterIssuer"}}, False),
    ],
    ids=["own-issuer", "company-issuer"],
)
def test_cert_manager_makes_mounts_and_injects_it(operator_chart: Path, issuer: Obj, made: bool) -> None:
    objects = render(operator_chart, {"certificates": {"source": "certManager", **issuer}})
    certificate = only(objects, "Certificate")
    assert mounted(objects) == {flags(objects)["certificates"]: certificate["spec"]["secretName"]}
    assert "webhook-configurations" not in flags(objects), "cert-manager's injector does it"
    place = f"{certificate['metadata']['namespace']}/{certificate['metadata']['name']}"
    for kind in WEBHOOKS:
        assert only(objects, kind)["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": place}
    services = {f"{service['metadata']['name']}.platform-system.svc" for service in of_kind(objects, "Service")}
    assert services <= set(certificate["spec"]["dnsNames"])
    reference = certificate["spec"]["issuerRef"]
    assert bool(of_kind(objects, "Issuer")) == made
    if made:
        assert reference["name"] == only(objects, "Issuer")["metadata"]["name"]
    else:
        assert (reference["name"], reference["kind"]) == ("company", "ClusterIssuer")


def test_without_anything_to_serve_there_is_no_certificate(operator_chart: Path) -> None:
    for source in ({}, SECRET, CERT_MANAGER):
        objects = render(operator_chart, {**source, "webhook": {"enabled": False}, "metrics": {"secure": False}})
        assert "certificates" not in flags(objects)
        assert mounted(objects) == {}
        assert not [obj for kind in ("Secret", "Certificate", "Issuer") for obj in of_kind(objects, kind)]


@pytest.mark.parametrize("source", [{}, SECRET, CERT_MANAGER], ids=["self", "secret", "cert-manager"])
def test_prometheus_verifies_the_certificate_and_proves_who_it_is(operator_chart: Path, source: Obj) -> None:
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
    held = flags(objects)["certificates"].rpartition("/")[2] if not source else next(iter(mounted(objects).values()))
    assert tls["ca"]["secret"] == {"name": held, "key": "ca.crt"}


def test_plain_metrics_are_scraped_plainly(operator_chart: Path) -> None:
    objects = render(operator_chart, {"metrics": {"secure": False, "serviceMonitor": {"enabled": True}}})
    (endpoint,) = named(objects, "ServiceMonitor", operator_chart.name)["spec"]["endpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "scheme": "http", "honorLabels": True}
    assert "no-metrics-secure" in flags(objects)


def test_one_monitor_finds_whatever_the_operator_runs(operator_chart: Path) -> None:
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


def test_metrics_can_be_off(operator_chart: Path) -> None:
    objects = render(operator_chart, {"metrics": {"enabled": False}})
    assert flags(objects)["metrics-bind-address"] == "0"
    assert {obj["metadata"]["name"] for obj in of_kind(objects, "Service")} == {
        f"platform-{operator_chart.name}-webhook"
    }
