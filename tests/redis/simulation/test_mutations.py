"""Mutation tests of harness and fake: operators with one unsafe behaviour are detected."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from operators.redis import plan
from operators.redis.api.resource import RedisCluster
from operators.redis.client import commands
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.server import BUS_PORT, PORT, Connect
from operators.redis.facts import bus_port, nodes
from operators.redis.facts.assessment import Assessment
from operators.redis.migration import key_by_key
from operators.redis.state import observed
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from operators.redis.steps import data_loss_recovery, membership_repair, provisioning, rolling_update
from operators.redis.topology.merged_view import Seen
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD
from shared.runtime.plan import PASS, Apply, Step
from shared.status.reasons import Reason
from shared.steps import volumes
from shared.steps.database import Database
from shared.steps.rolling_update import RollingUpdate
from tests.harness.disturbance import DISTURBANCES
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import Scenario, ScenarioStep, Unsafe, delete, later, limit_turns
from tests.redis.simulation.database import FakeRedis
from tests.support.hibernating import forged, obeys_records_of_others
from tests.support.plays import played
from tests.support.pod_loss import delete_now
from tests.support.redis.scenarios import (
    ALONE,
    NAME,
    NEW,
    REDIS,
    SCENARIOS,
    all_pods_deleted,
    cluster,
    failing,
    hangs,
    in_memory,
    node,
    to_redis,
)
from tests.support.virtual_time import in_virtual_time

Patch = Callable[[pytest.MonkeyPatch], None]

BY_NAME = {str(scenario): scenario for scenario in SCENARIOS}


def forgets_unreachable_nodes(patch: pytest.MonkeyPatch) -> None:
    """Forgets failed nodes without evidence that they are lost."""
    patch.setattr(membership_repair, "_forgettable", lambda _, known: not known.answers)


def treats_unreachable_nodes_as_lost(patch: pytest.MonkeyPatch) -> None:
    """Replaces a primary as soon as it does not respond."""
    patch.setattr(Observed, "lost", lambda self, node_id: node_id not in self.reachable)


def scales_in_before_moving_slots(patch: pytest.MonkeyPatch) -> None:
    """Scales the StatefulSet in before the slots have moved."""
    patch.setattr(provisioning, "replicas", lambda seen: seen.resource.spec.replicas)


def restarts_primaries_without_failover(patch: pytest.MonkeyPatch) -> None:
    """Restarts a primary without a failover."""

    def restart(_seen: Assessment, roll: RollingUpdate[Instance], instance: Instance) -> Step:
        return roll.recreate(instance)

    patch.setattr(rolling_update, "_fail_over", restart)


def recovers_lost_slots_without_consent(patch: pytest.MonkeyPatch) -> None:
    """Reassigns lost slots without the user's consent."""
    patch.setattr(data_loss_recovery, "_is_confirmed", lambda *_: True)


def forms_again_when_all_nodes_are_empty(patch: pytest.MonkeyPatch) -> None:
    """Ignores that the cluster was formed before."""
    patch.setattr(RedisCluster, "formed", property(lambda resource: _all_empty_is_new(resource)))


def _all_empty_is_new(resource: RedisCluster) -> bool:
    return bool(resource.reported.get("formed")) and resource.reported.get("masters", 0) > 0


def changes_owner_before_keys_are_moved(patch: pytest.MonkeyPatch) -> None:
    """Sends SETSLOT NODE without waiting for MIGRATE."""

    async def hasty(_: key_by_key.KeyByKeyPath, batch: dict[int, list[bytes]], __: object) -> dict[int, list[bytes]]:
        return {slot: [] for slot in batch}

    patch.setattr(key_by_key.KeyByKeyPath, "_migrate", hasty)


def meets_stale_addresses(patch: pytest.MonkeyPatch) -> None:
    """Sends MEET to addresses in cluster views that other nodes may have by now, with the same port in all clusters."""
    patch.setattr(bus_port, "PORTS", range(BUS_PORT, BUS_PORT + 1))
    carry_out = commands.Meet.carry_out

    async def blindly(self: commands.Meet, connect: Connect, /) -> None:
        await carry_out(self, connect)
        for endpoint in self.via:
            server = connect(endpoint, self.access)
            for known in (await inspect_node(server)).nodes:
                if not known.is_me:
                    await server.execute("CLUSTER", "MEET", known.address, known.port)

    patch.setattr(commands.Meet, "carry_out", blindly)


