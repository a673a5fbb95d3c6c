"""The operator as a separate process: start, endpoints and shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from shared.kubernetes.client import Request, Response, Transport
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import CRD, SERVICE, STATEFUL_SET
from shared.observability import profiling
from tests.platform.api.conftest import Kubectl
from tests.platform.api.support.replicas import Replica, answer, wait
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, World
from tools.local.controlplane import ControlPlane
from tools.local.machine.network import free_ports
from tools.local.paths import REPOSITORY

pytestmark = pytest.mark.nightly

CRD_NAME = "memcacheds.cache.example.com"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run a control plane without this project's CRDs."""
    with ControlPlane.alone(tmp_path_factory.mktemp("bare")) as plane:
        yield plane


@contextmanager
def process(*arguments: str | Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run `python -m operators.memcached`, which logs to `stderr`."""
    command = [sys.executable, "-m", "operators.memcached", *map(str, arguments)]
    clean = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "HOME")}
    running = subprocess.Popen(command, cwd=REPOSITORY, env={**clean, **environment}, stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def addresses() -> tuple[str, str, list[str]]:
    """Return URLs of probes and metrics on free ports, and the flags that set them."""
    probes, metrics = free_ports(2)
    flags = [f"--health-probe-bind-address=127.0.0.1:{probes}", f"--metrics-bind-address=127.0.0.1:{metrics}"]
    return f"http://127.0.0.1:{probes}", f"http://127.0.0.1:{metrics}", flags


def ends(*arguments: str | Path, **environment: str) -> tuple[int, str]:
    """Return the exit code and the last log line of an operator that fails to start."""
    with process("--log-format=text", *arguments, **environment) as running:
        _, output = running.communicate(timeout=20)
    assert "Traceback" not in output
    return running.returncode, output.strip().splitlines()[-1]


def test_error_without_the_crd_names_the_flag(bare: ControlPlane) -> None:
    code, output = ends("--kubeconfig", bare.kubeconfig)
    assert code == 1
    assert "does not serve memcacheds.cache.example.com/v1alpha1" in output
    assert "--install-crds" in output


@pytest.mark.commit
def test_process_installs_its_crd_serves_and_ends_cleanly(bare: ControlPlane) -> None:
    world = World(bare)
    with pytest.raises(NotFound):
        world.user_client.get(CRD, None, CRD_NAME)
    probes, metrics, flags = addresses()
    with process("--install-crds", "--no-metrics-secure", *flags, KUBECONFIG=str(bare.kubeconfig)) as running:
        wait(lambda: answer(f"{probes}/readyz") == (200, "ok"))
        assert answer(f"{probes}/healthz") == (200, "ok")
        world.create(size=2)
        world.eventually(world.is_ready)
        _, text = answer(f"{metrics}/metrics")
        controller = 'controller="memcached"'
        for name in (
            f'controller_runtime_reconcile_total{{{controller},result="success"}}',
            f"controller_runtime_reconcile_time_seconds_count{{{controller}}}",
            f"controller_runtime_reconcile_errors_total{{{controller}}} 0.0",
            f"controller_runtime_max_concurrent_reconciles{{{controller}}} ",
            "workqueue_depth{",
            "workqueue_adds_total{",
            "workqueue_queue_duration_seconds_bucket{",
            "rest_client_requests_total{",
        ):
            assert name in text
        running.send_signal(signal.SIGTERM)
        started = time.monotonic()
        _, output = running.communicate(timeout=10)
        assert time.monotonic() - started < 5
        assert running.returncode == 0, output
        assert "Traceback" not in output


def test_missing_watch_permission_is_retried_until_granted(
    plane: ControlPlane, world: World, kube: Kubectl, tmp_path: Path
) -> None:
    """During an upgrade a pod may start before its roles are updated."""
    rules = yaml.safe_load((REPOSITORY / "charts/memcached-operator/files/rules.yaml").read_text())
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "operator"}}
    some = [rule for rule in rules if rule["resources"] != ["poddisruptionbudgets"]]
    kube("create", "serviceaccount", "operator")
    kube("apply", "--filename=-", stdin=yaml.safe_dump(role | {"rules": some}))
    kube("create", "rolebinding", "operator", "--role=operator", f"--serviceaccount={world.namespace}:operator")
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": kube("create", "token", "operator").strip()}
    limited = tmp_path / "kubeconfig"
    limited.write_text(yaml.safe_dump(config))
    probes, _, flags = addresses()
    with process(f"--kubeconfig={limited}", f"--watch-namespace={world.namespace}", *flags):
        wait(lambda: "poddisruptionbudgets" in answer(f"{probes}/readyz")[1])
        kube("apply", "--filename=-", stdin=yaml.safe_dump(role | {"rules": rules}))
        wait(lambda: answer(f"{probes}/readyz") == (200, "ok"))


@pytest.mark.commit
def test_error_without_a_cluster_names_the_searched_locations(tmp_path: Path) -> None:
    code, output = ends(HOME=str(tmp_path))
    assert code == 1
    assert "KUBECONFIG" in output
    code, output = ends("--kubeconfig", tmp_path / "missing")
    assert code == 1
    assert str(tmp_path / "missing") in output


def test_error_names_a_port_in_use(plane: ControlPlane) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        address = f"127.0.0.1:{occupied.getsockname()[1]}"
        code, output = ends(
            "--metrics-bind-address=0", f"--health-probe-bind-address={address}", KUBECONFIG=str(plane.kubeconfig)
        )
    assert code == 1
    assert f"cannot listen on {address}" in output


def test_malformed_flag_is_rejected() -> None:
    code, output = ends("--workers=none")
    assert code == 2
    assert "'none' is not an integer of at least 1" in output


def test_process_ends_while_the_api_server_is_unreachable(tmp_path: Path) -> None:
    probes, _, flags = addresses()
    with ControlPlane.alone(tmp_path / "plane") as plane:
        running_with = process("--install-crds", *flags, KUBECONFIG=str(plane.kubeconfig))
        with running_with as running:
            wait(lambda: answer(f"{probes}/readyz")[0] == 200)
            plane.stop()
            time.sleep(1)
            assert answer(f"{probes}/healthz")[0] == 200
            assert running.poll() is None
            running.send_signal(signal.SIGTERM)
            _, output = running.communicate(timeout=10)
            assert running.returncode == 0, output


def test_running_reconcile_completes_before_shutdown(
    world: World, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = operator.wire.request

    async def slowly(request: Request, transport: Transport) -> Response:
        await asyncio.sleep(0.1)
        return await send(request, transport)

    monkeypatch.setattr(operator.wire, "request", slowly)
    world.create(size=1)
    wait(lambda: operator.wire.writes)
    assert not world.reason(), "the reconcile is in progress"
    operator.stop()
    assert world.reason() == "Creating"
    assert [event["reason"] for event in world.events()] == ["Creating"]


def test_profiles_are_served_on_loopback(plane: ControlPlane, world: World) -> None:
    with Replica.running(plane.kubeconfig, "--profiling", f"--watch-namespace={world.namespace}"):
        status, text = answer(f"http://{profiling.ADDRESS}/debug/profile?seconds=0.2")
        assert (status, "function calls" in text) == (200, True)


def test_known_operators_are_printed_without_a_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "operators.memcached", "--known-operators"]
    output = subprocess.run(
        command, cwd=REPOSITORY, env={"HOME": str(tmp_path)}, capture_output=True, check=True, text=True
    )
    assert "memcacheds" in output.stdout


@pytest.mark.parametrize("count", [1, 2])
def test_resource_in_another_namespace_is_not_changed(plane: ControlPlane, count: int) -> None:
    """Watches one or two of three namespaces."""
    worlds = [World(plane) for _ in range(3)]
    watched = [world.namespace for world in worlds[:count]]
    operator = Operator(plane.kubeconfig, *watched)
    operator.start()
    try:
        for world in reversed(worlds):
            world.create()
        for world in worlds[:count]:
            world.eventually(world.is_ready)
        for world in worlds[count:]:
            assert "status" not in world.get(MEMCACHED)
            assert world.listed(STATEFUL_SET) + world.listed(SERVICE) == []
        assert all(any(f"/namespaces/{name}/" in sent.path for name in watched) for sent in operator.wire.sent)
    finally:
        operator.stop()
        for world in worlds:
            world.close()


def test_all_namespaces_are_watched_by_default(plane: ControlPlane) -> None:
    worlds = [World(plane) for _ in range(2)]
    operator = Operator(plane.kubeconfig)
    operator.start()
    try:
        for world in worlds:
            world.create()
        for world in worlds:
            world.eventually(world.is_ready)
    finally:
        operator.stop()
        for world in worlds:
            world.close()
