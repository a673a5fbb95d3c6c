"""/metrics of a running operator, asked by service accounts with and without the right."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.machine.network import free_ports
from shared.kubernetes.access_review import ACCESS_REVIEW, TOKEN_REVIEW
from shared.kubernetes.kinds import Kind
from tests.api.conftest import Kubectl
from tests.api.support.running import Operator
from tests.api.support.world import World

CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
REVIEWS = (TOKEN_REVIEW.path(), ACCESS_REVIEW.path())


class Scraped(NamedTuple):
    """An answer, and whether the operator asked the API server for it."""

    status: int
    text: str


class Scraper:
    """Who asks an operator for its metrics."""

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
        return [asked.path for asked in self.operator.wire.asked if asked.path in REVIEWS]


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
    """A service account's token; it may do nothing."""
    kube("create", "serviceaccount", "prometheus")
    return kube("create", "token", "prometheus").strip()


@pytest.fixture
def granted(kube: Kubectl, world: World) -> Iterator[None]:
    """The account may read metrics."""
    name = f"metrics-of-{world.namespace}"
    kube("create", "clusterrole", name, "--verb=get", "--non-resource-url=/metrics")
    account = f"--serviceaccount={world.namespace}:prometheus"
    kube("create", "clusterrolebinding", name, f"--clusterrole={name}", account)
    yield
    kube("delete", "clusterrole,clusterrolebinding", name)


def test_who_is_nobody_is_refused(scraper: Scraper) -> None:
    assert scraper().status == 401
    assert scraper("forged").status == 401
    assert scraper.reviews == [TOKEN_REVIEW.path()], "nobody is asked about no token"


def test_who_may_not_is_told_what_is_missing(scraper: Scraper, account: str, world: World) -> None:
    answer = scraper(account)
    assert answer.status == 403
    assert f"system:serviceaccount:{world.namespace}:prometheus may not GET /metrics" in answer.text


def test_who_may_gets_the_metrics_for_two_requests(scraper: Scraper, account: str, granted: None) -> None:
    for _ in range(3):
        answer = scraper(account)
        assert answer.status == 200
        assert "controller_runtime_max_concurrent_reconciles" in answer.text
    assert sorted(scraper.reviews) == sorted(REVIEWS)


def test_a_token_for_somebody_else_is_refused(scraper: Scraper, kube: Kubectl, account: str, granted: None) -> None:
    """A token that was made for another service must not open this one."""
    assert scraper(kube("create", "token", "prometheus", "--audience=vault").strip()).status == 401


def test_without_an_api_server_there_is_no_answer_but_a_sentence(scraper: Scraper, account: str) -> None:
    scraper.operator.wire.faults.lose_request(when=lambda _, path: path in REVIEWS, times=None)
    answer = scraper(account)
    assert answer.status == 503
    assert "the API server could not review the request" in answer.text
