"""Responses of the webhooks: defaults as a patch, denials with every error, and never an allowance by mistake."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from unittest.mock import ANY

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from shared.api.admission import (
    DEFAULT,
    LIMITS,
    MAX_VALUES,
    VALIDATE,
    _size_of,
    json_patch,
    routes,
)
from shared.api.spec import Admission, Review
from shared.kubernetes.encoding import MAX_PARSED_BYTES, MAX_PARSED_VALUES, count_values
from shared.kubernetes.kinds import Kind, Obj
from shared.observability import http_server
from shared.observability.http_messages import Request
from tools.local.machine.network import free_ports

KIND = Kind("example.com", "v1", "Cup", "cups")

Client = aiohttp.ClientSession


def with_size(obj: Obj) -> Obj:
    """Default the size of a cup to what is poured."""
    spec = obj.get("spec") or {}
    return {**obj, "spec": {"size": spec.get("poured", 1), **spec}}


def review(obj: Obj, old: Obj | None) -> Review:
    spec = with_size(obj)["spec"]
    errors = []
    if spec.get("poured", 0) > spec["size"]:
        errors.append(f"spec.poured: {spec['poured']} exceeds size; pour less.")
    if old is not None and spec["size"] < with_size(old)["spec"]["size"]:
        errors.append("spec.size: a cup cannot shrink; create another.")
    if not obj["metadata"]["name"].islower():
        errors.append("the name of a cup must be lower-case; rename it.")
    if spec["size"] == 13:
        raise RuntimeError("simulated bug")
    return Review(tuple(errors), ("spec.size: 7\nis odd.",) * 2 if spec["size"] == 7 else ())


def restarts(before: Obj, after: Obj) -> bool:
    return bool(before["spec"].get("glaze") != after["spec"].get("glaze"))


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    (port,) = free_ports(1)
    async with AsyncExitStack() as stack:
        served = routes([Admission(KIND, with_size, review, restarts=restarts)])
        await http_server.serve(stack, f"127.0.0.1:{port}", served, limits=LIMITS)
        yield await stack.enter_async_context(aiohttp.ClientSession(f"http://127.0.0.1:{port}"))


def cup(name: str = "cup", **spec: Any) -> Obj:
    return {"apiVersion": "example.com/v1", "kind": "Cup", "metadata": {"name": name}, "spec": spec}


def review_of(obj: Obj | None, old: Obj | None = None, **request: Any) -> Obj:
    kind = {"group": KIND.group, "version": KIND.version, "kind": KIND.name}
    operation = "CREATE" if old is None else "UPDATE"
    request = {"uid": "u", "kind": kind, "operation": operation, "object": obj, "oldObject": old, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def answer(client: Client, path: str, obj: Obj | None, old: Obj | None = None, **request: Any) -> Obj:
    async with client.post(path, json=review_of(obj, old, **request)) as found:
        assert found.status == 200, await found.text()
        review = await found.json()
        assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        assert review["response"].pop("uid") == "u"
        response: Obj = review["response"]
        return response


def patch_of(response: Obj) -> list[Obj]:
    assert response["patchType"] == "JSONPatch"
    found: list[Obj] = json.loads(base64.b64decode(response["patch"]))
    return found


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_defaults_are_returned_as_a_patch_once(client: Client) -> None:
    obj = cup(poured=3)
    response = await answer(client, DEFAULT, obj)
    assert response["allowed"]
    assert patch_of(response) == [{"op": "add", "path": "/spec/size", "value": 3}]
    assert await answer(client, DEFAULT, with_size(obj)) == {"allowed": True}


async def test_valid_resource_is_allowed_without_warnings(client: Client) -> None:
    assert await answer(client, VALIDATE, cup(size=3)) == {"allowed": True}


async def test_invalid_resource_is_denied_with_every_error_as_a_cause(client: Client) -> None:
    before = counted("platform_webhook_refusals_total", kind="Cup")
    response = await answer(client, VALIDATE, cup("Big", poured=5, size=2))
    assert not response["allowed"]
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    poured, name = "spec.poured: 5 exceeds size; pour less.", "the name of a cup must be lower-case; rename it."
    assert status["message"] == f"{poured} {name}"
    assert (status["details"]["kind"], status["details"]["name"]) == ("Cup", "Big")
    assert [(cause["field"], cause["message"]) for cause in status["details"]["causes"]] == [
        ("spec.poured", "5 exceeds size; pour less."),
        ("cup", name),
    ]
    assert counted("platform_webhook_refusals_total", kind="Cup") == before + 1


async def test_warning_is_a_single_line_and_not_repeated(client: Client) -> None:
    assert await answer(client, VALIDATE, cup(size=7)) == {"allowed": True, "warnings": ["spec.size: 7 is odd."]}


async def test_change_is_validated_against_the_previous_state(client: Client) -> None:
    response = await answer(client, VALIDATE, cup(size=2), cup(size=3))
    assert response["status"]["message"] == "spec.size: a cup cannot shrink; create another."


@pytest.mark.parametrize("old", [cup(poured=5, size=2), cup("Big", size=2)])
async def test_invalid_old_spec_blocks_neither_labels_nor_finalizers(client: Client, old: Obj) -> None:
    new = copy.deepcopy(old)
    new["metadata"] |= {"labels": {"a": "b"}, "finalizers": []}
    assert await answer(client, VALIDATE, new, old) == {"allowed": True}
    new["spec"]["size"] += 1
    assert not (await answer(client, VALIDATE, new, old))["allowed"]


async def test_default_newer_than_the_resource_is_not_a_change_of_the_spec(client: Client) -> None:
    old = cup("Big", poured=2)
    assert await answer(client, VALIDATE, with_size(old), old) == {"allowed": True}


PLAN = "dry run: kubectl platform plan -f FILE shows each step of this change."


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"glaze": "red"}, {"glaze": "blue"}, ["dry run: replaces the pods, one by one (spec.glaze)."]),
        ({}, {"poured": 1, "saucer": {}}, ["dry run: replaces no pod (spec.poured, spec.saucer)."]),
        ({"size": 2}, {"size": 5}, ["dry run: adds 3 pods (2 → 5).", "dry run: replaces no pod (spec.size)."]),
        ({"size": 2, "replicas": 3}, {"size": 2, "replicas": 1}, ["dry run: removes 2 pods (3 → 1).", ANY]),
    ],
)
async def test_dry_run_shows_what_a_change_does(client: Client, before: Obj, after: Obj, shown: list[str]) -> None:
    old, new = cup(**before), cup(**after)
    found = await answer(client, VALIDATE, new, old, dryRun=True)
    assert found == {"allowed": True, "warnings": [*shown, PLAN]}
    assert await answer(client, VALIDATE, new, old, dryRun=False) == {"allowed": True}


async def test_dry_run_of_a_creation_or_of_the_same_spec_or_of_a_refused_change_shows_no_change(client: Client) -> None:
    assert await answer(client, VALIDATE, cup(glaze="red"), None, dryRun=True) == {"allowed": True}
    assert await answer(client, VALIDATE, cup(glaze="red"), cup(glaze="red"), dryRun=True) == {"allowed": True}
    overfull = cup(size=1, poured=2)
    assert await answer(client, VALIDATE, cup(size=2, poured=2), overfull, dryRun=True) == {"allowed": True}
    refused = await answer(client, VALIDATE, cup(size=1), cup(size=2), dryRun=True)
    assert not refused["allowed"]
    assert "warnings" not in refused


@pytest.mark.parametrize("path", [DEFAULT, VALIDATE])
async def test_resource_being_deleted_is_not_changed(client: Client, path: str) -> None:
    leaving = cup("Big", poured=5)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert await answer(client, path, leaving, cup("Big", poured=4)) == {"allowed": True}
    assert await answer(client, path, None, cup()) == {"allowed": True}, "a webhook rule may include deletions"


@pytest.mark.parametrize(
    ("body", "because"),
    [
        ("{", "the body cannot be parsed"),
        ("[" * 10_000, "the body cannot be parsed"),
        ("[" * 100_000, "the body has about 100000 values; use at most 20000"),
        (json.dumps(review_of(cup(deep=json.loads("[" * 99 + "]" * 99)))), "more than 64 levels"),
        (json.dumps(review_of(cup(number=float("nan")))), "the body cannot be parsed"),
        (json.dumps(review_of({"metadata": []})), "metadata of a resource is not an object"),
        (json.dumps(review_of({"metadata": {}})), "no metadata.name"),
        ("[]", "not another type"),
        (
            '{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}',
            "Set admissionReviewVersions",
        ),
        (json.dumps(review_of(cup()) | {"request": {}}), "no request with a uid"),
        (json.dumps(review_of(cup(), kind={"group": "", "version": "v1", "kind": "Pod"})), "does not serve Pod of /v1"),
        (json.dumps(review_of(cup(), object=["a"])), "are not objects"),
        (json.dumps(review_of(cup(), kind=["a"])), "does not serve"),
        (json.dumps(review_of(cup(), kind={"group": ["a"]})), "does not serve"),
    ],
)
async def test_bad_request_is_answered_with_the_problem(client: Client, body: str, because: str) -> None:
    before = counted("controller_runtime_webhook_requests_total", webhook=VALIDATE, code="400")
    async with client.post(VALIDATE, data=body) as found:
        assert found.status == 400
        assert because in await found.text()
    assert counted("controller_runtime_webhook_requests_total", webhook=VALIDATE, code="400") == before + 1


async def test_long_values_of_a_bad_request_are_not_repeated(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Any client can send requests: its text must fill neither the log nor the memory."""
    long = "x" * 100_000
    bodies = [
        {"apiVersion": long, "kind": long},
        review_of(cup(), kind=dict.fromkeys(("group", "version", "kind"), long)),
    ]
    for body in bodies:
        async with client.post(VALIDATE, json=body) as found:
            assert found.status == 400
            assert len(await found.text()) < 1000
    assert all(len(line) < 1000 for line in caplog.messages)


