"""The users file of a user: no server starts with one that memcached reads otherwise than it is written.

The operator does not load such a file. A container that restarts, or a pod that is created, loads what is mounted.
"""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from operators.memcached.client import users_file
from operators.memcached.objects.pod import mounted_certificate, mounted_secrets, mounted_users
from operators.memcached.operator import controller
from operators.memcached.security.secrets import SOURCE
from shared.kubernetes import accessors
from shared.kubernetes.client import Request, Response
from shared.kubernetes.kinds import POD, SECRET, STATEFUL_SET, Obj
from shared.kubernetes.secrets import content_of, encoded
from shared.pki import ca
from shared.pki.certs import Pair
from shared.status.conditions import READY
from shared.steps.certificates import CERTIFICATE
from simulator.memcached.fake_servers import certificate, secret, signer, tls_secret
from tests.harness.scenario import (
    ScenarioStep,
    Stage,
    Subject,
    create,
    delete,
    edit,
    later,
    lose,
    operator_down,
    unobserved,
)
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.issuing import issued
from tests.support.memcached.scenarios import (
    AUTH,
    MEMCACHED,
    OPTIONS,
    TLS,
    Servers,
    apply,
    given_certificate,
    given_users,
    renewed_certificate,
)

COPY = "cache-users-mounted"
RESYNC = edit(None, {"metadata": {"labels": {"resync": "1"}}})
READ_ONLY = dataclasses.replace(
    MEMCACHED,
    controller=lambda servers: dataclasses.replace(
        controller(dataclasses.replace(OPTIONS, write_secrets=False), servers.connect, servers.attest), issue=issued
    ),
)
"""Subject whose operator may not write Secrets."""


class Lab:
    """A Memcached with two servers and the users file of a user."""

    def __init__(self, subject: Subject = MEMCACHED) -> None:
        self.run = ScenarioRun(World(subject))
        servers = self.run.world.database
        assert isinstance(servers, Servers)
        self.servers = servers

    async def steps(self, *steps: ScenarioStep) -> None:
        await self.run.run_steps(steps)

    def restart(self, subject: Subject) -> None:
        """Restart the operator, with other options."""
        self.run.end()
        self.run.world.subject = subject
        self.run.begin()

    @property
    def mounted(self) -> set[str]:
        """Users files that the servers have at hand."""
        running = {pod["status"]["podIP"] for pod in self.run.stage.find(POD)}
        return {self.servers.secrets[address]["auth"].get("users", "") for address in running}

    @property
    def served(self) -> set[str]:
        """Certificates that the servers present."""
        return {self.servers.served[pod["status"]["podIP"]].certificate for pod in self.run.stage.find(POD)}

    @property
    def ready(self) -> tuple[str, str]:
        """Reason and message of the Ready condition."""
        [resource] = self.run.stage.find()
        found = accessors.condition(resource, READY)
        return str(found["reason"]), str(found["message"])

    @property
    def status(self) -> str:
        """Status of the Ready condition."""
        return str(accessors.condition(self.run.stage.find()[0], READY)["status"])

    @property
    def template(self) -> Obj:
        [workload] = self.run.stage.find(STATEFUL_SET)
        found: Obj = workload["spec"]["template"]
        return found


async def created(subject: Subject = MEMCACHED) -> Lab:
    lab = Lab(subject)
    await lab.steps(given_users(), apply(size=2, **AUTH))
    return lab


def changed(text: str) -> ScenarioStep:
    return unobserved(edit(SECRET, {"data": secret("", users=text)["data"]}, "cache-users"))


@pytest.mark.parametrize("text", ["", "app:two", "app:two\nops\n"], ids=["empty", "no line break", "no password"])
async def test_server_that_starts_while_the_users_file_is_invalid_has_the_former_one(text: str) -> None:
    assert users_file.problem(text)
    lab = await created()
    assert lab.ready[0] == "Ready"
    await lab.steps(changed(text), lose(POD))
    assert lab.mounted == {"app:one\n"}
    assert lab.ready[0] in ("SecretInvalid", "SecretMissing")
    await lab.steps(changed("app:three\n"), RESYNC)
    assert (lab.mounted, lab.ready[0]) == ({"app:three\n"}, "Ready")


async def test_server_that_starts_while_the_secret_is_missing_has_the_former_users() -> None:
    lab = await created()
    await lab.steps(unobserved(delete(SECRET, "cache-users")), lose(POD))
    assert (lab.mounted, lab.ready[0]) == ({"app:one\n"}, "SecretMissing")
    assert len(lab.run.stage.find(POD)) == 2


