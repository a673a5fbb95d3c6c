"""Users that running servers have loaded: a change is complete only when every server proves that it is in effect."""

from __future__ import annotations

from functools import partial
from typing import Any

from operators.memcached.client.attestation import Attestation
from operators.memcached.operator import controller
from shared.cli.options import parse_options
from shared.kubernetes.kinds import POD, SECRET, STATEFUL_SET, Obj
from shared.kubernetes.managed_fields import applied
from shared.kubernetes.secrets import content_of
from simulator.harness import NAMESPACE, Harness
from simulator.memcached.fake_servers import Fleet, mounted_secrets, secret
from tests.memcached.unit.world import UNPAUSED, workload_in

BOTH, ONE = "app:secret\nold:other\n", "app:secret\n"


class World:
    """A Memcached with two servers and a users file."""

    def __init__(self, *flags: str, like: World | None = None) -> None:
        self.fleet = Fleet()
        options = parse_options("memcached-operator", "memcached", ["--agent-image=operator:1", *flags], {})
        workloads = like.harness.workloads if like else None
        self.harness: Harness = Harness(controller(options, self.fleet.connect, self.attest), workloads=workloads)
        self.fleet.volumes = partial(mounted_secrets, self.harness.server)
        self.attested: Attestation | None = None

    async def attest(self, host: str, port: int, nonce: str) -> Attestation:
        return self.attested or await self.fleet.attest(host, port, nonce)

    async def created(self) -> Obj:
        self.write(BOTH)
        self.harness.apply("cache", size=2, auth={"secretName": "users"}, **UNPAUSED)
        await self.harness.settle()
        return self.resource

    def write(self, users: str) -> None:
        self.harness.user_client.apply(SECRET, secret("users", users=users), force=True)

    async def resync(self) -> Obj:
        for key in self.harness.cache.keys(self.harness.controller.kind):
            self.harness.queue.add(key)
        await self.harness.settle()
        return self.resource

    async def remove_user(self) -> Obj:
        """Remove a user; the servers have not loaded the file yet."""
        self.fleet.loaded_users = dict.fromkeys(self.addresses, BOTH)
        self.write(ONE)
        return await self.resync()

    @property
    def resource(self) -> Obj:
        return self.harness.resource("cache")

    @property
    def addresses(self) -> list[str]:
        return [pod["status"]["podIP"] for _, pod in self.harness.server.objects(POD)]

    @property
    def template(self) -> Any:
        return workload_in(self.harness.server)["spec"]["template"]


def reason(resource: Obj) -> str:
    return str(resource["status"]["conditions"][0]["reason"])


def message(resource: Obj) -> str:
    return str(resource["status"]["conditions"][0]["message"])


async def test_removed_user_is_reported_until_every_server_has_loaded_the_file_without_it() -> None:
    """Servers that accept all users of the Secret may accept the removed one, too (K4)."""
    world = World()
    before = await world.created()
    assert reason(before) == "Ready"
    waiting = await world.remove_user()
    assert reason(waiting) == "ReloadingUsers"
    assert waiting["status"]["users"] == before["status"]["users"]
    first, second = world.addresses
    del world.fleet.loaded_users[first]
    assert message(await world.resync()).startswith("1 of 2 servers have loaded the users in the Secret.")
    del world.fleet.loaded_users[second]
    done = await world.resync()
    assert reason(done) == "Ready"
    assert done["status"]["users"] != before["status"]["users"]


async def test_users_that_changed_while_the_first_servers_started_are_not_recorded() -> None:
    world = World()
    await world.created()
    world.fleet.loaded_users = dict.fromkeys(world.addresses, BOTH)
    world.harness.user_client.merge(
        world.harness.controller.kind, NAMESPACE, "cache", {"status": {"users": None}}, subresource="status"
    )
    world.write(ONE)
    started = await world.resync()
    assert reason(started) == "ReloadingUsers"
    assert "users" not in started["status"]


