"""A fourth operator changes no file of others: in a copy of the tree, from the skeleton to a ready resource.

`tests/fourth_operator` holds the files that its author writes over the skeleton: Greeters, web servers with a greeting.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, SERVICE, Kind, Obj
from shared.status import conditions
from tests.platform.api.conftest import Kubectl
from tests.platform.api.support.world import World
from tools.local.controlplane import ControlPlane
from tools.local.machine.network import free_ports
from tools.local.paths import REPOSITORY

pytestmark = pytest.mark.nightly

GREETER = Kind("greeter.example.com", "v1alpha1", "Greeter", "greeters")
OWN = (
    "charts/greeter-operator/",
    "dashboards/generated/platform-greeter.json",
    "dashboards/generated/rules/greeter.yaml",
    "docs/reference/greeter.md",
    "docs/runbook/greeter.md",
    "locks/greeter.txt",
    "operators/greeter/",
    "samples/greeter/",
    "tests/greeter/unit/",
)
GENERATED = {
    "README.md",
    "charts/platform/Chart.yaml",
    "charts/platform/README.md",
    "charts/platform/files/dashboards/platform-overview.json",
    "charts/platform/templates/NOTES.txt",
    "charts/platform/values.schema.json",
    "charts/platform/values.yaml",
    "dashboards/generated/platform-overview.json",
    "docs/reference/packages.md",
    "docs/reference/reasons.md",
    "tests/README.md",
}
"""Generated files that list all operators, written by `make manifests`."""

OVER_THE_SKELETON = REPOSITORY / "tests/fourth_operator"
LINTS = (
    (".venv/bin/ruff", "check", "operators/greeter", "tests/greeter/unit"),
    (".venv/bin/ruff", "format", "--check", "operators/greeter", "tests/greeter/unit"),
    (".venv/bin/mypy", "operators/greeter", "tests/greeter/unit"),
)
UNIT_TESTS = (
    ".venv/bin/python",
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "tests/greeter/unit",
    "tests/platform/unit/test_reasons.py",
)


class Tree:
    """A copy of the repository under git that uses this repository's Python environment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        listed = self._run("git", "-C", REPOSITORY, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in listed.split("\0"):
            if (REPOSITORY / name).is_file():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, path / name)
        if (REPOSITORY / ".mypy_cache").exists():
            shutil.copytree(REPOSITORY / ".mypy_cache", path / ".mypy_cache")
        (path / ".venv").symlink_to((REPOSITORY / ".venv").resolve())
        (path / ".git").mkdir()
        self("git", "init", "--quiet")
        self("git", "add", "--all")
        self("git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "--message=before")

    def __call__(self, *command: str | Path) -> str:
        """Run a command in the tree and return its output."""
        return self._run(*command, cwd=self.path)

    def make(self, *arguments: str) -> str:
        """Run make without rebuilding the environment."""
        return self("make", "--old-file=.venv/stamp", *arguments)

    def all_of(self, *commands: tuple[str, ...]) -> None:
        """Run commands in parallel."""
        running = [
            subprocess.Popen(command, cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for command in commands
        ]
        printed = [each.communicate(timeout=240)[0] for each in running]
        for each, text in zip(running, printed, strict=True):
            assert each.returncode == 0, f"{each.args!r}\n{text}"

    @staticmethod
    def _run(*command: str | Path, cwd: Path | None = None) -> str:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def operator(self, *flags: str) -> Iterator[None]:
        """Run `python -m operators.greeter` while the context is open."""
        command = [".venv/bin/python", "-m", "operators.greeter", *flags]
        running = subprocess.Popen(command, cwd=self.path, stdout=subprocess.DEVNULL)
        try:
            yield
            assert running.poll() is None, "the operator ended"
        finally:
            running.terminate()
            running.wait(20)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return the tree with a fourth operator: the skeleton passes its tests, then the author's files replace it."""
    tree = Tree(tmp_path)
    tree.make("new-operator", "NAME=greeter")
    tree(*UNIT_TESTS)
    shutil.copytree(OVER_THE_SKELETON, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    tree.make("manifests")
    return tree


def test_fourth_operator_changes_no_other_file_and_becomes_ready(
    tree: Tree, plane: ControlPlane, world: World, kube: Kubectl
) -> None:
    added = tree("git", "ls-files", "--others", "--exclude-standard").split()
    assert [name for name in added if not name.startswith(OWN)] == []
    assert set(tree("git", "diff", "--name-only").split()) == GENERATED
    assert "greeter-operator" in tree(".venv/bin/python", "-m", "operators.memcached", "--known-operators")
    tree.all_of(UNIT_TESTS, *LINTS)
    layers = subprocess.run([".venv/bin/lint-imports"], cwd=tree.path, capture_output=True, text=True, check=False)
    assert "Contracts: " in layers.stdout, layers.stderr
    assert "greeter" not in layers.stdout, "the new operator breaks no import contract"

    crd_directory = tree.path / "charts/greeter-operator/files/crds"
    try:
        kube("apply", "--server-side", "--filename", crd_directory)
        kube("wait", "crd", "greeters.greeter.example.com", "--for=condition=Established", "--timeout=20s")
        (probes,) = free_ports(1)
        flags = ["--watch-namespace", world.namespace, "--metrics-bind-address=0"]
        flags += ["--kubeconfig", str(plane.kubeconfig), f"--health-probe-bind-address=127.0.0.1:{probes}"]
        with tree.operator(*flags):
            kube("apply", "--validate=strict", "--filename", tree.path / "samples/greeter/small.yaml")
            found: Obj = world.eventually(lambda: ready(world, "greeter-small"))
        assert (found["status"]["phase"], found["status"]["readyReplicas"]) == ("Running", 2)
        assert world.get(DEPLOYMENT, "greeter-small")["spec"]["replicas"] == 2
        assert world.get(CONFIG_MAP, found["status"]["configMap"])["data"] == {"text": "hello"}
        for kind in (DEPLOYMENT, SERVICE):
            (owner,) = world.get(kind, "greeter-small")["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("Greeter", "greeter-small")
    finally:
        kube("delete", "--ignore-not-found", "--filename", crd_directory)

    tree.make("new-kind", "OPERATOR=greeter", "KIND=Farewell")
    tree(*UNIT_TESTS)
    assert (crd_directory / "farewells.yaml").exists()


def ready(world: World, name: str) -> Obj | None:
    """Return the Greeter if it is ready."""
    found = world.get(GREETER, name)
    return found if accessors.is_current(found) and accessors.is_true(found, conditions.READY) else None
