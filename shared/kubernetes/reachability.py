"""Whether the API server answers, noticed once for everything of a process that waits for it.

While the server is down, each watch and each failed resource backs off by itself, up to a minute. One request per
second notices when the server is ready again, and then everything is tried again at once. While the server answers,
nothing is sent: the first request without an answer starts these requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NoReturn

from shared.kubernetes.client import Request, Response, Transport
from shared.kubernetes.errors import Unavailable

log = logging.getLogger(__name__)

INTERVAL_SECONDS, TIMEOUT_SECONDS = 1.0, 2.0
"""Seconds between two requests while the server is down, and until one counts as not answered."""

FAILURES = 3
"""Requests in a row without an answer after which the server is down. One that is only slow is not: to list everything
again would make it slower."""

UNREADY = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
"""Statuses of a server that is not ready. 500 is an answer, such as about a webhook that failed."""

READY = Request("GET", "/readyz")
"""Request that the API server grants to everyone by default; another one that it refuses is an answer as well."""


class Reachability:
    """Notices when the API server is down, and when it is back.

    Args:
        transport: transport whose connections no other work takes.
        returned: called when the server is ready again after it was down.

    Attributes:
        is_down: whether the server is not ready, as known from its own answer or because there was none.
    """

    def __init__(self, transport: Transport, returned: Callable[[], Awaitable[None]]) -> None:
        self._transport = transport
        self._returned = returned
        self._suspected = asyncio.Event()
        self.is_down = False

    def suspect(self) -> None:
        """Note that a request had no answer."""
        self._suspected.set()

    async def run(self) -> NoReturn:
        """Look for the server each time that it is suspected to be down, until cancelled."""
        while True:
            await self._suspected.wait()
            failures = 0
            while not await self._is_ready():
                failures += 1
                if failures == FAILURES:
                    log.warning("the API server is not ready; looking for it every %g s", INTERVAL_SECONDS)
                    self.is_down = True
                await asyncio.sleep(INTERVAL_SECONDS)
            self._suspected.clear()
            if self.is_down:
                log.info("the API server is ready again")
                self.is_down = False
                await self._returned()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def _is_ready(self) -> bool:
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return (await self._transport.request(READY)).status < 500
        return False


class Reported:
    """A transport that reports requests without an answer.

    Args:
        suspect: called for each (`Reachability.suspect`).
    """

    def __init__(self, transport: Transport, suspect: Callable[[], None]) -> None:
        self._transport = transport
        self._suspect = suspect

    async def request(self, request: Request) -> Response:
        try:
            answer = await self._transport.request(request)
        except (Unavailable, asyncio.CancelledError):  # the caller waits no longer
            self._suspect()
            raise
        if answer.status in UNREADY:
            self._suspect()
        return answer
