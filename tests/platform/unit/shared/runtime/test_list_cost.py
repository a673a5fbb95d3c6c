"""A list, and an event of a watch, cost little with any objects: one tenant must not stop the operator of all."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pytest

import operators
from shared.cli.options import parse_options
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.errors import TooLarge, Unavailable
from shared.kubernetes.kinds import POD, Kind, Obj
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY
from shared.kubernetes.streams import DELETED, MODIFIED, _event
from shared.kubernetes.transport import HttpTransport, _lines
from shared.observability import metrics
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.install import require_served
from shared.runtime.reflector import CachedContent
from shared.runtime.watch import MAX_LISTS
from tests.harness import cost
from tests.support.list_server import Make, listing

MIB = 1024 * 1024
MEMCACHED = next(operator for operator in operators.installed() if operator.name == "memcached")
SERVED: Kind = MEMCACHED.resources[0].kind


def _controller() -> Controller[Any, Any]:
    options = parse_options(MEMCACHED.process_name, MEMCACHED.name, ["--agent-image=operator:1"], {})
    return MEMCACHED.controllers(options)[0]


def _resource(number: int, **parts: Obj) -> Obj:
    metadata = {"name": f"cache-{number:05}", "namespace": "default", "uid": f"u{number}", "resourceVersion": "5"}
    found = {"apiVersion": SERVED.api_version, "kind": SERVED.name, "metadata": metadata, "spec": {"size": 1}}
    return found | parts | {"metadata": metadata | parts.get("metadata", {})}


def _term(number: int) -> Obj:
    expression = {"key": f"k{number}", "operator": "In", "values": ["a", "b"]}
    return {"weight": number % 100 + 1, "preference": {"matchExpressions": [expression]}}


def small(number: int) -> Obj:
    return _resource(number)


def with_preferences(number: int) -> Obj:
    """Return a resource that admission accepts: 81 KB and 7,930 values."""
    terms = [_term(at) for at in range(880)]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    return _resource(number, spec={"affinity": affinity})


def annotated(number: int) -> Obj:
    return _resource(number, metadata={"annotations": {"a": "x" * 250_000}})


def small_at_first(number: int) -> Obj:
    return small(number) if number < 224 else with_preferences(number)


def oversized(number: int) -> Obj:
    """Return a resource of more values than may be parsed, as without webhooks."""
    return _resource(number, spec={"a": [{"a": {}} for _ in range(140_000)]})


def one_oversized(number: int) -> Obj:
    return oversized(number) if number == 100 else small(number)


def nested(levels: int) -> Obj:
    """Return fieldsV1 of a number of levels, which the API server accepts up to 10,000."""
    found: Obj = {}
    for _ in range(levels):
        found = {"f:a": found}
    return found


HOSTILE_METADATA: dict[str, Obj] = {
    "managed fields of 1,100 levels": {"managedFields": [{"manager": "],", "fieldsV1": nested(1_100)}]},
    "bytes that are not text": {"annotations": {"a": "\udcff"}},
    "75,000 owner references": {
        "ownerReferences": [{"apiVersion": "a", "kind": "b", "name": "],", "uid": f"{at}"} for at in range(75_000)]
    },
    "managed fields of 300,000 keys": {"managedFields": [{"fieldsV1": {f"f:{at}": {} for at in range(300_000)}}]},
    "100,000 labels": {"labels": {"name": "other", "namespace": "other"} | {f"k{at}": "" for at in range(100_000)}},
    "100,000 finalizers": {
        "finalizers": ["a"] * 100_000,
        "annotations": {"a": '],"name":"other","resourceVersion":"7'},
    },
    "annotations in quotes": {"annotations": {f'{{"{at}': "\\" for at in range(100_000)}},
}
"""Metadata that cannot be parsed, or that costs more than an object may."""


def one_hostile(name: str, number: int) -> Obj:
    return _resource(number, metadata=HOSTILE_METADATA[name]) if number == 100 else small(number)


def a_pod(number: int) -> Obj:
    labels = {MANAGED_BY: _controller().operator, INSTANCE: "cache"}
    metadata = {"name": f"pod-{number:05}", "namespace": "default", "resourceVersion": "5", "labels": labels}
    return {"metadata": metadata, "spec": {"containers": [{"env": [{"name": f"e{at}"} for at in range(8_000)]}]}}


class Client:
    """Lists from a server, as an operator does.

    Attributes:
        limits: the limits of the requests.
    """

    def __init__(self, transport: HttpTransport, kind: Kind) -> None:
        self.limits: list[int] = []
        self._transport = transport
        self.kube = Kube(self, manager="memcached")
        self._kind = kind

    async def request(self, request: Request) -> Response:
        self.limits.append(int(request.query.get("limit", 0)))
        return await self._transport.request(request)

    async def load(self) -> Cache:
        cache = _controller().cache(lambda _: None)
        await CachedContent(self.kube, self._kind, None, "", [cache]).load()
        return cache


@contextlib.asynccontextmanager
async def client_of(kind: Kind, make: Make, count: int) -> AsyncIterator[Client]:
    with listing(kind, make, count) as address:
        transport = HttpTransport(Configuration(host=address))
        yield Client(transport, kind)
        await transport.close()


LISTS: dict[str, tuple[Kind, Make, int, int]] = {
    "880 preferences": (SERVED, with_preferences, 100, 100),
    "annotations of 250 KB": (SERVED, annotated, 100, 100),
    "small ones before large ones": (SERVED, small_at_first, 250, 250),
    "one that alone has too many values": (SERVED, one_oversized, 300, 299),
    "pods of 8,000 variables": (POD, a_pod, 60, 60),
    "small ones": (SERVED, small, 2_000, 2_000),
}


OF_EACH_COMMIT = {*LISTS, "managed fields of 300,000 keys", "bytes that are not text", "75,000 owner references"}
LISTS |= {name: (SERVED, functools.partial(one_hostile, name), 300, 299) for name in HOSTILE_METADATA}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in OF_EACH_COMMIT else pytest.mark.nightly) for each in LISTS]
)
async def test_list_of_any_objects_costs_little(
    name: str, record_property: Callable[[str, object], None], caplog: pytest.LogCaptureFixture
) -> None:
    kind, make, count, stored = LISTS[name]
    async with client_of(kind, make, count) as client:
        async with cost.bounded(size=250 * MIB) as found:
            cache = await client.load()
        kept = sum(len(each.packed) for each in cache._kept[kind].values())
        summary = (
            f"list of {count} {kind.plural}, {name}: {len(client.limits)} requests, {found}, {kept / MIB:.1f} stay"
        )
        record_property("summary", summary)
        assert len(cache._kept[kind]) == stored
        if found.peak_bytes - kept > cost.MAX_BYTES:
            raise cost.CostExceeded(summary)
    if stored < count:
        assert "cache-00100 is left out as if it did not exist" in caplog.text
    if make is small:
        assert (len(client.limits), client.limits[-1]) == (10, 250), "two more than with pages of 250 only"


async def test_lists_at_once_cost_little_together(record_property: Callable[[str, object], None]) -> None:
    async with client_of(SERVED, with_preferences, 20) as client:
        async with cost.bounded() as found:
            await asyncio.gather(*(client.load() for _ in range(MAX_LISTS)))
        record_property("summary", f"{MAX_LISTS} lists at once: {found}")


async def test_oversized_resources_are_left_out_and_named_and_do_not_stop_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = metrics.OVERSIZED_OBJECTS.labels(SERVED.name)._value.get()
    async with client_of(SERVED, oversized, 2) as client, cost.bounded():
        await require_served(client.kube, SERVED, ())
        cache = await client.load()
    assert not cache.keys(SERVED)
    assert "default/cache-00001 is left out as if it did not exist" in caplog.text
    assert metrics.OVERSIZED_OBJECTS.labels(SERVED.name)._value.get() >= before + 2


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_answer_of_any_request_costs_little(method: str) -> None:
    """Every user adds to an object, and a write is answered with the whole object."""
    async with client_of(SERVED, oversized, 1) as client, cost.bounded():
        with pytest.raises(TooLarge, match="more than 60000 values"):
            await client.request(Request(method, SERVED.path()))


def of_a_mebibyte(number: int) -> Obj:
    return _resource(number, spec={"a": ["x" * 1024] * 1600})


async def test_large_answers_at_once_cost_little_together() -> None:
    async with client_of(SERVED, of_a_mebibyte, 1) as client:

        async def read() -> None:
            await client.request(Request("GET", SERVED.path()))

        async with cost.bounded():
            await asyncio.gather(*(read() for _ in range(32)))


def of_a_custom_resource(metadata: Obj) -> Obj:
    """Return the object of an event as the API server writes those of CRDs: sorted."""
    return {"apiVersion": SERVED.api_version, "kind": SERVED.name, "metadata": dict(sorted(metadata.items()))}


def of_a_pod(metadata: Obj) -> Obj:
    """Return the object of an event in the order of the fields of Go's types."""
    first = ("name", "generateName", "namespace", "uid", "resourceVersion", "labels")
    ordered = {key: metadata[key] for key in first if key in metadata} | metadata
    return {"kind": POD.name, "apiVersion": POD.api_version, "metadata": ordered}


