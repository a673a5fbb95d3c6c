"""A real API server for the session; a namespace, its people and its operator for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster.cluster import kubectl
from e2e.cluster.controlplane import ControlPlane
from operators import installed
from shared.kubernetes.client import Kube
from shared.kubernetes.transport import HttpTransport, load_configuration
from shared.runtime.install import install_crds
from shared.testing.api_server.kinds import NAMESPACE
from tests.api.support.gate import Gate
from tests.api.support.running import NAME, Operator
from tests.api.support.world import World

Kubectl = Callable[..., str]


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server and its etcd, with our CRDs, and no controllers: what happens, the test does."""
    with ControlPlane.alone(tmp_path_factory.mktemp("api")) as plane:
        install(plane)
        yield plane


def install(plane: ControlPlane) -> None:
    """Install our CRDs as an operator does that is told to."""

    async def run() -> None:
        transport = HttpTransport(await load_configuration(str(plane.kubeconfig)))
        served = [resource for operator in installed() for resource in operator.resources]
        await install_crds(Kube(transport, manager=NAME), served)
        await transport.close()

    asyncio.run(run())


@pytest.fixture
def world(plane: ControlPlane) -> Iterator[World]:
    world = World(plane)
    yield world
    world.close()


@pytest.fixture
def restricted(world: World) -> World:
    """A world in which only restricted pods may run."""
    pods = {"pod-security.kubernetes.io/enforce": "restricted"}
    world.person.merge(NAMESPACE, None, world.namespace, {"metadata": {"labels": pods}})
    return world


@pytest.fixture
def operator(plane: ControlPlane, world: World) -> Iterator[Operator]:
    """The operator, running, for the test's namespace alone."""
    operator = Operator(plane.kubeconfig, world.namespace)
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture
def gate(plane: ControlPlane) -> Iterator[Gate]:
    """Stands between an operator and the API server; sees every request, and can break watches."""
    with Gate.open(plane) as gate:
        yield gate


@pytest.fixture
def gated(plane: ControlPlane, world: World, gate: Gate) -> Iterator[Operator]:
    """The operator, running, behind the gate."""
    operator = Operator(plane.kubeconfig, world.namespace, host=gate.url)
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture
def kube(plane: ControlPlane, world: World) -> Kubectl:
    """A kubectl in the test's namespace."""

    def run(*arguments: str | Path, stdin: str | None = None) -> str:
        return kubectl("--namespace", world.namespace, *arguments, kubeconfig=plane.kubeconfig, stdin=stdin)

    return run
