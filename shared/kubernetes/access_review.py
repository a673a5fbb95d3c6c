"""Lets those read an endpoint whom the API server lets read it: TokenReview and SubjectAccessReview."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from aiohttp import web

from shared.kubernetes.client import Kube
from shared.kubernetes.errors import KubeError, Unavailable
from shared.kubernetes.kinds import Kind, Obj
from shared.observability.endpoints import Handler

TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)

VERDICT_MAX_AGE_SECONDS = 10.0
"""Seconds for which the API server's word on a token is believed."""

MAX_VERDICTS = 256
"""Tokens whose verdicts are remembered at most."""


class AccessVerdict(NamedTuple):
    """What is answered to a request before it is handled: 200 lets it pass, anything else says why not."""

    status: int
    text: str = ""


class Guard:
    """Lets those pass whom the API server knows (TokenReview) and lets GET the path (SubjectAccessReview).

    A client that scrapes often is reviewed once in `VERDICT_MAX_AGE_SECONDS`: a scrape costs at most two requests, and
    usually none. Rights that are withdrawn end after that time.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, kube: Kube, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._verdicts: OrderedDict[tuple[bytes, str], tuple[float, asyncio.Task[AccessVerdict]]] = OrderedDict()

    def protect(self, handler: Handler) -> Handler:
        """The handler, for those who may."""

        async def answer(request: web.Request) -> web.StreamResponse:
            scheme, _, token = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                verdict = AccessVerdict(401, "send a service account's token as `Authorization: Bearer …`")
            else:
                verdict = await self._verdict(token.strip(), request.path)
            if verdict.status == 200:
                return await handler(request)
            headers = {"WWW-Authenticate": "Bearer"} if verdict.status == 401 else {}
            return web.Response(status=verdict.status, text=verdict.text + "\n", headers=headers)

        return answer

    async def _verdict(self, token: str, path: str) -> AccessVerdict:
        key = (hashlib.sha256(token.encode()).digest(), path)  # no token is kept
        expiry, asked = self._verdicts.get(key, (0.0, None))
        if asked is None or self._clock() >= expiry:
            asked = asyncio.create_task(self._ask(token, path))
            self._verdicts[key] = (self._clock() + VERDICT_MAX_AGE_SECONDS, asked)
            self._verdicts.move_to_end(key)
            if len(self._verdicts) > MAX_VERDICTS:
                self._verdicts.popitem(last=False)
        try:
            return await asyncio.shield(asked)  # others may wait for the same
        except KubeError as error:
            self._verdicts.pop(key, None)  # no verdict: the next one asks anew
            status = 503 if isinstance(error, Unavailable) else 500
            return AccessVerdict(status, f"the API server did not say whether you may: {error}")

    async def _ask(self, token: str, path: str) -> AccessVerdict:
        reviewed = (await self._review(TOKEN_REVIEW, {"token": token})).get("status") or {}
        if not reviewed.get("authenticated"):
            return AccessVerdict(401, "the API server does not know this token; it may have expired")
        user = reviewed["user"]
        wanted = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        access = (await self._review(ACCESS_REVIEW, wanted)).get("status") or {}
        if not access.get("allowed"):
            name = wanted["user"]
            return AccessVerdict(
                403, f"{name} may not GET {path}: bind it to a ClusterRole with nonResourceURLs [{path}]"
            )
        return AccessVerdict(200)

    async def _review(self, kind: Kind, spec: Obj) -> Obj:
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}, "spec": spec}
        return await self._kube.create(kind, body)
