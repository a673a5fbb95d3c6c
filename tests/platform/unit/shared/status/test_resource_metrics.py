"""Metrics of resources as a scrape of the leader returns them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from shared.kubernetes.kinds import Key, Kind, Obj
from shared.observability import metrics
from shared.runtime.cache import Cache
from shared.status import resource_metrics
from shared.status.resource_metrics import DESIRED, PAUSED, Certificates, Period, Sample, State

THING = Kind("test.example.com", "v1", "Thing", "things")
PARTS = State("platform_thing_parts", "Parts of a Thing.", ("role",))
OPENMETRICS = "application/openmetrics-text;version=1.0.0"

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def thing(name: str, revision: int = 1, **status: Any) -> Obj:
    metadata = {
        "name": name,
        "namespace": "default",
        "resourceVersion": str(revision),
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": metadata, "spec": {"size": 3}, "status": status}


def ready(value: str, reason: str, since: str = "2026-01-01T00:01:00Z") -> Obj:
    return {"type": "Ready", "status": value, "reason": reason, "lastTransitionTime": since}


def of_thing(obj: Obj) -> tuple[Sample, ...]:
    return DESIRED(obj["spec"]["size"]), PAUSED(False), PARTS(2, "left"), PARTS(None, "right")


class Exposed:
    """A cache whose Things are exposed in a registry of their own."""

    def __init__(self) -> None:
        self.cache = Cache(
            [THING], key_of=lambda _, obj: Key("default", obj["metadata"]["name"]), changed=lambda _: None
        )
        self.certificates: dict[Key, Certificates] = {}
        self.registry = CollectorRegistry(auto_describe=True)
        self.resources = resource_metrics.Resources(THING, lambda: self.cache.all(THING), of_thing, self.certificates)

    def scrape(self, accept: str = "") -> Series:
        encode, _ = choose_encoder(accept)
        read = read_openmetrics if accept else read_text
        families = read(encode(self.registry).decode())
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }


@pytest.fixture
def exposed() -> Exposed:
    return Exposed()


def of(name: str, **labels: str) -> Mapping[str, str]:
    return {"kind": "Thing", "namespace": "default", "name": name, **labels}


def series(name: str, whose: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(whose.items())


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_resource_is_exposed_in_both_formats(exposed: Exposed, accept: str) -> None:
    conditions = [ready("False", "Scaling"), {"type": "Stalled", "status": "False", "reason": "Scaling"}]
    exposed.cache.put(THING, thing("a", phase="Scaling", version="1.6", observedGeneration=1, conditions=conditions))
    exposed.certificates[Key("default", "a")] = {
        "server": Period(1.0, 1_900_000_000),
        "client": Period(2.0, 1_800_000_000.5),
    }
    with resource_metrics.shown(exposed.resources, registry=exposed.registry):
        found = exposed.scrape(accept)
    assert found == {
        series("platform_resource_info", of("a", version="1.6")): 1,
        series("platform_resource_desired_replicas", of("a")): 3,
        series("platform_resource_paused", of("a")): 0,
        series("platform_thing_parts", of("a", role="left")): 2,
        series("platform_resource_phase", of("a", phase="Scaling")): 1,
        series("platform_resource_condition", of("a", type="Ready", status="False", reason="Scaling")): 1,
        series("platform_resource_condition", of("a", type="Stalled", status="False", reason="Scaling")): 1,
        series("platform_resource_generation", of("a")): 2,
        series("platform_resource_observed_generation", of("a")): 1,
        series("platform_resource_unready_since_timestamp_seconds", of("a")): 1767225660,
        series("platform_resource_certificate_expiry_timestamp_seconds", of("a")): 1_800_000_000.5,
        series("platform_resource_certificate_not_before_timestamp_seconds", of("a", secret="server")): 1,
        series("platform_resource_certificate_not_after_timestamp_seconds", of("a", secret="server")): 1_900_000_000,
        series("platform_resource_certificate_not_before_timestamp_seconds", of("a", secret="client")): 2,
        series("platform_resource_certificate_not_after_timestamp_seconds", of("a", secret="client")): 1_800_000_000.5,
    }


ODD: dict[str, Any] = {
    "a condition without a status": {"conditions": [{"type": "Ready"}]},
    "a date that is none": {"conditions": [ready("False", "Scaling", "yesterday")]},
    "work without a total": {"progress": [{"what": "Slots", "done": 0, "total": 0}]},
    "work that is none": {"progress": ["Slots"]},
    "a number that is none": {"observedGeneration": "many"},
    "a label that is none": {"phase": 7, "version": {"a": 1}},
    "no object": ["a"],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_status_hides_no_other_resource(exposed: Exposed, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Any client with the right to write a status may write any content, and all tenants share one scrape."""
    for each in ("a", "b", "c"):
        exposed.cache.put(THING, thing(each))
    exposed.cache.put(THING, thing("b", 2) | {"status": ODD[name]})
    panics = metrics.PANICS.labels(controller="thing")._value
    before = panics.get()
    with resource_metrics.shown(exposed.resources, registry=exposed.registry):
        for _ in range(2):
            found = exposed.scrape()
            assert {series("platform_resource_desired_replicas", of(each)) for each in "ac"} <= found.keys()
    assert len(caplog.records) == panics.get() - before <= 1, "once for both scrapes"
    assert (len(caplog.records) == 1) == (series("platform_resource_desired_replicas", of("b")) not in found)


