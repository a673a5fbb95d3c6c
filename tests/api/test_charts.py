"""The charts on a real API server: strict validation, restricted Pod Security, install, upgrade, uninstall, rights."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.cluster import kubectl
from e2e.cluster.commands import succeeds
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import REPOSITORY
from e2e.cluster.processes import wait_until
from tests import charts as rendering
from tests.charts import NAMESPACE, OPERATORS, Obj, Values, helm, only, render

RELEASE_LIMIT = 700_000
"""Bytes of a release's Secret: the API server takes 1 MiB, and the release must grow."""

SAMPLES = sorted((REPOSITORY / "samples").rglob("*.yaml"))
NAMES = [name.removesuffix("-operator") for name in OPERATORS]

EVERYTHING: Obj = {
    "nameOverride": "mine",
    "image": {"digest": "sha256:" + 64 * "0"},
    "imagePullSecrets": [{"name": "registry"}],
    "watchNamespaces": [NAMESPACE],
    "serviceAccount": {"annotations": {"example.com/role": "operator"}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"example.com/note": "yes"},
    "podLabels": {"team": "storage"},
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
}
"""A value for whatever has none by default."""

COMBINATIONS = [
    {name: {"enabled": on, **values} for name, on in zip(NAMES, choice, strict=True)}
    for choice in itertools.product((True, False), repeat=len(NAMES))
    if any(choice)
    for values in ({}, EVERYTHING)
]

