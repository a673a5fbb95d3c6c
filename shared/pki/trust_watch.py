"""Notices within a second what changes the trust in an operator's serving certificate.

Each object is watched by its name, so that RBAC can limit the verb to it (`resourceNames`). A watch that is refused or
broken counts as a change, and is opened again: without the verb, the objects are read every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence

from shared.kubernetes.client import METADATA_ONLY
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import Kind
from shared.kubernetes.streams import BOOKMARK, Streams, open_watch

log = logging.getLogger(__name__)

WATCH_SECONDS = 600.0
"""Time after which the API server ends a watch in good order."""

RETRY_SECONDS = 8.0
"""Maximum time until a watch is opened again; with `MIN_INTERVAL_SECONDS`, a change is noticed within 10 s."""

MIN_INTERVAL_SECONDS = 1.0
"""Minimum time between checks, and between watches of an object: another client may change it each time that the
operator restores it."""

NamedObject = tuple[Kind, str | None, str]
"""Kind, namespace (None: cluster-scoped) and name of an object."""


class TrustWatch:
    """Watches of a few objects by name.

    Args:
        objects: the objects, which need not exist.
    """

    def __init__(self, streams: Streams, objects: Sequence[NamedObject]) -> None:
        self._streams = streams
        self._objects = tuple(objects)
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch the objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self._objects:
                group.create_task(self._follow(*each))

    async def wait(self, seconds: float) -> bool:
        """Wait for a change, at most this time; return whether there was one."""
        await asyncio.sleep(min(seconds, MIN_INTERVAL_SECONDS))
        with contextlib.suppress(TimeoutError):  # wait_for of Python 3.11 loses a cancellation at the same moment
            async with asyncio.timeout(max(seconds - MIN_INTERVAL_SECONDS, 0.0)):
                await self._changed.wait()
        is_changed = self._changed.is_set()
        self._changed.clear()
        return is_changed

    async def _follow(self, kind: Kind, namespace: str | None, name: str) -> None:
        while True:
            try:
                watch = open_watch(
                    self._streams, kind, namespace, name=name, since=0, seconds=WATCH_SECONDS, accept=METADATA_ONLY
                )
                async with watch as events:
                    async for event in events:
                        if event.type != BOOKMARK:
                            self._changed.set()
                await asyncio.sleep(MIN_INTERVAL_SECONDS)  # a proxy may end each stream at once
                continue
            except KubeError as error:
                log.debug("cannot watch %s %s, which is read every few seconds instead: %s", kind, name, error)
            self._changed.set()
            await asyncio.sleep(RETRY_SECONDS * random.uniform(0.5, 1.0))
