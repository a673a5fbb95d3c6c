"""Certificates that the operator issues: how they are renewed, and that no server loses its items by that.

The fake servers verify clients by the authorities that they have loaded, and reject others.
"""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from operators.memcached.operator import controller
from operators.memcached.security.secrets import fingerprint
from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, SECRET, STATEFUL_SET, Obj
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, content_of, encoded
from shared.pki import certs
from shared.pki.rotation import BACKDATED, DATABASES, RENEWAL_FRACTION
from shared.pki.stores import authorities_of, certificates_in, issued_in
from shared.pki.validity import signers
from shared.status.conditions import AVAILABLE, READY
from shared.steps.certificates import CERTIFICATE, COPY_SETTLING
from simulator.memcached.fake_servers import ENDS, certificate, signer, tls_secret
from tests.harness.scenario import ScenarioStep, Stage, Subject, apply, delete, edit, later, lose, unobserved
from tests.harness.scenario_runner import ScenarioRun, World
from tests.memcached.unit.world import UNPAUSED
from tests.support.memcached.scenarios import ISSUED, MEMCACHED, OPTIONS, Servers, given_users, users

REAL = dataclasses.replace(
    MEMCACHED,
    controller=lambda servers: controller(OPTIONS, servers.connect, servers.attest),
    serves=(*MEMCACHED.serves, CERTIFICATE),
)
"""Subject whose certificates depend on the world's time."""

READ_ONLY = dataclasses.replace(
    REAL,
    controller=lambda servers: controller(
        dataclasses.replace(OPTIONS, write_secrets=False), servers.connect, servers.attest
    ),
)
"""Subject whose operator may not write Secrets."""

OPEN: Obj = {"tls": {"mode": "self"}}
PLAIN_AUTHORITY, SERVER, CLIENT, CONNECTION = "cache-ca", "cache-server-tls", "cache-client-tls", "cache-connection"
LIFE = DATABASES.life
ROTATES = DATABASES.authority_lives * LIFE * RENEWAL_FRACTION


class Lab:
    """A Memcached with certificates of the operator."""

    def __init__(self, subject: Subject = REAL) -> None:
        self.run = ScenarioRun(World(subject))
        self._resyncs = 0

    def restart(self, subject: Subject) -> None:
        """Restart the operator, with other options."""
        self.run.end()
        self.run.world.subject = subject
        self.run.begin()

    @property
    def servers(self) -> Servers:
        servers = self.run.world.database
        assert isinstance(servers, Servers)
        return servers

    async def steps(self, *steps: ScenarioStep) -> None:
        await self.run.run_steps(steps)

    async def passes(self, time: timedelta) -> None:
        """Let time pass, then resync."""
        self._resyncs += 1
        resync = edit(None, {"metadata": {"labels": {"resync": str(self._resyncs)}}})
        await self.steps(later(time.total_seconds()), resync)

    def secret(self, name: str) -> Obj:
        return self.run.stage.user_client.get(SECRET, self.run.stage.namespace, name)

    @property
    def ready(self) -> tuple[str, str]:
        """Reason and message of the Ready condition."""
        [resource] = self.run.stage.find()
        found = accessors.condition(resource, READY)
        return str(found["reason"]), str(found["message"])

    @property
    def status(self) -> Obj:
        [resource] = self.run.stage.find()
        found: Obj = resource["status"]
        return found

    @property
    def pods(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.run.stage.find(POD)}

    @property
    def signer(self) -> bytes:
        signer = authorities_of(self.secret(PLAIN_AUTHORITY)).signer
        return signer.certificate.subject if signer else b""

    @property
    def successor(self) -> bytes:
        successor = authorities_of(self.secret(PLAIN_AUTHORITY)).successor
        return successor.certificate.subject if successor else b""

    def issuer(self, name: str = SERVER) -> bytes:
        issued = issued_in(self.secret(name))
        assert issued is not None
        return issued.certificate.issuer

    @property
    def served_by(self) -> set[bytes]:
        """Issuers of the certificates that the servers serve."""
        return {certs.read(pair.certificate)[0].issuer for pair in self.servers.served.values()}

    def trusts(self, authority: bytes) -> bool:
        """Return whether every server has loaded an authority."""
        loaded = [certs.read(text) for text in self.servers.trusted.values()]
        return bool(loaded) and all(authority in {each.subject for each in bundle} for bundle in loaded)


