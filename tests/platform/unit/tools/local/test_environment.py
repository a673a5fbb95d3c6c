"""No test, benchmark or tool connects to a cluster that KUBECONFIG names, unless the user gave it for that."""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.bench import resources
from e2e.scenarios.etcd.cluster import EtcdCluster
from tools.local import __main__ as local
from tools.local.cluster import Cluster
from tools.local.environment import given_kubeconfig
from tools.local.errors import ClusterError
from tools.local.paths import KUBECONFIG, REPOSITORY
from tools.local.record import Record

KUBECTL = REPOSITORY / ".venv/bin/kubectl"
OPERATOR = ("-m", "operators.memcached", "--metrics-bind-address=0", "--health-probe-bind-address=0")


class Trap:
    """A kubeconfig whose server records that anything connected to it.

    Attributes:
        environment: environment in which KUBECONFIG, and the default file, name the trap.
        connections: number of connections.
    """

    def __init__(self, directory: Path) -> None:
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        content = {
            "clusters": [{"name": "trap", "cluster": {"server": address}}],
            "users": [{"name": "trap", "user": {}}],
            "contexts": [{"name": "trap", "context": {"cluster": "trap", "user": "trap"}}],
            "current-context": "trap",
        }
        path = directory / ".kube" / "config"
        path.parent.mkdir()
        path.write_text(json.dumps(content))
        self.environment = {**os.environ, "KUBECONFIG": str(path), "HOME": str(directory)}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def run(self, *command: str | Path, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
        """Run a command in the environment of the trap."""
        return subprocess.run(
            command, env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=120, check=False
        )


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Trap]:
    trap = Trap(tmp_path)
    yield trap
    trap.close()


def test_trap_notices_a_connection(trap: Trap) -> None:
    assert trap.run(KUBECTL, "get", "--raw", "/").returncode != 0  # discovery would be repeated for half a minute
    assert trap.connections > 0


def test_processes_of_a_test_find_no_cluster() -> None:
    """The next test runs this one in the environment of the trap."""
    for command in ((KUBECTL, "get", "pods"), (sys.executable, *OPERATOR)):
        assert subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=60, check=False).returncode != 0


def test_tests_do_not_obey_the_variable(trap: Trap) -> None:
    test = f"{__file__}::{test_processes_of_a_test_find_no_cluster.__name__}"
    ended = trap.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert trap.connections == 0


def test_benchmarks_do_not_obey_the_variable(trap: Trap, tmp_path: Path) -> None:
    """The operator of a benchmark runs as in a pod, here as in one without a token."""
    ended = trap.run(sys.executable, "-m", "e2e.bench.in_pod", tmp_path, "127.0.0.1", "1", "memcached", *OPERATOR[2:])
    assert "cannot connect to Kubernetes" in ended.stderr
    assert trap.connections == 0


def test_benchmarks_on_a_cluster_use_the_local_one(trap: Trap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", trap.environment["KUBECONFIG"])
    monkeypatch.setattr(resources, "KUBECONFIG", tmp_path / "missing")
    on_cluster = resources.Resources.on_cluster(EtcdCluster, "etcdclusters", component="member", ready="readyMembers")
    with pytest.raises(ClusterError, match="no cluster is running"), on_cluster:
        pass
    assert trap.connections == 0


@pytest.mark.parametrize(("cluster", "is_obeyed"), [(None, False), ("auto", False), ("current", True)])
def test_scenarios_obey_the_variable_only_for_the_current_cluster(
    monkeypatch: pytest.MonkeyPatch, cluster: str | None, is_obeyed: bool
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/of/the/user")
    monkeypatch.delenv("CLUSTER", raising=False)
    if cluster:
        monkeypatch.setenv("CLUSTER", cluster)
    assert given_kubeconfig() == ("/of/the/user" if is_obeyed else str(KUBECONFIG))


@pytest.mark.parametrize(
    "tool",
    [
        "scaffold",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("catalogue_age", "release", "vocabulary")),
    ],
)
def test_tools_do_not_connect(trap: Trap, tool: str) -> None:
    trap.run(sys.executable, "-m", f"tools.{tool}")
    assert trap.connections == 0


@pytest.mark.parametrize("cluster", [None, "auto", "current"])
def test_status_obeys_the_variable_only_for_the_current_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cluster: str | None
) -> None:
    used: list[object] = []
    monkeypatch.setenv("KUBECONFIG", "/of/the/user")
    monkeypatch.delenv("CLUSTER", raising=False)
    if cluster:
        monkeypatch.setenv("CLUSTER", cluster)
    monkeypatch.setattr(local, "KUBECONFIG", tmp_path / "missing")
    monkeypatch.setattr(Cluster, "running", lambda: None)
    monkeypatch.setattr(Record, "load", lambda: None)
    monkeypatch.setattr(local, "kubectl", lambda *_, kubeconfig: used.append(kubeconfig))
    refused = contextlib.nullcontext() if cluster == "current" else pytest.raises(ClusterError, match="CLUSTER=current")
    with refused:
        local.status(argparse.Namespace())
    assert set(used) == ({Path("/of/the/user")} if cluster == "current" else set())


OBEDIENT = {"dashboards/compose/operators.py", "tools/local/__main__.py", "tools/local/volumes.py"}
"""Programs that do not forget: CLUSTER=current installs into the user's own cluster, volumes get an address, and a
container of the dashboards has the standard library only."""


def programs() -> list[Path]:
    """Return the modules of dashboards, e2e and tools that can be started."""
    modules = [path for package in ("dashboards", "e2e", "tools") for path in (REPOSITORY / package).rglob("*.py")]
    return [each for each in modules if each.name == "__main__.py" or '__name__ == "__main__"' in each.read_text()]


def forgets(path: Path) -> bool:
    """Whether a program, or a package that contains it, calls `forget_clusters` before it does anything else."""
    packages = [directory / "__init__.py" for directory in path.parents if REPOSITORY in directory.parents]
    begin = [found for package in packages for found in ast.parse(package.read_text()).body]
    main = [found for found in ast.parse(path.read_text()).body if getattr(found, "name", "") == "main"]
    calls = [*begin, *(inner for function in main for inner in getattr(function, "body", ()))]
    return any(isinstance(found, ast.Expr) and ast.unparse(found) == "forget_clusters()" for found in calls)


def test_every_program_forgets_the_clusters_of_the_user() -> None:
    found = {str(path.relative_to(REPOSITORY)): forgets(path) for path in programs()}
    assert len(found) > 15
    assert {name for name, is_forgetful in found.items() if not is_forgetful} == OBEDIENT
