"""Two replicas, one of which leads: what is felt of a change between them."""

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


@pytest.fixture
def memcacheds(kubectl: Kubectl, operator: Operator) -> Memcacheds:
    operator.await_rollout()
    assert len(operator.pods) >= 2, "this is about one that takes over from another"
    operator.leader()
    return Memcacheds(kubectl.environment["KUBECONFIG"], kubectl.namespace)


class Story:
    """What a Lease said, one state after the other.

    Attributes:
        holders: who held it, each as often as it came to.
        transitions: how often it was handed on, by the Lease's own count.
    """

    def __init__(self) -> None:
        self.holders: list[str] = []
        self.transitions: list[int] = []

    @classmethod
    @contextmanager
    def read(cls, memcacheds: Memcacheds, operator: Operator) -> Iterator[Story]:
        """Read it within the block."""
        story = cls()
        leases = client.CoordinationV1Api(memcacheds.connection).list_namespaced_lease
        with watched(
            leases, story._see, operator.system.namespace, field_selector=f"metadata.name={operator.lease_name}"
        ):
            until("the Lease is read", lambda: story.holders)
            yield story

    def _see(self, _kind: str, lease: Any) -> None:
        holder = lease.spec.holder_identity
        if holder and [holder] != self.holders[-1:]:
            self.holders.append(holder)
            self.transitions.append(lease.spec.lease_transitions)


def test_a_leader_that_ends_hands_over_within_two_seconds(operator: Operator, memcacheds: Memcacheds) -> None:
    leader = operator.leader()["metadata"]["name"]
    with Story.read(memcacheds, operator) as story, Pulse.beating(memcacheds) as pulse:
        time.sleep(1)
        operator.system("delete", "pod", leader, "--wait=false")
        until("another leads", lambda: len(story.holders) == 2, seconds=20)
        time.sleep(1)
    print(f"handover: the longest wait of {len(pulse.waits)} Services was {pulse.longest:.2f} s")
    assert pulse.longest < 2
    assert len(story.holders) == 2
    assert story.transitions[1] == story.transitions[0] + 1
    operator.await_rollout()


def test_a_leader_that_is_killed_is_followed_within_twenty_seconds(operator: Operator, memcacheds: Memcacheds) -> None:
    leader = operator.leader()
    with Story.read(memcacheds, operator) as story, Pulse.beating(memcacheds, every=0.5) as pulse:
        time.sleep(1)
        runtime.signal(leader, CONTAINER, "SIGKILL")
        until("another leads", lambda: len(story.holders) == 2, seconds=20)
        time.sleep(1)
    print(f"leader killed: the longest wait of {len(pulse.waits)} Services was {pulse.longest:.2f} s")
    assert 5 < pulse.longest < 20, "shorter than a Lease's rest would mean that nobody was killed"
    assert story.transitions[1] == story.transitions[0] + 1
    operator.await_rollout()


@pytest.mark.long
def test_a_leader_that_froze_finds_itself_followed_and_writes_nothing(
    operator: Operator, memcacheds: Memcacheds
) -> None:
    leader = operator.leader()
    with Story.read(memcacheds, operator) as story, Pulse.beating(memcacheds, every=0.2) as pulse:
        time.sleep(1)
        runtime.signal(leader, CONTAINER, "SIGSTOP")
        try:
            until("another leads", lambda: len(story.holders) == 2, seconds=25)
        finally:
            runtime.signal(leader, CONTAINER, "SIGCONT")
        time.sleep(5)
    print(f"leader frozen: the longest wait of {len(pulse.waits)} Services was {pulse.longest:.2f} s")
    assert len(story.holders) == 2, "the one that thawed took the Lease back"
    operator.await_rollout()
