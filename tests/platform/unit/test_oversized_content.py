"""Objects that cannot be read, because another client filled them, stop no repair of a database that runs.

An API server limits the bytes of an object, and hardly the number of its keys. One with more values than may be parsed
at once raises TooLarge; with still more keys, so does its metadata, which records the manager of each field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import orjson
import pytest

from shared.kubernetes.client import Request, Response
from shared.kubernetes.encoding import parsed_share
from shared.kubernetes.errors import TooLarge
from shared.kubernetes.kinds import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, POD, SECRET, SERVICE, Kind, Obj
from shared.kubernetes.ownership import INSTANCE
from simulator.api_server.server import ApiServer
from tests.harness.scenario import ScenarioStep, Stage, Subject, create, delete, later
from tests.harness.scenario_runner import ScenarioRun
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
from tests.support.plays import begun_once, ready, run
from tests.support.redis import scenarios as redis

KEYS, ALL_KEYS = 21_000, 40_000
"""Numbers of keys with which an object cannot be read, and with which its metadata cannot be read either."""


@pytest.fixture(autouse=True)
def _answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the operator's answers raise TooLarge as those of a connection do."""
    whole = ApiServer.request

    async def request(self: ApiServer, given: Request) -> Response:
        answer = await whole(self, given)
        if parsed_share(orjson.dumps(answer.body)) > 1:
            raise TooLarge(f"the response has more than 60000 values ({given})")
        return answer

    monkeypatch.setattr(ApiServer, "request", request)


def filled(kind: Kind, name: str, count: int) -> ScenarioStep:
    """Add empty keys to an object as another client."""

    def act(stage: Stage) -> None:
        change = {"data": dict.fromkeys((f"k{number}" for number in range(count)), "")}
        stage.user_client.merge(kind, stage.namespace, name, change)

    return ScenarioStep(f"{kind.name} {name} gets {count} keys", act)


def annotated(kind: Kind, name: str, *, without: str = "") -> ScenarioStep:
    """Add annotations with which an object cannot be read, and remove a label."""

    def act(stage: Stage) -> None:
        change: Obj = {"annotations": dict.fromkeys((f"k{number}" for number in range(ALL_KEYS)), "")}
        change |= {"labels": {without: None}} if without else {}
        stage.user_client.merge(kind, stage.namespace, name, {"metadata": change})

    return ScenarioStep(f"{kind.name} {name} gets annotations", act)


@dataclass(frozen=True)
class World:
    """A database that runs, and loses a part.

    Attributes:
        given: setup.
        lost: the loss.
        is_repaired: whether the operator has repaired it.
    """

    subject: Subject
    given: ScenarioStep
    lost: tuple[ScenarioStep, ...]
    is_repaired: Callable[[ScenarioRun], bool]


def _together(*steps: ScenarioStep) -> ScenarioStep:
    return ScenarioStep("setup", lambda stage: [step.act(stage) for step in steps])


def _has_service(play: ScenarioRun) -> bool:
    return any(service["metadata"]["name"] == "cache" for service in play.stage.find(SERVICE))


def _has_all_members(play: ScenarioRun) -> bool:
    database = play.stage.database
    return len(database.voting(database.cluster())) == len(play.stage.find(POD)) == 3


def _has_all_nodes(play: ScenarioRun) -> bool:
    [found] = play.stage.find()
    nodes = found["status"]["nodes"]
    return len(nodes) == 6 and not any(each.get("error") for each in nodes) and len(play.stage.find(POD)) == 6


GIVEN_CONFIG = create(CONFIG_MAP, "wishes", data={"redis.conf": "hz 10\n"})
PAUSE = (later(60),) * 4
CLAIM: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
USER: Obj = {"name": "app", "rules": "+@read", "passwordSecret": {"name": "secret"}}
WORLDS = {
    "memcached": World(
        memcached.MEMCACHED,
        _together(memcached.given_users(), memcached.apply(size=1, **memcached.AUTH)),
        (delete(SERVICE, "cache"), *PAUSE),
        _has_service,
    ),
    "etcd": World(
        etcd.ETCD,
        _together(etcd.given_password(), etcd.cluster(3, **etcd.AUTH, **etcd.TLS)),
        (*etcd.lost(1), *PAUSE),
        _has_all_members,
    ),
    "redis": World(
        redis.REDIS,
        _together(
            redis.password_given(),
            GIVEN_CONFIG,
            redis.cluster(6, **redis.AUTH, users=[USER], pod=[{"configmap": "wishes"}]),
        ),
        (*redis.lost(1), *PAUSE),
        _has_all_nodes,
    ),
}
CASES = [
    pytest.param(
        world,
        kind,
        name,
        count,
        id=f"{world}: {name}, {count:,} keys",
        marks=[] if count == first else pytest.mark.nightly,
    )
    for world, kind, name, first in (
        *((world, SECRET, "cache-connection", ALL_KEYS) for world in WORLDS),
        ("memcached", SECRET, "cache-users", KEYS),
        ("etcd", SECRET, "root", KEYS),
        ("redis", SECRET, "secret", KEYS),
        ("redis", SECRET, "cache-user-app", KEYS),
        ("redis", CONFIG_MAP, "wishes", ALL_KEYS),
    )
    for count in (KEYS, ALL_KEYS)
]