async def test_internal_error_allows_nothing_and_is_counted(client: Client) -> None:
    panics = counted("controller_runtime_webhook_panics_total")
    async with client.post(VALIDATE, json=review_of(cup(size=13))) as found:
        assert found.status == 500
        assert "superstitious" not in await found.text()
    async with client.post(DEFAULT, json=review_of({"metadata": {"name": "cup"}, "spec": "tea"})) as found:
        assert found.status == 500
    assert counted("controller_runtime_webhook_panics_total") == panics + 2
    assert counted("controller_runtime_webhook_requests_total", webhook=DEFAULT, code="500") >= 1


async def test_large_object_is_accepted_and_a_larger_one_is_not(client: Client) -> None:
    large = cup(size=3, text="x" * 500_000)
    assert await answer(client, VALIDATE, large, large) == {"allowed": True}
    async with client.post(VALIDATE, data=b"x" * (LIMITS.body_bytes + 1)) as found:
        assert found.status == 413


HANDLERS = {route.path: route.handler for route in routes([Admission(KIND, with_size, review)])}


def is_allowed(new: Obj, old: Obj | None = None) -> bool:
    """Return whether both webhooks allow a creation or a change, whose body is that of an API server."""
    body = json.dumps(review_of(new, old), separators=(",", ":"), ensure_ascii=False).encode()
    if len(body) > LIMITS.body_bytes:
        return False

    async def answers() -> bool:
        found = [await handler(Request("POST", path, body=body)) for path, handler in HANDLERS.items()]
        return all(each.status == 200 and json.loads(each.body)["response"]["allowed"] for each in found)

    return asyncio.run(answers())