def deletes_disk_in_use(patch: pytest.MonkeyPatch) -> None:
    """Deletes the disk of a node that is in use."""

    def vacate(seen: Assessment) -> Step:
        resource = seen.resource
        if not resource.formed or resource.spec.replicas == len(seen.view.members):
            return PASS
        return Step.wait(Reason("Emptying"), "Deleting a disk.", *volumes.replace_disk(seen.instances[0], in_use=False))

    patch.setattr(plan, "join_nodes", vacate)


def reports_every_replica_as_synced(patch: pytest.MonkeyPatch) -> None:
    """Reports replicas as synced without a connection to their primary."""
    patch.setattr(Seen, "synced", property(lambda seen: seen.is_replica))
    patch.setattr(Seen, "astray", property(lambda _: False))


def keeps_owners_of_secrets(patch: pytest.MonkeyPatch) -> None:
    """Does not change the owners of its Secrets when the spec does."""
    patch.setattr(Database, "keep_secret_owners", lambda *_: PASS)


def stops_pods_whose_claims_are_deleted(patch: pytest.MonkeyPatch) -> None:
    """Hibernates while claims are being deleted, which end with their pods: takes them for claims that stay."""
    patch.setattr(plan, "report_terminating_claims", lambda _: PASS)
    patch.setattr(nodes, "outlives_pods", lambda resource, *_: observed.outlives_pods(resource))


def volumes_lost(*numbers: int) -> Scenario:
    """Return a scenario in which volumes are lost while all pods are stopped, before the wake-up."""
    alone, claims = cluster(3, **ALONE), (f"data-{node(number)}" for number in numbers)
    losses = (delete_now(PERSISTENT_VOLUME_CLAIM, claim) for claim in claims)
    steps = (cluster(3, **ALONE, hibernate=True), *losses, alone, later(60))
    return Scenario(f"{len(numbers)} of 3 volumes are lost during a hibernation", steps, given=(alone,))


HIBERNATIONS: list[tuple[Patch, Scenario, str]] = [
    (
        stops_pods_whose_claims_are_deleted,
        Scenario(
            "hibernate while a claim is being deleted",
            (delete(PERSISTENT_VOLUME_CLAIM, f"data-{node(1)}"), cluster(6, hibernate=True)),
            given=(cluster(6),),
        ),
        "while the claim of cache-1 is being deleted",
    ),
    (
        obeys_records_of_others,
        Scenario(
            "a person records a hibernation",
            (forged(NAME, replicas=3, replicas_per_master=0, wakes=1), later(60)),
            given=(cluster(6),),
        ),
        "obeys a record of cache by another: {'replicas': 3, 'replicas_per_master': 0}",
    ),
    (recovers_lost_slots_without_consent, volumes_lost(0), "which owns|without consent"),
    (forms_again_when_all_nodes_are_empty, volumes_lost(0, 1, 2), "records that cache is not formed"),
]


def led_astray() -> ScenarioStep:
    """Leave the link of a replica at an address that no server has."""

    def act(redis: FakeRedis) -> None:
        replica = next(process for process in redis.running if process.node.me.primary)
        replica.source, replica.linked = ("10.9.9.9", PORT), False

    return to_redis("a replica is led astray", act)


