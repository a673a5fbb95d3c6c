"""The operators use the content of their own Secrets only if they made them, and keep the owners of these Secrets.

Another client that may only create Secrets can choose labels, owner references and field managers, and can know the
UID of the resource.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import NamedTuple

import pytest

from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, POD, SECRET, STATEFUL_SET, Obj
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY, NAME, PART_OF
from shared.kubernetes.secret_provenance import ADOPT, RECORD
from shared.kubernetes.secrets import MAX_KEYS, MAX_MADE_CHARACTERS
from shared.status import conditions
from shared.steps.passwords import ROTATE
from simulator.harness import NAMESPACE
from tests.harness import Actor
from tests.harness.messages import commands
from tests.harness.scenario import ScenarioStep, Stage, Subject, apply, edit
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.redis import scenarios as redis

TOKEN = "chosen-by-another-client"


class Operated(NamedTuple):
    """An operator, and a spec with a generated password and certificates of its own.

    Attributes:
        password: key of the generated password in NAME-auth.
        plain: the same spec without either.
    """

    subject: Subject
    password: str
    plain: Callable[..., ScenarioStep]
    secure: Obj


SECURE: Obj = {"auth": {}, "tls": {"mode": "self"}}
OPERATORS = {
    "memcached": Operated(memcached.MEMCACHED, "users", lambda **spec: apply(size=1, **spec), SECURE),
    "etcd": Operated(etcd.ETCD, "password", lambda **spec: etcd.cluster(1, **spec), SECURE),
    "redis": Operated(redis.REDIS, "password", lambda **spec: redis.cluster(3, replicasPerMaster=0, **spec), SECURE),
}


@pytest.fixture(params=list(OPERATORS.values()), ids=list(OPERATORS))
def operated(request: pytest.FixtureRequest) -> Operated:
    found: Operated = request.param
    return found


def resource_of(world: World) -> Obj:
    (found,) = (obj for _, obj in world.server.objects(world.subject.controller(world.database).kind))
    return found


def secrets_of(world: World) -> dict[str, Obj]:
    return {obj["metadata"]["name"]: obj for _, obj in world.server.objects(SECRET)}


def content(world: World) -> str:
    """Return the decoded content of all Secrets."""
    data = [text for secret in secrets_of(world).values() for text in (secret.get("data") or {}).values()]
    return "\n".join(base64.b64decode(text).decode() for text in data)


async def play(world: World, *steps: ScenarioStep) -> None:
    await ScenarioRun(world).run_steps(steps)


async def resynced(world: World) -> None:
    """Run a new process of the operator until everything is settled, over a resync too."""
    run = ScenarioRun(world)
    await run.run_steps(())
    run.resync()
    await run.settle()


def forged(
    operated: Operated, name: str, *, of: str = "cache", owner: Obj | None = None, replaces: int = 0
) -> ScenarioStep:
    """Create a Secret as the operator would, with other content.

    Args:
        replaces: size of one more value of a Secret that replaces the present one; 0 if there is none.
    """

    def act(stage: Stage) -> None:
        if replaces:
            stage.user_client.delete(SECRET, stage.namespace, name)
        controller = operated.subject.controller(stage.database)
        application = operated.subject.name
        labels = {NAME: application, INSTANCE: of, MANAGED_BY: controller.operator}
        metadata: Obj = {"name": name, "namespace": stage.namespace, "labels": labels}
        if owner is not None:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": controller.kind.api_version,
                    "kind": controller.kind.name,
                    "name": of,
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ]
        encoded = base64.b64encode(f"user:{TOKEN}\n".encode()).decode()
        keys = (operated.password, "username", "password", "ca.crt", "ca.key", "tls.crt", "tls.key")
        kind = f"servicebinding.io/{application}" if name.endswith("-connection") else "Opaque"
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}
        data = dict.fromkeys(keys, encoded)
        if replaces:
            data["other"] = base64.b64encode(name.encode().ljust(replaces, b"x")).decode()
        stage.user_client.create(SECRET, body | {"data": data})

    return ScenarioStep(f"another client creates {name}", act)


def user(world: World) -> Actor:
    return world.server.actor("user")


def name_of(world: World) -> str:
    return str(resource_of(world)["metadata"]["name"])


async def test_seeded_secrets_are_refused_until_they_are_deleted_or_adopted(operated: Operated) -> None:
    world = World(operated.subject)
    seeds = [forged(operated, f"cache-{suffix}", of="cache") for suffix in ("auth", "ca", "connection")]
    await play(world, *seeds, operated.plain(**operated.secure))
    resource = resource_of(world)
    assert resource["metadata"]["name"] == "cache"
    stalled = condition(resource, conditions.STALLED)
    assert (stalled["status"], stalled["reason"]) == ("True", "ForeignObject")
    uids = {name: secret["metadata"]["uid"] for name, secret in secrets_of(world).items()}
    for name in ("cache-auth", "cache-ca"):
        assert name in stalled["message"]
        assert uids[name] in stalled["message"]
    assert f"{ADOPT}={uids['cache-auth']},{uids['cache-ca']}" in stalled["message"]
    assert not world.server.objects(POD), "nothing runs with that password or authority"
    for name in ("cache-auth", "cache-ca"):
        user(world).delete(SECRET, NAMESPACE, name)
    await resynced(world)
    assert condition(resource_of(world), conditions.READY)["status"] == "True"
    assert TOKEN not in content(world), "also the connection Secret has only the operator's content"


async def test_content_of_unproven_secrets_counts_for_no_proven_one(operated: Operated) -> None:
    """The operator would not have read the proven one, and would have repaired nothing."""
    world = World(operated.subject)
    await play(world, operated.plain(**operated.secure))
    names, kept = {"cache-ca", "cache-attestation", "cache-nodes-tls", "cache-peer-tls"}, "cache-server-tls"
    others = sorted(names & resource_of(world)["status"][RECORD].keys())
    size = (MAX_MADE_CHARACTERS - 3_100) * 3 // 4 // len(others)  # what is left is less than the proven one has
    steps = [forged(operated, name, replaces=size) for name in others]
    await play(
        world, ScenarioStep("another client replaces Secrets", lambda stage: [each.act(stage) for each in steps])
    )
    await resynced(world)
    stalled = condition(resource_of(world), conditions.STALLED)
    assert stalled["reason"] == "ForeignObject"
    assert kept not in stalled["message"]
    assert any(name in stalled["message"] for name in others)
    assert condition(resource_of(world), conditions.OBSERVED)["status"] == "True"


async def test_empty_secret_with_many_keys_stops_no_observation(operated: Operated) -> None:
    def act(stage: Stage) -> None:
        metadata = {"name": "cache-auth", "namespace": stage.namespace}
        data = {f"{number}": "" for number in range(MAX_KEYS + 1)}
        stage.user_client.create(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    world = World(operated.subject)
    await play(world, operated.plain())
    await play(world, ScenarioStep("another client creates cache-auth", act), operated.plain(auth={}))
    stalled = condition(resource_of(world), conditions.STALLED)
    assert stalled["reason"] == "ForeignObject"
    assert "cache-auth" in stalled["message"]
    assert condition(resource_of(world), conditions.OBSERVED)["status"] == "True"


async def test_secret_that_names_the_resource_as_its_owner_is_no_proof(operated: Operated) -> None:
    world = World(operated.subject)
    await play(world, operated.plain())
    await play(world, forged(operated, "cache-auth", owner=resource_of(world)), operated.plain(auth={}))
    assert condition(resource_of(world), conditions.STALLED)["reason"] == "ForeignObject"
    assert TOKEN not in json.dumps(resource_of(world))


async def test_restored_secret_is_used_once_the_author_of_the_resource_consents(operated: Operated) -> None:
    world = World(operated.subject)
    await play(world, operated.plain(auth={}))
    before = secrets_of(world)["cache-auth"]
    name, kind = name_of(world), operated.subject.controller(world.database).kind
    for secret in list(secrets_of(world)):
        user(world).delete(SECRET, NAMESPACE, secret)
    metadata = {key: before["metadata"][key] for key in ("name", "namespace", "labels")}
    restored = user(world).create(SECRET, {**before, "metadata": metadata})
    await resynced(world)
    assert condition(resource_of(world), conditions.READY)["status"] == "False"
    messages = " ".join(each["message"] for each in resource_of(world)["status"]["conditions"])
    assert f"{ADOPT}={restored['metadata']['uid']}" in messages
    user(world).merge(kind, NAMESPACE, name, {"metadata": {"annotations": {ADOPT: restored["metadata"]["uid"]}}})
    await resynced(world)
    assert condition(resource_of(world), conditions.READY)["status"] == "True"
    assert secrets_of(world)["cache-auth"]["data"] == before["data"]
    assert resource_of(world)["status"][RECORD]["cache-auth"] == restored["metadata"]["uid"]


async def test_deleted_secrets_are_created_and_recorded_again(operated: Operated) -> None:
    """Steps that depend on nothing in each other create some of them in the same pass, each with its record."""
    world = World(operated.subject)
    await play(world, operated.plain(**operated.secure))
    deleted = set(secrets_of(world)) - {"cache-auth"}  # the password that servers accept
    for name in deleted:
        user(world).delete(SECRET, NAMESPACE, name)
    await resynced(world)
    assert condition(resource_of(world), conditions.READY)["status"] == "True"
    assert deleted <= set(secrets_of(world))
    recorded = {name: secret["metadata"]["uid"] for name, secret in secrets_of(world).items()}
    assert resource_of(world)["status"][RECORD] == recorded


@pytest.mark.parametrize("keeps", [False, True], ids=["all", "the record"])
async def test_resource_that_lost_its_status_keeps_its_servers_and_reports_how_to_adopt(
    operated: Operated, *, keeps: bool
) -> None:
    """A restored resource, or one whose status another client replaced, has no record of its Secrets.

    Nor has the status that release 0.1.0 wrote, which made no Secrets.
    """
    world = World(operated.subject)
    await play(world, operated.plain(auth={}))
    before, name, kind = secrets_of(world), name_of(world), operated.subject.controller(world.database).kind
    pods = {obj["metadata"]["uid"] for _, obj in world.server.objects(POD)}
    lost = dict.fromkeys([RECORD] if keeps else resource_of(world)["status"])
    user(world).merge(kind, NAMESPACE, name, {"status": lost}, subresource="status")
    await resynced(world)
    stalled = condition(resource_of(world), conditions.STALLED)
    assert (stalled["status"], stalled["reason"]) == ("True", "ForeignObject")
    assert stalled["message"].count(ADOPT) == 1, "one command names all Secrets"
    [[*_, annotation]] = commands(stalled["message"])
    consent = annotation.removeprefix(f"{ADOPT}=")
    made = {name for name in before if not name.endswith("-connection")}  # the operator writes that one again
    assert set(consent.split(",")) == {before[each]["metadata"]["uid"] for each in made}
    assert {obj["metadata"]["uid"] for _, obj in world.server.objects(POD)} == pods
    user(world).merge(kind, NAMESPACE, name, {"metadata": {"annotations": {ADOPT: consent}}})
    await resynced(world)
    assert condition(resource_of(world), conditions.READY)["status"] == "True"
    assert secrets_of(world) == before
    assert resource_of(world)["status"][RECORD] == {each: before[each]["metadata"]["uid"] for each in before}
    assert {obj["metadata"]["uid"] for _, obj in world.server.objects(POD)} == pods


# Keys of other clients.


def taken(world: World, keys: Callable[[Obj], Obj]) -> None:
    """Let another client own keys of each Secret and ConfigMap of the operator.

    Args:
        keys: returns these keys with their values.
    """
    for kind in (SECRET, CONFIG_MAP):
        for _, obj in world.server.objects(kind):
            head: Obj = {"apiVersion": kind.api_version, "kind": kind.name}
            metadata = {"name": obj["metadata"]["name"], "namespace": NAMESPACE}
            user(world).apply(kind, {**head, "metadata": metadata, "data": keys(obj.get("data") or {})})


async def test_spec_is_applied_although_another_client_has_added_a_key_to_each_object(operated: Operated) -> None:
    """An apply does not remove the key, so that a comparison of the whole content never ends."""
    world = World(operated.subject)
    await play(world, operated.plain(**operated.secure))
    taken(world, lambda _: {"note": "eA=="})
    await play(world, operated.plain(**operated.secure, labels={"team": "a"}))
    assert condition(resource_of(world), conditions.READY)["status"] == "True"
    assert {obj["metadata"]["labels"].get("team") for _, obj in world.server.objects(POD)} == {"a"}
    assert all(secret["data"]["note"] == "eA==" for secret in secrets_of(world).values())


REMOVED: dict[str, tuple[str, Obj]] = {
    "memcached": ("memcached", SECURE),
    "etcd": ("etcd", {"auth": {}}),
    "redis": ("redis", {"auth": {}}),
    "redis: users": ("redis", {"auth": {}, "users": [{"name": "app", "rules": "+get"}]}),
}


@pytest.mark.parametrize(("operator", "spec"), REMOVED.values(), ids=REMOVED)
async def test_credentials_are_removed_although_another_client_owns_them_too(operator: str, spec: Obj) -> None:
    """After a restored backup that was adopted: an apply removes only what the operator alone owns."""
    world, plain = World(OPERATORS[operator].subject), OPERATORS[operator].plain
    await play(world, plain(**spec))
    taken(world, dict)
    await play(world, plain())
    assert condition(resource_of(world), conditions.READY)["status"] == "True"
    published = secrets_of(world)["cache-connection"]["data"]
    assert not any(published.get(key) for key in ("username", "password", "ca.crt"))
    await play(world, plain(**spec))
    assert condition(resource_of(world), conditions.READY)["status"] == "True"


ROTATIONS: dict[str, tuple[Obj, bool]] = {
    "completed": ({"auth": {}}, False),
    "reverted": ({"auth": {}}, True),
    "to no password": ({}, False),
}
"""The spec during a rotation, and whether the former password is restored, too."""


@pytest.mark.parametrize(("spec", "reverts"), ROTATIONS.values(), ids=ROTATIONS)
async def test_rotation_ends_although_another_client_owns_the_next_password_too(spec: Obj, *, reverts: bool) -> None:
    """After a backup was restored that was taken in the middle of the rotation."""
    world, plain = World(redis.REDIS), OPERATORS["redis"].plain
    await play(world, plain(auth={}))
    former = secrets_of(world)["cache-auth"]
    await play(world, edit(None, {"metadata": {"annotations": {ROTATE: "1"}}}), plain(**spec))
    versions = (event["object"] for of, event in world.history if of == SECRET)
    taken = next(secret for secret in versions if "next" in secret["data"])
    assert "next" not in secrets_of(world)["cache-users"]["data"]
    for secret in (taken, former) if reverts else (taken,):
        metadata = {"name": secret["metadata"]["name"], "namespace": NAMESPACE}
        restored = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": secret["data"]}
        user(world).apply(SECRET, restored, force=True)
    await resynced(world)
    assert condition(resource_of(world), conditions.READY)["status"] == "True"
    current = secrets_of(world)["cache-users"]["data"]["password"]
    assert current == (secrets_of(world)["cache-auth"]["data"]["password"] if spec else "")


# Owners.


def owners(world: World) -> dict[tuple[str, str], tuple[list[str], dict[str, str]]]:
    """Return the controllers and the labels of all Secrets and workloads, by kind and name."""
    found = [
        (kind, obj["metadata"]) for kind in (SECRET, STATEFUL_SET, DEPLOYMENT) for _, obj in world.server.objects(kind)
    ]
    return {
        (kind.name, metadata["name"]): (
            [f"{each['kind']} {each['name']}" for each in metadata.get("ownerReferences") or ()],
            {key: text for key, text in (metadata.get("labels") or {}).items() if not key.endswith("uid")},
        )
        for kind, metadata in found
    }


KEPT: Obj = {"finalizers": ""}
CHANGES = {
    "redis: objects outlive the resource": ("redis", {}, KEPT),
    "redis: objects are deleted with it again": ("redis", KEPT, {}),
    "etcd: volumes are deleted with it": ("etcd", {}, {"storage": {"retain": False}}),
    "etcd: volumes outlive it again": ("etcd", {"storage": {"retain": False}}, {}),
}


@pytest.mark.parametrize(("operator", "before", "after"), CHANGES.values(), ids=CHANGES)
async def test_owners_and_labels_are_those_of_a_fresh_resource(operator: str, before: Obj, after: Obj) -> None:
    operated = OPERATORS[operator]
    changed, fresh = World(operated.subject), World(operated.subject)
    await play(changed, operated.plain(**operated.secure, **before), operated.plain(**operated.secure, **after))
    await play(fresh, operated.plain(**operated.secure, **after))
    assert owners(changed) == owners(fresh)


async def test_changed_labels_of_secrets_are_restored(operated: Operated) -> None:
    world = World(operated.subject)
    await play(world, operated.plain(**operated.secure))
    before = owners(world)
    for name in secrets_of(world):
        user(world).merge(SECRET, NAMESPACE, name, {"metadata": {"labels": {PART_OF: "other"}}})
    await resynced(world)
    assert owners(world) == before
