"""Speaks with a member of etcd through its JSON gateway.

python-etcd3 knows no learners, and its generated code does not import beside today's protobuf; the gateway that every
server has brings everything over plain HTTP. What one should know of it:

- It shows the server's own certificate to the server behind it, which must therefore be good for client auth, too.
- With users, it takes no client certificate that bears a common name (400), lest somebody thinks that this is the user:
  the operator's must bear none.
- With users, a token is needed for nearly everything. Only a quorum gives one, and it goes through Raft's log: so it
  holds at every member, until 5 minutes have passed without its use, or the member has restarted. A learner gives none,
  but takes those that were given since it is there.
- A member is added only when all voters have been connected for 5 seconds.

Credentials appear in no error, and are sent to none but a server that asks for them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from operators.etcd.client import responses
from operators.etcd.client.errors import Denied, NoLeader, Refused, Unauthenticated, Unreachable, Unsupported
from operators.etcd.client.http import REQUEST_TIMEOUT_SECONDS, Wire
from operators.etcd.client.server import (
    Access,
    Alarm,
    Connect,
    Endpoint,
    EndpointStatus,
    HashKV,
    Member,
    Members,
    RaftProgress,
)

CHANGE_TIMEOUT_SECONDS = 10.0
"""Seconds for a change; etcd itself gives up after 7 (with the default election timeout), but not one of members."""

LONG_TIMEOUT_SECONDS = 300.0
"""Seconds for what grows with the database, such as a defragmentation; it goes on though nobody waits any longer."""

_NOTHING = "AA=="
"""The lowest key that there can be, in base64."""

_ROOT = "root"
_HASH_BYTES = 32

Answer = TypeVar("Answer")
Key = tuple[str, int, str, str]


class Tokens:
    """What members gave for a user and a password; those that were not used for longest are forgotten."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._known: OrderedDict[Key, str] = OrderedDict()

    def get(self, key: Key) -> str:
        """The token; empty if there is none."""
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key, "")

    def put(self, key: Key, token: str) -> None:
        """Know a token; an empty one is none."""
        self._known.pop(key, None)
        if token:
            self._known[key] = token
        if len(self._known) > self._most:
            self._known.popitem(last=False)


_tokens = Tokens()


