"""The memcached operator with real pods and a real client."""

from __future__ import annotations

import base64
import os
import signal
import ssl
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.clients import Access, Names
from e2e.scenarios.support.commands import ROOT, Kubectl, Refused, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.resource import conditions, uids

pytestmark = pytest.mark.nightly

SAMPLES = ROOT / "samples" / "memcached"


def test_seed_manifest_serves_at_every_address_of_its_status(kubectl: Kubectl) -> None:
    seed = (ROOT / "samples/memcached/seed.yaml").read_text()
    kubectl.apply(seed.replace("size: 3", "size: 2"))
    sample = Memcached(kubectl, "memcached-sample")
    now = sample.await_ready(2)
    assert sample.serves() == 2
    pods = {pod["metadata"]["name"] for pod in kubectl.items("pods")}
    assert set(now["status"]["nodes"]) == pods, "status.nodes names the pods"
    assert kubectl.get("statefulset", "memcached-sample")["spec"]["replicas"] == 2


def test_scale_writes_one_event_per_change(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    for size in (3, 0, 2):
        with cache.planned(partial(kubectl, "scale", "memcached", "cache", f"--replicas={size}"), size=size):
            cache.await_ready(size)
        assert cache.serves() == size
    assert [reason for reason in cache.events() if reason != "Ready"] == ["Creating", "Scaling", "Scaling", "Scaling"]


@pytest.mark.commit
@pytest.mark.parametrize(("workload", "enough"), [("StatefulSet", 1), ("Deployment", 2)])
def test_image_change_replaces_one_server_after_the_other(kubectl: Kubectl, workload: str, enough: int) -> None:
    """A Deployment starts each new server before it ends the old one; in a StatefulSet both have the same name."""
    cache = Memcached.create(kubectl, "cache", workload=workload, size=2, version="1.6.38")
    cache.await_ready(2)
    assert cache.versions() == {"1.6.38"}
    before = uids(kubectl)
    with cache.planned(version="1.6.18"):
        fewest, done = 2, False
        deadline = time.monotonic() + 90
        while not done and time.monotonic() < deadline:
            fewest = min(fewest, kubectl.get(workload, "cache")["status"].get("readyReplicas", 0))
            now = cache.now
            observed = now["status"]["observedGeneration"] == now["metadata"]["generation"]
            done = observed and conditions(now)["Ready"] == "True"
        cache.await_ready(2)
    assert fewest >= enough
    assert cache.versions() == {"1.6.18"}
    until("the old pods are deleted", lambda: before.isdisjoint(uids(kubectl)))
    assert "Updating" in cache.events()


def test_killed_pods_are_recreated_and_reported_as_degraded(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", size=2)
    cache.await_ready(2)
    before = uids(kubectl)
    kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")
    until("new servers", lambda: (now := uids(kubectl)) and before.isdisjoint(now))
    cache.await_ready(2)
    assert cache.serves() == 2
    assert "Degraded" in cache.events()


def test_running_servers_are_kept_when_new_ones_cannot_start(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", workload="Deployment", size=1)
    cache.await_ready(1)
    kubectl("patch", "memcached", "cache", "--type=merge", "-p", '{"spec": {"image": "memcached:no-such-version"}}')

    def explained() -> bool:
        ready = next(found for found in cache.now["status"]["conditions"] if found["type"] == "Ready")
        assert ready["reason"] == "ImagePullFailed", ready
        return "no-such-version" in ready["message"]

    until("the condition names the image", explained)
    assert cache.serves() == 1, "the old server stays until a new one is ready"
    kubectl("patch", "memcached", "cache", "--type=merge", "-p", '{"spec": {"image": null}}')
    cache.await_ready(1)


def test_servers_serve_without_the_operator_which_catches_up_later(kubectl: Kubectl, operator: Operator) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    with operator.scaled_to_zero():
        assert cache.serves() == 1
        kubectl("scale", "memcached", "cache", "--replicas=2")
        kubectl("delete", "service", "cache")
    cache.await_ready(2)
    assert kubectl.get("service", "cache")["spec"]["clusterIP"] == "None"


def test_killed_operator_finishes_creation_after_its_restart(kubectl: Kubectl, operator: Operator) -> None:
    names = [f"cache-{number}" for number in range(4)]
    for name in names:
        # The webhooks of the killed operator are unavailable, so the request may have to be retried.
        until(f"{name} is admitted", partial(kubectl.apply, Memcached.manifest(name, size=1)))
        operator.system("delete", "pods", "-l", operator.selector, "--grace-period=0", "--force", "--wait=false")
    for name in names:
        Memcached(kubectl, name).await_ready(1, seconds=120)
    operator.await_rollout()
    assert len(kubectl.items("statefulsets")) == 4
    assert len(kubectl.items("pods")) == 4


def test_deletion_of_the_resource_deletes_its_objects(kubectl: Kubectl) -> None:
    Memcached.create(kubectl, "cache", size=1).await_ready(1)
    kubectl("delete", "memcached", "cache")
    until("all objects are deleted", lambda: not kubectl.items("statefulsets,services,pods"))


def test_namespace_is_deleted_within_a_minute(kubectl: Kubectl) -> None:
    Memcached.create(kubectl, "cache", size=2).await_ready(2)
    started = time.monotonic()
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=60s")
    assert time.monotonic() - started < 60


def test_invalid_manifest_is_rejected_with_a_correction(kubectl: Kubectl) -> None:
    with pytest.raises(Refused) as refused:
        kubectl.apply(Memcached.manifest("cache", size=-1))
    assert "spec.size" in refused.value.output
    assert "greater than or equal to 0" in refused.value.output
    assert not kubectl.items("memcached")


@pytest.mark.commit
def test_get_and_describe_show_status_and_events(kubectl: Kubectl) -> None:
    Memcached.create(kubectl, "cache", size=1).await_ready(1)
    heading, row = kubectl("get", "memcached", "cache").splitlines()
    assert heading.split() == ["NAME", "DESIRED", "READY", "PHASE", "REASON", "AGE"]
    assert row.split()[:5] == ["cache", "1", "1", "Running", "Ready"]
    until("events", lambda: "Ready" in kubectl("describe", "memcached", "cache").partition("Events:")[2])
    description = kubectl("describe", "memcached", "cache")
    for word in ("Creating", "1 of 1 servers are ready.", "memcached-operator", "Servers:"):
        assert word in description


@pytest.mark.parametrize("name", [path.stem for path in sorted(SAMPLES.glob("*.yaml"))])
def test_every_sample_becomes_ready_and_stays_as_applied(kubectl: Kubectl, name: str, tmp_path: Path) -> None:
    sample = str(SAMPLES / f"{name}.yaml")
    kubectl("apply", "-f", sample)
    [resource] = kubectl.items("memcached")
    cache = Memcached(kubectl, resource["metadata"]["name"])
    cache.await_ready(resource["spec"]["size"])
    cache.access = until("the connection Secret", lambda: client_access(kubectl, cache, tmp_path))
    assert cache.serves() == resource["spec"]["size"]
    assert kubectl("diff", "-f", sample) == ""


def client_access(kubectl: Kubectl, cache: Memcached, directory: Path) -> Access | None:
    """Return the access that the connection Secret grants to an application; None while there is no such Secret."""
    binding = cache.now["status"].get("binding")
    if binding is None:
        return None
    data = kubectl.get("secret", binding["name"])["data"]
    content = {key: base64.b64decode(value).decode() for key, value in data.items()}
    login = (content["username"], content["password"]) if "username" in content else None
    if "ca.crt" not in content:
        return Access(login, names=Names(kubectl))
    for key in ("ca.crt", "tls.crt", "tls.key"):
        (directory / key).write_text(content[key])
    tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    tls.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    return Access(login, tls, Names(kubectl))


def test_operator_works_outside_of_the_cluster(kubectl: Kubectl, operator: Operator) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    with operator.scaled_to_zero():
        addresses = "--metrics-bind-address=0 --health-probe-bind-address=127.0.0.1:18081"
        arguments = f"ARGS=--watch-namespace={kubectl.namespace} {addresses}"
        command = ["make", "run", "OPERATOR=memcached", arguments]
        runner = subprocess.Popen(command, cwd=ROOT, env=kubectl.environment, start_new_session=True)
        try:
            kubectl("scale", "memcached", "cache", "--replicas=2")
            cache.await_ready(2)
        finally:
            os.killpg(runner.pid, signal.SIGTERM)  # make and its child processes
            runner.wait(20)
