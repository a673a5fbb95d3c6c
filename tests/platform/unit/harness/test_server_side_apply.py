"""Properties of server-side apply that hold for all objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kubernetes.kinds import Obj
from simulator.api_server.field_sets import compare, decode, encode, fields_of
from simulator.api_server.kinds import BUILT_IN
from simulator.api_server.server_side_apply import (
    FieldConflict,
    Manager,
    Records,
    apply,
    describe,
    read_records,
    track,
    write_records,
)

ONE, TWO, KUBECTL = (
    Manager(name, op, "v1") for name, op in (("one", "Apply"), ("two", "Apply"), ("kubectl", "Update"))
)

names = st.sampled_from("abc")
texts = st.sampled_from(["1", "2", "3"])


def by_key(key: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Obj]]:
    item = st.fixed_dictionaries({key: names}, optional=fields)
    return st.lists(item, max_size=3, unique_by=lambda found: found[key])


containers = by_key("name", image=texts, args=st.lists(texts, max_size=2), env=by_key("name", value=texts))
ports = st.lists(
    st.fixed_dictionaries(
        {"port": st.integers(1, 3)}, optional={"protocol": st.sampled_from(["TCP", "UDP"]), "name": texts}
    ),
    max_size=3,
    unique_by=lambda port: (port["port"], port.get("protocol", "TCP")),
)
anything: st.SearchStrategy[Obj] = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({"labels": st.dictionaries(names, texts, max_size=3)}),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": containers,
                "ports": ports,
                "nodeSelector": st.dictionaries(names, texts, max_size=2),
                "limits": st.dictionaries(names, texts, max_size=2),
            },
        ),
    },
)


def without_empty_maps(value: Any) -> Any:
    """Remove empty maps: each is a field itself until a write adds a key to it."""
    if not isinstance(value, dict):
        return value
    parts = {key: without_empty_maps(part) for key, part in value.items()}
    return {key: part for key, part in parts.items() if part != {}}


objects = anything.map(without_empty_maps)


def fields(obj: Obj) -> frozenset[tuple[str, ...]]:
    return frozenset(fields_of(BUILT_IN, obj))


def after(*configs: tuple[Manager, Obj]) -> tuple[Obj, Records]:
    live: Obj = {}
    records: Records = {}
    for manager, config in configs:
        live, records = apply(BUILT_IN, live, records, config, manager, force=True)
    return live, records


@given(objects)
def test_field_set_survives_encoding(obj: Obj) -> None:
    assert frozenset(decode(encode(fields(obj)))) == fields(obj)


@given(objects, objects)
def test_repeated_apply_changes_nothing(first: Obj, second: Obj) -> None:
    live, records = after((ONE, first), (TWO, second), (ONE, first))
    again, same = apply(BUILT_IN, live, records, first, ONE, force=True)
    assert (again, same) == (live, records)


@given(objects, objects)
def test_sole_manager_owns_exactly_the_fields_it_applied_last(first: Obj, second: Obj) -> None:
    live, records = after((ONE, first), (ONE, second))
    assert fields(live) == fields(second)
    assert records.get(ONE, frozenset()) == fields(second)


@given(objects, objects)
def test_applied_values_are_stored(first: Obj, second: Obj) -> None:
    live, _ = after((ONE, first), (TWO, second))
    change = compare(BUILT_IN, live, apply(BUILT_IN, live, {}, second, TWO, force=True)[0])
    assert not any(change), "the values of the last apply are stored"
    assert fields(second) <= fields(live)


@given(objects, objects, objects)
def test_fields_of_other_managers_survive(first_config: Obj, reduced_config: Obj, other_config: Obj) -> None:
    live, records = after((ONE, first_config), (TWO, other_config), (ONE, reduced_config))
    fields_of_other = records.get(TWO, frozenset())
    assert fields_of_other <= fields(live)
    reapplied = apply(BUILT_IN, live, records, other_config, TWO, force=True)[0]
    disputed = compare(BUILT_IN, live, reapplied)
    changed = disputed.modified | disputed.removed
    assert not (fields_of_other & changed), "the fields that the other manager still owns keep its values"


@given(objects, objects)
def test_unforced_apply_conflicts_if_it_would_change_fields_of_others(other_config: Obj, first_config: Obj) -> None:
    live, records = after((TWO, other_config))
    before = copy.deepcopy((live, records))
    forced, left = apply(BUILT_IN, live, records, first_config, ONE, force=True)
    lost = fields(other_config) - left.get(TWO, frozenset())
    if lost:
        with pytest.raises(FieldConflict) as caught:
            apply(BUILT_IN, live, records, first_config, ONE, force=False)
        assert caught.value.fields == {TWO: lost}
    else:
        assert apply(BUILT_IN, live, records, first_config, ONE, force=False) == (forced, left)
    assert (live, records) == before, "the arguments are not modified"


@given(objects, objects)
def test_update_takes_sole_ownership_of_changed_fields(applied: Obj, updated: Obj) -> None:
    live, records = after((ONE, applied))
    tracked = track(BUILT_IN, live, records, updated, KUBECTL)
    change = compare(BUILT_IN, live, updated)
    assert tracked.get(KUBECTL, frozenset()) >= (change.added | change.modified) - {("f:metadata",)}
    assert not tracked.get(ONE, frozenset()) & tracked.get(KUBECTL, frozenset())
    assert not tracked.get(ONE, frozenset()) & change.removed


@given(objects, objects)
def test_managed_fields_round_trip(first: Obj, second: Obj) -> None:
    _, records = after((ONE, first), (TWO, second))
    obj = {"metadata": {"managedFields": write_records(records, {}, "2026-01-01T00:00:00Z")}}
    assert read_records(obj) == {manager: paths for manager, paths in records.items() if paths}


def test_managed_fields_entry_keeps_its_time_while_its_fields_stay() -> None:
    _, records = after((ONE, {"spec": {"a": "1"}}), (TWO, {"spec": {"b": "1"}}))
    obj = {"metadata": {"managedFields": write_records(records, {}, "then")}}
    changed = records | {TWO: fields({"spec": {"c": "1"}})}
    entries = write_records(changed, obj, "thereafter")
    assert {entry["manager"]: entry["time"] for entry in entries} == {"one": "then", "two": "thereafter"}


def test_fields_are_encoded_as_in_kubernetes() -> None:
    obj = {"metadata": {"finalizers": ["x"]}, "spec": {"ports": [{"port": 80}], "limits": {}}}
    assert encode(fields(obj)) == {
        "f:metadata": {"f:finalizers": {'v:"x"': {}}},
        "f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}, "f:limits": {}},
    }
    path = ("f:spec", "f:ports", 'k:{"port":80,"protocol":"TCP"}', "f:port")
    assert describe(path) == '.spec.ports["port":80,"protocol":"TCP"].port'