def test_former_value_has_no_series(exposed: Exposed) -> None:
    exposed.cache.put(THING, thing("a", phase="Scaling", conditions=[ready("False", "Scaling")]))
    with resource_metrics.shown(exposed.resources, registry=exposed.registry):
        exposed.scrape()
        exposed.cache.put(THING, thing("a", 2, phase="Running", conditions=[ready("True", "Ready")]))
        found = {(name, labels) for name, labels in exposed.scrape() if "Scaling" in dict(labels).values()}
        assert found == set()
        assert not any(name == resource_metrics.UNREADY_SINCE.name for name, _ in exposed.scrape())


def test_resource_without_status_is_unready_since_its_creation(exposed: Exposed) -> None:
    exposed.cache.put(THING, thing("a"))
    with resource_metrics.shown(exposed.resources, registry=exposed.registry):
        found = exposed.scrape()
    assert found[series("platform_resource_unready_since_timestamp_seconds", of("a"))] == 1767225600
    assert found[series("platform_resource_observed_generation", of("a"))] == 0


def test_deleted_resource_has_no_series(exposed: Exposed) -> None:
    for name in ("a", "b"):
        exposed.cache.put(THING, thing(name, phase="Running", conditions=[ready("False", "Lost")]))
        exposed.certificates[Key("default", name)] = {"server": Period(0.0, 1.0)}
    with resource_metrics.shown(exposed.resources, registry=exposed.registry):
        both = exposed.scrape()
        exposed.cache.on_deleted(THING, thing("a", 2))
        left = exposed.scrape()
    assert {dict(labels)["name"] for _, labels in both} == {"a", "b"}
    assert {dict(labels)["name"] for _, labels in left} == {"b"}
    assert len(left) * 2 == len(both)


def test_number_of_series_follows_the_number_of_resources(exposed: Exposed) -> None:
    with resource_metrics.shown(exposed.resources, registry=exposed.registry):
        for number in range(50):
            exposed.cache.put(THING, thing(f"thing-{number}"))
            found = exposed.scrape()
            exposed.cache.on_deleted(THING, thing(f"thing-{number}", 2))
        assert {dict(labels)["name"] for _, labels in found} == {"thing-49"}
        assert exposed.scrape() == {}


def test_only_the_leader_exposes_resources(exposed: Exposed) -> None:
    exposed.cache.put(THING, thing("a"))
    assert exposed.scrape() == {}
    with resource_metrics.shown(exposed.resources, registry=exposed.registry):
        assert exposed.scrape()
    assert exposed.scrape() == {}


def test_two_kinds_of_one_operator_share_common_metrics(exposed: Exposed) -> None:
    other = Kind("test.example.com", "v1", "Other", "others")
    also = exposed.resources._replace(kind=other)
    exposed.cache.put(THING, thing("a"))
    with resource_metrics.shown(exposed.resources, also, registry=exposed.registry):
        found = [labels for name, labels in exposed.scrape(OPENMETRICS) if name == DESIRED.name]
    assert {dict(labels)["kind"] for labels in found} == {"Thing", "Other"}


async def test_scrape_in_a_thread_tolerates_concurrent_watch_events(exposed: Exposed) -> None:
    for number in range(500):
        exposed.cache.put(THING, thing(f"thing-{number}"))
    with resource_metrics.shown(exposed.resources, registry=exposed.registry):
        scraped = asyncio.create_task(asyncio.to_thread(exposed.scrape))
        number = 0
        while not scraped.done():
            exposed.cache.on_deleted(THING, thing(f"thing-{number % 500}", 2))
            exposed.cache.put(THING, thing(f"another-{number}"))
            number += 1
            await asyncio.sleep(0)
    assert number > 1
    assert len([labels for name, labels in await scraped if name == DESIRED.name]) == 500
