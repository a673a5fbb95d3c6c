"""Secrets of the servers: missing ones, rolling updates, and certificates that servers reload."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from operators.memcached.client.errors import Unreachable
from operators.memcached.objects.pod import SECRETS, mounted_certificate
from operators.memcached.operator import controller
from operators.memcached.security.certificates import REFRESH_INTERVAL_SECONDS, ServedCertificate
from operators.memcached.security.connection import Access
from operators.memcached.security.secrets import Secrets, fingerprint
from operators.memcached.state.observed import Observed
from shared.cli.options import parse_options
from shared.kubernetes.kinds import POD, SECRET, Obj
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS
from shared.pki.certs import Pair
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import Call
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from simulator.harness import NAMESPACE, Harness
from simulator.memcached.fake_servers import Fleet, certificate, der, mounted_secrets, secret, tls_secret
from tests.memcached.unit.world import UNPAUSED, plan, pod, resource, template, workload_in, workload_of

AUTH: Obj = {"auth": {"secretName": "users"}}
TLS: Obj = {"tls": {"secretName": "cache-tls"}}
MUTUAL: Obj = {"tls": {"secretName": "cache-tls", "clientAuth": "required"}}
CURRENT = Secrets(pair=certificate())
FINGERPRINT = CURRENT.fingerprint


def plan_for(*answers: ServedCertificate, recorded: str = "former") -> Any:
    """Return the plan for servers that serve these certificates."""
    pods = [pod(number) for number, _ in enumerate(answers)]
    served_certificates = {f"cache-{number}": answer for number, answer in enumerate(answers)}
    workload = workload_of("Deployment", *pods, made=template(tls="cache-tls"))
    observed = Observed(workload, secrets=CURRENT, served_certificates=served_certificates)
    parsed = resource(size=len(pods), phase="Running", observed=1, status={"certificate": recorded}, **TLS)
    return plan(parsed, observed)


def refreshed_pods(made: Any) -> list[str]:
    return [name for action in made.actions if isinstance(action, Call) for name, _ in action.addresses]  # type: ignore[attr-defined]


def test_refresh_is_complete_when_all_servers_serve_the_certificate() -> None:
    made = plan_for(ServedCertificate(FINGERPRINT), ServedCertificate(FINGERPRINT))
    assert made.verdict.done
    assert refreshed_pods(made) == []
    assert made.status["certificate"] == FINGERPRINT


def test_server_with_an_old_certificate_is_refreshed_and_stays_ready() -> None:
    made = plan_for(ServedCertificate(FINGERPRINT), ServedCertificate("old", age=3600))
    assert refreshed_pods(made) == ["cache-1"]
    assert (made.verdict.reason, made.verdict.ready) == ("RefreshingCertificates", True)
    assert made.verdict.message == (
        "1 of 2 servers serve the certificate in the Secret. The kubelet updates the files within two minutes; then "
        "the servers reload them."
    )
    assert (made.status["phase"], made.status["certificate"]) == ("Running", "former")
    assert made.requeue == REFRESH_INTERVAL_SECONDS
    assert "PRIVATE" not in str(made.actions)


def test_refreshed_server_is_not_refreshed_again_within_the_interval() -> None:
    made = plan_for(ServedCertificate("old", age=REFRESH_INTERVAL_SECONDS - 1))
    assert refreshed_pods(made) == []
    assert made.requeue == REFRESH_INTERVAL_SECONDS


def test_server_that_cannot_be_inspected_is_a_warning() -> None:
    made = plan_for(ServedCertificate(FINGERPRINT), ServedCertificate(error="10.0.0.1:11211 is unreachable: no route."))
    assert refreshed_pods(made) == []
    assert made.verdict.warning
    assert "cache-1 cannot be inspected: 10.0.0.1:11211 is unreachable: no route." in made.verdict.message
    assert made.status["certificate"] == "former"


def test_certificate_is_not_recorded_while_a_server_is_not_ready() -> None:
    """The missing server may start with the old files, so it must be inspected."""
    observed = Observed(
        workload_of("Deployment", pod(0), pod(1, ready=False)),
        secrets=CURRENT,
        served_certificates={"cache-0": ServedCertificate(FINGERPRINT)},
    )
    parsed = resource(size=2, phase="Running", observed=1, status={"certificate": "former"}, **TLS)
    assert plan(parsed, observed).status["certificate"] == "former"


def test_status_has_no_certificate_without_tls() -> None:
    observed = Observed(workload_of("Deployment", pod(0)))
    assert "certificate" not in plan(resource(size=1, status={"certificate": "former"}), observed).status


@pytest.mark.parametrize("reason", ["SecretMissing", "SecretInvalid"])
def test_missing_or_invalid_secrets_block_changes_and_are_read_again(reason: str) -> None:
    observed = Observed(
        workload_of("Deployment", pod(0)), secrets=Secrets(SecretProblem(Reason(reason), "spec.auth: it is so."))
    )
    made = plan(resource(size=1, phase="Running", observed=1, **AUTH), observed)
    assert made.actions == ()
    assert (made.verdict.progress, made.verdict.reason) == (Progress.WAITING, reason)
    assert made.verdict.message == "spec.auth: it is so. Nothing was changed."
    assert made.requeue == SECRETS_RETRY_SECONDS
    assert made.status["servers"] == ["10.0.0.0:11211"]


class World:
    """Operator with fake servers."""

    def __init__(self, *flags: str, agent_image: str = "operator:1", like: World | None = None) -> None:
        self.fleet: Fleet = Fleet()
        options = parse_options("memcached-operator", "memcached", [f"--agent-image={agent_image}", *flags], {})
        workloads = like.harness.workloads if like else None
        self.harness: Harness = Harness(controller(options, self.fleet.connect, self.fleet.attest), workloads=workloads)
        self.fleet.volumes = partial(mounted_secrets, self.harness.server)

    async def settled(self, **spec: Any) -> Obj:
        self.harness.apply("cache", **({"size": 2} | UNPAUSED | spec))
        await self.harness.settle()
        return self.harness.resource("cache")

    async def reconcile_again(self) -> Obj:
        """Reconcile every resource, like a resync or a requeue."""
        for key in self.harness.cache.keys(self.harness.controller.kind):
            self.harness.queue.add(key)
        await self.harness.settle()
        return self.harness.resource("cache")

    def apply_secret(self, found: Obj) -> None:
        """Create or change a Secret."""
        self.harness.user_client.apply(SECRET, found, force=True)

    @property
    def uids(self) -> set[str]:
        return {obj["metadata"]["uid"] for _, obj in self.harness.server.objects(POD)}

    @property
    def template(self) -> Obj:
        found: Obj = workload_in(self.harness.server)["spec"]["template"]
        return found


@pytest.fixture
async def world() -> World:
    return World()


def reason(obj: Obj) -> str:
    return str(obj["status"]["conditions"][0]["reason"])


async def test_servers_are_created_when_the_secret_appears(world: World) -> None:
    waiting = await world.settled(**AUTH)
    assert (reason(waiting), waiting["status"]["phase"]) == ("SecretMissing", "Creating")
    assert not world.uids
    world.apply_secret(secret("users", users="app:secret\n"))
    made = await world.reconcile_again()
    assert reason(made) == "Ready"
    assert SECRETS not in world.template["metadata"].get("annotations", {}), "no digest of a password is in a pod"


async def test_deleted_or_invalid_secret_does_not_change_the_servers(world: World) -> None:
    world.apply_secret(secret("users", users="app:secret\n"))
    await world.settled(**AUTH)
    before, template = world.uids, world.template
    world.apply_secret(secret("users", users="app:secret"))
    assert reason(await world.reconcile_again()) == "SecretInvalid"
    world.harness.user_client.delete(SECRET, NAMESPACE, "users")
    lost = await world.reconcile_again()
    assert reason(lost) == "SecretMissing"
    assert len(lost["status"]["servers"]) == 2
    assert (world.uids, world.template) == (before, template)


async def test_changed_users_replace_no_server(world: World) -> None:
    world.fleet.users = {("app", "secret")}
    world.apply_secret(secret("users", users="app:secret\n"))
    made = await world.settled(**AUTH)
    first, template = world.uids, world.template
    assert "--reload-users" in template["spec"]["containers"][1]["args"]
    world.apply_secret(secret("users", users="app:secret\nops:other\n"))
    waiting = await world.reconcile_again()
    assert (reason(waiting), waiting["status"]["phase"]) == ("ReloadingUsers", "Running")
    assert waiting["status"]["conditions"][0]["status"] == "True", "clients are not affected"
    assert waiting["status"]["users"] == made["status"]["users"]
    assert waiting["status"]["observedSecrets"] == made["status"]["observedSecrets"]
    world.fleet.users.add(("ops", "other"))  # the kubelet has updated the file, and the sidecar has sent the signal
    done = await world.reconcile_again()
    assert reason(done) == "Ready"
    assert done["status"]["users"] != made["status"]["users"]
    version = world.harness.user_client.get(SECRET, NAMESPACE, "users")["metadata"]["resourceVersion"]
    assert done["status"]["observedSecrets"] == [{"name": "users", "resourceVersion": version}]
    assert (world.uids, world.template) == (first, template)


@pytest.mark.parametrize("given", [AUTH, MUTUAL], ids=["users", "CA"])
async def test_recreated_secret_with_the_same_content_replaces_no_server(world: World, given: Obj) -> None:
    world.apply_secret(secret("users", users="app:secret\n"))
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**given)
    first = world.uids
    for name in ("users", "cache-tls"):
        world.harness.user_client.delete(SECRET, NAMESPACE, name)
    world.apply_secret(secret("users", users="app:secret\n"))
    world.apply_secret(tls_secret(certificate()))
    assert reason(await world.reconcile_again()) == "Ready"
    assert world.uids == first


async def test_certificate_that_has_ended_is_not_copied_to_the_servers(world: World) -> None:
    valid = tls_secret(certificate())
    world.apply_secret(valid)
    await world.settled(**TLS)
    world.apply_secret(tls_secret(certificate("late", ended=True)))
    made = await world.reconcile_again()
    assert reason(made) == "CertificateExpired"
    assert "Servers keep the former certificate" in made["status"]["conditions"][0]["message"]
    assert world.fleet.refreshed == []
    copy = world.harness.user_client.get(SECRET, NAMESPACE, "cache-server-mounted")
    assert copy["data"] == valid["data"], "that of a server that starts again, too"
    available = next(each for each in made["status"]["conditions"] if each["type"] == "Available")
    assert available["status"] == "True"
    first = world.uids
    changed = await world.settled(**TLS, memoryMB=128)
    assert not world.uids & first, "the spec is applied: new servers mount the former certificate"
    assert reason(changed) == "CertificateExpired"


async def test_servers_of_an_earlier_release_mount_the_original_until_they_are_replaced() -> None:
    old = World("--no-write-secrets")
    old.apply_secret(tls_secret(certificate()))
    await old.settled(**TLS, workload="Deployment")
    first = old.uids
    new = World(like=old)
    new.fleet.served = old.fleet.served
    assert reason(await new.reconcile_again()) == "SecretsNotCopied"
    assert (new.uids, mounted_certificate(new.template)) == (first, "cache-tls")
    new.fleet.files = certificate("renewed")
    new.apply_secret(tls_secret(certificate("renewed")))
    assert reason(await new.reconcile_again()) == "SecretsNotCopied"
    assert new.uids == first
    assert reason(await new.settled(**TLS, memoryMB=128)) == "Ready"
    assert mounted_certificate(new.template) == "cache-server-mounted"


async def test_servers_that_mount_the_original_get_no_command_to_load_a_certificate_that_has_ended() -> None:
    world = World("--no-write-secrets")
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**TLS)
    world.apply_secret(tls_secret(certificate("late", ended=True)))
    made = await world.reconcile_again()
    assert reason(made) == "CertificateExpired"
    assert world.fleet.refreshed == []
    available = next(each for each in made["status"]["conditions"] if each["type"] == "Available")
    assert available["status"] == "True", "servers keep the former one"
    world.fleet.served = dict.fromkeys(world.fleet.served, certificate("late", ended=True))  # they restarted
    made = await world.reconcile_again()
    available = next(each for each in made["status"]["conditions"] if each["type"] == "Available")
    assert (available["status"], available["reason"]) == ("False", "CertificateExpired")


async def test_server_that_cannot_be_inspected_after_a_change_of_users_is_a_warning(world: World) -> None:
    world.apply_secret(secret("users", users="app:secret\n"))
    await world.settled(**AUTH)
    world.fleet.unreachable.add(world.harness.server.objects(POD)[0][1]["status"]["podIP"])
    world.apply_secret(secret("users", users="app:other\n"))
    message = (await world.reconcile_again())["status"]["conditions"][0]["message"]
    assert "servers have loaded the users in the Secret." in message
    assert "is unreachable: no route" in message


async def test_servers_without_a_sidecar_are_replaced_only_when_their_users_change() -> None:
    """Such servers read the file only at startup."""
    old = World(agent_image="")
    old.apply_secret(secret("users", users="app:secret\n"))
    await old.settled(**AUTH, workload="Deployment")
    first = old.uids
    new = World(like=old)
    assert reason(await new.reconcile_again()) == "Ready"
    assert new.uids == first, "the upgrade replaces no server"
    new.apply_secret(secret("users", users="app:other\n"))
    assert reason(await new.reconcile_again()) == "Ready"
    assert not new.uids & first, "once"
    second = new.uids
    new.apply_secret(secret("users", users="app:third\n"))
    assert reason(await new.reconcile_again()) == "Ready"
    assert new.uids == second


async def test_image_of_the_sidecar_that_is_removed_from_the_spec_is_replaced(world: World) -> None:
    """Only the image of another release of the operator stays until the next change."""
    await world.settled(metrics={"image": "exporter:9"})
    assert [each["image"] for each in world.template["spec"]["containers"]][1:] == ["exporter:9"]
    await world.settled(metrics={})
    assert [each["image"] for each in world.template["spec"]["containers"]][1:] == ["operator:1"]
    kept = World(agent_image="operator:2", like=world)
    first = kept.uids
    await kept.reconcile_again()
    assert kept.uids == first
    assert [each["image"] for each in kept.template["spec"]["containers"]][1:] == ["operator:1"]


SECURE: Obj = AUTH | TLS


def without_ca(pair: Pair) -> Obj:
    found = tls_secret(pair)
    del found["data"]["ca.crt"]
    return found


async def test_password_is_sent_only_to_a_server_with_a_verified_certificate(world: World) -> None:
    world.apply_secret(secret("users", users="app:secret\n"))
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**SECURE)
    impostor = world.harness.server.objects(POD)[0][1]["status"]["podIP"]
    world.fleet.impostors[impostor] = certificate("cache", by="other-ca")
    world.fleet.passwords.clear()
    world.fleet.files = certificate("renewed")
    world.apply_secret(tls_secret(certificate("renewed")))
    message = (await world.reconcile_again())["status"]["conditions"][0]["message"]
    assert impostor not in world.fleet.passwords
    assert "cannot be inspected" in message
    assert world.fleet.passwords, "the other server still serves the recorded certificate"


@pytest.mark.parametrize("lost", [("cache-tls",), ("cache-tls", "users")], ids=["certificate", "both Secrets"])
async def test_no_password_is_sent_while_the_certificate_of_the_servers_is_unknown(
    world: World, lost: tuple[str, ...]
) -> None:
    world.apply_secret(secret("users", users="app:secret\n"))
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**SECURE)
    world.apply_secret(secret("users", users="app:other\n"))
    for name in lost:
        world.harness.user_client.delete(SECRET, NAMESPACE, name)
    world.fleet.passwords.clear()
    assert reason(await world.reconcile_again()) == "SecretMissing"
    assert world.fleet.passwords == []


@pytest.mark.parametrize("given", [tls_secret, without_ca])
async def test_server_with_the_recorded_certificate_gets_the_password(world: World, given: Any) -> None:
    world.apply_secret(secret("users", users="app:secret\n"))
    world.apply_secret(given(certificate()))
    await world.settled(**SECURE)
    world.fleet.files = certificate("renewed")
    world.apply_secret(given(certificate("renewed")))
    assert reason(await world.reconcile_again()) == "Ready"
    assert len(world.fleet.refreshed) == 2


async def test_certificate_of_the_same_ca_is_trusted_if_it_is_not_recorded(world: World) -> None:
    """The Secret changed twice before all servers had loaded the first renewal."""
    world.apply_secret(secret("users", users="app:secret\n"))
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**SECURE)
    address = world.harness.server.objects(POD)[0][1]["status"]["podIP"]
    world.fleet.served[address] = certificate("between", ended=True)
    world.fleet.files = certificate("renewed")
    world.apply_secret(tls_secret(certificate("renewed")))
    assert reason(await world.reconcile_again()) == "Ready"
    assert address in world.fleet.refreshed


async def test_certificate_of_the_same_ca_without_a_name_of_the_resource_gets_no_password(world: World) -> None:
    """A CA may serve many tenants, and the address of a pod may be given to a server of another one."""
    world.apply_secret(secret("users", users="app:secret\n"))
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**SECURE)
    address = world.harness.server.objects(POD)[0][1]["status"]["podIP"]
    for hosts in (("other.default.svc",), ("cache.other.svc",), ("cache",), ("*.svc",)):
        world.fleet.passwords.clear()
        world.fleet.impostors[address] = certificate("impostor", hosts=hosts)
        world.fleet.files = certificate(f"renewed for {hosts}")
        world.apply_secret(tls_secret(world.fleet.files))
        made = await world.reconcile_again()
        assert address not in world.fleet.passwords
        assert "has no DNS name cache.default.svc." in made["status"]["conditions"][0]["message"]


async def test_new_memcached_whose_certificate_has_no_name_of_it_is_refused(world: World) -> None:
    world.apply_secret(secret("users", users="app:secret\n"))
    world.apply_secret(tls_secret(certificate(hosts=("other.default.svc",))))
    made = await world.settled(**SECURE)
    assert reason(made) == "SecretInvalid"
    assert "Secret cache-tls: tls.crt has no DNS name cache.default.svc, " in made["status"]["conditions"][0]["message"]
    assert world.fleet.connections == 0
    for name in ("cache.default.svc.cluster.local", "*.default.svc", "*.cache.default.svc", "CACHE.default"):
        world.apply_secret(tls_secret(certificate(hosts=(name,))))
        assert reason(await world.settled(**SECURE)) != "SecretInvalid", name


async def test_running_servers_without_a_name_in_their_certificate_are_kept_and_can_get_one(world: World) -> None:
    nameless = tls_secret(certificate(hosts=("other.default.svc",)))
    world.apply_secret(nameless)
    world.fleet.files = certificate(hosts=("other.default.svc",))
    assert reason(await world.settled(**TLS)) == "Ready", "without passwords, names do not matter"
    world.apply_secret(secret("users", users="app:secret\n"))
    noted = await world.settled(**SECURE)
    assert (reason(noted), noted["status"]["conditions"][0]["status"]) == ("CertificateWithoutName", "True")
    assert "has no DNS name cache.default.svc" in noted["status"]["conditions"][0]["message"]
    world.fleet.files = certificate("renewed")
    world.apply_secret(tls_secret(certificate("renewed")))
    assert reason(await world.reconcile_again()) == "Ready", "they are recognized by their former certificate"


async def test_running_servers_load_a_renewed_certificate(world: World) -> None:
    world.apply_secret(tls_secret(certificate()))
    made = await world.settled(**MUTUAL)
    assert made["status"]["certificate"] == fingerprint(der(certificate()))
    first, template = world.uids, world.template
    renewed = certificate("renewed")
    world.apply_secret(tls_secret(renewed))
    waiting = await world.reconcile_again()  # the kubelet has not updated the files yet
    assert reason(waiting) == "RefreshingCertificates"
    assert waiting["status"]["conditions"][0]["status"] == "True", "clients are not affected"
    assert len(world.fleet.refreshed) == 2
    world.fleet.files = renewed
    world.fleet.ages.clear()
    made = await world.reconcile_again()
    assert (reason(made), made["status"]["certificate"]) == ("Ready", fingerprint(der(renewed)))
    assert len(world.fleet.refreshed) == 4
    assert (world.uids, world.template) == (first, template)


async def test_servers_are_not_inspected_again_after_a_complete_refresh(world: World) -> None:
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**TLS)
    queries = world.fleet.queries
    world.harness.server.log.reset()
    await world.reconcile_again()
    assert world.fleet.queries == queries
    assert not world.harness.server.log.writes()
    assert sum(world.harness.server.log.reads.values()) == 3, "the certificate, its copy and the connection, by name"


async def test_restarted_operator_continues_a_refresh(world: World) -> None:
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**TLS)
    world.apply_secret(tls_secret(certificate("renewed")))
    await world.reconcile_again()
    world.fleet.files = certificate("renewed")
    world.fleet.ages.clear()
    world.harness = world.harness.restart()
    await world.harness.settle()
    assert world.harness.resource("cache")["status"]["certificate"] == fingerprint(der(certificate("renewed")))


async def test_unreachable_server_is_inspected_until_it_responds(world: World) -> None:
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**TLS)
    address = world.harness.server.objects(POD)[0][1]["status"]["podIP"]
    world.fleet.unreachable.add(address)
    world.fleet.files = certificate("renewed")
    world.apply_secret(tls_secret(certificate("renewed")))
    unreachable = await world.reconcile_again()
    assert reason(unreachable) == "RefreshingCertificates"
    assert "is unreachable" in unreachable["status"]["conditions"][0]["message"]
    world.fleet.unreachable.clear()
    assert reason(await world.reconcile_again()) == "Ready"


async def test_new_ca_replaces_the_servers(world: World) -> None:
    """Only a restart removes trust: after refresh_certs, memcached still trusts the former CA."""
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**MUTUAL)
    first = world.uids
    other: Pair = certificate("other", by="other-ca")
    world.fleet.files = other
    world.apply_secret(tls_secret(other, by="other-ca"))
    assert reason(await world.reconcile_again()) == "Ready"
    assert not world.uids & first


async def test_mismatched_certificate_and_key_are_never_passed_to_servers(world: World) -> None:
    """A server that loads such a pair rejects every new client."""
    world.apply_secret(tls_secret(certificate()))
    await world.settled(**TLS)
    world.apply_secret(tls_secret(Pair(certificate("renewed").certificate, certificate().key)))
    assert reason(await world.reconcile_again()) == "SecretInvalid"
    assert world.fleet.refreshed == []


async def test_server_without_the_port_of_the_template_is_unreachable() -> None:
    """A user edited the workload: the operator restores it, which needs a plan."""
    access = Access(Fleet().connect, {}, Secrets())
    with pytest.raises(Unreachable, match=r"the address 10\.0\.0\.1 has no port named memcached"):
        async with access.connected("10.0.0.1", None):
            pass
