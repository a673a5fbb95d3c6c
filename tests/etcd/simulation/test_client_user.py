"""The user that applications get: `client`, which only reads and writes keys, unless the spec requests root for them.

The guard of the simulated etcd reports every connection Secret that gives a user with the role root.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from operators.etcd.api.resource import review
from operators.etcd.client.errors import Denied
from operators.etcd.client.server import Access, Endpoint, Server
from operators.etcd.security.secrets import CLIENT_ROLE
from operators.etcd.steps import connection_secret, credentials
from shared.kubernetes import accessors
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.secrets import content_of
from shared.status import conditions
from shared.steps.passwords import ROTATE
from simulator.etcd.raft import User, Users
from simulator.harness import NAMESPACE
from tests.etcd.simulation.database import FakeEtcd
from tests.harness.scenario import ScenarioStep, delete, edit, later, unobserved
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import (
    AUTH,
    ETCD,
    NAME,
    NEW_PASSWORD,
    RESTORE,
    cluster,
    given_password,
    snapshot_stored,
    to_etcd,
)

ENABLED: Obj = {"auth": {}}
AS_ROOT: Obj = {"auth": {"connectAs": "root"}}
AS_CLIENT: Obj = {"auth": {"connectAs": "client"}}
WAIT = later(61)


async def begun(*steps: ScenarioStep) -> ScenarioRun:
    play = ScenarioRun(World(ETCD))
    await play.run_steps(steps)
    return play


def content(play: ScenarioRun, name: str = f"{NAME}-connection") -> Mapping[str, str]:
    try:
        return content_of(play.stage.user_client.get(SECRET, NAMESPACE, name))
    except NotFound:
        return {}


def connects_as(play: ScenarioRun) -> tuple[str, str]:
    """Return the user of the connection Secret, and that of the status."""
    [found] = play.stage.find()
    return content(play).get("username", ""), found["status"].get("connectAs", "")


def reason(play: ScenarioRun) -> str:
    [found] = play.stage.find()
    return str(accessors.condition(found, conditions.READY)["reason"])


def users(play: ScenarioRun) -> dict[str, User]:
    etcd: FakeEtcd = play.stage.database
    return etcd.cluster().users


def server(play: ScenarioRun) -> Server:
    """Return the seed as an application reaches it."""
    etcd: FakeEtcd = play.stage.database
    process, found = etcd.running[0], content(play)
    access = Access(user=found["username"], password=found["password"])
    return etcd.connect(Endpoint(process.pod, process.address, process.pod), access)


def may_give_root() -> ScenarioStep:
    return to_etcd("the user requests root for applications", lambda etcd: setattr(etcd.guard, "may_give_root", True))


def user_created(password: str, *roles: str) -> ScenarioStep:
    def act(etcd: FakeEtcd) -> None:
        etcd.cluster().users["client"] = User(password, roles)

    return to_etcd("an administrator creates the user client", act)


def user_deleted() -> ScenarioStep:
    return to_etcd("an administrator deletes the user client", lambda etcd: etcd.cluster().users.pop("client"))


async def require_keys_only(play: ScenarioRun) -> None:
    """Require that applications get a user that reads keys, and may do nothing that only root may."""
    application = server(play)
    await application.is_compacted(2)
    for refused in (application.add_learner("http://other:2380"), application.disable_auth(), application.defragment()):
        with pytest.raises(Denied):
            await refused


async def test_applications_get_a_user_that_only_reads_and_writes_keys() -> None:
    play = await begun(cluster(1, **ENABLED))
    assert (connects_as(play), reason(play)) == (("client", "client"), "Ready")
    assert users(play)["client"] == User(content(play)["password"], (CLIENT_ROLE,))
    assert content(play)["password"] not in content(play, f"{NAME}-operator-auth").values()
    await require_keys_only(play)


async def test_applications_get_root_only_if_the_spec_requests_it() -> None:
    play = await begun(may_give_root(), cluster(1, **AS_ROOT))
    assert (connects_as(play), reason(play)) == (("root", "root"), "Ready")
    assert list(users(play)) == ["root"]
    await server(play).defragment()


def gives_root(patch: pytest.MonkeyPatch) -> None:
    """Give applications root, as versions without the user `client` did."""
    for module in (credentials, connection_secret):
        patch.setattr(module, "user_for_clients", lambda *_: "root")
    patch.setattr(connection_secret, "connects_as", lambda *_: None)


async def of_a_former_version(monkeypatch: pytest.MonkeyPatch) -> ScenarioRun:
    """Return a cluster whose applications have root, without a record in the status."""
    with monkeypatch.context() as patch:
        gives_root(patch)
        play = await begun(may_give_root(), cluster(1, **ENABLED))
    assert connects_as(play) == ("root", "")
    play.end()
    return play


async def test_applications_that_have_root_keep_it_until_the_spec_names_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    play = await of_a_former_version(monkeypatch)
    before = content(play)
    await play.run_steps((WAIT,))
    assert (connects_as(play), reason(play), content(play)) == (("root", "root"), "Ready", before)
    [found] = play.stage.find()
    assert any("still gives root to applications" in text for text in review(found, None).warnings)
    await play.run_steps((unobserved(delete(SECRET, f"{NAME}-connection")), WAIT))
    assert connects_as(play) == ("root", "root"), "the status has the record, too"

    play.stage.database.guard.may_give_root = False
    await play.run_steps((cluster(1, **AS_CLIENT),))
    assert (connects_as(play), reason(play)) == (("client", "client"), "Ready")
    await require_keys_only(play)
    await play.run_steps((cluster(1, **ENABLED), WAIT))
    assert connects_as(play) == ("client", "client")


async def test_applications_of_an_open_cluster_get_no_root_by_an_edited_secret() -> None:
    """An edited connection Secret without root's password is no record of a user that applications have."""
    edited = edit(SECRET, {"data": {"username": "cm9vdA==", "password": "cm9vdA=="}}, f"{NAME}-connection")
    play = await begun(given_password(), cluster(1), unobserved(edited), cluster(1, **AUTH))
    assert (connects_as(play), reason(play)) == (("client", "client"), "Ready")