async def created(spec: Obj) -> Lab:
    lab = Lab()
    await lab.steps(apply(size=2, **spec))
    assert lab.ready[0] == "Ready", lab.ready
    return lab


async def test_servers_start_with_issued_certificates_that_their_names_and_clients_need() -> None:
    lab = await created(ISSUED)
    issued = issued_in(lab.secret(SERVER))
    assert issued is not None
    assert {"*.cache.default.svc", "cache.default.svc", "localhost", "::1"} <= issued.certificate.hosts
    assert lab.served_by == {lab.issuer()} == {lab.signer}
    assert lab.trusts(lab.signer)
    connection = content_of(lab.secret(CONNECTION))
    assert connection[AUTHORITY_KEY] == content_of(lab.secret(SERVER))[AUTHORITY_KEY]
    assert connection["tls.crt"] == content_of(lab.secret(CLIENT))["tls.crt"]
    assert "observedSecrets" not in lab.status or not lab.status["observedSecrets"]


async def test_clients_without_certificates_get_only_the_authority() -> None:
    lab = await created(OPEN)
    connection = content_of(lab.secret(CONNECTION))
    assert connection[AUTHORITY_KEY]
    assert not connection.keys() & {"tls.crt", "tls.key"}
    assert not lab.servers.trusted


@pytest.mark.parametrize("spec", [OPEN, ISSUED], ids=["open", "mutual"])
async def test_renewed_certificate_is_loaded_without_replacing_a_server(spec: Obj) -> None:
    lab = await created(spec)
    pods, before, recorded = lab.pods, content_of(lab.secret(SERVER))["tls.crt"], lab.status["certificate"]
    await lab.passes(LIFE * RENEWAL_FRACTION - timedelta(hours=2))
    assert content_of(lab.secret(SERVER))["tls.crt"] == before
    await lab.passes(timedelta(hours=2))
    renewed = content_of(lab.secret(SERVER))["tls.crt"]
    assert renewed != before
    assert {pair.certificate for pair in lab.servers.served.values()} == {renewed}
    assert (lab.pods, lab.ready[0]) == (pods, "Ready")
    assert lab.status["certificate"] != recorded


@pytest.mark.parametrize("spec", [OPEN, ISSUED], ids=["open", "mutual"])
async def test_new_authority_replaces_no_server(spec: Obj) -> None:
    lab = await created(spec)
    pods, first = lab.pods, lab.signer
    await lab.passes(ROTATES)
    second = lab.successor
    assert second
    assert lab.issuer() == first, "it does not sign yet"
    assert len(certificates_in(lab.secret(CONNECTION))) == 2, "clients trust it"
    await lab.passes(COPY_SETTLING + timedelta(seconds=1))
    assert lab.trusts(second) == (spec is ISSUED)
    assert lab.signer == first, "clients have a day to load it"
    await lab.passes(DATABASES.longest_settling)
    assert lab.signer == lab.issuer() == lab.issuer(CLIENT) == second
    assert lab.served_by == {second}
    assert (lab.pods, lab.servers.emptied, lab.ready[0]) == (pods, 0, "Ready")
    await lab.passes(DATABASES.authority_lives * LIFE - ROTATES)
    assert [each.subject for each in certificates_in(lab.secret(SERVER))] == [second], "the first has expired"
    assert (lab.pods, lab.ready[0]) == (pods, "Ready")


async def test_new_authority_does_not_sign_while_a_server_may_not_trust_it() -> None:
    lab = await created(ISSUED)
    first = lab.signer
    await lab.passes(ROTATES)
    lost = min(lab.servers.served)
    lab.servers.unreachable.add(lost)
    await lab.passes(COPY_SETTLING + DATABASES.longest_settling + timedelta(hours=1))
    assert lab.signer == first
    reason, message = lab.ready
    assert reason == "RefreshingCertificates"
    assert message.startswith("1 of 2 servers trust the next certificate authority. cache-")
    assert "cannot be inspected" in message
    lab.servers.unreachable.clear()
    await lab.passes(timedelta(minutes=1))
    assert lab.signer == lab.issuer() != first
    assert lab.ready[0] == "Ready"


