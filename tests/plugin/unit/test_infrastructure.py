"""`kubectl platform doctor`: what the cluster must have for the platform, and what may not be read."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from plugin import infrastructure, version
from plugin.commands import doctor
from plugin.databases import REDIS, STORAGE_CLASS
from plugin.health import BAD, GOOD, UNKNOWN, WARNING, Finding
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.client import Response
from shared.kubernetes.errors import Forbidden, Invalid, KubeError, NotFound, Unavailable
from shared.kubernetes.kinds import CRD, LEASE, NODE, SERVICE, Kind, Obj
from shared.pki import ca
from tests.support.memcached import scenarios as memcached
from tests.support.plugin import Terminal, listed, operator

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TARGET = ["--context", "prod"]


def storage_class(**fields: Any) -> Obj:
    return {
        "metadata": {"name": "fast", "annotations": {infrastructure.DEFAULT: "true"}},
        "provisioner": "csi",
    } | fields


GROWS, WAITS = {"allowVolumeExpansion": True}, {"volumeBindingMode": "WaitForFirstConsumer"}


@pytest.mark.parametrize(
    ("fields", "zones", "states"),
    [
        (GROWS | WAITS, {"a", "b"}, [GOOD, GOOD]),
        (WAITS, None, [WARNING, GOOD]),
        (GROWS, {"a", "b"}, [GOOD, WARNING]),
        (GROWS, None, [GOOD, WARNING]),
        (GROWS, {"a"}, [GOOD, GOOD]),
        (GROWS | {"volumeBindingMode": "Immediate"}, set(), [GOOD, GOOD]),
    ],
    ids=["good", "does not grow", "several zones", "unknown zones", "one zone", "no zone"],
)
def test_default_storage_class_is_judged(fields: Obj, zones: set[str] | None, states: list[str]) -> None:
    found = list(infrastructure.storage_classes([storage_class(**fields)], zones, TARGET))
    assert [each.state for each in found] == states
    assert all(each.fix for each in found if each.state != GOOD)
    assert all("--context prod" in each.fix for each in found if "kubectl " in each.fix)


def test_several_defaults_are_reported_and_other_classes_are_not() -> None:
    other = {"metadata": {"name": "slow"}}
    found = list(infrastructure.storage_classes([storage_class(**GROWS, **WAITS)] * 2 + [other], None, TARGET))
    assert (found[0].state, "Kubernetes uses the newest" in found[0].text) == (WARNING, True)
    assert not any("slow" in each.check for each in found)


def endpoints(service: str, *ready: bool | None) -> Obj:
    made = [{"conditions": {} if each is None else {"ready": each}} for each in ready]
    return {"metadata": {"labels": {infrastructure.SERVICE_NAME: service}}, "endpoints": made}


DNS = {"metadata": {"name": "kube-dns", "labels": {"k8s-app": "kube-dns"}}}


@pytest.mark.parametrize(
    ("services", "slices", "state"),
    [
        ([DNS], [endpoints("kube-dns", True, False), endpoints("other", True)], GOOD),
        ([DNS], [endpoints("kube-dns", None)], GOOD),
        ([DNS], [endpoints("kube-dns", False)], BAD),
        ([DNS], [{"metadata": {}, "endpoints": None}], BAD),
        ([], [], UNKNOWN),
    ],
    ids=["ready", "unknown counts as ready", "not ready", "none", "other DNS"],
)
def test_dns_needs_a_ready_endpoint(services: list[Obj], slices: list[Obj], state: str) -> None:
    found = infrastructure.dns(services, slices, TARGET)
    assert found.state == state
    assert found.fix or state == GOOD


def bundle(begins: datetime, ends: datetime) -> str:
    return base64.b64encode(ca.authority("webhooks", begins=begins, ends=ends).certificate.encode()).decode()


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        (bundle(NOW - timedelta(days=1), NOW + timedelta(days=9)), GOOD, "valid for 9d"),
        (bundle(NOW - timedelta(days=9), NOW - timedelta(days=3)), BAD, "ended 3d ago"),
        (bundle(NOW + timedelta(days=1), NOW + timedelta(days=9)), BAD, "is not valid yet"),
        (base64.b64encode(b"none").decode(), BAD, "no certificate that can be read"),
        ("*", BAD, "no certificate that can be read"),
    ],
    ids=["valid", "ended", "not begun", "no certificate", "no base64"],
)
def test_authority_of_a_webhook_is_judged(text: str, state: str, words: str) -> None:
    configuration = {"metadata": {"name": "redis"}, "webhooks": [{"clientConfig": {"caBundle": text}}] * 2}
    [found] = infrastructure.authorities([configuration], NOW)
    assert (found.state, words in found.text) == (state, True)


def test_webhook_without_a_ready_pod_is_found() -> None:
    services = {("system", "redis-webhook"): True, ("system", "etcd-webhook"): False, ("system", "good"): True}
    found = list(infrastructure.endpoints(services, {"system": [endpoints("good", True)]}, TARGET))
    assert {each.check.rpartition("/")[2]: each.state for each in found} == {
        "etcd-webhook": WARNING,
        "good": GOOD,
        "redis-webhook": BAD,
    }


FAILED = 'Internal error occurred: failed calling webhook "validate.redis": failed to call webhook: Post "https://x"'


@pytest.mark.parametrize(
    ("error", "is_strict", "state", "words"),
    [
        (None, True, GOOD, "called the webhooks"),
        (Forbidden('admission webhook "v" denied the request: no', status=403), True, GOOD, "called the webhooks"),
        (Invalid("spec.replicas: Invalid value", status=422), True, GOOD, "called the webhooks"),
        (
            Unavailable(f"{FAILED}: x509: signed by unknown authority", status=500),
            True,
            BAD,
            "does not fit the caBundle",
        ),
        (Unavailable(f"{FAILED}: connection refused", status=500), True, BAD, "it does not answer"),
        (Forbidden("User cannot create redisclusters", status=403), True, UNKNOWN, "You may not create"),
        (NotFound("namespaces shop not found", status=404), True, UNKNOWN, "No dry run is possible"),
        (Unavailable("etcdserver: request timed out", status=500), True, UNKNOWN, "for another reason"),
        (None, False, UNKNOWN, "failurePolicy is Ignore"),
    ],
)
def test_dry_run_shows_whether_the_api_server_reaches_the_webhooks(
    error: KubeError | None, is_strict: bool, state: str, words: str
) -> None:
    found = infrastructure.trial(REDIS, "shop", error, is_strict=is_strict)
    assert found.state == state
    assert words in found.text
    assert found.fix or state == GOOD


def deployment(name: str, tag: str) -> Obj:
    containers = [{"name": "operator", "image": f"example.com/{name}:{tag}"}]
    return {
        "metadata": {"name": name, "namespace": "system"},
        "spec": {"template": {"spec": {"containers": containers}}},
    }


def test_versions_of_operators_plugin_and_crds_are_compared() -> None:
    found = list(
        infrastructure.versions(
            [deployment("a", version.own()), deployment("b", "0.1.0"), deployment("c", "latest")],
        )
    )
    assert [each.state for each in found] == [GOOD, WARNING, UNKNOWN]
    assert "install the plugin of version 0.1.0" in found[1].fix

    def crd(label: str) -> Obj:
        return {"metadata": {"labels": {version.VERSION_LABEL: label} if label else {}}}

    crds = {"Memcached": crd("1.0.0"), "RedisCluster": crd("0.9.0"), "EtcdCluster": crd(""), "EtcdBackup": None}
    operators = {"memcached": "1.0.0", "redis": "1.0.0", "etcd": "1.0.0"}
    states = {each.check: each.state for each in infrastructure.crds(crds, operators)}
    assert states == {
        "version CRD Memcached": GOOD,
        "version CRD RedisCluster": WARNING,
        "version CRD EtcdCluster": UNKNOWN,
    }


def test_clock_of_an_operator_that_is_ahead_is_found() -> None:
    leases = [
        {
            "metadata": {"name": name},
            "spec": {"holderIdentity": name, "renewTime": rfc3339(NOW + timedelta(seconds=by))},
        }
        for name, by in (("ahead", 90), ("same", 5), ("behind", -90))
    ]
    [found] = infrastructure.clocks([*leases, {"metadata": {"name": "none"}}], NOW)
    assert (found.check, found.state) == ("time of ahead", WARNING)
    assert "90s ahead" in found.text


# The whole command, in a world.


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal(monkeypatch, memcached.MEMCACHED, memcached.apply(size=1))
    made.do(operator("memcached"))
    hook = {
        "name": "validate.memcacheds.cache.example.com",
        "clientConfig": {
            "caBundle": bundle(datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)),
            "service": {"name": "memcached-operator-webhook", "namespace": "platform-system"},
        },
        "rules": [{"apiGroups": ["cache.example.com"]}],
        "failurePolicy": "Fail",
    }
    configuration = {"metadata": {"name": "memcached-operator"}, "webhooks": [hook]}
    serving = endpoints("memcached-operator-webhook", True)
    lists: list[tuple[Kind, str | None, list[Obj]]] = [
        (doctor.VALIDATING, None, [configuration]),
        (doctor.MUTATING, None, []),
        (doctor.ENDPOINT_SLICE, "platform-system", [serving]),
        (doctor.ENDPOINT_SLICE, "kube-system", [endpoints("kube-dns", True)]),
        (SERVICE, "kube-system", [DNS]),
        (STORAGE_CLASS, None, [storage_class(**GROWS, **WAITS)]),
        (NODE, None, [{"metadata": {"name": "a", "labels": {}}}]),
        (LEASE, "platform-system", []),
    ]
    made.transport.answers |= {kind.path(where): listed(kind, *objects) for kind, where, objects in lists}
    served = Response(200, {"resources": [{"name": "memcacheds"}]})
    made.transport.answers["/apis/cache.example.com/v1alpha1"] = served
    return made


def findings(terminal: Terminal, exit_code: int = 0) -> dict[str, Finding]:
    result = terminal.run("doctor -o json")
    assert result.exit_code == exit_code, result.output
    return {each["check"]: Finding(**each) for each in json.loads(result.stdout)}


def test_checks_of_a_cluster_that_is_fit(terminal: Terminal) -> None:
    found = findings(terminal)
    expected = (
        *("Kubernetes", "kind Memcached", "version memcached-operator", "webhook memcached-operator"),
        *("webhook memcached-operator CA", "webhook service platform-system/memcached-operator-webhook"),
        *(
            "admission Memcached",
            "storage",
            "storage class fast expansion",
            "storage class fast binding",
            "DNS",
            "time",
        ),
    )
    assert {name: found[name].state for name in expected} == dict.fromkeys(expected, GOOD)
    assert not [name for name, each in found.items() if each.state == BAD]
    assert not terminal.play.stage.find()[1:], "a dry run creates nothing"


def test_dry_run_is_one(terminal: Terminal) -> None:
    findings(terminal)
    [request] = terminal.transport.requests
    assert request.query == {"dryRun": "All"}


def test_error_is_stated_with_a_fix_and_ends_with_1(terminal: Terminal) -> None:
    path, down = doctor.ENDPOINT_SLICE.path("kube-system"), endpoints("kube-dns", False)
    terminal.transport.answers[path] = listed(doctor.ENDPOINT_SLICE, down)
    found = findings(terminal, exit_code=1)
    assert found["DNS"].state == BAD
    result = terminal.run("doctor")
    assert result.exit_code == 1
    assert "error    DNS: Service kube-system/kube-dns has no ready endpoint" in result.stdout
    assert "         → kubectl get pods --namespace kube-system -l k8s-app=kube-dns" in result.stdout
    assert "checks found an error: DNS" in result.stderr


@pytest.mark.parametrize(
    ("forbidden", "checks"),
    [
        ("webhookconfigurations", ["webhooks"]),
        ("platform-system/endpointslices", ["webhook services"]),
        ("kube-system", ["DNS"]),
        ("storageclasses", ["storage"]),
        ("customresourcedefinitions", ["version CRD"]),
        ("memcacheds", ["admission Memcached"]),
        ("deployments", ["operators", "version CRD"]),
    ],
)
def test_check_that_the_user_may_not_make_is_unknown(terminal: Terminal, forbidden: str, checks: list[str]) -> None:
    terminal.transport.forbidden = forbidden
    found = findings(terminal)
    assert [found[name].state for name in checks] == [UNKNOWN] * len(checks)
    assert all("right" in found[name].fix for name in checks)


def test_nothing_may_be_read(terminal: Terminal) -> None:
    terminal.transport.forbidden = "."
    found = findings(terminal)
    assert {each.state for each in found.values()} == {UNKNOWN}


def test_crd_of_another_version_is_found(terminal: Terminal) -> None:
    name = "memcacheds.cache.example.com"
    labels = {version.VERSION_LABEL: "0.0.1"}
    metadata = {"name": name, "uid": "1", "resourceVersion": "1", "labels": labels}
    answer = Response(200, {"apiVersion": CRD.api_version, "kind": CRD.name, "metadata": metadata})
    terminal.transport.answers[CRD.path(None, name)] = answer
    assert findings(terminal)["version CRD Memcached"].state == WARNING
