"""The generated users file (spec.auth without a Secret), by the whole operator on the in-memory API server."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import Any

from operators.memcached.operator import controller
from operators.memcached.steps.generated_users import OVERLAP
from shared.cli.options import parse_options
from shared.kubernetes.kinds import POD, SECRET, STATEFUL_SET, Obj
from shared.kubernetes.secrets import content_of
from shared.steps.passwords import ROTATE
from simulator.harness import NAMESPACE, Harness
from simulator.memcached.fake_servers import Fleet, mounted_secrets, secret
from tests.memcached.unit.world import NOW, workload_in

NAME = "cache-auth"


class Lab:
    """A Memcached with a generated password, whose servers load the file of the Secret when `loads` is called."""

    def __init__(self, *flags: str) -> None:
        self.now, self.fleet = NOW, Fleet()
        agent = "--agent-image=example.com/operator:1"
        options = parse_options("memcached-operator", "memcached", [agent, *flags], {})
        self.harness = Harness(controller(options, self.fleet.connect, self.fleet.attest), clock=lambda: self.now)
        self.fleet.volumes = partial(mounted_secrets, self.harness.server)

    async def apply(self, **spec: Any) -> Obj:
        self.harness.apply("cache", **({"size": 2, "auth": {}} | spec))
        await self.harness.settle()
        return self.harness.resource("cache")

    async def resync(self) -> Obj:
        for key in self.harness.cache.keys(self.harness.controller.kind):
            self.harness.queue.add(key)
        await self.harness.settle()
        return self.harness.resource("cache")

    def content(self, name: str = NAME) -> Any:
        found = [obj for _, obj in self.harness.server.objects(SECRET) if obj["metadata"]["name"] == name]
        return content_of(found[0] if found else None)

    @property
    def lines(self) -> list[str]:
        return str(self.content().get("users", "")).splitlines()

    @property
    def connected(self) -> str:
        """Line of the user in the Secret for clients."""
        content = self.content("cache-connection")
        return f"{content['username']}:{content['password']}"

    async def loads(self) -> Obj:
        """Let the servers load the file."""
        self.fleet.users = {tuple(line.split(":")) for line in self.lines}  # type: ignore[misc]
        return await self.resync()

    async def rotate(self, value: str) -> Obj:
        patch = {"metadata": {"annotations": {ROTATE: value}}}
        self.harness.user_client.merge(self.harness.controller.kind, NAMESPACE, "cache", patch)
        await self.harness.settle()
        return self.harness.resource("cache")


def reason(resource: Obj) -> str:
    return str(resource["status"]["conditions"][0]["reason"])


async def test_password_is_generated_once() -> None:
    lab = Lab()
    resource = await lab.apply()
    assert reason(resource) == "Ready"
    (line,) = lab.lines
    assert re.fullmatch(r"memcached:[0-9a-f]{64}", line)
    assert lab.connected == line
    volume, _ = workload_in(lab.harness.server)["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == NAME
    await lab.apply(size=3)
    await lab.resync()
    assert lab.lines == [line]
    assert line.partition(":")[2] not in str([lab.harness.resource("cache"), await lab.harness.events()])


async def test_deleted_secret_is_restored_with_the_password_of_the_connection() -> None:
    lab = Lab()
    await lab.apply()
    before = lab.lines
    lab.harness.user_client.delete(SECRET, NAMESPACE, NAME)
    await lab.resync()
    assert lab.lines == before


async def test_rotation_keeps_the_former_password_until_clients_had_time() -> None:
    lab = Lab()
    await lab.apply()
    (old,) = lab.lines
    pods = sorted(pod["metadata"]["uid"] for _, pod in lab.harness.server.objects(POD))
    await lab.loads()
    await lab.rotate("1")
    new, kept = lab.lines
    assert (kept, lab.connected) == (old, old), "servers do not accept the new password yet"
    lab.now += 2 * OVERLAP
    await lab.resync()
    assert lab.lines == [new, old], "servers do not accept the new password yet"
    await lab.loads()
    assert lab.connected == new
    lab.now += timedelta(seconds=1)
    await lab.resync()
    assert lab.lines == [new]
    await lab.loads()
    await lab.rotate("1")
    assert lab.lines == [new], "a value requests one rotation"
    assert sorted(pod["metadata"]["uid"] for _, pod in lab.harness.server.objects(POD)) == pods


async def test_password_of_a_users_secret_is_kept_when_the_spec_stops_naming_it() -> None:
    lab = Lab()
    lab.harness.user_client.apply(SECRET, secret("users", users="app:one\n"), force=True)
    await lab.apply(auth={"secretName": "users"})
    await lab.apply(auth={})
    assert lab.lines == ["app:one"]


async def test_secret_of_a_user_is_neither_used_nor_changed() -> None:
    lab = Lab()
    before = lab.harness.user_client.apply(SECRET, secret(NAME, users="mine:one\n"), force=True)
    resource = await lab.apply()
    assert reason(resource) == "ForeignObject"
    assert "Secret cache-auth exists" in resource["status"]["conditions"][0]["message"]
    assert lab.harness.user_client.get(SECRET, NAMESPACE, NAME) == before
    assert not lab.harness.server.objects(STATEFUL_SET)


async def test_operator_without_the_right_refuses_with_advice() -> None:
    lab = Lab("--no-write-secrets")
    resource = await lab.apply()
    assert reason(resource) == "PasswordNotGenerated"
    assert "rbac.writeSecrets" in resource["status"]["conditions"][0]["message"]
    assert not lab.harness.server.objects(STATEFUL_SET)
