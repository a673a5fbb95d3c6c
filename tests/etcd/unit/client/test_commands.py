"""Calls on a running cluster: each may be outdated, repeated, or already done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from operators.etcd.client.commands import (
    AddLearner,
    ChangePassword,
    Compact,
    Defragment,
    DisableAuth,
    Disarm,
    EnableAuth,
    EnableDowngrade,
    EtcdCall,
    MoveLeader,
    Promote,
    Remove,
    ReplaceUser,
    execute,
)
from operators.etcd.client.errors import Denied, EtcdError, NoLeader, NoSuchMember, Refused, Unhealthy, Unreachable
from operators.etcd.client.server import Access, Alarm, Endpoint, EndpointStatus, Member, Members, Server
from shared.runtime.plan import Call

MEMBERS = tuple(Member(number, f"demo-{number}", (f"http://demo-{number}.demo.cache.svc:2380",)) for number in range(3))
LEARNER = Member(7, "", ("http://demo-3.demo.cache.svc:2380",), learner=True)
ENDPOINTS = tuple(Endpoint(f"demo-{n}", f"10.0.0.{n}", f"demo-{n}.demo.cache.svc") for n in range(3))
OPEN = Access()
ROOT = Access(user="root", password="first")
READS = ("members", "status", "auth_enabled", "authenticate", "roles")
"""Calls that change nothing."""


@dataclass
class Cluster:
    """Fake cluster with the state that calls depend on.

    Attributes:
        failing: per address, an error and whether the change takes effect nevertheless.
        changes: names of the changes that took effect, in order.
        requests: endpoint and name of every call, in order.
        open: number of connected servers that are not closed.
    """

    members: tuple[Member, ...] = MEMBERS
    leader: int = 0
    password: str = ""
    roles: tuple[str, ...] | None = None
    downgrade: str = ""
    failing: dict[str, tuple[EtcdError, bool]] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    open: int = 0

    def connect(self, endpoint: Endpoint, access: Access) -> Server:
        self.open += 1
        return cast("Server", FakeServer(self, endpoint, access))


@dataclass
class FakeServer:
    """One server of the cluster."""

    cluster: Cluster
    endpoint: Endpoint
    access: Access

    def __getattr__(self, name: str) -> Any:
        async def request(*values: Any) -> Any:
            cluster = self.cluster
            cluster.requests.append(f"{self.endpoint.name} {name}")
            error, takes_effect = cluster.failing.get(self.endpoint.address, (None, True))
            if error is not None and (not takes_effect or name in READS):
                if not takes_effect:
                    raise error
                error = None  # reads succeed: only the reply to the change is lost
            if cluster.password and name in ("change_password", "authenticate", "disable_auth"):
                self._authenticate()
            found = getattr(self, f"_{name}")(*values)
            if name not in READS:
                cluster.changes.append(name)
            if error is not None:
                raise error
            return found

        return request

    async def aclose(self) -> None:
        self.cluster.open -= 1

    def _authenticate(self) -> None:
        if self.access.password != self.cluster.password:
            raise Denied("etcdserver: authentication failed, invalid user ID or password")

    def _members(self) -> Members:
        return Members(1, self.cluster.members)

    def _status(self) -> EndpointStatus:
        me = int(self.endpoint.name[-1])
        status = EndpointStatus(1, me, self.cluster.leader, "3.6.16", 1, 1, 1, 1, 1, 1)
        return replace(status, storage_version="3.6.0", downgrade_target=self.cluster.downgrade)

    def _add_learner(self, peer_url: str) -> Member:
        self.cluster.members += (Member(7, "", (peer_url,), learner=True),)
        return self.cluster.members[-1]

    def _promote(self, member_id: int) -> None:
        self.cluster.members = tuple(
            replace(each, learner=False) if each.id == member_id else each for each in self.cluster.members
        )

    def _remove(self, member_id: int) -> None:
        self.cluster.members = tuple(each for each in self.cluster.members if each.id != member_id)

    def _move_leader(self, to: int) -> None:
        self.cluster.leader = to

    def _enable_downgrade(self, series: str) -> None:
        self.cluster.downgrade = f"{series}.0"

    def _auth_enabled(self) -> bool:
        return bool(self.cluster.password)

    def _enable_auth(self, _: str, password: str) -> None:
        self.cluster.password = password

    def _disable_auth(self) -> None:
        self.cluster.password = ""

    def _change_password(self, _: str, password: str) -> None:
        self.cluster.password = password

    def _roles(self, _: str) -> tuple[str, ...] | None:
        return self.cluster.roles

    def _replace_user(self, _: str, password: str, role: str) -> None:
        assert password == "first"
        self.cluster.roles = (role,)

    def _disarm(self, _: Alarm) -> None: ...

    def _compact(self, _: int) -> None: ...

    def _defragment(self) -> None: ...


LOST = Unreachable("no answer")
LEADERLESS = NoLeader("etcdserver: request timed out")


def repeatable(access: Access = OPEN) -> list[tuple[Cluster, EtcdCall, str]]:
    """Return idempotent calls, each with its cluster and the name of its change."""
    with_learner = (*MEMBERS, LEARNER)
    return [
        (Cluster(), AddLearner(ENDPOINTS, access, LEARNER.peer_urls[0]), "add_learner"),
        (Cluster(with_learner), Promote(ENDPOINTS, access, LEARNER), "promote"),
        (Cluster(), Remove(ENDPOINTS, access, MEMBERS[2]), "remove"),
        (Cluster(with_learner), Remove(ENDPOINTS, access, LEARNER), "remove"),
        (Cluster(), MoveLeader(ENDPOINTS[:1], access, MEMBERS[1]), "move_leader"),
        (Cluster(), EnableDowngrade(ENDPOINTS, access, "3.5"), "enable_downgrade"),
        (Cluster(), EnableAuth(ENDPOINTS, access, "root", "first"), "enable_auth"),
        (Cluster(password="first"), DisableAuth(ENDPOINTS, ROOT), "disable_auth"),
        (Cluster(password="first"), ChangePassword(ENDPOINTS, ROOT, "root", "second"), "change_password"),
    ]


CASES = range(len(repeatable()))


@pytest.mark.parametrize("case", CASES)
async def test_repeated_call_makes_one_change(case: int) -> None:
    cluster, call, change = repeatable()[case]
    for _ in range(3):
        await execute(cluster.connect, call)
    assert cluster.changes == [change]
    assert cluster.open == 0


@pytest.mark.parametrize("error", [LOST, LEADERLESS], ids=["unreachable", "leaderless"])
@pytest.mark.parametrize("case", CASES)
async def test_change_with_a_lost_reply_is_not_made_twice(case: int, error: EtcdError) -> None:
    cluster, call, change = repeatable()[case]
    cluster.failing[ENDPOINTS[0].address] = error, True
    if len(call.endpoints) > 1:
        await execute(cluster.connect, call)
    else:
        with pytest.raises(type(error)):
            await execute(cluster.connect, call)
        await execute(cluster.connect, call)  # the next reconcile
    assert cluster.changes == [change]
    assert cluster.open == 0


@pytest.mark.parametrize("case", CASES)
async def test_call_skips_unreachable_and_leaderless_endpoints(case: int) -> None:
    cluster, call, change = repeatable()[case]
    if len(call.endpoints) == 1:
        return
    cluster.failing = {ENDPOINTS[0].address: (LOST, False), ENDPOINTS[1].address: (LEADERLESS, False)}
    await execute(cluster.connect, call)
    assert cluster.changes == [change]
    assert cluster.requests[0] == "demo-0 members"
    assert cluster.requests[-1] == f"demo-2 {change}"


async def test_call_raises_the_last_error_if_every_endpoint_fails() -> None:
    cluster = Cluster(failing={each.address: (LOST, False) for each in ENDPOINTS[:2]})
    cluster.failing[ENDPOINTS[2].address] = LEADERLESS, False
    with pytest.raises(NoLeader):
        await execute(cluster.connect, Remove(ENDPOINTS, OPEN, MEMBERS[2]))
    with pytest.raises(Unreachable, match="no voter is healthy"):
        await execute(cluster.connect, Defragment((), OPEN))
    assert cluster.open == 0


async def test_call_refused_by_etcd_is_not_sent_to_another_endpoint() -> None:
    cluster = Cluster(failing={ENDPOINTS[0].address: (Unhealthy("etcdserver: unhealthy cluster"), False)})
    with pytest.raises(Unhealthy):
        await execute(cluster.connect, Remove(ENDPOINTS, OPEN, MEMBERS[2]))
    assert cluster.requests == ["demo-0 members"]


@pytest.mark.parametrize(
    ("cluster", "call", "error", "message"),
    [
        (
            Cluster((*MEMBERS, LEARNER)),
            AddLearner(ENDPOINTS, OPEN, "http://demo-4.demo.cache.svc:2380"),
            Refused,
            r"http://demo-3\.demo\.cache\.svc:2380 \(0000000000000007\) is still a learner",
        ),
        (Cluster(), Promote(ENDPOINTS, OPEN, LEARNER), NoSuchMember, "no longer a member"),
        (Cluster(MEMBERS[:1]), Remove(ENDPOINTS, OPEN, MEMBERS[0]), Refused, "the only voter"),
        (Cluster((MEMBERS[0], LEARNER)), Remove(ENDPOINTS, OPEN, MEMBERS[0]), Refused, "the only voter"),
        (
            Cluster((*MEMBERS, replace(LEARNER, learner=False))),
            Remove(ENDPOINTS, OPEN, LEARNER),
            Refused,
            "was promoted in the meantime",
        ),
        (Cluster(leader=2), MoveLeader(ENDPOINTS[:1], OPEN, MEMBERS[1]), Refused, "demo-0 is no longer the leader"),
        (Cluster(MEMBERS[:1]), MoveLeader(ENDPOINTS[:1], OPEN, MEMBERS[1]), NoSuchMember, "no longer a voter"),
        (Cluster((*MEMBERS, LEARNER)), MoveLeader(ENDPOINTS[:1], OPEN, LEARNER), NoSuchMember, "no longer a voter"),
        (Cluster(downgrade="3.4.0"), EnableDowngrade(ENDPOINTS, OPEN, "3.5"), Refused, r"to 3\.4\.0 is in progress"),
        (Cluster(password="third"), ChangePassword(ENDPOINTS, ROOT, "root", "second"), Denied, "authentication failed"),
        (Cluster(password="third"), DisableAuth(ENDPOINTS, ROOT), Denied, "authentication failed"),
    ],
)
async def test_outdated_call_is_refused(cluster: Cluster, call: EtcdCall, error: type[EtcdError], message: str) -> None:
    with pytest.raises(error, match=message):
        await execute(cluster.connect, call)
    assert cluster.changes == []
    assert cluster.open == 0


@pytest.mark.parametrize("case", range(len(CASES) + 3))
async def test_call_never_changes_another_cluster_at_the_same_address(case: int) -> None:
    more = (Compact(ENDPOINTS, OPEN, 5), Defragment(ENDPOINTS[:1], OPEN), Disarm(ENDPOINTS, OPEN, Alarm(1, "NOSPACE")))
    call = [*(call for _, call, _ in repeatable()), *more][case]
    foreign = tuple(replace(each, peer_urls=(each.peer_urls[0].replace("demo", "other"),)) for each in MEMBERS)
    cluster = Cluster(foreign, password="first")
    with pytest.raises(Unreachable, match="a server of another cluster answers there"):
        await execute(cluster.connect, call)
    assert cluster.changes == []


@pytest.mark.parametrize("observed", [None, (), ("keys", "more")])
async def test_user_is_replaced_if_it_is_as_observed_or_has_the_role(observed: tuple[str, ...] | None) -> None:
    cluster = Cluster(roles=observed)
    call = ReplaceUser(ENDPOINTS, ROOT, "client", "first", "keys", observed)
    await execute(cluster.connect, call)
    await execute(cluster.connect, call)  # the response to the first one was lost
    assert (cluster.roles, cluster.changes) == (("keys",), ["replace_user"] * 2)


@pytest.mark.parametrize(("observed", "now"), [(None, ()), (None, ("reports",)), ((), ("reports",)), ((), None)])
async def test_user_that_was_changed_in_the_meantime_is_kept(
    observed: tuple[str, ...] | None, now: tuple[str, ...] | None
) -> None:
    cluster = Cluster(roles=now)
    with pytest.raises(Refused, match="User client was changed in the meantime"):
        await execute(cluster.connect, ReplaceUser(ENDPOINTS, ROOT, "client", "first", "keys", observed))
    assert cluster.changes == []


async def test_call_descriptions_contain_no_password() -> None:
    calls = [
        *(call for _, call, _ in repeatable(ROOT)),
        Compact(ENDPOINTS, ROOT, 5),
        Defragment(ENDPOINTS[1:2], ROOT),
        Disarm(ENDPOINTS, ROOT, Alarm(10, "NOSPACE")),
        ReplaceUser(ENDPOINTS, ROOT, "client", "first", "keys", None),
    ]
    assert [str(call) for call in calls] == [
        "add a learner at http://demo-3.demo.cache.svc:2380",
        "promote http://demo-3.demo.cache.svc:2380 (0000000000000007)",
        "remove demo-2 (0000000000000002)",
        "remove http://demo-3.demo.cache.svc:2380 (0000000000000007)",
        "move the leadership to demo-1 (0000000000000001)",
        "enable the downgrade to 3.5",
        "enable authentication with user root",
        "disable authentication",
        "change the password of root",
        "compact up to revision 5",
        "defragment demo-1",
        "disarm NOSPACE of 000000000000000a",
        "set user client",
    ]
    for call in calls:
        assert "first" not in repr(call)
        assert "second" not in repr(call)


async def test_call_of_another_operator_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        await execute(Cluster().connect, Call())