@pytest.mark.parametrize(
    ("sabotage", "scenario", "violation"),
    [
        *HIBERNATIONS,
        (
            forgets_unreachable_nodes,
            Scenario("a primary is down", (failing(0), delete_now(POD, node(0))), given=(cluster(6),)),
            "forgets .*, which owns",
        ),
        (
            treats_unreachable_nodes_as_lost,
            Scenario("a node hangs", (hangs(0),), given=(cluster(6),)),
            "takes over|forgets",
        ),
        (
            scales_in_before_moving_slots,
            Scenario("scale in", (cluster(6),), given=(cluster(6), cluster(8))),
            "owns 4096 slots",
        ),
        (
            restarts_primaries_without_failover,
            Scenario("rolling update", (cluster(6, NEW),), given=(cluster(6),)),
            "a primary that owns .* slots and serves",
        ),
        (recovers_lost_slots_without_consent, BY_NAME["lose slots"], "which owns|without consent"),
        (
            forms_again_when_all_nodes_are_empty,
            Scenario("lose all pods", all_pods_deleted(), given=(in_memory(6),)),
            "assigned slots again without consent",
        ),
        (
            changes_owner_before_keys_are_moved,
            Scenario("scale out", (cluster(8),), given=(cluster(6),)),
            "has .* of its keys",
        ),
        (
            reports_every_replica_as_synced,
            Scenario("a replica is led astray", (led_astray(),), given=(cluster(6),)),
            "is reported as synced, though no server is at",
        ),
        (
            keeps_owners_of_secrets,
            Scenario("finalizers removed", (cluster(3, **ALONE, finalizers=""),), given=(cluster(3, **ALONE),)),
            "Secret cache-.* has owners",
        ),
        (meets_stale_addresses, BY_NAME["two clusters swap addresses"], "which merges two clusters"),
        (
            deletes_disk_in_use,  # with each turn: a few are enough
            Scenario("scale out", (limit_turns(cluster(4, **ALONE), 4),), given=(cluster(3, **ALONE),)),
            "its node owns",
        ),
    ],
)
async def test_unsafe_operator_is_detected(
    monkeypatch: pytest.MonkeyPatch, sabotage: Patch, scenario: Scenario, violation: str
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(Unsafe, match=violation):
        await played(REDIS, scenario)


def trusts_a_stale_view(patch: pytest.MonkeyPatch) -> None:
    """Applies actions that were planned from an older view."""
    ensure = provisioning.ensure_stateful_set

    def apply_always(seen: Assessment) -> Step:
        step = ensure(seen)
        applied: list[Any] = [
            dataclasses.replace(action, unchanged=False) if isinstance(action, Apply) else action
            for action in step.actions
        ]
        return dataclasses.replace(step, actions=tuple(applied))

    patch.setattr(plan, "ensure_stateful_set", apply_always)


@in_virtual_time
async def test_operator_that_trusts_a_stale_view_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the write that scales in land a step later, when the cluster has scaled out again.

    In virtual time, because the nth write of a run must be that of the reference run. Else the load of the machine
    decides how many calls a migration takes, and how many writes come before.
    """
    trusts_a_stale_view(monkeypatch)
    [disturbance] = [known for known in DISTURBANCES if str(known) == "leader change, last write lands a step later"]
    course = await ReferenceRun.record(dataclasses.replace(REDIS, name="stale view"), REVERTED)
    writes = [
        nth for nth, (what, step, _) in enumerate(course.writes) if what.startswith("APPLY Stateful") and not step
    ]
    with pytest.raises(Unsafe, match="scales the StatefulSet cache to 3 replicas: cache-3 owns"):
        await disturbance.play(course, writes[-1])


FEWER, MORE = cluster(3, **ALONE), cluster(4, **ALONE)
REVERTED = Scenario("scale in and out", (FEWER, MORE), given=(FEWER, MORE), exact_counts=False)


@pytest.mark.parametrize("scenario", [scenario for _, scenario, _ in HIBERNATIONS], ids=str)
async def test_unmodified_operator_hibernates_without_a_violation(scenario: Scenario) -> None:
    run = await played(REDIS, scenario)
    run.world.require_safe()


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario("a node hangs", (hangs(0),), given=(cluster(6),)),
        Scenario("scale in", (cluster(3, **ALONE),), given=(cluster(4, **ALONE),)),
        Scenario("scale out", (cluster(4, **ALONE),), given=(cluster(3, **ALONE),)),
        Scenario("rolling update", (cluster(6, NEW),), given=(cluster(6),)),
        Scenario("lose all pods", all_pods_deleted(), given=(in_memory(6),)),
    ],
    ids=str,
)
async def test_unmodified_operator_passes_the_same_scenarios(scenario: Scenario) -> None:
    """No violation, with any final state."""
    run = await played(REDIS, scenario)
    run.world.require_safe()
