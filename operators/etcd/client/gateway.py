"""Client of one etcd member through its JSON gateway.

python-etcd3 does not support learners, and its generated code does not import with current protobuf versions. The
gateway, which every server has, offers all calls over plain HTTP. Its properties:

- The gateway presents the server's own certificate to the server behind it. The certificate must therefore be valid for
  client auth, too.
- With authentication, it rejects client certificates that have a common name (400), because etcd would take it for the
  user. The operator's certificate must have none.
- With authentication, nearly every request needs a token. Only a quorum issues one, and it goes through Raft's log. So
  it is valid at every member until it is unused for 5 minutes, or the member restarts. A learner issues none, but
  accepts those issued since it joined.
- A member is added only after all voters have been connected for 5 seconds.

Credentials appear in no error, and are sent only to servers that require them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from operators.etcd.client import responses
from operators.etcd.client.errors import Denied, NoLeader, Refused, Unauthenticated, Unreachable
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
"""Timeout of a change; etcd itself times out after 7 s (with the default election timeout), except for members."""

LONG_TIMEOUT_SECONDS = 300.0
"""Timeout of requests whose duration grows with the database, such as a defragmentation; etcd continues after it."""

_NOTHING = "AA=="
"""Lowest possible key, in base64."""

_ROOT = "root"
_HASH_BYTES = 32

Answer = TypeVar("Answer")
Key = tuple[str, int, str, str]


class Tokens:
    """Tokens of members for a user and the digest of a password; the least recently used ones are dropped."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._known: OrderedDict[Key, str] = OrderedDict()

    def get(self, key: Key) -> str:
        """Return the token; empty if there is none."""
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key, "")

    def put(self, key: Key, token: str) -> None:
        """Store a token; an empty one deletes it."""
        self._known.pop(key, None)
        if token:
            self._known[key] = token
        if len(self._known) > self._most:
            self._known.popitem(last=False)


_tokens = Tokens()


class Gateway:
    """Client of one member's server; see `Server`."""

    def __init__(self, endpoint: Endpoint, access: Access) -> None:
        cluster = endpoint.host.partition(".")[2]  # tokens are valid at all members of a cluster
        password = hashlib.sha256(access.password.encode()).hexdigest()
        self._key = (cluster, endpoint.port, access.user, password)
        self._access = access
        self._wire = Wire(endpoint, access)
        self._version = ""

    async def status(self) -> EndpointStatus:
        found = await self._request("maintenance/status", responses.status)
        self._version = found.version
        return found

    async def members(self) -> Members:
        version = self._version or (await self._versions())["etcdserver"]
        if version.startswith("3.4."):  # 3.4 lists its local members: a linearizable read first, to catch up
            await self._request("kv/range", dict, key=_NOTHING, limit="1", keys_only=True)
        return await self._request("cluster/member/list", responses.members, linearizable=True)

    async def remembered_members(self) -> Members:
        return await self._request("cluster/member/list", responses.members, linearizable=False)

    async def progress(self) -> RaftProgress:
        return await self._wire.metrics(responses.progress)

    async def has_alarm(self) -> bool:
        return await self._wire.health(responses.has_alarm)

    async def is_compacted(self, revision: int) -> bool:
        if revision < 2:  # there is nothing before the first revision
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

    async def enable_downgrade(self, series: str) -> None:
        with _tolerate("downgrade job in progress"):  # the status shows its target
            await self._request("maintenance/downgrade", dict, CHANGE_TIMEOUT_SECONDS, action="ENABLE", version=series)

    async def cancel_downgrade(self) -> None:
        with _tolerate("no inflight downgrade"):
            await self._request("maintenance/downgrade", dict, CHANGE_TIMEOUT_SECONDS, action="CANCEL")

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
        except Unauthenticated:  # raised before the first piece
            token = await self._new_token(token)
            async for piece in self._pieces(token):
                yield piece

    async def auth_enabled(self) -> bool:
        # A read of the member's own data, without a token. auth/status goes through Raft's log.
        try:
            await self._wire.post("kv/range", {"key": _NOTHING, "serializable": True, "count_only": True}, dict)
        except Denied:  # only a server with authentication rejects a request
            return True
        return False

    async def authenticate(self) -> None:
        _tokens.put(self._key, await self._token(self._access.user, self._access.password))

    async def enable_auth(self, user: str, password: str) -> None:
        await self.replace_user(user, password, _ROOT)
        await self._request("auth/enable", dict, CHANGE_TIMEOUT_SECONDS)

    async def disable_auth(self) -> None:
        await self._request("auth/disable", dict, CHANGE_TIMEOUT_SECONDS)

    async def change_password(self, user: str, password: str) -> None:
        await self._request("auth/user/changepw", dict, CHANGE_TIMEOUT_SECONDS, name=user, password=password)

    async def roles(self, user: str) -> tuple[str, ...] | None:
        try:
            return await self._request("auth/user/get", responses.roles, name=user)
        except Refused as error:
            if _NO_USER in str(error):
                return None
            raise

    async def replace_user(self, user: str, password: str, role: str) -> None:
        with _tolerate(_NO_USER):
            await self._request("auth/user/delete", dict, CHANGE_TIMEOUT_SECONDS, name=user)
        with _tolerate("role name already exists"):
            await self._request("auth/role/add", dict, CHANGE_TIMEOUT_SECONDS, name=role)
        if role != _ROOT:
            every_key = {"permType": "READWRITE", "key": _NOTHING, "range_end": _NOTHING}
            await self._request("auth/role/grant", dict, CHANGE_TIMEOUT_SECONDS, name=role, perm=every_key)
        await self._request("auth/user/add", dict, CHANGE_TIMEOUT_SECONDS, name=user, password=password)
        await self._request("auth/user/grant", dict, CHANGE_TIMEOUT_SECONDS, user=user, role=role)

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
            raise Unreachable(f"{self._wire.label} ended its snapshot early, after {sent} bytes: take it again.")

    async def _request(
        self, path: str, read: Callable[[Any], Answer], within: float = REQUEST_TIMEOUT_SECONDS, **body: Any
    ) -> Answer:
        """Send a request; if it is rejected for its token, and so not executed, send it again with a new one."""
        token = _tokens.get(self._key)
        try:
            return await self._wire.post(path, body, read, token=token, within=within)
        except Unauthenticated:
            token = await self._new_token(token)
        return await self._wire.post(path, body, read, token=token, within=within)

    async def _new_token(self, refused: str) -> str:
        """Return a token that replaces a rejected one."""
        if not self._access.user:
            raise Unauthenticated(
                f"{self._wire.label} requires a user and a password, and none are configured."
            ) from None
        known = _tokens.get(self._key)
        if known and known != refused:  # another request has stored it in the meantime
            return known
        _tokens.put(self._key, "")
        try:
            token = await self._token(self._access.user, self._access.password)
        except Unreachable:  # the server answered just before
            raise NoLeader(
                f"{self._wire.label} cannot issue a token for {self._access.user}: it has no quorum."
            ) from None
        _tokens.put(self._key, token)
        return token

    async def _token(self, user: str, password: str) -> str:
        """Request a token; empty if authentication is disabled."""
        body = {"name": user, "password": password}
        with _tolerate("authentication is not enabled"):
            return await self._wire.post("auth/authenticate", body, responses.token)
        return ""


_COMPACTED = "revision has been compacted"
_NO_USER = "user name not found"


@contextmanager
def _tolerate(words: str) -> Iterator[None]:
    """Ignore a rejection whose message contains `words`."""
    try:
        yield
    except Refused as error:
        if words not in str(error):
            raise


connect: Connect = Gateway
