"""Cheap queries of running databases between two reconciles, for changes that no watch reports and that cannot wait.

A probe sends nothing to the API server. If it finds a change, the resource is reconciled at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from shared.kubernetes.fair_pool import FairPool
from shared.kubernetes.kinds import Key
from shared.kubernetes.ownership import ForeignObject
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.queue import Queue

log = logging.getLogger(__name__)

PROBE_INTERVAL_SECONDS = 5.0
"""Seconds between two probes of a resource."""

MAX_CONCURRENT_PROBES = 16
"""Maximum number of resources that are probed at once, without those whose databases do not answer at once."""


async def probe_continuously(
    controller: Controller[Any, Any], cache: Cache, queue: Queue, owns: Callable[[Key], bool] = lambda _: True
) -> None:
    """Probe the resources of a controller that this replica reconciles, until cancelled."""

    async def probe(key: Key) -> None:
        obj = cache.get(controller.kind, key.namespace, key.name)
        if obj is None or controller.probe is None:
            return
        try:
            if await controller.probe(obj, cache):
                queue.add(key)
        except ForeignObject as error:  # the reconcile reports it
            log.debug("%s: not probed: %s", key, error)
        except Exception:  # the regular reconcile still observes the resource
            log.exception("%s: internal error of a probe (a bug in the operator)", key)

    pool = FairPool(probe, 2 * MAX_CONCURRENT_PROBES)  # half of them are slow
    async with asyncio.TaskGroup() as group:
        group.create_task(pool.run())
        while True:
            await asyncio.sleep(PROBE_INTERVAL_SECONDS)
            for key in cache.keys(controller.kind):
                if owns(key) and key not in pool:
                    pool.add(key, key.namespace)