async def test_server_that_started_before_its_files_had_the_authority_loads_it_again() -> None:
    """The kubelet may mount an outdated Secret; only what was loaded after `COPY_SETTLING` counts."""
    lab = await created(ISSUED)
    await lab.passes(ROTATES)
    loaded = dict(lab.servers.loaded)
    await lab.passes(COPY_SETTLING - timedelta(seconds=60))
    assert lab.servers.loaded == loaded, "too early: it would have to be repeated"
    await lab.passes(timedelta(seconds=61))
    assert all(lab.servers.loaded[host] > loaded[host] for host in loaded)
    refreshed = list(lab.servers.refreshed)
    await lab.passes(timedelta(hours=1))
    assert lab.servers.refreshed == refreshed, "once"


async def test_deleted_authority_gets_a_successor_that_signs_when_every_server_trusts_it() -> None:
    lab = await created(ISSUED)
    pods, first = lab.pods, lab.signer
    await lab.steps(unobserved(delete(SECRET, PLAIN_AUTHORITY)))
    assert (lab.signer, lab.issuer()) == (b"", first), "the lost key signs nothing, and the certificate stays in use"
    second = lab.successor
    await lab.passes(COPY_SETTLING + timedelta(seconds=1))
    assert lab.trusts(second)
    await lab.passes(DATABASES.longest_settling)
    assert lab.signer == lab.issuer() == second
    assert (lab.pods, lab.servers.emptied, lab.ready[0]) == (pods, 0, "Ready")


async def test_deleted_certificate_is_issued_again_by_the_same_authority() -> None:
    lab = await created(ISSUED)
    pods, first = lab.pods, lab.signer
    await lab.steps(unobserved(delete(SECRET, SERVER)), unobserved(delete(SECRET, CLIENT)))
    assert lab.signer == lab.issuer() == lab.issuer(CLIENT) == first
    assert {pair.certificate for pair in lab.servers.served.values()} == {content_of(lab.secret(SERVER))["tls.crt"]}
    assert (lab.pods, lab.ready[0]) == (pods, "Ready")


@pytest.mark.parametrize("text", [None, "yesterday"], ids=["removed", "not a time"])
async def test_time_of_a_change_that_a_user_edited_counts_from_now(text: str | None) -> None:
    lab = await created(ISSUED)
    await lab.passes(ROTATES)
    annotations = {"metadata": {"annotations": {"cache.example.com/trust-changed": text}}}
    await lab.steps(unobserved(edit(SECRET, annotations, SERVER)))
    loaded = dict(lab.servers.loaded)
    await lab.passes(COPY_SETTLING - timedelta(seconds=60))
    assert lab.servers.loaded == loaded
    await lab.passes(timedelta(minutes=2))
    assert all(lab.servers.loaded[host] > loaded[host] for host in loaded)


USERS: Obj = {"auth": {"secretName": "cache-users"}}


@pytest.mark.parametrize("spec", [OPEN, ISSUED], ids=["open", "mutual"])
@pytest.mark.parametrize(
    ("blocking", "undone", "reason"),
    [
        (edit(None, {"spec": {"metrics": {"port": 11211}}}), edit(None, {"spec": {"metrics": None}}), "InvalidSpec"),
        (edit(None, {"spec": {"paused": True}}), edit(None, {"spec": {"paused": False}}), "Paused"),
        (unobserved(delete(SECRET, "cache-users")), given_users(), "SecretMissing"),
    ],
    ids=["invalid spec", "paused", "missing Secret"],
)
async def test_certificate_of_running_servers_is_renewed_and_loaded_although_the_spec_cannot_be_applied(
    spec: Obj, blocking: ScenarioStep, undone: ScenarioStep, reason: str
) -> None:
    lab = Lab()
    lab.servers.users = {("app", "one")}
    await lab.steps(given_users(), apply(size=2, **spec, **USERS))
    assert lab.ready[0] == "Ready"
    pods, before = lab.pods, content_of(lab.secret(SERVER))["tls.crt"]
    await lab.steps(blocking)
    await lab.passes(LIFE * RENEWAL_FRACTION)
    assert lab.ready[0] == reason
    renewed = content_of(lab.secret(SERVER))["tls.crt"]
    assert renewed != before
    assert {pair.certificate for pair in lab.servers.served.values()} == {renewed}
    assert lab.status["certificate"] == fingerprint(ssl.PEM_cert_to_DER_cert(certs.read(renewed)[0].pem))
    refreshed = list(lab.servers.refreshed)
    await lab.passes(timedelta(hours=1))
    assert lab.servers.refreshed == refreshed, "once"
    await lab.steps(undone)
    assert (lab.pods, lab.ready[0]) == (pods, "Ready")


