"""Fixtures of all scenarios: kubectl in a new namespace, Helm, the operators."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.scenarios.support.commands import SYSTEM, Helm, Kubectl, new_namespace
from e2e.scenarios.support.operator import Account, Operator, accounts
from e2e.scenarios.support.release import Release
from tools.local.environment import given_kubeconfig


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    kubeconfig = given_kubeconfig()
    if not Path(kubeconfig).exists():
        pytest.fail(f"no cluster is running: {kubeconfig} does not exist; fix: make up")
    return {**os.environ, "KUBECONFIG": kubeconfig}


@pytest.fixture(scope="session")
def helm(environment: dict[str, str]) -> Helm:
    return Helm(environment)


@pytest.fixture
def kubectl(environment: dict[str, str]) -> Iterator[Kubectl]:
    """Return kubectl in a new namespace that enforces the restricted Pod Security Standard."""
    with new_namespace(environment) as kubectl:
        yield kubectl


@pytest.fixture
def system(kubectl: Kubectl) -> Kubectl:
    """Return kubectl in the platform's namespace."""
    return kubectl.within(SYSTEM)


@pytest.fixture
def found_release(helm: Helm, system: Kubectl, tmp_path: Path) -> Release:
    """Return the platform's release, for tests that do not change it."""
    return Release.found(helm, system, tmp_path / "values.json")


@pytest.fixture
def release(found_release: Release, operator: Operator) -> Iterator[Release]:
    """Return the platform's release, for tests that change it; restore it afterwards."""
    yield found_release
    found_release.restore()
    operator.await_rollout()


@pytest.fixture
def operator(system: Kubectl) -> Operator:
    return Operator(system, "memcached")


@pytest.fixture
def etcd_operator(system: Kubectl) -> Operator:
    return Operator(system, "etcd")


@pytest.fixture
def redis_operator(system: Kubectl) -> Operator:
    return Operator(system, "redis")


@pytest.fixture
def account(kubectl: Kubectl) -> Iterator[Account]:
    """Factory of ServiceAccounts with the given ClusterRoles; it returns their tokens."""
    with accounts(kubectl) as make:
        yield make
