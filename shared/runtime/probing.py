"""Cheap queries of running databases between two reconciles, for changes that no watch reports and that cannot wait.

A probe sends nothing to the API server. If it finds a change, the resource is reconciled at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from shared.kubernetes.kinds import Key
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.queue import Queue

log = logging.getLogger(__name__)

PROBE_INTERVAL_SECONDS = 5.0
"""Seconds between two probes of a resource."""

MAX_CONCURRENT_PROBES = 16
"""Maximum number of resources that are probed at once."""


async def probe_continuously(
    controller: Controller[Any, Any], cache: Cache, queue: Queue, owns: Callable[[Key], bool] = lambda _: True
) -> None:
    """Probe the resources of a controller that this replica reconciles, until cancelled."""
    while True:
        await asyncio.sleep(PROBE_INTERVAL_SECONDS)
        await probe_all(controller, cache, queue, owns)


async def probe_all(
    controller: Controller[Any, Any], cache: Cache, queue: Queue, owns: Callable[[Key], bool] = lambda _: True
) -> None:
    """Probe the resources once, and queue those that must be reconciled."""
    limit = asyncio.Semaphore(MAX_CONCURRENT_PROBES)

    async def probe(key: Key) -> None:
        obj = cache.get(controller.kind, key.namespace, key.name)
        if obj is None or controller.probe is None:
            return
        async with limit:
            try:
                if await controller.probe(obj, cache):
                    queue.add(key)
            except Exception:  # the regular reconcile still observes the resource
                log.exception("%s: internal error of a probe (a bug in the operator)", key)

    await asyncio.gather(*(probe(key) for key in cache.keys(controller.kind) if owns(key)))
