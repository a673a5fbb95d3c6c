"""CPU and memory profiles of a running operator, on the loopback interface: use kubectl port-forward.

curl 'http://127.0.0.1:6060/debug/profile?seconds=10'
curl 'http://127.0.0.1:6060/debug/memory'             # with PYTHONTRACEMALLOC=1 in the environment
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
import tracemalloc
from urllib.parse import parse_qs

from shared.observability.http_messages import Request, Response
from shared.observability.http_server import Limits, Route

ADDRESS = "127.0.0.1:6060"

MAX_PROFILE_SECONDS = 300.0
"""Maximum duration of a profile: the operator is slower while it runs."""

LIMITS = Limits(request_seconds=MAX_PROFILE_SECONDS + 60)

MAX_LINES = 60


class Profiler:
    """Profiles the thread of the event loop, one profile at a time."""

    def __init__(self) -> None:
        self._is_busy = False

    @property
    def routes(self) -> list[Route]:
        return [Route("GET", "/debug/profile", self.profile), Route("GET", "/debug/memory", self.memory)]

    async def profile(self, request: Request) -> Response:
        """Return the functions with the most own time during the next `seconds` (default: 10)."""
        given = parse_qs(request.query).get("seconds", ["10"])[-1]
        try:
            seconds = float(given)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= MAX_PROFILE_SECONDS:
            return Response.text(f"seconds={given}: use a number above 0 and at most {MAX_PROFILE_SECONDS:g}\n", 400)
        if self._is_busy:
            return Response.text("another profile is running; retry when it is done\n", 409)
        self._is_busy = True
        profile = cProfile.Profile()
        try:
            with profile:
                await asyncio.sleep(seconds)
        finally:
            self._is_busy = False
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(MAX_LINES)
        return Response.text(text.getvalue())

    async def memory(self, _: Request) -> Response:
        """Return the source lines that allocated the most memory."""
        if not tracemalloc.is_tracing():
            return Response.text("memory is not traced; start with PYTHONTRACEMALLOC=1 set\n", 409)
        snapshot = await asyncio.to_thread(tracemalloc.take_snapshot)
        lines = await asyncio.to_thread(snapshot.statistics, "lineno")
        return Response.text("".join(f"{line}\n" for line in lines[:MAX_LINES]))
