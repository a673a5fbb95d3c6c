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
from collections.abc import Callable

import pytest

from shared.api.admission import MAX_CREATED, VALIDATE
from shared.observability.http_messages import Request, Response
from tests.harness.cost import alone, bounded
from tests.support.hostile_reviews import (
    ADMISSIONS,
    COSTLY,
    HANDLERS,
    IN_A_BODY,
    bombs,
    fields_of,
    is_number,
    judge,
    judge_quantities,
    panics,
    paths_of,
    sample,
)

KINDS = sorted(ADMISSIONS)
PATHS_OF_A_TEST = 50
"""Reviews of a path take about 1.5 s of CPU time."""

NIGHTLY_SHARE = 4
"""Paths of a kind for each one that is judged each night; all are judged each week."""

PARTS = [
    pytest.param(kind, share, first, marks=pytest.mark.weekly if share else pytest.mark.nightly)
    for kind in KINDS
    for share in range(NIGHTLY_SHARE)
    for first in range(0, len(paths_of(kind)[share::NIGHTLY_SHARE]), PATHS_OF_A_TEST)
]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Do not collect the log: its records would be counted as memory of the reviews."""
    caplog.set_level(logging.CRITICAL, logger="shared.api.admission")


@pytest.mark.parametrize("kind", KINDS)
def test_no_body_costs_more_than_its_share(kind: str, record_property: Callable[[str, object], None]) -> None:
    """Every path that was costly is judged for every second kind, and for each of them at night."""
    known = paths_of(kind)
    costly = [at for number, at in enumerate(COSTLY) if at in known and number % 2 == KINDS.index(kind) % 2]
    for line in alone(judge, kind, [*costly, random.Random(kind).choice(known)]):
        record_property("summary", line)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if any(map(is_number, fields_of(kind).values()))])
def test_no_quantity_costs_more_than_its_share(kind: str, record_property: Callable[[str, object], None]) -> None:
    record_property("summary", alone(judge_quantities, kind))


@pytest.mark.parametrize(("kind", "share", "first"), PARTS)
def test_no_body_costs_more_than_its_share_at_any_path(
    kind: str, share: int, first: int, record_property: Callable[[str, object], None]
) -> None:
    for line in alone(judge, kind, paths_of(kind)[share::NIGHTLY_SHARE][first : first + PATHS_OF_A_TEST]):
        record_property("summary", line)


async def judge_wasteful_webhook(kind: str) -> list[str]:
    """Judge a webhook that needs 25 MiB for each review."""
    validate = HANDLERS[VALIDATE]

    async def wasteful(request: Request) -> Response:
        _kept = bytearray(25 * 1024 * 1024)
        return await validate(request)

    HANDLERS[VALIDATE] = wasteful
    return await judge(kind, [("spec",)])


def test_webhook_that_costs_more_is_found() -> None:
    with pytest.raises(AssertionError, match=r"MiB were needed, more than 20.0 MiB"):
        alone(judge_wasteful_webhook, KINDS[0])


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