async def test_another_secret_is_loaded_without_replacing_a_server() -> None:
    lab = await created()
    lab.run.stage.user_client.apply(SECRET, secret("other-users", users="app:two\n"))
    await lab.steps(apply(size=2, auth={"secretName": "other-users"}))
    assert (lab.mounted, lab.ready[0], lab.servers.emptied) == ({"app:two\n"}, "Ready", 0)


@pytest.mark.parametrize("blocking", [{"paused": True}, {"memoryMB": 8, "maxItemSizeMB": 8}], ids=["paused", "invalid"])
async def test_changed_users_are_in_effect_although_the_spec_is_not_applied(blocking: Obj) -> None:
    lab = await created()
    await lab.steps(apply(size=2, **AUTH | blocking), changed("app:two\n"), RESYNC)
    assert lab.mounted == {"app:two\n"}


@pytest.mark.parametrize(
    "spec",
    [
        {"auth": {"secretName": "other-users"}, "paused": True},
        {"auth": {"secretName": "other-users"}, "memoryMB": 8, "maxItemSizeMB": 8},
        {"auth": {"secretName": "othre-users"}},
        {"auth": {}, "paused": True},
        {"paused": True},
    ],
    ids=["paused", "invalid", "missing", "paused: generated", "paused: none"],
)
async def test_changed_users_are_in_effect_although_another_secret_in_the_spec_is_not_applied(spec: Obj) -> None:
    """Servers keep the copy of the former Secret, with the users that it has."""
    lab = await created()
    lab.run.stage.user_client.apply(SECRET, secret("other-users", users="app:other\n"))
    await lab.steps(apply(size=2, **spec))
    assert lab.mounted == {"app:one\n"}
    await lab.steps(changed("app:two\n"), edit(None, {"metadata": {"labels": {"resync": "1"}}}))
    assert lab.mounted == {"app:two\n"}
    await lab.steps(changed("no password\n"), edit(None, {"metadata": {"labels": {"resync": "2"}}}))
    assert lab.mounted == {"app:two\n"}
    await lab.steps(apply(size=2, auth={"secretName": "other-users"}))
    assert (lab.mounted, lab.ready[0], lab.servers.emptied) == ({"app:other\n"}, "Ready", 0)
    await lab.steps(changed("app:three\n"), edit(None, {"metadata": {"labels": {"resync": "3"}}}))
    assert lab.mounted == {"app:other\n"}, "the former Secret no longer counts"


async def test_removed_user_of_a_former_secret_is_reported_if_the_copy_may_not_be_written() -> None:
    lab = await created()
    lab.restart(READ_ONLY)
    await lab.steps(apply(size=2, auth={"secretName": "other-users"}, paused=True))
    assert lab.ready[0] == "Paused"
    await lab.steps(changed("app:two\n"), RESYNC)
    assert (lab.mounted, lab.ready[0], lab.status) == ({"app:one\n"}, "SecretCopyOutdated", "False")
    assert "Servers still use the former content of Secret cache-users," in lab.ready[1]


async def test_users_and_certificate_may_be_in_the_same_secret() -> None:
    lab, pair = Lab(), certificate()
    files = {"tls_crt": pair.certificate, "tls_key": pair.key, "ca_crt": signer("ca").certificate}
    lab.run.stage.user_client.apply(SECRET, secret("cache-all", users="app:one\n", **files))
    await lab.steps(apply(size=2, auth={"secretName": "cache-all"}, tls={"secretName": "cache-all"}), RESYNC)
    assert (lab.ready[0], lab.mounted) == ("Ready", {"app:one\n"})
    other: Obj = {"auth": {"secretName": "other-users"}, "tls": {"secretName": "cache-all"}}
    await lab.steps(apply(size=2, **other, paused=True))
    await lab.steps(unobserved(edit(SECRET, {"data": secret("", users="app:two\n")["data"]}, "cache-all")), RESYNC)
    assert lab.mounted == {"app:two\n"}


async def test_servers_that_mount_the_original_keep_their_items_and_are_reported() -> None:
    """Servers of an earlier build: the next change that replaces them introduces the copy."""
    lab = await created(READ_ONLY)
    assert "2 of 2 servers mount Secret cache-users itself" in lab.ready[1]
    assert "set the chart value rbac.writeSecrets" in lab.ready[1]
    lab.restart(MEMCACHED)
    await lab.steps(RESYNC)
    assert (lab.servers.emptied, mounted_users(lab.template)) == (0, "cache-users")
    assert "2 of 2 servers mount Secret cache-users itself" in lab.ready[1]
    await lab.steps(apply(size=2, **AUTH, memoryMB=128))
    assert (lab.servers.emptied, mounted_users(lab.template)) == (2, COPY)
    assert (lab.mounted, lab.ready[0]) == ({"app:one\n"}, "Ready")


