"""Zones come from labels of pods, else from Nodes, each of which is read once in a while."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from operators.redis.zones import LABEL, REMEMBERED_SECONDS, Zones
from shared.kubernetes.errors import Forbidden, KubeError, NotFound, Unavailable
from shared.kubernetes.kinds import NODE, Kind, Obj


def pod(host: str, zone: str = "") -> Obj:
    return {"metadata": {"labels": {LABEL: zone} if zone else {}}, "spec": {"nodeName": host}}


class Nodes:
    """A client that reads Nodes.

    Attributes:
        answers: zone of each Node, or the error of the request.
        read: names of the Nodes that were read.
    """

    def __init__(self, **answers: str | KubeError) -> None:
        self.answers = answers
        self.read: list[str] = []
        self.now = 0.0
        self.zones = Zones(lambda: self.now)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Obj:
        assert (kind, namespace) == (NODE, None)
        self.read.append(name)
        answer = self.answers.get(name, NotFound("no such Node"))
        if isinstance(answer, KubeError):
            raise answer
        return {"metadata": {"labels": {LABEL: answer}}}

    async def of(self, *pods: Obj) -> dict[str, str | None]:
        client: Any = self
        return dict(await self.zones.of(pods, client))


async def test_labelled_pods_need_no_request() -> None:
    nodes = Nodes()
    assert await nodes.of(pod("a", "x"), pod("b", "y"), pod("b")) == {"a": "x", "b": "y"}
    assert nodes.read == []


async def test_each_node_is_read_once_for_all_its_pods() -> None:
    nodes = Nodes(a="x")
    for _ in range(3):
        assert await nodes.of(pod("a"), pod("a"), pod("gone")) == {"a": "x", "gone": ""}
    assert nodes.read == ["a", "gone"]


async def test_label_that_is_added_later_is_found() -> None:
    nodes = Nodes(a="")
    assert await nodes.of(pod("a")) == {"a": ""}
    nodes.answers["a"] = "x"
    assert await nodes.of(pod("a")) == {"a": ""}
    nodes.now = REMEMBERED_SECONDS
    assert await nodes.of(pod("a")) == {"a": "x"}


async def test_zone_that_cannot_be_read_is_unknown_unless_it_is_remembered() -> None:
    nodes = Nodes(a="x", b=Unavailable("try again"))
    assert await nodes.of(pod("a"), pod("b")) == {"a": "x", "b": None}
    nodes.answers["a"], nodes.now = Unavailable("try again"), REMEMBERED_SECONDS
    assert await nodes.of(pod("a"), pod("b")) == {"a": "x", "b": None}


async def test_operator_without_the_right_logs_it_once(caplog: pytest.LogCaptureFixture) -> None:
    nodes = Nodes(a=Forbidden("nodes is forbidden"), b=Forbidden("nodes is forbidden"))
    with caplog.at_level(logging.INFO, "operators.redis.zones"):
        for nodes.now in (0.0, REMEMBERED_SECONDS):
            assert await nodes.of(pod("a"), pod("b"), pod("c", "z")) == {"a": "", "b": "", "c": "z"}
    assert len(caplog.records) == 1