async def test_servers_are_refreshed_at_the_port_on_which_they_listen() -> None:
    lab = await created(OPEN)
    await lab.steps(edit(None, {"spec": {"paused": True, "containerPort": 11311}}))
    await lab.passes(LIFE * RENEWAL_FRACTION)
    assert {pair.certificate for pair in lab.servers.served.values()} == {content_of(lab.secret(SERVER))["tls.crt"]}
    assert lab.servers.ports == {11211}


@pytest.mark.parametrize("blocking", [{"paused": True}, {"metrics": {"port": 11211}}], ids=["paused", "invalid spec"])
async def test_servers_are_not_refreshed_for_a_secret_that_they_do_not_mount(blocking: Obj) -> None:
    lab = await created(OPEN)
    lab.run.stage.user_client.apply(SECRET, tls_secret(certificate("other"), "other-tls"))
    recorded = lab.status["certificate"]
    await lab.steps(edit(None, {"spec": {"tls": {"mode": "secret", "secretName": "other-tls"}, **blocking}}))
    await lab.passes(timedelta(hours=1))
    assert lab.servers.refreshed == []
    assert lab.status["certificate"] == recorded


async def test_paused_resource_is_not_changed() -> None:
    lab = await created(OPEN | UNPAUSED)
    before = lab.run.stage.find(STATEFUL_SET)
    await lab.steps(edit(None, {"spec": {"paused": True, "memoryMB": 128}}))
    await lab.passes(LIFE * RENEWAL_FRACTION)
    assert lab.run.stage.find(STATEFUL_SET) == before != []


async def test_secret_of_another_owner_is_not_overwritten() -> None:
    lab = Lab()
    client, namespace = lab.run.stage.user_client, lab.run.stage.namespace
    client.create(SECRET, {"metadata": {"name": SERVER, "namespace": namespace}, "data": {"a": "Yg=="}})
    await lab.steps(apply(size=1, **OPEN))
    assert lab.ready[0] == "ForeignObject"
    assert lab.secret(SERVER)["data"] == {"a": "Yg=="}
    assert not lab.pods


async def test_certificate_begins_before_the_world_so_that_clocks_may_differ() -> None:
    lab = await created(OPEN)
    issued = issued_in(lab.secret(SERVER))
    assert issued is not None
    assert issued.certificate.begins <= lab.run.world.clock() - BACKDATED + timedelta(minutes=1)


@pytest.mark.parametrize("spec", [OPEN, ISSUED], ids=["open", "mutual"])
async def test_clients_trust_every_server_on_the_way_from_the_operator_to_cert_manager(spec: Obj) -> None:
    """The steps of docs/how-to/rotate-credentials.md, "Change the issuer of a Memcached"."""
    lab = await created(spec)
    client, namespace = lab.run.stage.user_client, lab.run.stage.namespace
    own, both = content_of(lab.secret(SERVER)), content_of(lab.secret(SERVER))[AUTHORITY_KEY] + signer("ca").certificate
    new = {CERTIFICATE_KEY: certificate().certificate, PRIVATE_KEY: certificate().key}

    def write(name: str, content: Mapping[str, str]) -> ScenarioStep:
        def act(_stage: Stage) -> None:
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}}
            client.apply(SECRET, body | {"data": encoded(content)}, force=True)

        return unobserved(ScenarioStep(f"write {name}", act))

    def change(mode: str, **tls: Any) -> ScenarioStep:
        return edit(None, {"spec": {"tls": {"mode": mode, "secretName": None, "issuer": None} | tls}})

    trusted = certificates_in(lab.secret(CONNECTION))
    for steps in (
        (write("cache-own", {**own, AUTHORITY_KEY: both}), change("secret", secretName="cache-own")),
        (write("cache-own", {**new, AUTHORITY_KEY: both}),),
        (*(delete(SECRET, name) for name in (SERVER, CLIENT)), change("certManager", issuer={"name": "team-ca"})),
        tuple(write(name, new | {AUTHORITY_KEY: signer("ca").certificate}) for name in (SERVER, CLIENT)),
    ):
        await lab.steps(*steps)
        await lab.passes(timedelta(minutes=1))
        served = lab.servers.served.values()
        assert served
        assert all(signers(pair, trusted) for pair in served), "clients that did not reload since the former step"
        trusted = certificates_in(lab.secret(CONNECTION))
    assert lab.ready[0] == "Ready"
    assert [each.subject for each in trusted] == [each.subject for each in certs.read(signer("ca").certificate)]