async def test_operator_that_may_no_longer_write_the_copy_returns_to_the_original() -> None:
    lab = await created()
    lab.restart(READ_ONLY)
    await lab.steps(RESYNC)
    assert (mounted_users(lab.template), lab.servers.emptied) == (COPY, 0)
    await lab.steps(changed("app:two\n"), RESYNC)
    assert (mounted_users(lab.template), lab.mounted) == ("cache-users", {"app:two\n"})
    assert "2 of 2 servers mount Secret cache-users itself" in lab.ready[1]


@pytest.mark.parametrize(
    "blocking",
    [{"paused": True}, {"paused": True, "workload": "Deployment"}, {"memoryMB": 8, "maxItemSizeMB": 8}],
    ids=["paused", "paused before a switch", "invalid"],
)
async def test_removed_user_that_servers_still_accept_is_reported_although_the_spec_is_not_applied(
    blocking: Obj,
) -> None:
    lab = await created()
    lab.restart(READ_ONLY)
    await lab.steps(apply(size=2, **AUTH | blocking))
    assert lab.ready[0] in ("Paused", "InvalidSpec")
    await lab.steps(changed("app:two\n"), RESYNC)
    assert (lab.mounted, lab.ready[0]) == ({"app:one\n"}, "SecretCopyOutdated")
    assert lab.status == "False"
    assert "Servers still use the former content of Secret cache-users," in lab.ready[1]
    await lab.steps(apply(size=2, **AUTH))
    assert (lab.mounted, lab.status) == ({"app:two\n"}, "True")


async def test_renewed_certificate_that_servers_do_not_load_is_not_reported_as_removed_users() -> None:
    lab = Lab()
    await lab.steps(given_certificate(), apply(size=2, **TLS))
    lab.restart(READ_ONLY)
    await lab.steps(apply(size=2, paused=True, **TLS), renewed_certificate(), RESYNC)
    assert lab.ready[0] == "SecretCopyOutdated"
    assert "Servers still use the former content of Secret cache-tls: " in lab.ready[1]


async def test_removed_user_is_reported_until_every_server_has_been_replaced() -> None:
    lab = await created(dataclasses.replace(MEMCACHED, patience=0.0))
    paced: Obj = AUTH | {"updateStrategy": {"pauseSeconds": 60}}
    await lab.steps(apply(size=2, **paced))
    lab.restart(dataclasses.replace(READ_ONLY, patience=0.0))
    await lab.steps(changed("app:two\n"), RESYNC)
    assert (mounted_users(lab.template), len(lab.mounted)) == ("cache-users", 2)
    await lab.steps(apply(size=2, **paced, paused=True))
    for _ in range(20):
        assert (lab.status == "True") == (lab.mounted == {"app:two\n"})
        await lab.run.wait(10)
    assert (lab.mounted, lab.ready[0]) == ({"app:two\n"}, "Paused")


def given(pair: Pair) -> ScenarioStep:
    """Put a certificate into the Secret."""
    return unobserved(edit(SECRET, {"data": tls_secret(pair)["data"]}, "cache-tls"))


async def test_servers_return_to_a_certificate_that_was_renewed_after_its_copy_ended() -> None:
    lab = Lab()
    begins, ends = lab.run.world.clock() - timedelta(days=1), lab.run.world.clock() + timedelta(hours=1)
    short = ca.issue(signer("ca"), "short", begins=begins, ends=ends, hosts=("cache.default.svc",))
    await lab.steps(create(SECRET, "cache-tls", data=tls_secret(short)["data"]), apply(size=2, **TLS))
    assert lab.ready[0] in ("Ready", "CertificateExpiring")
    lab.restart(READ_ONLY)
    await lab.steps(later(7200), RESYNC)
    assert lab.ready[0] == "CertificateExpired"
    await lab.steps(given(certificate("renewed")), edit(None, {"metadata": {"labels": {"resync": "2"}}}))
    assert lab.served == {certificate("renewed").certificate}
    assert (mounted_certificate(lab.template), lab.ready[0]) == ("cache-tls", "SecretsNotCopied")


