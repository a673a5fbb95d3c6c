"""A spec that cannot be parsed: each kind continues with the last applied one, which its workload notes (X5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from operators.etcd.api import resource as etcd
from operators.memcached.api import resource as memcached
from operators.redis.api import resource as redis
from shared.api.applied_spec import APPLIED_SPEC, MAX_BYTES, last_applied, note
from shared.api.spec import CustomResource, InvalidSpec
from shared.kubernetes.kinds import Obj

KINDS: dict[str, tuple[Any, Obj, Obj]] = {
    "EtcdCluster": (etcd.EtcdCluster.parse, etcd.MINIMAL, {"size": 3, "quotaBackendBytes": 1 << 30}),
    "RedisCluster": (redis.RedisCluster.parse, redis.MINIMAL, {"replicas": 6, "replicasPerMaster": 1}),
    "Memcached": (memcached.Memcached.parse, memcached.MINIMAL, {"size": 3, "memoryMB": 64}),
}
ANY: Obj = {"size": 3, "replicas": 6}
INVALID = InvalidSpec("spec.tls: is wrong.")


def made(kind: str, spec: Obj) -> Obj:
    return {"kind": kind, "metadata": {"name": "demo", "namespace": "default", "uid": "u-1"}, "spec": spec}


def noting(spec: Obj, uid: str = "u-1") -> Obj:
    return {"metadata": {"annotations": {APPLIED_SPEC: json.dumps({"uid": uid, "spec": spec})}}}


def fallback(kind: str, workload: Obj | None) -> CustomResource[Any] | None:
    parse, minimal, _ = KINDS[kind]
    return last_applied(parse, made(kind, {"tls": 1}), (None, workload), INVALID, minimal)


@pytest.mark.parametrize("kind", KINDS)
def test_minimal_spec_is_valid(kind: str) -> None:
    parse, minimal, _ = KINDS[kind]
    assert parse(made(kind, minimal))
    for field in minimal:
        with pytest.raises(InvalidSpec):
            parse(made(kind, {each: value for each, value in minimal.items() if each != field}))


@pytest.mark.parametrize("kind", KINDS)
def test_noted_spec_is_read_again(kind: str) -> None:
    parse, _, spec = KINDS[kind]
    applied = parse(made(kind, spec))
    found = fallback(kind, {"metadata": {"annotations": note(applied)}})
    assert found is not None
    assert found.spec == applied.spec
    assert found.invalid == "spec.tls: is wrong."


@pytest.mark.parametrize("kind", KINDS)
def test_consents_are_neither_noted_nor_read(kind: str) -> None:
    parse, _, spec = KINDS[kind]
    consents = {"recovery": {"confirm": "token"}, "adopt": {"fromUID": "u-0"}, "deletionProtection": True}
    known = spec | {field: value for field, value in consents.items() if kind != "Memcached"}
    assert json.loads(note(parse(made(kind, known)))[APPLIED_SPEC])["spec"].keys() == spec.keys() | {"version"}
    found = fallback(kind, noting(known))
    assert found is not None
    assert not found.obj["spec"].keys() & consents.keys()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "workload", [None, {"metadata": {}}, noting({}, uid="u-0"), noting({"size": 3, "replicas": 6, "tls": 1})]
)
def test_nothing_is_read_without_a_note_for_this_resource(kind: str, workload: Obj | None) -> None:
    assert fallback(kind, workload) is None


@pytest.mark.parametrize("kind", KINDS)
def test_number_out_of_bounds_is_kept_and_any_other_wrong_value_is_not(kind: str) -> None:
    _, _, spec = KINDS[kind]
    for field in spec:
        found = fallback(kind, noting(spec | {field: 10**12}))
        assert found is not None
        assert 10**12 in found.spec.model_dump(by_alias=True).values()
        assert fallback(kind, noting(spec | {field: "many"})) is None


def test_of_a_spec_that_is_too_large_only_the_digest_is_noted() -> None:
    spec = {"size": 3, "annotations": {f"key-{number}": "x" * 1000 for number in range(MAX_BYTES // 1000)}}
    parsed = etcd.EtcdCluster.parse(made("", {"size": 3})).spec
    noted, other = (note(etcd.EtcdCluster(made("EtcdCluster", each), parsed)) for each in (spec, spec | {"size": 5}))
    assert noted != other, "it shows whether the spec is applied"
    assert len(noted[APPLIED_SPEC]) < 200
    assert fallback("EtcdCluster", {"metadata": {"annotations": noted}}) is None
