"""A new certificate authority of another issuer: what members trust and present, and how often they restart.

The simulated etcd reports every handshake between members that would fail at any moment.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, SECRET, Obj
from shared.pki import certs, copies
from shared.pki.stores import parsed
from shared.pki.validity import signers
from shared.status import conditions
from shared.steps import certificates
from shared.steps.certificates import CERTIFICATE, COPY_SETTLING
from simulator.harness import NAMESPACE
from tests.etcd.simulation.database import FakeEtcd
from tests.harness.disturbance import DISTURBANCES, Disturbance
from tests.harness.scenario import Scenario, ScenarioStep, Stage, Unsafe, create, later, unobserved
from tests.harness.scenario_runner import ScenarioRun, World
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.support.etcd.scenarios import (
    ETCD,
    GIVEN_TLS,
    NAME,
    cluster,
    given_certificates,
    lost,
    recovery_confirmed,
    replaced_certificates,
)
from tests.support.issuing import authority, certificate_secret

pytestmark = pytest.mark.nightly

ISSUED: Obj = {"tls": {"mode": "certManager", "issuer": {"name": "team-ca"}}}
SUBJECT = replace(ETCD, serves=(*ETCD.serves, CERTIFICATE))
DOMAIN, SERVICE = f"*.{NAME}.{NAMESPACE}.svc", f"{NAME}-client.{NAMESPACE}.svc"
HOSTS = {f"{NAME}-peer-tls": (DOMAIN,), f"{NAME}-server-tls": (DOMAIN, SERVICE), f"{NAME}-client-tls": ()}
SETTLED = later(COPY_SETTLING.total_seconds() + 1)


def issued_certificates() -> tuple[ScenarioStep, ...]:
    return tuple(create(SECRET, name, data=certificate_secret("first", *hosts)) for name, hosts in HOSTS.items())


def renewed(name: str) -> ScenarioStep:
    """Let cert-manager renew one certificate, with an authority that has a new key and the same name."""

    def act(stage: Stage) -> None:
        data = certificate_secret("second", *HOSTS[name])
        stage.user_client.merge(SECRET, stage.namespace, name, {"data": data})

    return unobserved(ScenarioStep(f"cert-manager renews {name}", act))


RENEWALS = tuple(renewed(name) for name in (f"{NAME}-client-tls", f"{NAME}-peer-tls", f"{NAME}-server-tls"))
RENEWED = Scenario(
    "renewals by cert-manager",
    (*RENEWALS, SETTLED),
    given=(*issued_certificates(), cluster(3, **ISSUED)),
)


@pytest.mark.parametrize("disturbance", [each for each in DISTURBANCES if str(each) == "stale view"], ids=str)
async def test_disturbed_rotation_ends_like_the_undisturbed_one(
    disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(SUBJECT, RENEWED, disturbance))


def pods(play: ScenarioRun) -> set[str]:
    return {pod["metadata"]["uid"] for pod in play.stage.find(POD)}


def reason(play: ScenarioRun) -> str:
    [found] = play.stage.find()
    return str(accessors.condition(found, conditions.READY)["reason"])


def ready(play: ScenarioRun) -> str:
    [found] = play.stage.find()
    return str(accessors.condition(found, conditions.READY)["status"])


def presented(etcd: FakeEtcd) -> set[str]:
    """Return which of the two authorities signed the certificates that members present."""
    found = set()
    for process in etcd.running:
        assert process.tls is not None
        if etcd.clusters[etcd.disks[process.command.disk].cluster].former:
            continue
        for name in ("first", "second"):
            known = parsed(authority(name).certificate)
            if any(signers(pair, known) for pair in (process.tls.peer, process.tls.server)):
                found.add(name)
    return found


def trusted(etcd: FakeEtcd) -> set[frozenset[str]]:
    """Return the authorities that members trust, one set for each bundle that any of them read."""
    names = {certs.read(authority(name).certificate)[0].pem.strip(): name for name in ("first", "second")}
    bundles = [text for process in etcd.running if process.tls for text in (process.tls.peers, process.tls.clients)]
    return {frozenset(names[each.pem.strip()] for each in certs.read(text)) for text in bundles}


BOTH, NEW = frozenset({"first", "second"}), frozenset({"second"})


async def test_renewals_by_cert_manager_restart_each_member_once() -> None:
    play = ScenarioRun(World(SUBJECT))
    await play.run_steps(RENEWED.given)
    before = pods(play)
    await play.run_steps(RENEWALS)
    etcd: FakeEtcd = play.stage.database
    assert (presented(etcd), trusted(etcd)) == ({"first"}, {BOTH})
    assert (reason(play), ready(play)) == ("ReplacingCertificates", "True")
    rolled = pods(play)
    assert not rolled & before
    await play.run_steps((SETTLED, SETTLED))
    assert (presented(etcd), trusted(etcd), reason(play)) == ({"second"}, {BOTH}, "Ready")
    assert pods(play) == rolled, "the former authority stays trusted until it has expired"


async def test_replaced_secrets_end_the_trust_in_the_former_authority() -> None:
    play = ScenarioRun(World(ETCD))
    await play.run_steps((*given_certificates(), cluster(3, **GIVEN_TLS), replaced_certificates(), SETTLED))
    etcd: FakeEtcd = play.stage.database
    assert (presented(etcd), trusted(etcd)) == ({"second"}, {BOTH})
    await play.run_steps((SETTLED,))
    assert (presented(etcd), trusted(etcd), reason(play)) == ({"second"}, {NEW}, "Ready")


async def test_replacement_that_is_reverted_ends_where_it_began() -> None:
    play = ScenarioRun(World(ETCD))
    steps = (replaced_certificates(), replaced_certificates("first"), SETTLED, SETTLED)
    await play.run_steps((*given_certificates(), cluster(3, **GIVEN_TLS), *steps))
    etcd: FakeEtcd = play.stage.database
    assert (presented(etcd), trusted(etcd), reason(play)) == ({"first"}, {frozenset({"first"})}, "Ready")


async def test_certificate_that_is_used_before_members_trust_its_authority_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The simulated etcd reports what waiting for the members prevents."""
    impatient = copies.following
    monkeypatch.setattr(
        certificates, "following", lambda *given, informed, **more: impatient(*given, informed=True, **more)
    )
    play = ScenarioRun(World(SUBJECT))
    await play.run_steps(RENEWED.given)
    with pytest.raises(Unsafe, match="would reject each other's certificates"):
        await play.run_steps(RENEWALS)


