"""Probes between reconciles: what they queue, and what they do not stop."""

from __future__ import annotations

import asyncio
import dataclasses
from itertools import pairwise
from typing import Any

import pytest

from shared.kubernetes.kinds import Key, Kind, Obj
from shared.kubernetes.ownership import ForeignObject
from shared.runtime import probing
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.probing import MAX_CONCURRENT_PROBES, PROBE_INTERVAL_SECONDS, probe_continuously
from shared.runtime.queue import Queue
from tests.support.virtual_time import in_virtual_time

KIND = Kind("example.com", "v1", "Thing", "things")


async def _unused(*_: Any) -> Any:
    raise AssertionError("probes neither observe nor plan")


async def probe_for(seconds: float, controller: Controller[Any, Any], cache: Cache, queue: Queue) -> None:
    task = asyncio.create_task(probe_continuously(controller, cache, queue))
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.wait({task})


def things(*names: str) -> tuple[Controller[Any, Any], Cache, Queue]:
    controller: Controller[Any, Any] = Controller("operator", KIND, (), dict, _unused, lambda *_: None)  # type: ignore[arg-type]
    cache = controller.cache(lambda _: None)
    for name in names:
        cache.put(
            KIND, {"metadata": {"name": name, "namespace": name.split("-")[0], "uid": name, "resourceVersion": "1"}}
        )
    return controller, cache, Queue("things")


@in_virtual_time
async def test_only_resources_with_a_change_are_queued_and_an_error_stops_no_other_probe() -> None:
    controller, cache, queue = things("changed", "broken", "unchanged")

    async def probe(obj: Obj, _: Cache) -> bool:
        if obj["metadata"]["name"] == "broken":
            raise ValueError("a bug")
        return bool(obj["metadata"]["name"] == "changed")

    await probe_for(PROBE_INTERVAL_SECONDS + 1, dataclasses.replace(controller, probe=probe), cache, queue)
    assert len(queue) == 1
    assert await queue.get() == Key("changed", "changed")


@in_virtual_time
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

    await probe_for(PROBE_INTERVAL_SECONDS + 1, dataclasses.replace(controller, probe=probe), cache, queue)
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


@in_virtual_time
async def test_hung_databases_of_a_namespace_delay_no_other_probe() -> None:
    """Each probe of a hung database lasts as long as its time-out."""
    controller, cache, queue = things(*(f"hung-{number}" for number in range(1000)), "shop-1")
    clock, probed = asyncio.get_running_loop().time, list[float]()

    async def probe(obj: Obj, _: Cache) -> bool:
        if obj["metadata"]["namespace"] == "hung":
            await asyncio.sleep(5.0)
        else:
            probed.append(clock())
        return False

    await probe_for(60.0, dataclasses.replace(controller, probe=probe), cache, queue)
    assert max(later - earlier for earlier, later in pairwise(probed)) <= PROBE_INTERVAL_SECONDS + 1
    assert len(probed) >= 10


@in_virtual_time
async def test_resource_whose_objects_are_not_read_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    controller, cache, queue = things("large")

    async def probe(obj: Obj, _: Cache) -> bool:
        raise ForeignObject("the objects take 20 MiB")

    await probe_for(PROBE_INTERVAL_SECONDS + 1, dataclasses.replace(controller, probe=probe), cache, queue)
    assert not caplog.records
