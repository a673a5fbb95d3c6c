"""A real API server per session; a namespace, its clients and an operator per test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from operators import installed
from shared.kubernetes.client import Kube
from shared.kubernetes.credentials import load_configuration
from shared.kubernetes.transport import HttpTransport
from shared.runtime.install import install_crds
from simulator.api_server.kinds import NAMESPACE
from simulator.memcached.fake_servers import mounted_secrets
from tests.platform.api.support.gate import Gate
from tests.platform.api.support.running import NAME, Operator
from tests.platform.api.support.world import World
from tools.local.cluster import kubectl
from tools.local.controlplane import ControlPlane

Kubectl = Callable[..., str]


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run an API server and its etcd with this project's CRDs, without controllers: the tests play those."""
    with ControlPlane.alone(tmp_path_factory.mktemp("api")) as plane:
        install(plane)
        yield plane


def install(plane: ControlPlane) -> None:
    """Install this project's CRDs as an operator with --install-crds does."""

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
    """Return a world whose namespace enforces the restricted Pod Security Standard."""
    pods = {"pod-security.kubernetes.io/enforce": "restricted"}
    world.user_client.merge(NAMESPACE, None, world.namespace, {"metadata": {"labels": pods}})
    return world


@pytest.fixture
def operator(plane: ControlPlane, world: World) -> Iterator[Operator]:
    """Run the operator for the namespace of the test."""
    operator = Operator(plane.kubeconfig, world.namespace)
    operator.fleet.volumes = partial(mounted_secrets, world.server)
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture
def gate(plane: ControlPlane) -> Iterator[Gate]:
    """Run a proxy between an operator and the API server that sees every request and can break watches."""
    with Gate.open(plane) as gate:
        yield gate


@pytest.fixture
def gated(plane: ControlPlane, world: World, gate: Gate) -> Iterator[Operator]:
    """Run the operator behind the proxy."""
    operator = Operator(plane.kubeconfig, world.namespace, host=gate.url)
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture
def kube(plane: ControlPlane, world: World) -> Kubectl:
    """Return a function that runs kubectl in the namespace of the test."""

    def run(*arguments: str | Path, stdin: str | None = None) -> str:
        return kubectl("--namespace", world.namespace, *arguments, kubeconfig=plane.kubeconfig, stdin=stdin)

    return run