async def test_ended_client_certificate_is_reported_if_the_operator_may_not_write_a_copy() -> None:
    """The certificate of the servers is valid, and no copy of it exists."""
    lab = Lab(dataclasses.replace(READ_ONLY, serves=(*READ_ONLY.serves, CERTIFICATE)))
    begins, ends = lab.run.world.clock() - timedelta(days=1), lab.run.world.clock() + timedelta(hours=1)
    short = ca.issue(signer("ca"), "short", begins=begins, ends=ends, hosts=(), client=True)
    issuer: Obj = {"mode": "certManager", "issuer": {"name": "team-ca"}, "clientAuth": "required"}
    for name, pair in (("cache-server-tls", certificate()), ("cache-client-tls", short)):
        await lab.steps(create(SECRET, name, data=tls_secret(pair)["data"]))
    await lab.steps(apply(size=2, tls=issuer))
    assert lab.ready[0] == "SecretsNotCopied"
    await lab.steps(later(7200), RESYNC)
    assert (lab.ready[0], lab.status) == ("CertificateExpired", "False")
    assert "Secret cache-client-tls" in lab.ready[1]


@pytest.mark.parametrize(
    ("step", "users"),
    [(changed("app:two\n"), "app:two\n"), (apply(size=2, memoryMB=128, **AUTH, **TLS), "app:one\n")],
    ids=["users", "memory"],
)
async def test_servers_keep_the_copy_of_the_former_certificate_while_the_present_one_has_ended(
    step: ScenarioStep, users: str
) -> None:
    """Any replacement of servers, by an operator that may not write the copy."""
    lab = Lab()
    await lab.steps(given_users(), given_certificate(), apply(size=2, **AUTH, **TLS))
    lab.restart(READ_ONLY)
    await lab.steps(given(certificate("late", ended=True)), RESYNC)
    assert lab.ready[0] == "CertificateExpired"
    await lab.steps(step, edit(None, {"metadata": {"labels": {"resync": "2"}}}))
    assert lab.served == {certificate().certificate}
    assert (mounted_certificate(lab.template), lab.mounted) == ("cache-server-mounted", {users})
    assert (lab.servers.emptied, lab.ready[0]) == (2, "CertificateExpired")
    renewed = certificate("renewed")
    await lab.steps(given(renewed), edit(None, {"metadata": {"labels": {"resync": "3"}}}))
    assert lab.served == {renewed.certificate}
    assert mounted_certificate(lab.template) == "cache-tls"


async def test_changed_secret_is_copied_once_without_a_conflict() -> None:
    lab = await created()
    log = lab.run.world.server.log
    log.reset()
    await lab.steps(changed("app:two\n"), RESYNC)
    assert [str(each) for each in log.writes("Secret") if each.status >= 400] == []
    lab.run.stage.user_client.apply(SECRET, secret("other-users", users="app:other\n"))
    await lab.steps(changed("app:three\n"), apply(size=2, auth={"secretName": "other-users"}))
    assert lab.mounted == {"app:other\n"}
    assert [str(each) for each in log.writes("Secret") if each.status >= 400] == []


async def test_copy_of_a_password_does_not_outlive_the_spec_that_needs_it() -> None:
    lab = await created()
    assert content_of(lab.run.stage.user_client.get(SECRET, "default", COPY)) == {"users": "app:one\n"}
    await lab.steps(apply(size=2))
    assert content_of(lab.run.stage.user_client.get(SECRET, "default", COPY)) == {}


async def test_secrets_are_not_emptied_while_a_server_mounts_them() -> None:
    """A StatefulSet creates a pod that ends in the middle of an update from its former template."""
    lab = Lab(dataclasses.replace(MEMCACHED, patience=0.0))
    paced: Obj = {"updateStrategy": {"pauseSeconds": 60}}
    await lab.steps(given_users(), given_certificate(), apply(size=2, **AUTH, **TLS, **paced))
    names = (COPY, "cache-attestation", "cache-server-mounted")
    await lab.steps(apply(size=2, **paced))
    for _ in range(20):
        mounted = {name for pod in lab.run.stage.find(POD) for name in mounted_secrets(pod)}
        filled = {name for name in names if content_of(lab.run.stage.user_client.get(SECRET, "default", name))}
        assert mounted <= filled
        if not mounted:
            break
        await lab.run.wait(10)
    assert not mounted
    await lab.steps(RESYNC)
    assert not any(content_of(lab.run.stage.user_client.get(SECRET, "default", name)) for name in names)


async def test_copy_that_a_user_deletes_is_written_again() -> None:
    lab = await created()
    await lab.steps(*operator_down(delete(SECRET, COPY), lose(POD)), RESYNC)
    assert (lab.mounted, lab.ready[0]) == ({"app:one\n"}, "Ready")