async def test_change_of_a_password_loads_no_certificate_that_has_ended() -> None:
    """On SIGHUP, memcached 1.6.40 and later load the mounted certificate, too (K3)."""
    lab = Lab()
    lab.run.stage.user_client.apply(SECRET, tls_secret(certificate()), force=True)
    await lab.steps(given_users(), apply(size=2, tls={"secretName": "cache-tls"}, **USERS))
    assert lab.ready[0] == "Ready"
    ended = tls_secret(certificate("late", ended=True))["data"]
    await lab.steps(unobserved(edit(SECRET, {"data": ended}, "cache-tls")))
    assert lab.ready[0] == "CertificateExpired"
    former = lab.status["users"]
    await lab.steps(unobserved(edit(SECRET, {"data": users("two")}, "cache-users")))
    assert {pair.certificate for pair in lab.servers.served.values()} == {certificate().certificate}
    assert lab.status["users"] != former, "the password is in effect nevertheless"
    renewed = certificate("renewed")
    await lab.steps(unobserved(edit(SECRET, {"data": tls_secret(renewed)["data"]}, "cache-tls")))
    assert {pair.certificate for pair in lab.servers.served.values()} == {renewed.certificate}
    assert (lab.ready[0], lab.servers.emptied) == ("Ready", 0)


@pytest.mark.parametrize("client_auth", ["none", "required"])
async def test_renewed_certificate_is_loaded_although_another_secret_in_the_spec_is_not_applied(
    client_auth: str,
) -> None:
    lab = Lab()
    lab.run.stage.user_client.apply(SECRET, tls_secret(certificate()), force=True)
    await lab.steps(apply(size=2, tls={"secretName": "cache-tls", "clientAuth": client_auth}))
    assert lab.ready[0] == "Ready"
    await lab.steps(edit(None, {"spec": {"paused": True, "tls": {"secretName": "other-tls"}}}))
    renewed, ended = certificate("renewed"), certificate("late", ended=True)
    await lab.steps(unobserved(edit(SECRET, {"data": tls_secret(renewed)["data"]}, "cache-tls")))
    await lab.passes(timedelta(minutes=1))
    assert {pair.certificate for pair in lab.servers.served.values()} == {renewed.certificate}
    for unusable in (tls_secret(ended)["data"], encoded({CERTIFICATE_KEY: ""}), encoded({AUTHORITY_KEY: OVERLONG})):
        await lab.steps(unobserved(edit(SECRET, {"data": unusable}, "cache-tls")))
        await lab.passes(timedelta(minutes=1))
    assert {pair.certificate for pair in lab.servers.served.values()} == {renewed.certificate}
    assert content_of(lab.secret("cache-server-mounted"))[CERTIFICATE_KEY] == renewed.certificate
    lab.run.stage.user_client.apply(SECRET, tls_secret(certificate("other"), "other-tls"), force=True)
    await lab.steps(edit(None, {"spec": {"paused": False}}))
    assert {pair.certificate for pair in lab.servers.served.values()} == {certificate("other").certificate}
    assert (lab.ready[0], lab.servers.emptied) == ("Ready", 0)