def in_effect(play: ScenarioRun) -> dict[str, bool]:
    """Return, for each Secret of others, whether the status has its present version."""
    present = {name: play.stage.user_client.get(SECRET, NAMESPACE, name) for name in HOSTS}
    (resource,) = play.stage.find()
    observed = {each["name"]: each["resourceVersion"] for each in resource["status"].get("observedSecrets", ())}
    return {name: observed.get(name) == secret["metadata"]["resourceVersion"] for name, secret in present.items()}


async def test_renewed_certificates_are_reported_once_members_use_them() -> None:
    """A changed file reaches a member within minutes: the operator is ready before, and the rotation is not."""
    play = ScenarioRun(World(SUBJECT))
    await play.run_steps((*RENEWED.given, SETTLED))
    assert in_effect(play) == dict.fromkeys(HOSTS, True)
    await play.run_steps(RENEWALS)
    assert in_effect(play) == dict.fromkeys(HOSTS, False)
    await play.run_steps((SETTLED, SETTLED, SETTLED))
    assert in_effect(play) == dict.fromkeys(HOSTS, True)


async def test_pods_on_volumes_that_a_recovery_kept_delay_no_new_authority() -> None:
    """E10: they are not rolled, so that the new certificates were withheld until the former ones had expired."""
    play = ScenarioRun(World(SUBJECT))
    given = (*issued_certificates(), cluster(5, **ISSUED))
    await play.run_steps((*given, *lost(2, 3, 4), recovery_confirmed(), later(60), later(60)))
    assert reason(play) == "FormerDataKept"
    await play.run_steps((*RENEWALS, SETTLED, SETTLED))
    etcd: FakeEtcd = play.stage.database
    assert (presented(etcd), reason(play)) == ({"second"}, "FormerDataKept")