async def test_user_of_another_origin_is_neither_changed_nor_given_to_applications() -> None:
    play = await begun(cluster(1), user_created("of a person", "reports"), cluster(1, **ENABLED), WAIT)
    assert users(play)["client"] == User("of a person", ("reports",))
    assert (content(play).get("username", ""), reason(play)) == ("", "ClientUserTaken")
    await play.run_steps((user_deleted(), WAIT))
    assert (connects_as(play), reason(play)) == (("client", "client"), "Ready")


async def test_user_without_roles_is_completed_only_if_it_has_the_generated_password() -> None:
    """The operator stopped before it granted the role; or a person is about to grant another one."""
    play = await begun(cluster(1, **ENABLED))
    password = content(play)["password"]
    await play.run_steps((user_created(password), WAIT))
    assert users(play)["client"] == User(password, (CLIENT_ROLE,))
    await play.run_steps((user_created("of a person"), WAIT))
    assert (users(play)["client"], reason(play)) == (User("of a person"), "ClientUserTaken")
    assert connects_as(play) == ("client", "client"), "the Secret stays as it is"


@pytest.mark.parametrize("spec", [ENABLED, AUTH], ids=["generated", "given"])
async def test_rotation_gives_applications_another_password(spec: Obj) -> None:
    play = await begun(given_password(), cluster(1, **spec))
    before = content(play)["password"]
    await play.run_steps((edit(None, NEW_PASSWORD, NAME), WAIT))
    after = content(play)["password"]
    assert (after != before, users(play)["client"].password, reason(play)) == (True, after, "Ready")
    assert content(play, f"{NAME}-client-password")["password"] == after
    [found] = play.stage.find()
    assert found["metadata"]["annotations"][ROTATE] == "1"


async def test_deleted_password_is_restored_from_the_connection_secret() -> None:
    play = await begun(cluster(1, **ENABLED))
    before = content(play)["password"]
    await play.run_steps((unobserved(delete(SECRET, f"{NAME}-client-password")), WAIT))
    assert (content(play)["password"], content(play, f"{NAME}-client-password")) == (before, {"password": before})


async def test_passwords_of_client_never_become_those_of_root() -> None:
    """All Secrets with root's password are deleted: that of client, which is left, is no substitute."""
    play = await begun(cluster(1, **ENABLED))
    root = users(play)["root"].password
    await play.run_steps(unobserved(delete(SECRET, f"{NAME}-{name}")) for name in ("auth", "operator-auth"))
    await play.run_steps((WAIT,))
    assert content(play)["username"] == "client"
    assert content(play, f"{NAME}-auth").get("password") != content(play)["password"]
    assert users(play)["root"].password == root


async def test_user_stays_while_authentication_is_disabled() -> None:
    play = await begun(cluster(1, **ENABLED))
    before = content(play)["password"]
    await play.run_steps((cluster(1, auth={"enabled": False}),))
    assert connects_as(play) == ("", "client")
    await play.run_steps((cluster(1, **ENABLED),))
    assert (connects_as(play), content(play)["password"], reason(play)) == (("client", "client"), before, "Ready")


async def test_restored_cluster_replaces_the_user_of_the_snapshot() -> None:
    roles = frozenset({CLIENT_ROLE, "reports"})
    known = {"root": User("old", ("root",)), "client": User("old", (CLIENT_ROLE,)), "app": User("x", ("reports",))}
    with_users = to_etcd(
        "the snapshot has users", lambda etcd: etcd.snapshot_users.update({"a.db": Users(True, known, roles)})
    )
    restored = cluster(1, **AUTH, **RESTORE)
    play = await begun(snapshot_stored("a.db"), with_users, given_password("one", "old"), restored, WAIT)
    assert (connects_as(play), reason(play)) == (("client", "client"), "Ready")
    assert users(play)["client"] == User(content(play)["password"], (CLIENT_ROLE,))
    assert (users(play)["root"].password, users(play)["app"]) == ("one", known["app"])
    await require_keys_only(play)