async def test_server_without_a_copy_of_its_certificate_is_reported() -> None:
    lab = Lab(READ_ONLY)
    await lab.steps(given_certificate(), apply(size=2, **TLS))
    reason, message = lab.ready
    assert reason == "SecretsNotCopied"
    assert message.endswith("The operator may not write a copy: set the chart value rbac.writeSecrets.")


async def test_secret_of_another_client_with_the_name_of_the_copy_is_neither_used_nor_changed() -> None:
    lab = Lab()
    lab.run.stage.user_client.create(SECRET, secret(COPY, users="other:secret\n"))
    await lab.steps(given_users(), apply(size=2, **AUTH))
    assert lab.ready[0] == "ForeignObject"
    assert not lab.run.stage.find(POD)
    assert content_of(lab.run.stage.user_client.get(SECRET, "default", COPY)) == {"users": "other:secret\n"}


@pytest.mark.parametrize(
    "text", ["../../other/secrets/cache-users", "..", "cache-users?watch=1", "c" * 300, "cache-users\n"]
)
async def test_annotation_that_a_user_edits_is_no_path(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, paths = await created(), list[str]()
    send = lab.run.world.server.request

    async def recorded(request: Request) -> Response:
        paths.append(request.path)
        return await send(request)

    monkeypatch.setattr(lab.run.world.server, "request", recorded)
    source: Obj = {"metadata": {"annotations": {SOURCE: text}}}
    await lab.steps(unobserved(edit(SECRET, source, COPY)), changed("app:two\n"), RESYNC)
    assert "/api/v1/namespaces/default/secrets/cache-users" in paths
    assert not [path for path in paths if path.endswith(text)]
    copy = lab.run.stage.user_client.get(SECRET, "default", COPY)
    assert (accessors.annotation(copy, SOURCE), lab.mounted, lab.ready[0]) == ("cache-users", {"app:two\n"}, "Ready")


@pytest.mark.parametrize("blocking", [{}, {"memoryMB": 8, "maxItemSizeMB": 8}], ids=["valid spec", "invalid spec"])
async def test_copy_that_another_controller_has_taken_is_not_changed(blocking: Obj) -> None:
    lab = await created()
    uid = lab.run.stage.user_client.get(SECRET, "default", "cache-users")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Secret", "name": "cache-users", "uid": uid, "controller": True}
    taken = unobserved(edit(SECRET, {"metadata": {"ownerReferences": [owner]}}, COPY))
    await lab.steps(taken, changed("app:two\n"), apply(size=2, **AUTH | blocking), RESYNC)
    assert lab.mounted == {"app:one\n"}
    assert lab.ready[0] in ("ForeignObject", "InvalidSpec")


def of_another_client(name: str, key: str) -> ScenarioStep:
    """Let another client own a key of a Secret, too, as after a restored backup; it adds one that is missing."""

    def act(stage: Stage) -> None:
        present = content_of(stage.user_client.get(SECRET, stage.namespace, name)).get(key, "x")
        body: Obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": stage.namespace}}
        stage.user_client.apply(SECRET, body | {"data": encoded({key: present})})

    return unobserved(ScenarioStep(f"another client owns {key} of {name}", act))


@pytest.mark.parametrize("name", [COPY, "cache-server-mounted"])
async def test_spec_is_applied_although_another_client_has_added_a_key_to_a_copy(name: str) -> None:
    lab = Lab()
    await lab.steps(given_users(), given_certificate(), apply(size=2, **AUTH, **TLS))
    await lab.steps(of_another_client(name, "note"), apply(size=3, **AUTH, **TLS))
    assert (len(lab.run.stage.find(POD)), lab.ready[0], lab.servers.emptied) == (3, "Ready", 0)
    assert content_of(lab.run.stage.user_client.get(SECRET, "default", name))["note"] == "x"
    await lab.steps(changed("app:two\n"), renewed_certificate(), RESYNC)
    assert (lab.mounted, lab.served) == ({"app:two\n"}, {certificate("renewed").certificate})


async def test_authority_that_the_original_lost_leaves_a_copy_of_which_another_client_owns_it_too() -> None:
    lab = Lab()
    await lab.steps(given_certificate(), apply(size=2, **TLS), of_another_client("cache-server-mounted", "ca.crt"))
    await lab.steps(unobserved(edit(SECRET, {"data": {"ca.crt": None}}, "cache-tls")), apply(size=3, **TLS))
    assert (len(lab.run.stage.find(POD)), lab.ready[0]) == (3, "Ready")
    copy = content_of(lab.run.stage.user_client.get(SECRET, "default", "cache-server-mounted"))
    assert (copy["tls.crt"], copy.get("ca.crt", "")) == (certificate().certificate, "")