async def test_program_without_the_key_is_not_believed() -> None:
    world = World()
    await world.created()
    world.attested = Attestation(True, "1.6.45", "", "0" * 64)
    assert reason(await world.remove_user()) == "ReloadingUsers"


async def test_server_that_hangs_is_named_while_its_users_are_unknown() -> None:
    world = World()
    await world.created()
    world.fleet.hung = {world.addresses[0]}
    found = await world.remove_user()
    assert "cannot be inspected: no response to 'stats' within 5 s" in message(found)


async def test_without_a_key_removed_users_are_unknown() -> None:
    world = World("--no-write-secrets")
    await world.created()
    assert not any("attestation" in str(each) for each in world.template["spec"]["volumes"])
    world.fleet.users = {("app", "secret"), ("old", "other")}
    world.write(ONE)
    found = await world.resync()
    assert reason(found) == "UsersNotProven"
    assert "set the chart value rbac.writeSecrets" in message(found)
    assert found["status"]["conditions"][0]["status"] == "True"


async def test_key_is_random_and_only_the_sidecar_has_it() -> None:
    world = World()
    await world.created()
    (found,) = [
        obj for _, obj in world.harness.server.objects(SECRET) if obj["metadata"]["name"] == "cache-attestation"
    ]
    key = content_of(found)["key"]
    assert len(key) >= 32
    server, sidecar = world.template["spec"]["containers"]
    assert [mount["name"] for mount in server["volumeMounts"]] == ["auth"]
    assert [mount["name"] for mount in sidecar["volumeMounts"]] == ["auth", "attestation"]
    await world.resync()
    (same,) = [obj for _, obj in world.harness.server.objects(SECRET) if obj["metadata"]["name"] == "cache-attestation"]
    assert content_of(same)["key"] == key


async def test_servers_whose_sidecar_attests_nothing_are_not_replaced_and_their_removed_users_are_unknown() -> None:
    """An earlier build of the operator has made them; they adopt the sidecar when they are replaced."""
    world = World()
    await world.created()
    former = applied(workload_in(world.harness.server), "memcached-operator")
    assert former is not None
    pod = former["spec"]["template"]["spec"]
    server, sidecar = pod["containers"]
    probe: Obj = {"tcpSocket": {"port": "memcached"}}
    server["readinessProbe"] = {**probe, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 3}
    server["livenessProbe"] = {**probe, "periodSeconds": 20, "timeoutSeconds": 5, "failureThreshold": 6}
    sidecar["args"] = ["exporter", "--address=127.0.0.1:11211", "--listen=0", *sidecar["args"][3:5]]
    del sidecar["ports"]
    sidecar["volumeMounts"], pod["volumes"] = sidecar["volumeMounts"][:1], pod["volumes"][:1]
    world.harness.server.actor("memcached-operator").apply(STATEFUL_SET, former, force=True)
    world.harness.workloads.settle()
    pods = world.addresses
    assert reason(await world.resync()) == "Ready"
    assert world.addresses == pods
    found = await world.remove_user()
    assert reason(found) == "UsersNotProven"
    assert "An annotation in spec.annotations replaces the servers." in message(found)
    assert world.addresses == pods
    world.fleet.loaded_users.clear()
    world.harness.apply("cache", size=2, auth={"secretName": "users"}, memoryMB=128, **UNPAUSED)
    await world.harness.settle()
    assert reason(await world.resync()) == "Ready"


async def test_sidecar_without_a_key_proves_nothing_after_the_operator_may_write_one() -> None:
    """Servers keep their sidecars: with the advice of UsersNotProven followed, they still have no key."""
    before = World("--no-write-secrets")
    await before.created()
    world = World(like=before)
    world.write(ONE)
    found = await world.resync()
    assert reason(found) == "UsersNotProven"
    assert "spec.annotations" in message(found)
    secrets = {obj["metadata"]["name"]: obj for _, obj in world.harness.server.objects(SECRET)}
    assert content_of(secrets["cache-connection"])["password"] == "secret"