ITEMS: dict[str, Any] = {
    "numbers": 0,
    "texts": "a",
    "separators in texts": '[{,"\\' * 4,
    "wide texts": "\U0001f600<" * 20,
    "objects": {"a": [1, {}]},
    "long texts": "x" * 5000,
}


@st.composite
def large_cups(draw: st.DrawFn) -> Obj:
    """Draw cups of all sizes up to above all limits."""
    item = ITEMS[draw(st.sampled_from(sorted(ITEMS)))]
    limit = min(LIMITS.body_bytes // len(json.dumps(item)), MAX_VALUES)
    items = [item] * draw(st.integers(0, limit))
    found = cup(size=draw(st.integers(1, 9)))
    if draw(st.booleans()):
        found["spec"]["items"] = items
    if draw(st.booleans()):
        found["status"] = {"items": items}
    return found


@settings(deadline=None, max_examples=20)
@given(large_cups(), large_cups())
def test_resource_that_can_be_created_can_be_changed(first: Obj, second: Obj) -> None:
    """A resource with more than half of the values, or of the bytes, of a body could be created and never changed."""
    if not is_allowed(first):
        return
    assert is_allowed(first, first)
    with_status = {**first, "metadata": {**first["metadata"], "labels": {"a": "b" * 63}}, "status2": "x" * 20_000}
    assert is_allowed(with_status, with_status), "what the operator writes does not prevent changes"
    assert is_allowed({**with_status, "spec": {"size": 9}}, with_status)
    if is_allowed(second) and second["spec"]["size"] >= first["spec"]["size"]:
        assert is_allowed(second, first)


@settings(deadline=None, max_examples=20)
@given(large_cups(), large_cups())
def test_resource_that_can_be_changed_can_be_changed_again(first: Obj, second: Obj) -> None:
    if is_allowed(second, first) and is_allowed(first):
        assert is_allowed(second, second)


@pytest.mark.parametrize("number", [8_000, 12_000])
def test_number_of_values_is_that_of_the_new_state(number: int) -> None:
    """12,000 values were admitted at creation and refused at the next change."""
    obj = cup(size=1, items=[0] * (number - 10))
    assert is_allowed(obj) == is_allowed(obj, cup(size=1)) == (number == 8_000)
    assert is_allowed(obj, obj) == (number == 8_000)


def test_separators_in_texts_are_no_values() -> None:
    """A configuration as text has as many of them as its author likes."""
    obj = cup(size=3, text='{"a": [1, 2, \\"' * 5_000)
    assert is_allowed(obj)
    assert is_allowed(obj, obj)


async def test_resource_that_is_too_large_is_denied_with_its_size(client: Client) -> None:
    response = await answer(client, VALIDATE, cup(size=3, text="x" * 500_000))
    assert not response["allowed"]
    assert response["status"]["code"] == 422
    assert "use at most 458,752 bytes and 8,000 values" in response["status"]["message"]


async def test_resource_that_is_too_large_since_before_the_limit_can_be_changed_and_deleted(client: Client) -> None:
    large = cup(size=3, text="x" * 500_000)
    assert await answer(client, VALIDATE, large, large) == {"allowed": True}
    smaller = cup(size=4, text="x" * 499_990)
    assert await answer(client, VALIDATE, smaller, large) == {"allowed": True}
    leaving = cup(size=4, text="x" * 500_000, more="x" * 1000)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert await answer(client, VALIDATE, leaving, large) == {"allowed": True}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a~/0", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("é\U0001f600", "é\U0001f600"),
        ("<b>&", r"\u003cb\u003e\u0026"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ('"\n', r"\"\n"),
    ],
)
def test_size_of_a_state_is_that_of_the_text_which_the_api_server_sends(text: str, written: str) -> None:
    """Go escapes some characters so that the text can be a part of HTML."""
    assert _size_of({"a": [1, text]}) == (len(f'{{"a":[1,"{written}"]}}'.encode()), 3)


