"""Bodies of admission reviews that are made to cost much: one value, at any path of the schema, is replaced."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import REGISTRY

import operators
from shared.api.admission import LIMITS, MAX_CREATED, MAX_VALUES, VALIDATE, Size, routes
from shared.api.crd import Resource, to_dict
from shared.kubernetes.kinds import Obj
from shared.observability.http_messages import Request
from shared.observability.http_server import Handler
from tests.harness.cost import Cost, bounded

SAMPLES = Path(__file__).parents[2] / "samples"
MARK = "@bomb@"
REST = Size(64 * 1024, 500)
"""Part of a body that is not replaced; it is smaller."""

IN_A_BODY = Size(LIMITS.body_bytes, MAX_VALUES)
"""Largest size that is read. A state that is larger than `MAX_CREATED` is admitted only with one that is as large."""

TWICE_IN_A_BODY = Size((LIMITS.body_bytes + REST.bytes) // 2, (MAX_VALUES + REST.values) // 2)
"""Size of a bomb's state of which a body has two."""

QUANTITIES = ("1e999999", "1e99999", "1e1000000", "1e99", "1e-1000000", "99999999999999999999999999Ei")
"""Quantities of a few characters, whose integers may have a million digits."""

KINDS = [kind.admission for operator in operators.installed() for kind in operator.kinds]
ADMISSIONS = {admission.kind.name: admission for admission in KINDS if admission is not None}
RESOURCES: dict[str, Resource] = {
    resource.kind.name: resource for operator in operators.installed() for resource in operator.resources
}

HANDLERS: dict[str, Handler] = {route.path: route.handler for route in routes(ADMISSIONS.values())}