FORMS: dict[str, tuple[Kind, Callable[[Obj], Obj]]] = {
    "custom resource": (SERVED, of_a_custom_resource),
    "pod": (POD, of_a_pod),
}


@pytest.fixture
def _deep() -> Iterator[None]:
    """Let `json` write many levels, and read them."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(limit)


def line_of(kind: str, obj: Obj) -> bytes:
    text = json.dumps({"type": kind, "object": obj}, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="surrogateescape")


@pytest.mark.usefixtures("_deep")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*HOSTILE_METADATA, "150,000 values"])
async def test_event_of_an_object_that_cannot_be_parsed_deletes_it(
    name: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A later event of a smaller one brings it back."""
    kind, formed = FORMS[form]
    usual = {"name": "cache-00100", "namespace": "default", "uid": "u100", "resourceVersion": "5", "generation": 1}
    values = {"spec": {"a": [{"name": "other", "resourceVersion": "6"} for _ in range(140_000)]}}
    obj = formed(usual | HOSTILE_METADATA.get(name, {})) | ({} if name in HOSTILE_METADATA else values)
    line = line_of(MODIFIED, obj)
    async with cost.bounded():
        event = _event(kind, Request("GET", "/"), line)
    identity = {key: usual[key] for key in ("name", "namespace", "resourceVersion")}
    assert (event.type, event.version, event.obj["metadata"] | identity) == (DELETED, 5, event.obj["metadata"])
    assert f"{kind.name} default/cache-00100 is left out as if it did not exist" in caplog.text
    async with cost.bounded():
        event = _event(kind, Request("GET", "/"), line_of(MODIFIED, formed(usual)))
    assert (event.type, event.version, event.obj["metadata"]) == (MODIFIED, 5, usual)


