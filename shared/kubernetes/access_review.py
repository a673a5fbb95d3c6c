"""Authentication and authorization of HTTP requests by the API server: TokenReview and SubjectAccessReview."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from shared.kubernetes.client import Kube
from shared.kubernetes.errors import KubeError, Unavailable
from shared.kubernetes.kinds import Kind
from shared.observability.http_messages import Request, Response
from shared.observability.http_server import Handler

TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)

VERDICT_MAX_AGE_SECONDS = 10.0
"""Seconds for which the verdict of the API server on a token is cached."""

REVIEW_TIMEOUT_SECONDS = 5.0
"""Seconds after which a request whose review has no result is answered with 503."""

MAX_VERDICTS = 256
"""Maximum number of cached verdicts."""


class AccessVerdict(NamedTuple):
    """Result of a review: 200 lets the request pass; any other status rejects it, with the reason."""

    status: int
    text: str = ""


class Guard:
    """Lets a request pass if its token is valid (TokenReview) and its user may GET the path (SubjectAccessReview).

    Verdicts are cached for `VERDICT_MAX_AGE_SECONDS`: a scrape costs at most two requests, and usually none. The
    removal of a permission takes effect after that time.

    Args:
        clock: monotonic time in seconds.
    """

    def __init__(self, kube: Kube, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._verdicts: OrderedDict[tuple[bytes, str], tuple[float, asyncio.Task[AccessVerdict]]] = OrderedDict()

    def protect(self, handler: Handler) -> Handler:
        """Return the handler, restricted to authorized requests."""

        async def answer(request: Request) -> Response:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                verdict = AccessVerdict(401, "send the token of a service account as `Authorization: Bearer …`")
            else:
                verdict = await self._verdict(token.strip(), request.path)
            if verdict.status == 200:
                return await handler(request)
            headers = {"WWW-Authenticate": "Bearer"} if verdict.status == 401 else {}
            return Response.text(f"{verdict.text}\n", verdict.status, headers)

        return answer

    async def _verdict(self, token: str, path: str) -> AccessVerdict:
        key = (hashlib.sha256(token.encode()).digest(), path)  # the token itself is not stored
        expiry, review = self._verdicts.get(key, (0.0, None))
        if review is None or self._clock() >= expiry:
            review = asyncio.create_task(self._review_in_time(token, path))
            self._verdicts[key] = (self._clock() + VERDICT_MAX_AGE_SECONDS, review)
            self._verdicts.move_to_end(key)
            if len(self._verdicts) > MAX_VERDICTS:
                self._verdicts.popitem(last=False)
        try:
            return await asyncio.shield(review)  # other requests may wait for the same review
        except KubeError as error:
            self._verdicts.pop(key, None)  # no verdict: the next request is reviewed again
            status = 503 if isinstance(error, Unavailable) else 500
            return AccessVerdict(status, f"the API server could not review the request: {error}")

    async def _review_in_time(self, token: str, path: str) -> AccessVerdict:
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT_SECONDS):
                return await self._review_request(token, path)
        except TimeoutError:
            raise Unavailable(f"no answer within {REVIEW_TIMEOUT_SECONDS:g} s") from None

    async def _review_request(self, token: str, path: str) -> AccessVerdict:
        reviewed = await self._kube.review(TOKEN_REVIEW, {"token": token})
        if not reviewed.get("authenticated"):
            return AccessVerdict(401, "the API server rejects this token; it may have expired")
        user = reviewed.get("user") or {}
        attributes = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        access = await self._kube.review(ACCESS_REVIEW, attributes)
        if not access.get("allowed"):
            name = attributes["user"]
            return AccessVerdict(
                403, f"{name} may not GET {path}: bind it to a ClusterRole with nonResourceURLs [{path}]"
            )
        return AccessVerdict(200)