KUBECTL = Path(sys.executable).parent / "kubectl"
MEMCACHEDS = "memcacheds.cache.example.com"

Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.alone(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def kube(plane: ControlPlane) -> Kubectl:
    """A kubectl for that server, where our namespace is restricted and says so."""

    def on_plane(*arguments: str | Path, stdin: str | None = None) -> str:
        return kubectl(*arguments, kubeconfig=plane.kubeconfig, stdin=stdin)

    on_plane("create", "namespace", NAMESPACE)
    levels = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn")]
    on_plane("label", "namespace", NAMESPACE, *levels)
    return on_plane


@pytest.fixture
def charts(tmp_path: Path) -> Path:
    """A copy of the charts that the test may change."""
    return rendering.copy_to(tmp_path)


@pytest.fixture
def installed(plane: ControlPlane, kube: Kubectl, charts: Path) -> Iterator[Callable[..., None]]:
    """`helm upgrade --install platform`; afterwards nothing of it is left, the CRDs neither."""

    def install(values: Values | None = None) -> None:
        helm("upgrade", "--install", "platform", charts / "platform", *where(plane), values=values or {})

    yield install
    helm("uninstall", "platform", "--ignore-not-found", *where(plane))
    kube("delete", "crd", "--all")


def where(plane: ControlPlane) -> list[str | Path]:
    return ["--namespace", NAMESPACE, "--kubeconfig", plane.kubeconfig]


def dry_run(kube: Kubectl, objects: list[Obj]) -> None:
    """Have the API server judge objects, strictly: an unknown or doubled field and any warning is a failure."""
    flags = ["--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors"]
    kube("apply", *flags, "--filename", "-", stdin=yaml.safe_dump_all(objects))


@pytest.mark.parametrize("values", COMBINATIONS, ids=lambda values: f"{list(values)}-{len(str(values))}")
def test_the_api_server_takes_every_rendering_without_a_warning(kube: Kubectl, charts: Path, values: Values) -> None:
    objects = render(charts / "platform", values)
    for obj in objects:
        if obj["kind"] == "Deployment":
            template = obj["spec"]["template"]
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": NAMESPACE}}
            dry_run(kube, [obj, {**pod, "spec": template["spec"]}])
    dry_run(kube, objects)


def test_what_is_not_restricted_would_be_told(kube: Kubectl, charts: Path) -> None:
    """The check above can fail: a field that does not exist, and a container that may become root."""
    deployment = only(render(charts / "platform"), "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(ClusterError, match="allowPrivilegeEscalation"):
        dry_run(kube, [deployment])
    container["securityContext"] = {"allowPrivilegeEscalaton": False}
    with pytest.raises(ClusterError, match="allowPrivilegeEscalaton"):
        dry_run(kube, [deployment])


def test_install_upgrade_and_uninstall(
    kube: Kubectl, plane: ControlPlane, charts: Path, installed: Callable[..., None]
) -> None:
    installed()
    found = json.loads(kube("get", "deployment,service,serviceaccount", "-n", NAMESPACE, "-o", "json"))["items"]
    assert {obj["kind"] for obj in found if "operator" in obj["metadata"]["name"]} == {
        "Deployment",
        "Service",
        "ServiceAccount",
    }
    assert release_sizes(kube)[-1] < RELEASE_LIMIT
    established(kube)
    kube("apply", "--filename", REPOSITORY / "samples/memcached/seed.yaml")
    before = kube("get", "memcached", "memcached-sample", "-o", "jsonpath={.metadata.uid} {.spec}")

    add_to_every_crd(charts)
    installed()
    columns = "jsonpath={.spec.versions[0].additionalPrinterColumns[-1:].name}"
    assert kube("get", "crd", MEMCACHEDS, "-o", columns) == "Added"
    assert kube("get", "memcached", "memcached-sample", "-o", "jsonpath={.metadata.uid} {.spec}") == before

    helm("uninstall", "platform", *where(plane))
    left = kube("get", "deployment,service,serviceaccount,role,rolebinding", "-n", NAMESPACE, "-o", "name")
    assert "memcached-operator" not in left + kube("get", "clusterrole,clusterrolebinding", "-o", "name")
    assert kube("get", "memcached", "memcached-sample", "-o", "jsonpath={.metadata.uid} {.spec}") == before

    installed()
    assert kube("get", "memcached", "memcached-sample", "-o", "jsonpath={.metadata.uid} {.spec}") == before


def add_to_every_crd(charts: Path) -> None:
    """The next version of every CRD: one more printer column."""
    for path in charts.glob("*-operator/files/crds/*.yaml"):
        crd = yaml.safe_load(path.read_text())
        columns = crd["spec"]["versions"][0].setdefault("additionalPrinterColumns", [])
        columns.append({"name": "Added", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
        path.write_text(yaml.safe_dump(crd))
    helm("dependency", "update", charts / "platform")


def established(kube: Kubectl) -> None:
    kube("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")


def release_sizes(kube: Kubectl) -> list[int]:
    """Bytes of each release Secret as the API server counts them: what it decodes, not its base64."""
    listed = kube("get", "secret", "-n", NAMESPACE, "-l", "owner=helm", "-o", "jsonpath={.items[*].data.release}")
    return [len(base64.b64decode(release)) for release in listed.split()]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: "/".join(path.parts[-2:]))
def test_the_api_server_takes_every_sample(kube: Kubectl, installed: Callable[..., None], sample: Path) -> None:
    installed()
    established(kube)
    dry_run(kube, [{**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}} for obj in documents(sample)])


def documents(path: Path) -> list[Obj]:
    return [obj for obj in yaml.safe_load_all(path.read_text()) if obj]


@pytest.mark.parametrize("namespaces", [[], [NAMESPACE]], ids=["everywhere", "one-namespace"])
def test_the_operator_needs_no_right_that_the_chart_does_not_give(
    kube: Kubectl, plane: ControlPlane, installed: Callable[..., None], tmp_path: Path, namespaces: list[str]
) -> None:
    """The operator as its account alone: it creates, changes, reports and tells, also of objects in its way."""
    installed({"memcached": {"watchNamespaces": namespaces}})
    established(kube)
    kubeconfig = account_kubeconfig(kube, plane, tmp_path, "platform-memcached-operator")
    kube("create", "service", "clusterip", "taken", "--tcp=1", "-n", NAMESPACE)
    kube("create", "deployment", "held", "--image=theirs", "--replicas=0", "-n", NAMESPACE)
    log = tmp_path / "operator.log"
    arguments = ["--kubeconfig", str(kubeconfig), "--watch-namespace", ",".join(namespaces), "--log-level", "debug"]
    try:
        with operator(arguments, log):
            for name in ("asked", "taken", "held"):
                create_memcached(kube, name, 1)
            wait(lambda: reason(kube, "taken") == reason(kube, "held") == "NotOurs", log)
            wait(lambda: get(kube, "deployment", "asked") and reason(kube, "asked"), log)
            kube("scale", "memcached/asked", "--replicas=2", "-n", NAMESPACE)
            wait(lambda: get(kube, "deployment", "asked")["spec"]["replicas"] == 2, log)
            kube("patch", "service", "asked", "-n", NAMESPACE, "--type=merge", "-p", '{"spec":{"ports":null}}')
            wait(lambda: get(kube, "service", "asked")["spec"].get("ports"), log)
            wait(lambda: events(kube, "taken"), log)
        forget = ["--subresource=status", "--type=merge", "--patch", '{"status":null}']
        kube("patch", "memcached/taken", "-n", NAMESPACE, *forget)
        with operator(arguments, log):
            wait(lambda: max(event["count"] for event in events(kube, "taken")) > 1, log)
        assert "forbidden" not in log.read_text().lower()
    finally:
        kube("delete", "memcached,deployment,service,event", "--all", "-n", NAMESPACE)


PEOPLE = {"view": {"get"}, "edit": {"get", "create", "delete", "scale"}, "admin": {"get", "create", "delete", "scale"}}
"""What whoever has one of Kubernetes' own roles may do with resources; to report their status is the operator's."""


def test_people_may_do_with_resources_what_their_role_says(tmp_path: Path, charts: Path) -> None:
    questions: dict[str, list[str]] = {
        "get": [],
        "create": [],
        "delete": [],
        "scale": ["--subresource=scale"],
        "report": ["--subresource=status"],
    }
    with ControlPlane.alone(tmp_path / "plane", controllers=True) as plane:  # a controller aggregates the roles
        helm("install", "platform", charts / "platform", "--create-namespace", *where(plane))

        def may(role: str) -> set[str]:
            asked = {verb: ["update" if flags else verb, MEMCACHEDS, *flags] for verb, flags in questions.items()}
            on = ["--as", role, "--namespace", NAMESPACE, "--kubeconfig", str(plane.kubeconfig)]
            return {verb for verb, words in asked.items() if succeeds(KUBECTL, "auth", "can-i", *words, *on)}

        for role in PEOPLE:
            binding = ["create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}", "-n", NAMESPACE]
            kubectl(*binding, kubeconfig=plane.kubeconfig)
        wait_until(lambda: may("view") == PEOPLE["view"], "aggregated roles", needs=plane.processes)
        assert {role: may(role) for role in PEOPLE} == PEOPLE


def account_kubeconfig(kube: Kubectl, plane: ControlPlane, directory: Path, account: str) -> Path:
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": kube("create", "token", account, "-n", NAMESPACE)}
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def operator(arguments: list[str], log: Path) -> Iterator[None]:
    """The memcached operator as a process, as long as the block lasts."""
    command = [sys.executable, "-m", "operators.memcached", *arguments]
    addresses = ["--metrics-bind-address=0", "--health-probe-bind-address=0"]
    with log.open("ab") as output:
        process = subprocess.Popen([*command, *addresses], cwd=REPOSITORY, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def create_memcached(kube: Kubectl, name: str, size: int) -> None:
    metadata = {"name": name, "namespace": NAMESPACE}
    resource = {"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "metadata": metadata}
    kube("create", "--filename", "-", stdin=yaml.safe_dump({**resource, "spec": {"size": size}}))


def get(kube: Kubectl, kind: str, name: str) -> Obj:
    answer = kube("get", kind, name, "-n", NAMESPACE, "--ignore-not-found", "-o", "json")
    found: Obj = json.loads(answer) if answer else {}
    return found


def reason(kube: Kubectl, name: str) -> str:
    """The reason of a Memcached's Ready condition; empty while there is none."""
    conditions = get(kube, "memcached", name).get("status", {}).get("conditions", ())
    return next((str(each["reason"]) for each in conditions if each["type"] == "Ready"), "")


def events(kube: Kubectl, name: str) -> list[Obj]:
    """The events told of a Memcached."""
    selector = f"--field-selector=involvedObject.kind=Memcached,involvedObject.name={name}"
    found: list[Obj] = json.loads(kube("get", "events", "-n", NAMESPACE, selector, "-o", "json"))["items"]
    return found


def wait(holds: Callable[[], Any], log: Path, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not come; the operator said:\n{log.read_text()[-4000:]}"
        time.sleep(0.2)
