"""Health of Memcacheds: clients are served if every server in their list is ready."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.memcached.api.resource import Memcached
from operators.memcached.client.errors import TimedOut
from operators.memcached.report.metrics import states
from operators.memcached.security.certificates import ServedCertificate
from operators.memcached.security.users import AcceptedUsers
from operators.memcached.state.observed import Observed
from shared.runtime.plan import Plan
from shared.status.resource_metrics import READY
from tests.memcached.unit.world import EMPTY, observed_pods, plan, pod, resource, workload_of

THREE = (pod(0), pod(1), pod(2))


def conditions(made: Plan) -> dict[str, tuple[bool | None, str]]:
    assert made.health
    found = {"Available": made.health.available, "Degraded": made.health.degraded, "Observed": made.health.observed}
    return {name: (each.holds, str(each.reason)) for name, each in found.items() if each}


def stateful_set(*ready: bool) -> tuple[Memcached, Observed]:
    """A StatefulSet whose servers were all ready once."""
    servers = [f"cache-{number}.cache.default.svc:11211" for number in range(3)]
    cache = resource(phase="Running", observed=1, workload="StatefulSet", status={"servers": servers})
    pods = [pod(number, ready=each, controller="StatefulSet") for number, each in enumerate(ready)]
    return cache, Observed(workload_of("StatefulSet", *pods))


def test_complete_cache_is_available() -> None:
    assert conditions(plan(resource(phase="Running", observed=1), observed_pods(*THREE))) == {
        "Available": (True, "Served"),
        "Degraded": (False, "Redundant"),
        "Observed": (True, "Observed"),
    }


def test_missing_server_of_a_deployment_reduces_the_redundancy() -> None:
    """Clients do not use it: it is not in the list."""
    made = plan(resource(phase="Running", observed=1), observed_pods(*THREE[:2], pod(3, ready=False)))
    assert conditions(made)["Available"] == (True, "Served")
    assert conditions(made)["Degraded"] == (True, "RedundancyReduced")


def test_servers_that_are_not_ready_are_named_in_order() -> None:
    """E6: each process had another order, so that each change of the leader wrote another message."""
    servers = [f"cache-{number}.cache.default.svc:11211" for number in range(12)]
    cache = resource(size=12, phase="Running", observed=1, workload="StatefulSet", status={"servers": servers})
    pods = [pod(number, ready=number == 0, controller="StatefulSet") for number in range(12)]
    made = plan(cache, Observed(workload_of("StatefulSet", *pods)))
    assert made.health
    assert made.health.available
    assert made.health.available.message.startswith("cache-1, cache-2, cache-3, cache-4, cache-5 and 6 more: in the")


def test_server_in_the_list_that_is_not_ready_is_an_outage_of_its_keys() -> None:
    cache, observed = stateful_set(True, False, True)
    made = plan(cache, observed)
    assert len(made.status["servers"]) == 3, "the hash ring of clients must not change"
    assert conditions(made)["Available"] == (False, "ServersNotReady")
    assert conditions(made)["Degraded"] == (False, "NotAvailable")
    assert made.health
    assert made.health.available
    assert made.health.available.message.startswith("cache-1: in the list")
    assert conditions(plan(*stateful_set(True, True, True)))["Available"] == (True, "Served")


def test_cache_without_a_ready_server_is_not_available() -> None:
    cache = resource(phase="Running", observed=1)
    assert conditions(plan(cache, observed_pods(pod(0, ready=False))))["Available"] == (False, "ServersNotReady")


def test_cache_that_is_being_created_is_not_available() -> None:
    assert conditions(plan(resource(), EMPTY))["Available"] == (False, "Creating")


def test_cache_scaled_to_zero_is_no_outage() -> None:
    made = plan(resource(phase="Running", observed=1, size=0), observed_pods())
    assert conditions(made)["Available"] == (True, "Served")
    assert conditions(made)["Degraded"] == (False, "Redundant")


@pytest.mark.parametrize(
    "blind",
    [
        {"served_certificates": {"cache-1": ServedCertificate(error="no route to host")}},
        {"accepted_users": {"cache-1": AcceptedUsers(error="no route to host")}},
    ],
    ids=["certificate", "users"],
)
def test_nothing_but_observed_changes_while_only_the_operator_cannot_reach_a_server(blind: dict[str, Any]) -> None:
    cache = resource(phase="Running", observed=1)
    first = plan(cache, observed_pods(*THREE))
    made = plan(cache, replace(observed_pods(*THREE), **blind))
    kept = ("phase", "replicas", "readyReplicas", "servers", "nodes", "version")
    assert {key: made.status[key] for key in kept} == {key: first.status[key] for key in kept}
    found = {state: value for state, value, _ in states({"spec": {"size": 3}, "status": made.status})}
    assert found[READY] == 3
    assert conditions(made) == {
        "Available": (True, "Served"),
        "Degraded": (False, "Redundant"),
        "Observed": (False, "NotAnswering"),
    }


@pytest.mark.parametrize("spec", [{"metrics": {}}, {"auth": {"secretName": "users"}}, {}], ids=["metrics", "auth", "-"])
def test_advice_for_a_server_that_hangs_gives_it_a_sidecar(spec: dict[str, Any]) -> None:
    """Servers of release 0.1.0 have no sidecar that ends them, also with spec.metrics."""
    hangs = {"cache-1": TimedOut("cache-1: no response to 'version' within 3 s.", is_accepted=True)}
    made = plan(resource(phase="Running", observed=1, **spec), replace(observed_pods(*THREE), unresponsive=hangs))
    assert made.verdict.reason == "ServerNotResponding"
    assert ("An annotation in spec.annotations replaces the servers" in made.verdict.message) == bool(spec)
    assert ("With spec.metrics" in made.verdict.message) != bool(spec)


def test_progress_counts_servers_and_updated_pods() -> None:
    cache = resource(phase="Running", observed=1)
    assert "progress" not in plan(cache, observed_pods(*THREE)).status
    made = plan(cache, observed_pods(*THREE[:2], pod(3, ready=False), updated=1)).status
    assert made["progress"] == [
        {"what": "Servers", "done": 2, "total": 3},
        {"what": "Pods", "done": 1, "total": 3},
    ]