@pytest.mark.parametrize(
    "part", ["\\n", "\\\\", '\\"', '"', ",", "[", '"a":"b",', '","', "\\", "x", "\\u0022", "\U0001f600"]
)
def test_values_are_counted_quickly_in_any_text(part: str) -> None:
    size = MAX_PARSED_BYTES
    text = ('"' + part * (size // len(part.encode()))).encode()
    began = time.process_time()
    count_values(text, MAX_PARSED_VALUES)
    assert time.process_time() - began < 0.05, "about 10 ms for 2 MiB"


OBJECTS = st.dictionaries(st.text("ab~/01", max_size=3), JSON, max_size=4)


@given(before=OBJECTS, after=OBJECTS)
def test_patch_turns_one_object_into_the_other(before: Obj, after: Obj) -> None:
    patch = list(json_patch(before, after))
    assert patched(before, patch) == after
    assert (patch == []) == (before == after)


def patched(obj: Obj, patch: list[Obj]) -> Obj:
    """Apply a JSON Patch (RFC 6902) as the API server does."""
    whole: Obj = {"": copy.deepcopy(obj)}
    for operation in patch:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")]
        at: Any = whole
        for part in parents:
            at = at[part]
        assert (last in at) == (operation["op"] != "add")
        if operation["op"] == "remove":
            del at[last]
        else:
            at[last] = operation["value"]
    found: Obj = whole[""]
    return found