async def repaired(world: World, *attack: ScenarioStep) -> ScenarioRun:
    """Return a run in which a part was lost after the attack, and repaired."""
    play = await begun_once(world.subject, world.given)
    assert ready(play)["reason"] == "Ready", ready(play)
    await run(play, (*attack, *world.lost))
    assert world.is_repaired(play), ready(play)
    return play


@pytest.mark.parametrize(("world", "kind", "name", "count"), CASES)
async def test_object_that_cannot_be_read_stops_no_repair(world: str, kind: Kind, name: str, count: int) -> None:
    play = await repaired(WORLDS[world], filled(kind, name, count))
    assert f"{kind.name} {name}" in ready(play)["message"]
    assert "more than 1,024 keys" in ready(play)["message"]
    assert ready(play)["reason"] in ("SecretInvalid", "ConfigMapInvalid")


OWN = {"memcached": "cache-users-mounted", "etcd": "cache-operator-auth", "redis": "cache-users"}


@pytest.mark.parametrize("count", [1_100, *(pytest.param(n, marks=pytest.mark.nightly) for n in (KEYS, ALL_KEYS))])
@pytest.mark.parametrize("world", WORLDS)
async def test_own_secret_that_cannot_be_read_is_named_and_never_overwritten(world: str, count: int) -> None:
    """Passwords and keys of the operator exist nowhere else: new ones would lock clients and servers out."""
    play = await begun_once(WORLDS[world].subject, WORLDS[world].given)
    name, client = OWN[world], play.stage.user_client
    before = client.get(SECRET, play.stage.namespace, name)
    recorded = play.stage.find()[0]["status"]["secrets"]
    await run(play, (filled(SECRET, name, count), later(60), later(60)))
    assert ready(play)["reason"] == "ForeignObject"
    assert f"Secret {name}: " in ready(play)["message"]
    assert "Remove the keys that the operator did not write" in ready(play)["message"]
    after = client.get(SECRET, play.stage.namespace, name)
    assert before["data"].items() <= after["data"].items()
    assert play.stage.find()[0]["status"]["secrets"] == recorded
    client.merge(SECRET, play.stage.namespace, name, {"data": dict.fromkeys(after["data"].keys() - before["data"])})
    await run(play, PAUSE)
    assert ready(play)["reason"] == "Ready", ready(play)
    assert client.get(SECRET, play.stage.namespace, name)["data"] == before["data"]


@pytest.mark.parametrize("world", WORLDS)
async def test_connection_secret_that_cannot_be_read_stays_as_it_is(world: str) -> None:
    play = await begun_once(WORLDS[world].subject, WORLDS[world].given)
    name, client = "cache-connection", play.stage.user_client
    before, [resource] = client.get(SECRET, play.stage.namespace, name), play.stage.find()
    await run(play, (filled(SECRET, name, ALL_KEYS), *PAUSE))
    after = client.get(SECRET, play.stage.namespace, name)
    [found] = play.stage.find()
    assert before["data"].items() <= after["data"].items()
    assert {key: found["status"].get(key) for key in ("binding", "secrets")} == {
        key: resource["status"].get(key) for key in ("binding", "secrets")
    }
    assert (ready(play)["status"], ready(play)["reason"]) == ("True", "SecretInvalid")
    client.merge(SECRET, play.stage.namespace, name, {"data": dict.fromkeys(after["data"].keys() - before["data"])})
    await run(play, PAUSE)
    assert ready(play)["reason"] == "Ready", ready(play)


async def test_claim_for_snapshots_that_cannot_be_read_stops_no_repair() -> None:
    claim = create(PERSISTENT_VOLUME_CLAIM, "snapshots", spec=CLAIM)
    world = dataclasses.replace(WORLDS["etcd"], given=_together(claim, etcd.cluster(3, **etcd.BACKUP)))
    play = await repaired(world, annotated(PERSISTENT_VOLUME_CLAIM, "snapshots"))
    assert ready(play)["reason"] == "Ready"


@pytest.mark.parametrize("world", ["etcd", pytest.param("redis", marks=pytest.mark.nightly)])
async def test_pod_without_labels_that_cannot_be_read_stops_no_repair(world: str) -> None:
    pod = "cache-5" if world == "redis" else "cache-2"  # of a replica: what copies of its primary miss is unknown
    play = await begun_once(WORLDS[world].subject, WORLDS[world].given)
    await run(play, (annotated(POD, pod, without=INSTANCE), delete(SERVICE, "cache-client"), *PAUSE))
    assert "cache-client" in {service["metadata"]["name"] for service in play.stage.find(SERVICE)}
    assert f"{pod} cannot be read" in ready(play)["message"]
    assert f"`kubectl edit pod {pod} -n default`" in ready(play)["message"]