class Chunks:
    """The content of a response."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    async def iter_any(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            await asyncio.sleep(0)
            yield chunk


async def test_line_of_any_length_costs_little() -> None:
    begin = line_of(MODIFIED, of_a_pod({"name": "a", "resourceVersion": "5", "labels": {"a": ""}}))[:-5]
    chunks = itertools.chain([b"{}\n\n" + begin], (b"x" * 65_536 for _ in range(800)), [b'"}}}\n', b"{", b"}\n"])
    found = list[bytes | str]()
    async with cost.bounded():
        async for line in _lines(Chunks(chunks)):  # type: ignore[arg-type]
            found.append(line if len(line) < MIB else _event(POD, Request("GET", "/"), line).type)
            del line
    assert found == [b"{}", b"", DELETED, b"{}"]


LINES: dict[str, bytes] = {
    "not JSON": b"{" * 4_000,
    "no object": b'{"type":"MODIFIED","object":' + b"[" * 2_000,
    "no name": b'{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"name":"a"},"a":['
    + b'[],"name":"' * 300_000,
    "another kind": line_of(MODIFIED, of_a_pod({"name": "a", "resourceVersion": "5", "a": "\udcff"})).replace(
        b"Pod", b"Pot"
    ),
    "a bookmark": line_of("BOOKMARK", of_a_pod({"name": "a", "resourceVersion": "5", "a": "\udcff"})),
    "text without end": b'{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"annotations":{"' + b"\\" * 3_000_001,
    "many keys without end": b'{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"labels":{' + b'"":"",' * 600_000,
    "many fields": b'{"type":"MODIFIED","object":{"kind":"Pod","metadata":{' + b'"a":"",' * 600_000,
}


@pytest.mark.parametrize("name", LINES)
async def test_line_that_names_no_object_is_an_error_and_costs_little(name: str) -> None:
    """The collection is then listed again."""
    async with cost.bounded():
        with pytest.raises(Unavailable, match="unreadable watch event") as error:
            _event(POD, Request("GET", "/"), LINES[name])
    assert len(str(error.value)) < 300
