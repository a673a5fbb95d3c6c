"""Secrets of tls.mode self that are deleted or replaced while nodes run with the former certificate authority."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, SECRET, Obj
from shared.kubernetes.secrets import content_of
from shared.pki.stores import fingerprint, parsed
from shared.pki.validity import signers
from simulator.harness import NAMESPACE
from tests.harness.scenario import ScenarioStep, Stage, delete, edit
from tests.harness.scenario_runner import ScenarioRun
from tests.redis.simulation.database import FakeRedis
from tests.support.issuing import authority
from tests.support.plays import (
    begun_once,
    crossed,
    deleted,
    issued_with_new_keys,
    pods,
    ready,
    replaced_by_hand,
    signer_of,
)
from tests.support.redis.scenarios import NAME, OPTIONS, REDIS, cluster, controller, in_memory

CA, SERVER, CLIENT, NODES = (f"{NAME}-{name}" for name in ("ca", "server-tls", "client-tls", "nodes-tls"))
TLS: Obj = {"tls": {"mode": "self"}}
WITH_TLS = cluster(6, **TLS)
DAY = 24 * 3600.0


SUBJECT = replace(REDIS, controller=lambda redis: replace(controller(OPTIONS, redis), issue=issued_with_new_keys))


async def running(given: ScenarioStep) -> ScenarioRun:
    play = await begun_once(SUBJECT, given)
    assert ready(play)["reason"] == "Ready"
    return play


def require_whole(play: ScenarioRun, former: str) -> None:
    """Require that every node presents and trusts what the Secrets have, and that no key was lost."""
    redis: FakeRedis = play.stage.database
    [signer] = parsed(content_of(play.stage.user_client.get(SECRET, NAMESPACE, CA))["ca.crt"])
    assert ready(play)["reason"] == "Ready", ready(play)["message"]
    assert fingerprint(signer) != former
    assert len(redis.running) == 6
    for process in redis.running:
        assert process.tls is not None
        assert signers(process.tls.pair, [signer]), process.pod
    assert not redis.violations


LOST = {
    "all": (CA, SERVER, CLIENT, NODES),
    "CA": (CA,),
    "CA and client": (CA, CLIENT),
    "all but nodes": (CA, SERVER, CLIENT),
    "all but client": (CA, SERVER, NODES),
}
"""Secrets that are deleted."""

SPLITS = ("all", "all but client")
"""Losses after which no certificate is left that running nodes accept of another node: they restart."""

BETWEEN = ("nothing", "pod", "container", "operator")
"""Restarts right after the loss."""


async def between(play: ScenarioRun, loss: ScenarioStep, restarted: str) -> None:
    redis: FakeRedis = play.stage.database
    if restarted == "operator":
        play.end()
        await play.step(replace(loss, absent=True))
        play.begin()
    elif restarted == "pod":
        await play.step(replace(loss, turns=0))
        await play.step(delete(POD, f"{NAME}-0"))
    elif restarted == "container":
        await play.step(replace(loss, turns=3))
        redis.stop(redis.named(f"{NAME}-1"), "killed")
    else:
        await play.step(loss)


@pytest.mark.parametrize(("lost", "restarted"), crossed(LOST, BETWEEN))
async def test_lost_secrets_are_issued_again_and_nodes_follow(lost: str, restarted: str) -> None:
    play = await running(WITH_TLS)
    former, before = signer_of(play, CA), pods(play)
    redis: FakeRedis = play.stage.database
    redis.guard.may_split = lost in SPLITS
    await between(play, deleted(*LOST[lost]), restarted)
    await play.wait(20, times=30)
    redis.guard.may_split = False
    await play.wait(DAY, times=2)  # clients had time to trust the new authority
    require_whole(play, former)
    if lost not in SPLITS and restarted != "pod":
        assert pods(play) == before


@pytest.mark.parametrize(
    "restarted", [pytest.param(each, marks=() if each == "operator" else pytest.mark.nightly) for each in BETWEEN]
)
async def test_authority_that_a_person_replaced_is_introduced_before_it_signs(restarted: str) -> None:
    play = await running(WITH_TLS)
    former = signer_of(play, CA)
    await between(play, replaced_by_hand(CA), restarted)
    await play.wait(20, times=30)
    await play.wait(DAY, times=2)
    require_whole(play, former)
    assert signer_of(play, CA) == fingerprint(parsed(authority("second", "by-hand").certificate)[0])


CLAIMS = [delete(PERSISTENT_VOLUME_CLAIM, f"data-{NAME}-{number}") for number in range(6)]


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        (in_memory(6, **TLS), []),
        pytest.param(cluster(6, **TLS, config={"appendonly": "no"}), [], marks=pytest.mark.nightly),
        pytest.param(WITH_TLS, CLAIMS, id="claims are being deleted"),
    ],
)
async def test_nodes_that_would_lose_their_data_do_not_restart(given: ScenarioStep, steps: list[ScenarioStep]) -> None:
    play = await running(given)
    await play.run_steps(tuple(steps))
    before = pods(play)
    redis: FakeRedis = play.stage.database
    await play.step(deleted(*LOST["all"]))
    await play.wait(20, times=30)
    found = ready(play)
    assert (found["reason"], pods(play)) == ("AuthorityUntrusted", before)
    assert found["message"].startswith(f"No node trusts the certificate authority of Secret {CA}, ")
    assert (f"PersistentVolumeClaim data-{NAME}-0, " in found["message"]) == bool(steps)
    assert not redis.violations


def unused_claim_kept(stage: Stage) -> None:
    """Delete a claim that no pod uses, and that a finalizer keeps."""
    [claim, *_] = stage.find(PERSISTENT_VOLUME_CLAIM)
    metadata = {key: claim["metadata"][key] for key in ("namespace", "labels")}
    metadata |= {"name": f"data-{NAME}-6", "finalizers": ["example.com/kept"]}
    stage.user_client.create(
        PERSISTENT_VOLUME_CLAIM,
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim["spec"]},
    )
    stage.user_client.delete(PERSISTENT_VOLUME_CLAIM, stage.namespace, f"data-{NAME}-6")


async def test_claim_that_no_node_uses_keeps_no_node_from_a_restart() -> None:
    play = await running(WITH_TLS)
    former = signer_of(play, CA)
    redis: FakeRedis = play.stage.database
    await play.step(ScenarioStep("a claim of no pod is being deleted", unused_claim_kept))
    redis.guard.may_split = True
    await play.step(deleted(*LOST["all"]))
    await play.wait(20, times=30)
    redis.guard.may_split = False
    await play.wait(DAY, times=2)
    assert len(play.stage.find(PERSISTENT_VOLUME_CLAIM)) == 7
    await play.step(edit(PERSISTENT_VOLUME_CLAIM, {"metadata": {"finalizers": None}}, f"data-{NAME}-6"))
    require_whole(play, former)
