"""Users of the spec: live on every node, proven by the servers, and repaired wherever the operator stops."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.secrets import content_of
from simulator.redis.process import Process, digest
from tests.harness.scenario import ScenarioStep, delete
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.moving_slots import happens_after, redis_of, settled
from tests.support.redis.scenarios import (
    NAME,
    NEW_PASSWORD,
    REDIS,
    all_pods_deleted,
    cluster,
    password_changed,
    password_given,
    primary_lost,
)

RULES = "~app:* +@read"
APP: Obj = {"name": "app", "rules": RULES}
OTHER: Obj = {"name": "other", "rules": "+ping"}
REVISION = ("off", *RULES.split())


def users(*given: Obj, replicas: int = 6, **spec: Any) -> ScenarioStep:
    return cluster(replicas, users=list(given), **spec)


async def begun(*steps: ScenarioStep) -> tuple[ScenarioRun, FakeRedis]:
    run = ScenarioRun(await settled(World(REDIS), *steps))
    run.begin()
    return run, redis_of(run.world)


async def after(run: ScenarioRun, *steps: ScenarioStep) -> Obj:
    """Return the status after steps."""
    for step in steps:
        step.act(run.stage)
    run.resync()
    await run.settle()
    await run.wait(20, times=4)
    [found] = run.stage.find()
    run.world.require_safe()
    status: Obj = found["status"]
    return status


def binding(run: ScenarioRun, user: str = "app") -> dict[str, str]:
    return dict(content_of(run.stage.user_client.get(SECRET, run.stage.namespace, f"{NAME}-user-{user}")))


def own(redis: FakeRedis) -> list[Process]:
    return [process for process in redis.running if process.cluster == NAME]


def is_ready(status: Obj) -> bool:
    return bool(accessors.condition({"status": status}, "Ready")["status"] == "True")


async def test_user_is_on_every_node_and_in_the_file_and_clients_find_its_password() -> None:
    run, redis = await begun(users(APP))
    status = await after(run)
    password = binding(run)["password"]
    assert binding(run)["username"] == "app"
    assert binding(run)["uri"] == f"redis://app:{password}@{NAME}-client.default.svc:6379"
    for process in own(redis):
        assert process.users["app"] == {digest(password)}
        assert process.rules["app"] == ("on", *RULES.split())
        assert process.rules["app:revision"] == REVISION
    assert status["users"] == [{"name": "app", "ready": True}]
    commanded = len(redis.commanded)
    await after(run, *all_pods_deleted())
    assert all(process.users["app"] == {digest(password)} for process in own(redis))
    assert [what for what in redis.commanded[commanded:] if "ACL" in what] == [], "restarted nodes read the file"


async def test_rules_that_a_server_refuses_change_nothing_else() -> None:
    run, redis = await begun(users(APP))
    redis.refused.add(("acl", "+nosuch"))
    status = await after(run, users(APP | {"rules": "+nosuch"}, OTHER))
    assert all(process.rules["app"] == ("on", *RULES.split()) for process in own(redis))
    assert all("other" in process.users for process in own(redis))
    app, other = status["users"]
    assert not app["ready"]
    assert "Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL" in app["message"]
    assert other == {"name": "other", "ready": True}
    condition = accessors.condition({"status": status}, "Ready")
    assert (condition["status"], condition["reason"]) == ("False", "UserNotApplied")
    status = await after(run, *all_pods_deleted())
    assert len(own(redis)) == 6, "the file has no rule that a server refuses"
    status = await after(run, users(APP, OTHER))
    assert is_ready(status)


LAST = ("revision with rights", "both with other rights")
CHANGES_BY_HAND: dict[str, Any] = {
    "other rights": lambda process: process.rules.update(app=("on", "+@all")),
    "another password": lambda process: process.users["app"].add(digest("known")),
    "disabled": lambda process: process.rules.update(app=("off", *RULES.split())),
    "deleted": lambda process: [process.users.pop("app"), process.rules.pop("app")],
    "revision with rights": lambda process: process.rules.update({"app:revision": ("on", *RULES.split())}),
    "both with other rights": lambda process: process.rules.update(
        {"app": ("on", "+@all"), "app:revision": ("off", "+@all", "x")}
    ),
}


@pytest.mark.parametrize(
    "change",
    [
        name if name in ("other rights", "deleted") else pytest.param(name, marks=pytest.mark.nightly)
        for name in CHANGES_BY_HAND
    ],
)
async def test_user_that_a_person_changes_is_restored_and_others_stay(change: str) -> None:
    run, redis = await begun(users(APP))
    before = {process.pod: copy.deepcopy((process.users, process.rules)) for process in own(redis)}
    victim = own(redis)[0]
    victim.users["by-hand"], victim.rules["by-hand"] = {digest("hand")}, ("on", "+@all")
    CHANGES_BY_HAND[change](victim)
    status = await after(run)
    assert is_ready(status)
    assert victim.users.pop("by-hand") == {digest("hand")}
    assert victim.rules.pop("by-hand") == ("on", "+@all")
    assert {process.pod: (process.users, process.rules) for process in own(redis)} == before


async def test_removed_user_is_deleted_and_its_secret_emptied() -> None:
    run, redis = await begun(users(APP, OTHER))
    former = binding(run)["password"]
    status = await after(run, users(OTHER))
    assert all({"app", "app:revision"}.isdisjoint(process.users) for process in own(redis))
    assert not any(binding(run).values())
    assert f"{NAME}-user-app" not in status["secrets"]
    status = await after(run, users(APP, OTHER))
    assert status["users"] == [{"name": "app", "ready": True}, {"name": "other", "ready": True}]
    assert binding(run)["password"] != former


async def test_password_of_a_secret_changes_with_an_overlap() -> None:
    given = APP | {"passwordSecret": {"name": "secret"}}
    run, redis = await begun(password_given("one"), users(given))
    wrong: list[str] = []

    def published(what: str) -> None:
        password = digest(binding(run)["password"])
        wrong.extend(f"{what}: {p.pod}" for p in own(redis) if password not in p.users["app"])

    redis.after = published
    await after(run, password_changed("two"))
    assert wrong == []
    assert binding(run)["password"] == "two"
    assert all(process.users["app"] == {digest("one"), digest("two")} for process in own(redis))
    await run.wait(300, times=4)
    status = await after(run)
    assert all(process.users["app"] == {digest("two")} for process in own(redis))
    assert status["users"] == [{"name": "app", "ready": True}]


@pytest.mark.nightly
async def test_missing_secret_is_reported_and_other_users_are_applied() -> None:
    run, redis = await begun(cluster(6))
    status = await after(run, users(APP | {"passwordSecret": {"name": "none", "key": "pin"}}, OTHER))
    assert "Secret none does not exist" in status["users"][0]["message"]
    assert status["users"][1]["ready"]
    assert all("app" not in process.users for process in own(redis))


async def test_generated_password_survives_the_loss_of_the_operators_secret() -> None:
    run, redis = await begun(users(APP))
    password = binding(run)["password"]
    status = await after(run, delete(SECRET, f"{NAME}-users"))
    assert is_ready(status)
    assert binding(run)["password"] == password
    assert all(process.users["app"] == {digest(password)} for process in own(redis))


@pytest.mark.nightly
async def test_annotation_requests_new_generated_passwords() -> None:
    run, redis = await begun(users(APP))
    password = binding(run)["password"]
    run.stage.user_client.merge(run.stage.kind, run.stage.namespace, NAME, NEW_PASSWORD)
    await after(run)
    assert (new := binding(run)["password"]) != password
    assert all(process.users["app"] == {digest(new), digest(password)} for process in own(redis))


@pytest.mark.nightly
async def test_paused_cluster_keeps_its_users() -> None:
    run, redis = await begun(users(APP))
    await after(run, users(OTHER, pause=True))
    own(redis)[0].users.pop("app")
    own(redis)[0].rules.pop("app")
    await after(run)
    assert all("app" in process.users and "other" not in process.users for process in own(redis))


EVENTS: dict[str, tuple[ScenarioStep, ...]] = {
    "a primary fails": (primary_lost(),),
    "all pods restart": all_pods_deleted(),
    "the cluster grows": (users(APP | {"rules": "+get"}, replicas=8),),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("number", [9, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 3, 5, 7, 14, 20))])
async def test_change_of_users_completes_although_something_happens_in_the_middle(event: str, number: int) -> None:
    run, redis = await begun(users(APP, OTHER))
    has_happened = happens_after(run, number, EVENTS[event])
    status = await after(run, users(APP | {"rules": "+get"}))
    assert has_happened()
    assert is_ready(status)
    for process in own(redis):
        assert process.rules["app"] == ("on", "+get")
        assert process.rules["app:revision"] == ("off", "+get")
        assert {"other", "other:revision"}.isdisjoint(process.users)
