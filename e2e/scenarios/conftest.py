"""What every scenario is given: kubectl in a namespace of its own, helm, the operator."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.scenarios.support.commands import ROOT, SYSTEM, Helm, Kubectl
from e2e.scenarios.support.operator import Account, Operator
from e2e.scenarios.support.release import Release


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    kubeconfig = os.environ.get("KUBECONFIG") or str(ROOT / ".cluster/kubeconfig")
    if not Path(kubeconfig).exists():
        pytest.fail(f"no cluster: {kubeconfig} does not exist. Start one: make up")
    return {**os.environ, "KUBECONFIG": kubeconfig}


@pytest.fixture(scope="session")
def helm(environment: dict[str, str]) -> Helm:
    return Helm(environment)


@pytest.fixture
def kubectl(environment: dict[str, str]) -> Iterator[Kubectl]:
    """A kubectl in a fresh namespace under the strictest Pod Security."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    kubectl = Kubectl(name, environment)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield kubectl
    kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def system(kubectl: Kubectl) -> Kubectl:
    """A kubectl in the platform's namespace."""
    return kubectl.within(SYSTEM)


@pytest.fixture
def found_release(helm: Helm, system: Kubectl, tmp_path: Path) -> Release:
    """The platform's release, to look at."""
    return Release.found(helm, system, tmp_path / "values.json")


@pytest.fixture
def release(found_release: Release, operator: Operator) -> Iterator[Release]:
    """The platform's release, to be changed; afterwards it is as it was found."""
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
    """Makes ServiceAccounts with the ClusterRoles that are named, and gives their tokens."""
    bound: list[str] = []

    def make(name: str, *roles: str) -> str:
        kubectl("create", "serviceaccount", name)
        for role in roles:
            bound.append(f"{kubectl.namespace}-{name}-{role}")
            who = f"--serviceaccount={kubectl.namespace}:{name}"
            kubectl("create", "clusterrolebinding", bound[-1], f"--clusterrole={role}", who)
        return kubectl("create", "token", name).strip()

    yield make
    for binding in bound:
        kubectl("delete", "clusterrolebinding", binding)
