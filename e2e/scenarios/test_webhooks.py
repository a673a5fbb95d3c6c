"""Webhooks while their certificates change, and while nobody answers them."""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable

import pytest

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.commands import Kubectl, Refused, until
from e2e.scenarios.support.load import Callers, Memcacheds
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.release import Release
from e2e.scenarios.support.resource import condition, uids

CRD = "memcacheds.cache.example.com"
RULES = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"
WRONG = {"size": 1, "maxItemSizeMB": 64}
SENTENCE = "64 is more than half of memoryMB"


def certificates(operator: Operator) -> dict[str, str]:
    """What each replica shows to who calls its webhooks, by the replica's name."""
    return {
        pod["metadata"]["name"]: ssl.get_server_certificate((pod["status"]["podIP"], 9443), timeout=5)
        for pod in operator.pods
    }


def unanswered(kubectl: Kubectl) -> dict[str, float]:
    """How often the API server called a webhook in vain, and refused the request for it or let it pass."""
    lines = kubectl("get", "--raw", "/metrics").splitlines()
    counted = re.compile(r"apiserver_admission_webhook_(fail_open_count|rejection_count\{error_type=\"calling_webhook)")
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if counted.match(line))}


def callers_of(memcacheds: Memcacheds) -> list[Callable[[int], None]]:
    """Calls that both webhooks must have a part in: one is tried out; one is made, changed and deleted."""

    def try_out(_: int) -> None:
        asked = {"autoscaling": {"minReplicas": 2, "maxReplicas": 3}, "podDisruptionBudget": {"minAvailable": 9}}
        tried, warning = memcacheds.try_out("tried", size=1, **asked)
        assert tried["spec"]["size"] == 2, "the first defaults"
        assert "allows no evictions" in warning, "the second warns"

    def change(number: int) -> None:
        name = f"changed-{number % 20}"
        memcacheds.create(name, size=0)
        memcacheds.change(name, memoryMB=65 + number % 2)
        memcacheds.delete(name)

    return [try_out, try_out, change]


@pytest.fixture
def hasty(operator: Operator, release: Release) -> Operator:
    """The operator with certificates that live for twenty seconds, and authorities that live for eighty."""
    lifetime = [{"name": "CERTIFICATE_LIFETIME", "value": "20"}]
    release.upgrade("--set-json", f"memcached.extraEnv={json.dumps(lifetime)}")
    operator.await_rollout()
    with operator.gone():  # whoever was there before might make others that live for months
        operator.system("delete", "secret", f"{operator.name}-certificates")
    return operator


@pytest.mark.parametrize(("cause", "states"), [("loss", 2), pytest.param("age", 3, marks=pytest.mark.long)])
def test_certificates_and_authorities_change_under_load_and_no_call_fails(
    kubectl: Kubectl, hasty: Operator, cause: str, states: int
) -> None:
    """Clients trust the old authority, then both, then the new one; a lost Secret begins it, or the authority's age."""
    memcacheds = Memcacheds(kubectl.environment["KUBECONFIG"], kubectl.namespace)
    in_vain, pods = unanswered(kubectl), {pod["metadata"]["uid"] for pod in hasty.pods}
    authorities: set[str] = set()
    shown: dict[str, set[str]] = {pod["metadata"]["name"]: set() for pod in hasty.pods}

    def look() -> tuple[int, int]:
        """How many states of the authority were seen, and how many certificates of each replica at least."""
        authorities.add(hasty.system.get("secret", f"{hasty.name}-certificates")["data"]["ca.crt"])
        for name, certificate in certificates(hasty).items():
            shown[name].add(certificate)
        return len(authorities), min(map(len, shown.values()))

    def complete() -> bool:
        seen = look()
        assert all(each >= wanted for each, wanted in zip(seen, (states, 3), strict=True)), seen
        return True

    began = time.monotonic()
    with Callers.calling(*callers_of(memcacheds)) as callers:
        look()
        if cause == "loss":
            hasty.system("delete", "secret", f"{hasty.name}-certificates")
        until("all is renewed", complete, seconds=150)
        time.sleep(2)
    print(
        f"{len(authorities)} states of the authority and {max(map(len, shown.values()))} certificates in "
        f"{time.monotonic() - began:.0f} s: of {sum(callers.calls.values())} calls, {len(callers.failures)} failed"
    )
    assert callers.failures == []
    assert unanswered(kubectl) == in_vain
    assert min(callers.calls.values()) > 20, callers.calls
    assert {pod["metadata"]["uid"] for pod in hasty.pods} == pods, "nobody was restarted for it"


def test_without_an_operator_what_is_new_is_refused_and_all_else_goes_on(kubectl: Kubectl, operator: Operator) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    with operator.gone():
        with pytest.raises(Refused) as refused:
            kubectl.apply(Memcached.manifest("another", size=1))
        assert "failed calling webhook" in refused.value.said
        kubectl("label", "memcached", "cache", "tier=gold")
        kubectl("scale", "memcached", "cache", "--replicas=2")
        kubectl("delete", "memcached", "cache", "--timeout=20s")


def test_what_an_older_crd_lets_pass_the_webhook_refuses_and_what_that_lets_pass_the_reconcile(
    kubectl: Kubectl, operator: Operator, release: Release
) -> None:
    """All three in the same words; the release's fixture brings the CRD's rules back."""
    with pytest.raises(Refused) as by_crd:
        kubectl.apply(Memcached.manifest("cache", **WRONG))
    assert f"spec.maxItemSizeMB: Invalid value: {SENTENCE}" in by_crd.value.said
    release.upgrade("--set", "memcached.webhook.failurePolicy=Ignore")
    kubectl("patch", "crd", CRD, "--type=json", "-p", json.dumps([{"op": "remove", "path": RULES}]))
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    servers = uids(kubectl)

    def refused_by_webhook() -> bool:
        with pytest.raises(Refused) as refused:
            kubectl.apply(Memcached.manifest("cache", **WRONG))
        return f"spec.maxItemSizeMB: {SENTENCE}" in refused.value.said

    until("the webhook says it, once the CRD no longer does", refused_by_webhook)
    with operator.gone():
        until("nobody says it", lambda: kubectl.apply(Memcached.manifest("cache", **WRONG)))

    def stalled() -> bool:
        found = condition(cache.now, "Stalled")
        return found["status"] == "True" and f"spec.maxItemSizeMB: {SENTENCE}" in found["message"]

    until("the resource itself says it", stalled)
    assert uids(kubectl) == servers
    assert cache.serves() == 1
    kubectl.apply(Memcached.manifest("cache", size=1))
    cache.await_ready(1)
    assert uids(kubectl) == servers
