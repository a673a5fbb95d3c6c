"""Leader election: the effect of a change of the leader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import client

from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.load import Memcacheds, Pulse, watched
from e2e.scenarios.support.operator import CONTAINER, Operator

pytestmark = pytest.mark.nightly


@pytest.fixture
def memcacheds(kubectl: Kubectl, operator: Operator) -> Memcacheds:
    operator.await_rollout()
    assert len(operator.pods) >= 2, "leader election needs two replicas or more"
    operator.leader()
    return Memcacheds(kubectl.environment["KUBECONFIG"], kubectl.namespace)


class LeaseHistory:
    """Changes of a Lease.

    Attributes:
        holders: consecutive holders.
        transitions: leaseTransitions at the start of each holder.
    """

    def __init__(self) -> None:
        self.holders: list[str] = []
        self.transitions: list[int] = []

    @classmethod
    @contextmanager
    def read(cls, memcacheds: Memcacheds, operator: Operator) -> Iterator[LeaseHistory]:
        """Record the changes of an operator's Lease until the end of the context."""
        history = cls()
        leases = client.CoordinationV1Api(memcacheds.connection).list_namespaced_lease
        with watched(
            leases, history._on_lease, operator.system.namespace, field_selector=f"metadata.name={operator.lease_name}"
        ):
            until("the Lease is read", lambda: history.holders)
            yield history

    def _on_lease(self, _kind: str, lease: Any) -> None:
        holder = lease.spec.holder_identity
        if holder and [holder] != self.holders[-1:]:
            self.holders.append(holder)
            self.transitions.append(lease.spec.lease_transitions)


def test_terminating_leader_hands_over_within_two_seconds(operator: Operator, memcacheds: Memcacheds) -> None:
    leader = operator.leader()["metadata"]["name"]
    with LeaseHistory.read(memcacheds, operator) as history, Pulse.beating(memcacheds) as pulse:
        time.sleep(1)
        operator.system("delete", "pod", leader, "--wait=false")
        until("another replica is the leader", lambda: len(history.holders) == 2, seconds=20)
        time.sleep(1)
    print(f"leader terminated: of {len(pulse.waits)} deleted Services, the longest was missing {pulse.longest:.2f} s")
    assert pulse.longest < 2
    assert len(history.holders) == 2
    assert history.transitions[1] == history.transitions[0] + 1
    operator.await_rollout()


@pytest.mark.commit
def test_killed_leader_is_replaced_within_twenty_seconds(operator: Operator, memcacheds: Memcacheds) -> None:
    leader = operator.leader()
    with LeaseHistory.read(memcacheds, operator) as history, Pulse.beating(memcacheds, every=0.5) as pulse:
        time.sleep(1)
        runtime.signal(leader, CONTAINER, "SIGKILL")
        until("another replica is the leader", lambda: len(history.holders) == 2, seconds=20)
        time.sleep(1)
    print(f"leader killed: of {len(pulse.waits)} deleted Services, the longest was missing {pulse.longest:.2f} s")
    assert 5 < pulse.longest < 20, "a shorter time than the Lease duration means that the leader was not killed"
    assert history.transitions[1] == history.transitions[0] + 1
    operator.await_rollout()


@pytest.mark.weekly
def test_frozen_leader_writes_nothing_after_it_lost_the_lease(operator: Operator, memcacheds: Memcacheds) -> None:
    leader = operator.leader()
    with LeaseHistory.read(memcacheds, operator) as history, Pulse.beating(memcacheds, every=0.2) as pulse:
        time.sleep(1)
        runtime.signal(leader, CONTAINER, "SIGSTOP")
        try:
            until("another replica is the leader", lambda: len(history.holders) == 2, seconds=25)
        finally:
            runtime.signal(leader, CONTAINER, "SIGCONT")
        time.sleep(5)
    print(f"leader frozen: of {len(pulse.waits)} deleted Services, the longest was missing {pulse.longest:.2f} s")
    assert len(history.holders) == 2, "the frozen leader took the Lease again after it continued"
    operator.await_rollout()
