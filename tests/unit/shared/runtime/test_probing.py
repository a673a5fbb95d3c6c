"""Probes between reconciles: what they queue, and what they do not stop."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from shared.kubernetes.kinds import Key, Kind, Obj
from shared.runtime import probing
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.probing import MAX_CONCURRENT_PROBES, probe_all, probe_continuously
from shared.runtime.queue import Queue

KIND = Kind("example.com", "v1", "Thing", "things")


async def _unused(*_: Any) -> Any:
    raise AssertionError("probes neither observe nor plan")


def things(*names: str) -> tuple[Controller[Any, Any], Cache, Queue]:
    controller: Controller[Any, Any] = Controller("operator", KIND, (), dict, _unused, lambda *_: None)  # type: ignore[arg-type]
    cache = controller.cache(lambda _: None)
    for name in names:
        cache.put(KIND, {"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}})
    return controller, cache, Queue("things")


async def test_only_resources_with_a_change_are_queued_and_an_error_stops_no_other_probe() -> None:
    controller, cache, queue = things("changed", "broken", "unchanged")

    async def probe(obj: Obj, _: Cache) -> bool:
        if obj["metadata"]["name"] == "broken":
            raise ValueError("a bug")
        return bool(obj["metadata"]["name"] == "changed")

    await probe_all(dataclasses.replace(controller, probe=probe), cache, queue)
    assert len(queue) == 1
    assert await queue.get() == Key("default", "changed")


async def test_number_of_concurrent_probes_is_limited() -> None:
    controller, cache, queue = things(*(f"t-{number}" for number in range(3 * MAX_CONCURRENT_PROBES)))
    running, most = 0, 0

    async def probe(_obj: Obj, _cache: Cache) -> bool:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return False

    await probe_all(dataclasses.replace(controller, probe=probe), cache, queue)
    assert most == MAX_CONCURRENT_PROBES


async def test_probes_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PROBE_INTERVAL_SECONDS", 0.001)
    controller, cache, queue = things("one")
    repeated = asyncio.Event()
    probes = 0

    async def probe(_obj: Obj, _cache: Cache) -> bool:
        nonlocal probes
        probes += 1
        if probes == 3:
            repeated.set()
        return False

    task = asyncio.create_task(probe_continuously(dataclasses.replace(controller, probe=probe), cache, queue))
    await asyncio.wait_for(repeated.wait(), 5)
    task.cancel()
    assert len(queue) == 0
