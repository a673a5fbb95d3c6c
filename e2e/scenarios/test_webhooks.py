"""Webhooks while their certificates are rotated, and while no operator is running."""

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

pytestmark = pytest.mark.nightly

CRD = "memcacheds.cache.example.com"
RULES = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"
INVALID = {"size": 1, "maxItemSizeMB": 64}
MESSAGE = "64 is more than half of memoryMB"


def certificates(operator: Operator) -> dict[str, str]:
    """Return the webhook certificate of each replica, by name of the pod."""
    return {
        pod["metadata"]["name"]: ssl.get_server_certificate((pod["status"]["podIP"], 9443), timeout=5)
        for pod in operator.pods
    }


def failed_webhook_calls(kubectl: Kubectl) -> dict[str, float]:
    """Return how often a webhook call failed and the API server rejected or allowed the request, by metric."""
    lines = kubectl("get", "--raw", "/metrics").splitlines()
    counted = re.compile(r"apiserver_admission_webhook_(fail_open_count|rejection_count\{error_type=\"calling_webhook)")
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if counted.match(line))}


def callers_of(memcacheds: Memcacheds) -> list[Callable[[int], None]]:
    """Return API calls that involve both webhooks: a dry run, and creation, change and deletion of a resource."""

    def try_out(_: int) -> None:
        spec = {"autoscaling": {"minReplicas": 2, "maxReplicas": 3}, "podDisruptionBudget": {"minAvailable": 9}}
        tried, warning = memcacheds.try_out("tried", size=1, **spec)
        assert tried["spec"]["size"] == 2, "the mutating webhook sets defaults"
        assert "allows no evictions" in warning, "the validating webhook warns"

    def change(number: int) -> None:
        name = f"changed-{number % 20}"
        memcacheds.create(name, size=0)
        memcacheds.change(name, memoryMB=65 + number % 2)
        memcacheds.delete(name)

    return [try_out, try_out, change]


@pytest.fixture
def short_lived(operator: Operator, release: Release) -> Operator:
    """Return the operator with certificates valid for 20 s and CAs valid for 80 s."""
    lifetime = [{"name": "CERTIFICATE_LIFETIME", "value": "20"}]
    release.upgrade("--set-json", f"memcached.extraEnv={json.dumps(lifetime)}")
    operator.await_rollout()
    with operator.scaled_to_zero():  # an old replica could issue certificates valid for months
        operator.system("delete", "secret", f"{operator.name}-certificates")
    return operator


@pytest.mark.parametrize(("cause", "states"), [("loss", 2), pytest.param("age", 3, marks=pytest.mark.weekly)])
def test_no_webhook_call_fails_while_certificates_and_cas_are_rotated(
    kubectl: Kubectl, short_lived: Operator, cause: str, states: int
) -> None:
    """Clients trust the old CA, then both, then the new one; deletion of the Secret or the CA's age starts it."""
    memcacheds = Memcacheds(kubectl.environment["KUBECONFIG"], kubectl.namespace)
    failed_before, pods = failed_webhook_calls(kubectl), {pod["metadata"]["uid"] for pod in short_lived.pods}
    authorities: set[str] = set()
    served: dict[str, set[str]] = {pod["metadata"]["name"]: set() for pod in short_lived.pods}

    def sample() -> tuple[int, int]:
        """Return the number of trust bundles observed so far, and the minimum number of certificates per replica."""
        authorities.add(short_lived.system.get("secret", f"{short_lived.name}-certificates")["data"]["ca.crt"])
        for name, certificate in certificates(short_lived).items():
            served[name].add(certificate)
        return len(authorities), min(map(len, served.values()))

    def complete() -> bool:
        observed = sample()
        assert all(count >= expected for count, expected in zip(observed, (states, 3), strict=True)), observed
        return True

    began = time.monotonic()
    with Callers.calling(*callers_of(memcacheds)) as callers:
        sample()
        if cause == "loss":
            short_lived.system("delete", "secret", f"{short_lived.name}-certificates")
        until("the CA and all certificates are renewed", complete, seconds=150)
        time.sleep(2)
        until("each client made more than 20 calls", lambda: min(callers.calls.values()) > 20)
    print(
        f"{len(authorities)} trust bundles and {max(map(len, served.values()))} certificates in "
        f"{time.monotonic() - began:.0f} s: of {sum(callers.calls.values())} calls, {len(callers.failures)} failed"
    )
    assert callers.failures == []
    assert failed_webhook_calls(kubectl) == failed_before
    assert {pod["metadata"]["uid"] for pod in short_lived.pods} == pods, "no replica was restarted"


def test_without_an_operator_only_creations_are_rejected(kubectl: Kubectl, operator: Operator) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    with operator.scaled_to_zero():
        with pytest.raises(Refused) as refused:
            kubectl.apply(Memcached.manifest("another", size=1))
        assert "failed calling webhook" in refused.value.output
        kubectl("label", "memcached", "cache", "tier=gold")
        kubectl("scale", "memcached", "cache", "--replicas=2")
        kubectl("delete", "memcached", "cache", "--timeout=20s")


def test_rule_missing_in_an_old_crd_is_enforced_by_webhook_and_reconcile(
    kubectl: Kubectl, operator: Operator, release: Release
) -> None:
    """All three report the same message; the release fixture restores the rules of the CRD."""
    with pytest.raises(Refused) as by_crd:
        kubectl.apply(Memcached.manifest("cache", **INVALID))
    assert f"spec.maxItemSizeMB: Invalid value: {MESSAGE}" in by_crd.value.output
    release.upgrade("--set", "memcached.webhook.failurePolicy=Ignore")
    kubectl("patch", "crd", CRD, "--type=json", "-p", json.dumps([{"op": "remove", "path": RULES}]))
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    servers = uids(kubectl)

    def rejected_by_webhook() -> bool:
        with pytest.raises(Refused) as refused:
            kubectl.apply(Memcached.manifest("cache", **INVALID))
        return f"spec.maxItemSizeMB: {MESSAGE}" in refused.value.output

    until("the webhook rejects the resource instead of the CRD", rejected_by_webhook)
    with operator.scaled_to_zero():
        until("the API server accepts the resource", lambda: kubectl.apply(Memcached.manifest("cache", **INVALID)))

    def stalled() -> bool:
        found = condition(cache.now, "Stalled")
        return found["status"] == "True" and f"spec.maxItemSizeMB: {MESSAGE}" in found["message"]

    until("the condition Stalled reports the error", stalled)
    assert uids(kubectl) == servers
    assert cache.serves() == 1
    kubectl.apply(Memcached.manifest("cache", size=1))
    cache.await_ready(1)
    assert uids(kubectl) == servers
