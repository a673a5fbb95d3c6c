"""Requests to /metrics of a running operator, from service accounts with and without permission."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from shared.kubernetes.access_review import ACCESS_REVIEW, TOKEN_REVIEW
from shared.kubernetes.kinds import Kind
from tests.platform.api.conftest import Kubectl
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import World
from tools.local.controlplane import ControlPlane
from tools.local.machine.network import free_ports

CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
REVIEWS = (TOKEN_REVIEW.path(), ACCESS_REVIEW.path())


class Scraped(NamedTuple):
    """A response of the metrics endpoint."""

    status: int
    text: str


class Scraper:
    """A client of the metrics endpoint that records the reviews the operator requests."""

    def __init__(self, operator: Operator, address: str) -> None:
        self.operator = operator
        self._url = f"https://{address}/metrics"
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def __call__(self, token: str = "") -> Scraped:
        request = urllib.request.Request(self._url, headers={"Authorization": f"Bearer {token}"} if token else {})
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=10) as answer:
                return Scraped(answer.status, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Scraped(error.code, error.read().decode())

    @property
    def reviews(self) -> list[str]:
        return [sent.path for sent in self.operator.wire.sent if sent.path in REVIEWS]


@pytest.fixture
def scraper(plane: ControlPlane, world: World) -> Iterator[Scraper]:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    operator = Operator(plane.kubeconfig, world.namespace, flags=(f"--metrics-bind-address={address}",))
    operator.start()
    yield Scraper(operator, address)
    operator.stop()


@pytest.fixture
def account(kube: Kubectl) -> str:
    """Return the token of a service account without permissions."""
    kube("create", "serviceaccount", "prometheus")
    return kube("create", "token", "prometheus").strip()


@pytest.fixture
def granted(kube: Kubectl, world: World) -> Iterator[None]:
    """Grant the account permission to read metrics."""
    name = f"metrics-of-{world.namespace}"
    kube("create", "clusterrole", name, "--verb=get", "--non-resource-url=/metrics")
    account = f"--serviceaccount={world.namespace}:prometheus"
    kube("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
    yield
    kube("delete", "clusterrole,clusterrolebinding", name)


def test_request_without_a_valid_token_is_rejected(scraper: Scraper) -> None:
    assert scraper().status == 401
    assert scraper("forged").status == 401
    assert scraper.reviews == [TOKEN_REVIEW.path()], "a request without a token needs no review"


def test_account_without_permission_gets_the_missing_permission(scraper: Scraper, account: str, world: World) -> None:
    answer = scraper(account)
    assert answer.status == 403
    assert f"system:serviceaccount:{world.namespace}:prometheus may not GET /metrics" in answer.text


def test_authorized_account_costs_two_reviews(scraper: Scraper, account: str, granted: None) -> None:
    for _ in range(3):
        answer = scraper(account)
        assert answer.status == 200
        assert "controller_runtime_max_concurrent_reconciles" in answer.text
    assert sorted(scraper.reviews) == sorted(REVIEWS)


def test_token_for_another_audience_is_rejected(scraper: Scraper, kube: Kubectl, account: str, granted: None) -> None:
    """A token issued for another audience must be rejected."""
    assert scraper(kube("create", "token", "prometheus", "--audience=other").strip()).status == 401


def test_unreachable_api_server_is_reported_as_503(scraper: Scraper, account: str) -> None:
    scraper.operator.wire.faults.lose_request(when=lambda _, path: path in REVIEWS, times=None)
    answer = scraper(account)
    assert answer.status == 503
    assert "the API server could not review the request" in answer.text