@functools.cache
def bombs(limit: Size = MAX_CREATED) -> dict[str, str]:
    """Return large values, as JSON, by name.

    Args:
        limit: size of a state with such a value.
    """
    space, most = limit.bytes - REST.bytes, limit.values - REST.values

    def joined(parts: Iterator[str], *, values: int) -> str:
        """Return parts with commas, as many as the limit permits if each has a number of values."""
        found, size = [], 0
        for part in itertools.islice(parts, most // values):
            size += len(part) + 1
            if size > space:
                break
            found.append(part)
        return ",".join(found)

    def repeated(part: str, *, values: int) -> str:
        return "[" + joined(itertools.repeat(part), values=values) + "]"

    def numbered(key: str, value: str, *, values: int = 1) -> str:
        return "{" + joined((f'"{key}{n}":{value}' for n in itertools.count()), values=values) + "}"

    item = '{"name":"a","value":"b","key":"c","mountPath":"/d","containerPort":1,"image":"e"}'
    named = "[" + joined((f'{{"name":"n{n}","value":"v{n}"}}' for n in itertools.count()), values=3) + "]"
    return {
        "numbers": repeated("0", values=1),
        "texts": repeated('"a"', values=1),
        "long texts": repeated(f'"{"a" * 100}"', values=1),
        "empty lists": repeated("[]", values=2),
        "empty objects": repeated("{}", values=2),
        "equal items": repeated(item, values=7),
        "named items": named,
        "numbers by key": numbered("k", "0"),
        "texts by key": numbered("k", '"v"'),
        "objects by key": numbered("k", "{}", values=2),
        "invalid keys": numbered("K /", '"v"'),
        "long keys": "{" + ",".join(f'"{n}{"k" * (space // 20)}":"v"' for n in range(19)) + "}",
        "duplicate keys": "{" + joined(itertools.repeat('"k":"v"'), values=1) + "}",
        "text": f'"{"a" * space}"',
        "wide text": '"' + "a" * (space - 4) + "\U0001f600" + '"',
        "escaped text": '"' + "\\u1234" * (space // 6) + '"',
        "surrogate": '"' + "\\ud800" * 100 + '"',
        "spaces": f'"{" " * space}"',
        "lines": '"' + "\\n" * (space // 2) + '"',
        "nested lists": "[" * 900 + "]" * 900,
        "nested lists in text": "[" * 60 + '"a"' + "]" * 60,
        "nested objects": '{"a":' * 900 + "0" + "}" * 900,
        "nested objects in text": '{"a":' * 60 + "0" + "}" * 60,
        "digits": "9" * 4300,
        "many digits": "9" * space,
        "numbers with digits": repeated("9" * 4000, values=1),
        "fraction": "0." + "9" * space,
        "fractions": repeated("1e-400", values=1),
        "exponent": "1e" + "9" * space,
        "digits in text": '"' + "9" * space + '"',
        **{quantity: f'"{quantity}"' for quantity in QUANTITIES},
        "not a number": "NaN",
        "null": "null",
        "true": "true",
        "zero": "0",
        "word": '"a"',
        "list": "[]",
        "object": "{}",
    }


@functools.cache
def sample(kind: str) -> Obj:
    """Return the largest sample of a kind."""
    documents = [
        document
        for path in sorted(SAMPLES.rglob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document and document.get("kind") == kind
    ]
    found: Obj = max(documents, key=lambda document: len(json.dumps(document)))
    return {**found, "metadata": {**found["metadata"], "namespace": "default"}}


FieldPath = tuple[str | int, ...]

COSTLY: list[FieldPath] = [
    ("spec",),
    ("spec", "affinity"),
    ("spec", "resources", "limits"),
    ("spec", "config"),
    ("spec", "env"),
    ("spec", "annotations"),
    ("spec", "extraVolumeMounts"),
    ("spec", "backup", "schedule"),
    ("status",),
    ("metadata",),
    ("metadata", "name"),
]
"""Paths at which a body of less than 4 MiB took more than 0.1 s or 20 MiB, or could, or met a bug."""

CHANGES = ("equal items", "named items", "objects by key", "wide text", "object", "word")
"""Bombs that are also sent as the state before a change, alone and with the same one after it."""


def fields(schema: Obj, path: FieldPath) -> Iterator[tuple[FieldPath, Obj]]:
    """Yield the paths of a schema with their schemas; within lists, those of the first item."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from fields(inner, (*path, name))
    if "items" in schema:
        yield from fields(schema["items"], (*path, 0))
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict):
        for name in ("cpu", "memory") if is_number(inner) else ("key",):
            yield from fields(inner, (*path, name))


def is_number(schema: Obj) -> bool:
    """Return whether a field is a quantity, or another number that may be text."""
    return bool(schema.get("x-kubernetes-int-or-string"))


@functools.cache
def fields_of(kind: str) -> dict[FieldPath, Obj]:
    properties = to_dict(RESOURCES[kind])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return {**dict(fields(properties["spec"], ("spec",))), **dict(fields(properties.get("status", {}), ("status",)))}


@functools.cache
def paths_of(kind: str) -> list[FieldPath]:
    around = [(), ("metadata",), ("metadata", "name"), ("metadata", "labels"), ("metadata", "annotations"), ("kind",)]
    return [*fields_of(kind), *around]


def replaced(obj: Any, path: FieldPath, value: Any) -> Any:
    """Return an object with a value at a path; what is in the way is replaced, other fields stay."""
    if not path:
        return value
    first, *rest = path
    if isinstance(first, int):
        items = obj if isinstance(obj, list) and obj else [{}]
        return [replaced(items[0], tuple(rest), value), *items[1:]]
    fields = obj if isinstance(obj, dict) else {}
    return {**fields, first: replaced(fields.get(first), tuple(rest), value)}


def body_of(kind: str, obj: Any, old: Any, bomb: str) -> bytes:
    given = ADMISSIONS[kind].kind
    request = {
        "uid": "u",
        "kind": {"group": given.group, "version": given.version, "kind": given.name},
        "operation": "UPDATE" if old else "CREATE",
        "object": obj,
        "oldObject": old,
        "dryRun": True,  # the response has more
    }
    review = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    return review.replace(f'"{MARK}"', bomb).encode(errors="surrogatepass")


def panics() -> float:
    return REGISTRY.get_sample_value("controller_runtime_webhook_panics_total") or 0.0


async def judge(kind: str, paths: Sequence[FieldPath]) -> list[str]:
    """Replace the value at each path by each bomb, in a creation and in a change, and judge what the reviews cost.

    Each body gets an answer, and no bug is found. Call it in a process of its own (`tests.harness.cost.alone`).

    Returns:
        a line for each path.
    """
    logging.getLogger("shared.api.admission").setLevel(logging.CRITICAL)
    return [await _judge(kind, at) for at in paths]


async def _judge(kind: str, at: FieldPath) -> str:
    obj = replaced(sample(kind), at, MARK)
    bodies = {name: body_of(kind, obj, None, bomb) for name, bomb in bombs().items()}
    bodies |= {f"{name}, before": body_of(kind, sample(kind), obj, bombs(IN_A_BODY)[name]) for name in CHANGES}
    bodies |= {f"{name}, unchanged": body_of(kind, obj, obj, bombs(TWICE_IN_A_BODY)[name]) for name in CHANGES}
    if at[:1] == ("spec",):
        changed = replaced(obj, ("spec", "labels", "changed"), "yes")
        bodies |= {f"{name}, twice": body_of(kind, changed, obj, bombs(TWICE_IN_A_BODY)[name]) for name in CHANGES}
    bodies |= {f"{name}, large": body_of(kind, obj, None, bomb) for name, bomb in bombs(IN_A_BODY).items()}
    before = panics()
    try:
        cost = await _judged(bodies)
    except AssertionError:  # memory that bodies leave adds up, and is no cost of one: judge each alone
        costs = [await _judged({name: body}) for name, body in bodies.items()]
        cost = Cost(max(each.seconds for each in costs), "", max(each.peak_bytes for each in costs))
    assert panics() == before, at
    return f"hostile reviews: {kind} {'.'.join(map(str, at))}: {2 * len(bodies)} bodies, {cost}"


async def judge_quantities(kind: str) -> str:
    """Replace each quantity by hostile ones, as `judge` does, and return what the most costly field takes."""
    logging.getLogger("shared.api.admission").setLevel(logging.CRITICAL)
    before, costs = panics(), dict[FieldPath, Cost]()
    for at in (at for at, schema in fields_of(kind).items() if is_number(schema)):
        obj = replaced(sample(kind), at, MARK)
        created = {quantity: body_of(kind, obj, None, f'"{quantity}"') for quantity in QUANTITIES}
        changed = {f"{quantity}, before": body_of(kind, sample(kind), obj, f'"{quantity}"') for quantity in QUANTITIES}
        costs[at] = await _judged(created | changed)
    assert panics() == before
    most = max(costs.values(), key=lambda cost: cost.seconds)
    return f"hostile quantities: {kind}: {len(costs)} fields, {most}"


async def _judged(bodies: Mapping[str, bytes]) -> Cost:
    """Send bodies to each webhook, and return what they cost together."""
    async with bounded() as cost:
        for name, body in bodies.items():
            assert len(body) <= LIMITS.body_bytes
            for path, handler in HANDLERS.items():
                answer = await handler(Request("POST", path, body=body))
                assert answer.status in {200, 400}, (name, answer)
                if path == VALIDATE:
                    assert len(answer.body) < 64 * 1024, name
                del answer
                await asyncio.sleep(0)
    return cost