@pytest.mark.parametrize("tls_after", [None, {"mode": "self"}], ids=["no TLS", "self"])
@pytest.mark.parametrize(("client_auth", "auth"), [("none", {}), ("required", {}), ("none", USERS)])
async def test_renewed_certificate_is_loaded_although_the_spec_with_another_mode_is_not_applied(
    client_auth: str, auth: Obj, tls_after: Obj | None
) -> None:
    lab = Lab()
    lab.run.stage.user_client.apply(SECRET, tls_secret(certificate()), force=True)
    tls = {"secretName": "cache-tls", "clientAuth": client_auth}
    await lab.steps(given_users(), apply(size=2, tls=tls, **auth, **UNPAUSED))
    assert lab.ready[0] == "Ready"
    await lab.steps(*unapplied(tls_after))
    renewed = certificate("renewed")
    await lab.steps(unobserved(edit(SECRET, {"data": tls_secret(renewed)["data"]}, "cache-tls")))
    await lab.passes(timedelta(minutes=1))
    assert {pair.certificate for pair in lab.servers.served.values()} == {renewed.certificate}
    refreshed = list(lab.servers.refreshed)
    await lab.passes(timedelta(hours=1))
    assert (lab.servers.refreshed, lab.servers.emptied) == (refreshed, 0)
    await lab.steps(edit(None, {"spec": {"paused": False}}))
    assert (lab.ready[0], lab.servers.emptied) == ("Ready", 2)


OTHER_ISSUERS: Mapping[str, Obj | None] = {
    "no TLS": None,
    "a Secret": {"mode": "secret", "secretName": "cache-tls"},
    "cert-manager": {"mode": "certManager", "issuer": {"name": "team-ca"}},
}


def unapplied(tls: Obj | None) -> list[ScenarioStep]:
    """Change spec.tls in a paused resource: first remove it, because not every mode may follow every other one."""
    return [edit(None, {"spec": {"paused": True, "tls": each}}) for each in (None, *([tls] if tls else []))]


@pytest.mark.parametrize("issuer", OTHER_ISSUERS)
@pytest.mark.parametrize("spec", [OPEN, ISSUED], ids=["open", "mutual"])
async def test_certificate_of_the_operator_is_renewed_while_servers_mount_it_although_the_spec_names_another(
    spec: Obj, issuer: str
) -> None:
    lab = await created(spec | UNPAUSED)
    lab.run.stage.user_client.apply(SECRET, tls_secret(certificate()), force=True)
    pods = lab.pods
    await lab.steps(*unapplied(OTHER_ISSUERS[issuer]))
    for _ in range(2):
        before = content_of(lab.secret(SERVER))[CERTIFICATE_KEY], content_of(lab.secret(CLIENT))[CERTIFICATE_KEY]
        await lab.passes(LIFE * RENEWAL_FRACTION)
        renewed = content_of(lab.secret(SERVER))[CERTIFICATE_KEY], content_of(lab.secret(CLIENT))[CERTIFICATE_KEY]
        assert set(before).isdisjoint(renewed)
        assert {pair.certificate for pair in lab.servers.served.values()} == {renewed[0]}
        assert accessors.condition(lab.run.stage.find()[0], AVAILABLE)["status"] == "True"
    await lab.steps(unobserved(delete(SECRET, SERVER)))
    assert issued_in(lab.secret(SERVER)) is not None, "issued again"
    refreshed = list(lab.servers.refreshed)
    await lab.passes(timedelta(hours=1))
    assert (lab.servers.refreshed, lab.pods, lab.ready[0]) == (refreshed, pods, "Paused")
    if issuer != "cert-manager":
        await lab.steps(edit(None, {"spec": {"paused": False}}))
        assert (lab.ready[0], lab.servers.emptied) == ("Ready", 2)


async def test_certificate_that_cert_manager_wrote_over_that_of_the_operator_is_not_replaced() -> None:
    """Each would replace that of the other one, without end."""
    lab = await created(OPEN | UNPAUSED)
    await lab.steps(*unapplied(OTHER_ISSUERS["cert-manager"]))
    issued = tls_secret(certificate())["data"]
    await lab.steps(unobserved(edit(SECRET, {"data": issued}, SERVER)))
    await lab.passes(LIFE)
    assert content_of(lab.secret(SERVER))[CERTIFICATE_KEY] == certificate().certificate