class Gateway:
    """One member's server; see `Server`."""

    def __init__(self, endpoint: Endpoint, access: Access) -> None:
        cluster = endpoint.host.partition(".")[2]  # its members' tokens are the same
        self._key = (cluster, endpoint.port, access.user, access.password)
        self._access = access
        self._wire = Wire(endpoint, access)
        self._version = ""

    async def status(self) -> EndpointStatus:
        found = await self._request("maintenance/status", responses.status)
        self._version = found.version
        return found

    async def members(self) -> Members:
        version = self._version or (await self._versions())["etcdserver"]
        if version.startswith("3.4."):  # it lists what it knows itself: so let it first hear what the others know
            await self._request("kv/range", dict, key=_NOTHING, limit="1", keys_only=True)
        return await self._request("cluster/member/list", responses.members, linearizable=True)

    async def remembered_members(self) -> Members:
        return await self._request("cluster/member/list", responses.members, linearizable=False)

    async def progress(self) -> RaftProgress:
        return await self._wire.metrics(responses.progress)

    async def is_compacted(self, revision: int) -> bool:
        if revision < 2:  # nothing was before the first
            return True
        try:
            await self._request(
                "kv/range", dict, key=_NOTHING, limit="1", serializable=True, revision=str(revision - 1)
            )
        except Refused as error:
            if _COMPACTED in str(error):
                return True
            raise
        return False

    async def alarms(self) -> tuple[Alarm, ...]:
        return await self._request("maintenance/alarm", responses.alarms, action="GET")

    async def cluster_version(self) -> str:
        version = (await self._versions())["etcdcluster"]
        return "" if version == "not_decided" else version

    async def add_learner(self, peer_url: str) -> Member:
        return await self._request(
            "cluster/member/add", responses.added, CHANGE_TIMEOUT_SECONDS, peerURLs=[peer_url], isLearner=True
        )

    async def promote(self, member_id: int) -> None:
        await self._request("cluster/member/promote", dict, CHANGE_TIMEOUT_SECONDS, ID=str(member_id))

    async def remove(self, member_id: int) -> None:
        await self._request("cluster/member/remove", dict, CHANGE_TIMEOUT_SECONDS, ID=str(member_id))

    async def move_leader(self, to: int) -> None:
        await self._request("maintenance/transfer-leadership", dict, CHANGE_TIMEOUT_SECONDS, targetID=str(to))

    async def disarm(self, alarm: Alarm) -> None:
        body = {"action": "DEACTIVATE", "memberID": str(alarm.member_id), "alarm": alarm.kind}
        await self._request("maintenance/alarm", dict, CHANGE_TIMEOUT_SECONDS, **body)

    async def compact(self, revision: int) -> None:
        with _tolerate(_COMPACTED):
            await self._request("kv/compaction", dict, LONG_TIMEOUT_SECONDS, revision=str(revision), physical=True)

    async def defragment(self) -> None:
        await self._request("maintenance/defragment", dict, LONG_TIMEOUT_SECONDS)

    async def hash_kv(self, revision: int = 0) -> HashKV:
        def read(answer: Any) -> HashKV:
            return responses.hash_kv(answer, revision)

        return await self._request("maintenance/hashkv", read, LONG_TIMEOUT_SECONDS, revision=str(revision))

    async def snapshot(self) -> AsyncGenerator[bytes, None]:
        token = _tokens.get(self._key)
        try:
            async for piece in self._pieces(token):
                yield piece
        except Unauthenticated:  # it is said before the first piece
            token = await self._new_token(token)
            async for piece in self._pieces(token):
                yield piece

    async def auth_enabled(self) -> bool:
        try:
            try:
                return await self._request("auth/status", lambda answer: bool(answer.get("enabled", False)))
            except Unsupported:  # 3.4: what it answers to nobody tells it
                return bool(await self._token("", ""))
        except Denied:  # only who asks for users turns anybody away
            return True

    async def authenticate(self) -> None:
        _tokens.put(self._key, await self._token(self._access.user, self._access.password))

    async def enable_auth(self, user: str, password: str) -> None:
        with _tolerate("user name not found"):
            await self._request("auth/user/delete", dict, CHANGE_TIMEOUT_SECONDS, name=user)
        with _tolerate("role name already exists"):
            await self._request("auth/role/add", dict, CHANGE_TIMEOUT_SECONDS, name=_ROOT)
        await self._request("auth/user/add", dict, CHANGE_TIMEOUT_SECONDS, name=user, password=password)
        await self._request("auth/user/grant", dict, CHANGE_TIMEOUT_SECONDS, user=user, role=_ROOT)
        await self._request("auth/enable", dict, CHANGE_TIMEOUT_SECONDS)

    async def disable_auth(self) -> None:
        await self._request("auth/disable", dict, CHANGE_TIMEOUT_SECONDS)

    async def change_password(self, user: str, password: str) -> None:
        await self._request("auth/user/changepw", dict, CHANGE_TIMEOUT_SECONDS, name=user, password=password)

    async def aclose(self) -> None:
        await self._wire.aclose()

    async def _versions(self) -> dict[str, str]:
        found = await self._wire.get("version", responses.versions)
        self._version = found["etcdserver"]
        return found

    async def _pieces(self, token: str) -> AsyncIterator[bytes]:
        path, sent, last, left = "maintenance/snapshot", 0, 0, 1
        async for line in self._wire.lines(path, token=token):
            try:
                piece, left = responses.piece(line)
            except responses.MALFORMED:
                raise self._wire.refused(path, line) from None
            sent, last = sent + len(piece), len(piece)
            yield piece
        if left or last != _HASH_BYTES:
            raise Unreachable(
                f"{self._wire.label} ended its snapshot after {sent} bytes, before its end: take it again."
            )

    async def _request(
        self, path: str, read: Callable[[Any], Answer], within: float = REQUEST_TIMEOUT_SECONDS, **body: Any
    ) -> Answer:
        """Put a question or a change. What is refused for want of a token was not done: it is put again, with one."""
        token = _tokens.get(self._key)
        try:
            return await self._wire.post(path, body, read, token=token, within=within)
        except Unauthenticated:
            token = await self._new_token(token)
        return await self._wire.post(path, body, read, token=token, within=within)

    async def _new_token(self, refused: str) -> str:
        """A token in place of one that was refused."""
        if not self._access.user:
            raise Unauthenticated(f"{self._wire.label} asks for a user and a password, and none are given.") from None
        known = _tokens.get(self._key)
        if known and known != refused:  # another question brought it meanwhile
            return known
        _tokens.put(self._key, "")
        try:
            token = await self._token(self._access.user, self._access.password)
        except Unreachable:  # a moment ago it did answer
            raise NoLeader(f"{self._wire.label} gives no token to {self._access.user}: it has no quorum.") from None
        _tokens.put(self._key, token)
        return token

    async def _token(self, user: str, password: str) -> str:
        """A new token; empty where nobody is asked for one."""
        body = {"name": user, "password": password}
        with _tolerate("authentication is not enabled"):
            return await self._wire.post("auth/authenticate", body, lambda answer: str(answer["token"]))
        return ""


_COMPACTED = "revision has been compacted"


@contextmanager
def _tolerate(words: str) -> Iterator[None]:
    """Pass over a refusal that says these words."""
    try:
        yield
    except Refused as error:
        if words not in str(error):
            raise


connect: Connect = Gateway
