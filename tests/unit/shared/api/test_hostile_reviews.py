"""No body that a webhook reads costs more than its share of the event loop and of the memory, with any content.

Each body is a valid review of a kind in which one value, at any path of its schema or around it, is replaced by
something large: many items or keys, long texts, deep values, long numbers.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
from collections.abc import Callable, Mapping

import pytest
from prometheus_client import REGISTRY

from shared.api.admission import LIMITS, MAX_CREATED, VALIDATE, routes
from shared.observability.http_messages import Request
from shared.observability.http_server import Handler
from shared.testing.cost import Cost, bounded
from tests.support.hostile_reviews import (
    ADMISSIONS,
    CHANGES,
    COSTLY,
    IN_A_BODY,
    MARK,
    TWICE_IN_A_BODY,
    FieldPath,
    body_of,
    bombs,
    paths_of,
    replaced,
    sample,
)

KINDS = sorted(ADMISSIONS)
HANDLERS: dict[str, Handler] = {route.path: route.handler for route in routes(ADMISSIONS.values())}


def panics() -> float:
    return REGISTRY.get_sample_value("controller_runtime_webhook_panics_total") or 0.0


async def judge(kind: str, at: FieldPath, record: Callable[[str, object], None]) -> None:
    """Replace a value by each bomb, in a creation and in a change: each body gets an answer, and no bug is found."""
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
        cost = await judged(bodies)
    except AssertionError:  # memory that bodies leave adds up, and is no cost of one: judge each alone
        costs = [await judged({name: body}) for name, body in bodies.items()]
        cost = Cost(max(each.seconds for each in costs), "", max(each.peak_bytes for each in costs))
    assert panics() == before, at
    record("summary", f"hostile reviews: {kind} {'.'.join(map(str, at))}: {2 * len(bodies)} bodies, {cost}")


async def judged(bodies: Mapping[str, bytes]) -> Cost:
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


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Do not collect the log: its records would be counted as memory of the reviews."""
    caplog.set_level(logging.CRITICAL, logger="shared.api.admission")


@pytest.mark.parametrize("kind", KINDS)
async def test_no_body_costs_more_than_its_share(kind: str, record_property: Callable[[str, object], None]) -> None:
    known = paths_of(kind)
    for at in [*(at for at in COSTLY if at in known), *random.Random(kind).sample(known, 2)]:
        await judge(kind, at, record_property)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(3600)
async def test_no_body_costs_more_than_its_share_at_any_path(
    kind: str, record_property: Callable[[str, object], None]
) -> None:
    for at in paths_of(kind):
        await judge(kind, at, record_property)


ENVELOPES: dict[str, Callable[[str], str]] = {
    "nothing": lambda bomb: "",
    "the whole body": lambda bomb: bomb,
    "request": lambda bomb: f'{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{bomb}}}',
    "uid": lambda bomb: (
        f'{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":{bomb},"kind":{{}}}}}}'
    ),
    "kind": lambda bomb: (
        f'{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{bomb}}}}}'
    ),
    "group": lambda bomb: (
        '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":'
        f"{bomb}}}}}}}"
    ),
    "another key": lambda bomb: f'{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","other":{bomb}}}',
}


@pytest.mark.parametrize("around", ENVELOPES)
async def test_no_envelope_costs_more_than_its_share(around: str) -> None:
    bodies = [ENVELOPES[around](bomb).encode() for bomb in bombs(IN_A_BODY).values()]
    bodies += [body.replace(b"u", b"\xff") for body in bodies[:3]]
    before = panics()
    async with bounded():
        for body, handler in itertools.product(bodies, HANDLERS.values()):
            answer = await handler(Request("POST", "/", body=body))
            assert answer.status == 400
            assert len(answer.body) < 1000
            await asyncio.sleep(0)
    assert panics() == before


def test_largest_legitimate_resource_is_far_below_the_limits() -> None:
    """A resource with its managed fields takes at most a quarter of what a webhook admits."""
    for kind in KINDS:
        size = len(json.dumps(sample(kind)))
        managed = 3 * size  # a managed field is its path, for the user and for the operator
        assert size + managed < MAX_CREATED.bytes / 4, kind