@pytest.mark.parametrize("may_write", [True, False], ids=["copies", "originals"])
@pytest.mark.parametrize("tls", [None, {"secretName": "other-tls"}], ids=["no TLS", "another Secret"])
async def test_certificate_that_ends_before_another_spec_is_applied_is_reported_and_blocks_no_change(
    tls: Obj | None, may_write: bool
) -> None:
    lab = Lab(REAL if may_write else READ_ONLY)
    for name in ("cache-tls", "other-tls"):
        lab.run.stage.user_client.apply(SECRET, tls_secret(certificate(name), name), force=True)
    await lab.steps(apply(size=2, tls={"secretName": "cache-tls"}, **UNPAUSED))
    await lab.steps(edit(None, {"spec": {"paused": True, "tls": tls}}))
    renewed = certificate("renewed")
    await lab.steps(unobserved(edit(SECRET, {"data": tls_secret(renewed)["data"]}, "cache-tls")))
    await lab.passes(timedelta(minutes=1))
    assert {pair.certificate for pair in lab.servers.served.values()} == {renewed.certificate}
    assert accessors.condition(lab.run.stage.find()[0], AVAILABLE)["status"] == "True"
    await lab.passes(ENDS - lab.run.world.clock())
    available = accessors.condition(lab.run.stage.find()[0], AVAILABLE)
    assert (available["status"], available["reason"]) == ("False", "CertificateExpired")
    assert available["message"].endswith("Renew Secret cache-tls.")
    if tls is None:
        await lab.steps(edit(None, {"spec": {"paused": False}}))
        assert lab.servers.emptied == 2
        assert accessors.condition(lab.run.stage.find()[0], AVAILABLE)["status"] == "True"


async def test_secret_that_cert_manager_made_after_the_deletion_of_a_recorded_one_is_used() -> None:
    """The status still records the deleted one, of which the operator made the content."""
    lab = await created(OPEN | UNPAUSED)
    lab.restart(READ_ONLY)
    issued = certificate("ordered")
    for name in (SERVER, CLIENT):
        await lab.steps(unobserved(delete(SECRET, name)))
        lab.run.stage.user_client.apply(SECRET, tls_secret(issued, name), force=True)
    await lab.steps(*unapplied(OTHER_ISSUERS["cert-manager"]), edit(None, {"spec": {"paused": False}}))
    await lab.passes(timedelta(minutes=1))
    assert lab.ready[0] == "SecretsNotCopied"
    assert {pair.certificate for pair in lab.servers.served.values()} == {issued.certificate}


OVERLONG = signer("ca").certificate + "#" * 2**20


@pytest.mark.parametrize("paused", [False, True], ids=["", "paused"])
@pytest.mark.parametrize("authority", [None, "no certificate", OVERLONG], ids=["removed", "garbage", "too long"])
async def test_servers_keep_the_authorities_of_clients_while_those_in_the_secret_cannot_be_used(
    authority: str | None, paused: bool
) -> None:
    """A server does not start without the file, or with a file that it cannot read."""
    lab = Lab()
    lab.run.stage.user_client.apply(SECRET, tls_secret(certificate()), force=True)
    await lab.steps(apply(size=2, tls={"secretName": "cache-tls", "clientAuth": "required"}))
    assert lab.ready[0] == "Ready"
    former = content_of(lab.secret("cache-server-mounted"))
    assert former[AUTHORITY_KEY] == signer("ca").certificate
    if paused:
        await lab.steps(edit(None, {"spec": {"paused": True}}))
    data = {AUTHORITY_KEY: None} if authority is None else encoded({AUTHORITY_KEY: authority})
    await lab.steps(unobserved(edit(SECRET, {"data": data}, "cache-tls")))
    await lab.passes(timedelta(minutes=1))
    assert content_of(lab.secret("cache-server-mounted")) == former
    assert paused or lab.ready[0] in ("SecretInvalid", "SecretMissing")
    await lab.steps(lose(POD))
    assert len(lab.servers.trusted) >= 2
    valid = tls_secret(certificate("renewed"))["data"]
    await lab.steps(unobserved(edit(SECRET, {"data": valid}, "cache-tls")))
    await lab.passes(timedelta(minutes=1))
    assert content_of(lab.secret("cache-server-mounted"))["tls.crt"] == certificate("renewed").certificate
