"""Secrets of tls.mode self that are deleted or replaced while members run with the former certificate authority."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.etcd.operator import clusters
from shared.kubernetes.accessors import is_terminating
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, SECRET, Obj
from shared.kubernetes.secrets import content_of
from shared.pki.stores import fingerprint, parsed
from shared.pki.validity import signers
from simulator.harness import NAMESPACE
from tests.etcd.simulation.database import FakeEtcd
from tests.harness.scenario import ScenarioStep, at_once, delete, edit, later
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import (
    AUTH,
    ETCD,
    NAME,
    OPTIONS,
    TLS,
    cluster,
    given_password,
    member,
    recovery_confirmed,
    unmounted,
)
from tests.support.issuing import authority
from tests.support.plays import crossed, deleted, issued_with_new_keys, pods, ready, replaced_by_hand, signer_of

CA, PEER, SERVER, CLIENT = (f"{NAME}-{name}" for name in ("ca", "peer-tls", "server-tls", "client-tls"))
ALL = (CA, PEER, SERVER, CLIENT)
DAY = 24 * 3600.0

SUBJECT = replace(ETCD, controller=lambda etcd: replace(clusters(OPTIONS, etcd.connect), issue=issued_with_new_keys))


async def running(size: int = 3, **spec: object) -> ScenarioRun:
    play = ScenarioRun(World(SUBJECT))
    await play.run_steps((*([given_password()] if "auth" in spec else []), cluster(size, **{**TLS, **spec})))
    assert ready(play)["reason"] == "Ready"
    return play


def require_whole(play: ScenarioRun, former: str, size: int = 3) -> None:
    """Require that every member presents and trusts what Secret NAME-ca has, and that no write was lost."""
    etcd: FakeEtcd = play.stage.database
    secret = play.stage.user_client.get(SECRET, NAMESPACE, CA)
    [signer] = parsed(content_of(secret)["ca.crt"])
    assert (ready(play)["reason"], len(etcd.running)) == ("Ready", size), ready(play)["message"]
    assert fingerprint(signer) != former
    for process in etcd.running:
        assert process.tls is not None
        assert all(signers(pair, [signer]) for pair in (process.tls.peer, process.tls.server)), process.pod
        assert signer in parsed(process.tls.peers), process.pod
    assert etcd.has_quorum(etcd.cluster())
    assert not etcd.violations


LOST = {
    "all": ALL,
    "CA": (CA,),
    "CA and client": (CA, CLIENT),
    "CA and server": (CA, SERVER),
    "all but client": (CA, PEER, SERVER),
    "CA and peer": (CA, PEER),
}
"""Secrets that are deleted."""

SPLITS = ("all", "all but client", "CA and peer")
"""Losses after which a restarted member has no certificate that the others accept: they restart as well."""

BETWEEN = ("nothing", "pod", "container", "operator")
"""Restarts right after the loss."""


async def between(play: ScenarioRun, loss: ScenarioStep, restarted: str) -> None:
    etcd: FakeEtcd = play.stage.database
    if restarted == "operator":
        play.end()
        await play.step(replace(loss, absent=True))
        play.begin()
    elif restarted == "pod":
        await play.step(replace(loss, turns=0))
        await play.step(delete(POD, member(0)))
    elif restarted == "container":
        await play.step(replace(loss, turns=3))
        etcd.stop(next(each for each in etcd.running if each.pod == member(1)), "killed")
    else:
        await play.step(loss)


@pytest.mark.parametrize(("lost", "restarted"), crossed(LOST, BETWEEN))
async def test_lost_secrets_are_issued_again_and_members_follow(lost: str, restarted: str) -> None:
    play = await running()
    former = signer_of(play, CA)
    etcd: FakeEtcd = play.stage.database
    etcd.guard.may_split = lost in SPLITS
    await between(play, deleted(*LOST[lost]), restarted)
    await play.wait(60, times=10)
    await play.wait(DAY, times=2)  # clients had time to trust the new authority
    require_whole(play, former)


@pytest.mark.parametrize(
    "restarted", [pytest.param(each, marks=() if each == "operator" else pytest.mark.nightly) for each in BETWEEN]
)
async def test_authority_that_a_person_replaced_is_introduced_before_it_signs(restarted: str) -> None:
    play = await running()
    former = signer_of(play, CA)
    await between(play, replaced_by_hand(CA), restarted)
    await play.wait(60, times=10)
    await play.wait(DAY, times=2)
    require_whole(play, former)
    assert signer_of(play, CA) == fingerprint(parsed(authority("second", "by-hand").certificate)[0])


@pytest.mark.parametrize(
    ("size", "spec"),
    [
        (1, {}),
        (5, {}),
        (3, AUTH),
        (3, {"tls": {"mode": "self", "client": {"auth": "none"}}}),
        (3, {"version": "3.5.26"}),  # a member that is alone serves no client
    ],
    ids=("one member", "five members", "auth", "clients without certificates", "3.5"),
)
@pytest.mark.parametrize("lost", ["all", pytest.param("CA and client", marks=pytest.mark.nightly)])
async def test_clusters_of_any_kind_are_healed(size: int, spec: Obj, lost: str) -> None:
    play = await running(size, **spec)
    former, etcd = signer_of(play, CA), play.stage.database
    etcd.guard.may_split = lost in SPLITS
    await play.step(deleted(*LOST[lost]))
    await play.wait(60, times=10)
    await play.wait(DAY, times=2)
    require_whole(play, former, size)


async def test_message_names_the_authority_that_no_member_trusts() -> None:
    play = await running()
    play.stage.database.guard.may_split = True
    await play.step(replace(deleted(*ALL), turns=3))
    found = ready(play)
    assert (found["reason"], found["status"]) == ("AuthorityUntrusted", "False")
    assert found["message"].startswith(f"No member trusts the certificate authority of Secret {CA}, ")


@pytest.mark.parametrize("lost", ["all", "CA and client"])
async def test_members_in_memory_do_not_restart_and_accept_restored_secrets(lost: str) -> None:
    play = await running(storage={"medium": "Memory"})
    before, etcd = pods(play), play.stage.database
    backup = {name: play.stage.user_client.get(SECRET, NAMESPACE, name)["data"] for name in ALL}
    await play.step(deleted(*LOST[lost]))
    await play.wait(60, times=5)
    found = ready(play)
    assert (found["reason"], pods(play)) == ("AuthorityUntrusted", before)
    assert "Restore the former Secrets from a backup" in found["message"]
    await play.run_steps(at_once(*(edit(SECRET, {"data": data}, name) for name, data in backup.items())))
    await play.wait(60, times=5)
    await play.wait(DAY, times=2)
    assert ready(play)["reason"] == "Ready", ready(play)["message"]
    assert lost != "all" or pods(play) == before
    assert not etcd.violations


async def test_paused_cluster_is_healed_when_it_is_resumed() -> None:
    play = await running()
    former, before, etcd = signer_of(play, CA), pods(play), play.stage.database
    etcd.guard.may_split = True
    await play.step(cluster(3, **TLS, paused=True))
    await play.step(deleted(*ALL))
    await play.wait(60, times=5)
    assert (ready(play)["reason"], pods(play)) == ("AuthorityUntrusted", before), ready(play)
    await play.step(cluster(3, **TLS))
    await play.wait(60, times=10)
    require_whole(play, former)


async def test_pods_on_volumes_that_a_recovery_kept_delay_no_restart() -> None:
    play = await running()
    lost = (unmounted(0, 1), later(30), later(150), recovery_confirmed(), later(60), later(60))
    await play.run_steps(lost)
    assert ready(play)["reason"] == "FormerDataKept", ready(play)["message"]
    play.stage.database.guard.may_split = True
    await play.run_steps((deleted(CA, CLIENT), later(60), later(60)))
    assert ready(play)["reason"] == "FormerDataKept", ready(play)["message"]


async def test_claim_that_no_member_uses_delays_no_restart() -> None:
    """E2: the claim of a removed member waited for a finalizer, and no member restarted."""
    play = await running(5)
    with_finalizer = edit(
        PERSISTENT_VOLUME_CLAIM, {"metadata": {"finalizers": ["example.com/keep"]}}, f"data-{member(4)}"
    )
    await play.run_steps((with_finalizer, cluster(3, **TLS), later(60), later(60), later(60)))
    claim = play.stage.user_client.get(PERSISTENT_VOLUME_CLAIM, NAMESPACE, f"data-{member(4)}")
    assert (len(pods(play)), is_terminating(claim)) == (3, True), ready(play)
    former, etcd = signer_of(play, CA), play.stage.database
    etcd.guard.may_split = True
    await play.step(deleted(*ALL))
    await play.wait(60, times=10)
    secret = play.stage.user_client.get(SECRET, NAMESPACE, CA)
    assert ready(play)["reason"] != "AuthorityUntrusted", ready(play)["message"]
    assert fingerprint(parsed(content_of(secret)["ca.crt"])[0]) != former
    assert etcd.has_quorum(etcd.cluster())
    assert not etcd.violations


async def test_member_whose_claim_is_being_deleted_does_not_restart_and_is_named() -> None:
    play = await running()
    before = pods(play)
    await play.run_steps((delete(PERSISTENT_VOLUME_CLAIM, f"data-{member(1)}"), deleted(*ALL)))
    await play.wait(60, times=5)
    found = ready(play)
    assert (found["reason"], pods(play)) == ("AuthorityUntrusted", before), found["message"]
    assert f"data-{member(1)}" in found["message"]
