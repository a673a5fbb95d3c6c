"""Adoption of the volumes of a deleted RedisCluster of the same name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.database import DATABASE
from operators.redis.objects.names import APPLIED_PERSISTENCE, CLUSTER_UID, ORIGIN
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from operators.redis.state.volume_record import origin
from operators.redis.steps.adoption import adopt_volumes, report
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Patch, Step
from shared.status.verdict import Progress
from shared.steps.adoption import Adoptable
from tests.redis.unit.world import At, assess, cluster, patched, seen, thirds

FORMER, UID = "u-0", "u-1"
IDS = {f"demo-{number}": f"{number:040x}" for number in range(1, 4)}


def claim(number: int, uid: str = FORMER, *, is_own: bool = True, **other: str) -> Obj:
    """A claim of demo-NUMBER, with the record of its node; that of its persistence may be another client's."""
    listed = ",".join(f"{name}={node_id}" for name, node_id in IDS.items())
    found = {
        "claim-uid": f"disk-{number}",
        "node-id": IDS[f"demo-{number}"],
        "host": f"demo-{number}.demo.default.svc",
        "nodes": listed,
        "applied-persistence": 'appendonly yes\nsave ""',
    } | other
    annotations = {f"redis.middleware.hc.cn/{key.replace('_', '-')}": value for key, value in found.items()}
    metadata = {"name": f"data-demo-{number}", "namespace": "default", "uid": f"disk-{number}", "resourceVersion": "7"}
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": metadata
        | {"labels": {CLUSTER_UID: uid}, "annotations": annotations}
        | ({"managedFields": patched(APPLIED_PERSISTENCE)} if is_own else {}),
    }


def resource(status: Obj | None = None, *, consent: str = "", **spec: Any) -> RedisCluster:
    annotations = {"redis.middleware.hc.cn/adopt-copies": consent} if consent else {}
    metadata = {"name": "demo", "namespace": "default", "uid": UID, "generation": 1, "annotations": annotations}
    given = {"replicas": 3, "version": "8.0.2", "storage": {}, "adopt": {"fromUID": FORMER}, **spec}
    return RedisCluster.parse({"metadata": metadata, "spec": given, "status": status or {}})


def world(*claims: Obj, **more: Any) -> Observed:
    return Observed(adoptable=Adoptable(claims, **more))


def adopt(found: Observed, status: Obj | None = None, **spec: Any) -> Step:
    return adopt_volumes(assess(resource(status, **spec), found))


def test_adoption_and_the_former_nodes_are_recorded_before_a_claim_changes() -> None:
    found = world(claim(1), claim(2, primary=IDS["demo-1"], copy_of=IDS["demo-1"], version="redis 8.0.2"))
    step = adopt(found)
    assert (step.actions, step.progress, step.reason) == ((), Progress.WAITING, "Adopting")
    made = report(assess(resource(), found))
    assert (made["adoption"], made["formed"]) == ({"fromUID": FORMER}, True)
    one, two, three = made["nodes"]
    assert (one["role"], one["nodeId"], one["disk"]) == ("primary", IDS["demo-1"], "disk-1")
    assert (two["role"], two["primaryId"], two["copyOf"]) == ("replica", IDS["demo-1"], IDS["demo-1"])
    assert (three["nodeId"], three.get("disk")) == (IDS["demo-3"], None), "its volume is missing, and it is known"


def test_recorded_adoption_hands_over_the_remaining_claims_only() -> None:
    found = world(claim(1), claim(2, UID), claim(3))
    step = adopt(found, report(assess(resource(), found)))
    names = []
    for action in step.actions:
        assert isinstance(action, Patch)
        assert action.change["metadata"] == {"resourceVersion": "7", "labels": {CLUSTER_UID: UID}}
        names.append(action.obj["metadata"]["name"])
    assert names == ["data-demo-1", "data-demo-3"]


def test_volumes_without_records_are_adopted_and_the_nodes_decide() -> None:
    bare = claim(1)
    del bare["metadata"]["annotations"]
    known: Obj = {"config": {"appendonly": "yes"}}
    assert report(assess(resource(**known), world(bare))) == {}, "they may be copies"
    made = report(assess(resource(consent=UID, **known), world(bare)))
    assert made == {"adoption": {"fromUID": FORMER}}, "only the nodes themselves show that the cluster exists"
    assert len(adopt(world(bare), made, consent=UID, **known).actions) == 1


@pytest.mark.parametrize(
    "records",
    [[""], ["appendonly no\nsave 3600 1", ""], ["appendonly no\nsave 3600 1", 'appendonly yes\nsave ""']],
    ids=["earlier build", "a record is missing", "different records"],
)
def test_volumes_whose_files_are_unknown_are_adopted_only_with_an_explicit_persistence(records: list[str]) -> None:
    """A server with a log ignores snapshots, and the other way round: all nodes would start empty, with old ids."""
    found = world(*(claim(number, applied_persistence=lines) for number, lines in enumerate(records, start=1)))
    step = adopt(found)
    assert (step.actions, step.reason, report(assess(resource(), found))) == ((), "AdoptionRefused", {})
    assert step.message.endswith(
        "cannot be adopted: nothing proves whether their servers start with an append-only file, or with snapshots, "
        "which are ignored next to it: the records on the claims are missing, differ, or were written by another "
        "client. Set spec.config.appendonly explicitly, as the former resource had it "
        '("yes" is the default). Nothing was changed.'
    )
    assert adopt(found, config={"appendonly": "no"}).reason == "Adopting"


def test_records_of_persistence_that_another_client_wrote_are_none() -> None:
    assert adopt(world(claim(1), claim(2))).reason == "Adopting"
    for found in (world(claim(1), claim(2, is_own=False)), world(claim(1, is_own=False), claim(2, is_own=False))):
        assert adopt(found).reason == "AdoptionRefused"
        assert adopt(found, config={"appendonly": "yes"}).reason == "Adopting"


def pod(number: int) -> Obj:
    return {"kind": "Pod", "metadata": {"name": f"demo-{number}"}}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (world(claim(1), former="team-a/demo"), "team-a/demo still has that UID"),
        (world(claim(1), in_use=(pod(1),)), "Pod demo-1 exists"),
        (world(claim(1), claim(2, nodes="demo-2=" + IDS["demo-2"])), "have data of different clusters"),
        (world(claim(1, host="demo-1.demo.production.svc")), "it would join the nodes there"),
        (world(claim(1, version="redis 8.2.0")), "8.0.2 is older than redis 8.2"),
        (world(), "no volume claim of this name has the label"),
    ],
)
def test_unsafe_adoption_is_refused(found: Observed, words: str) -> None:
    step = adopt(found)
    assert (step.actions, step.progress, step.reason) == ((), Progress.BLOCKED, "AdoptionRefused")
    assert words in step.message
    assert report(assess(resource(), found)) == {}


@pytest.mark.parametrize("spec", [{"adopt": None}, {"adopt": {"fromUID": "another"}}])
def test_volumes_that_the_spec_does_not_name_are_left_to_the_next_step(spec: Obj) -> None:
    assert adopt(world(claim(1)), **spec) == PASS
    assert report(assess(resource(**spec), world(claim(1)))) == {}


@pytest.mark.parametrize("recorded", ["disk-0", ""], ids=["restored claim", "record of an earlier build"])
def test_copies_are_adopted_only_if_their_original_is_deleted(recorded: str) -> None:
    """The consent names this resource: one that Git keeps is none for a recreated resource."""
    found = world(claim(1), claim(2, claim_uid=recorded))
    for consent in ("", "true", FORMER):
        refused = adopt(found, consent=consent)
        assert (refused.actions, refused.reason) == ((), "AdoptionRefused")
        assert "data-demo-2 may be a copy, whose node would join the original" in refused.message
        assert f"-n default --overwrite redis.middleware.hc.cn/adopt-copies={UID}`. " in refused.message
    assert adopt(found, consent=UID).reason == "Adopting"


def test_existing_cluster_keeps_working_with_the_field() -> None:
    assert adopt(world(), {"formed": True}) == PASS


SHARDS = [At(slots=slots) for slots in thirds()]


def marks(at: list[At], **changed: Any) -> list[str]:
    made = cluster(*at)
    observed = seen(made, *at)
    instances = tuple(replace(instance, **changed) for instance in observed.instances)
    step = DATABASE.mark_volumes(assess(made, replace(observed, instances=instances)))
    return [action.obj["metadata"]["name"] for action in step.actions if isinstance(action, Patch)]


def test_volumes_record_the_node_that_runs_on_them() -> None:
    assert marks(SHARDS) == ["data-demo-0", "data-demo-1", "data-demo-2"]
    assert marks([*SHARDS[:2], replace(SHARDS[2], up=False)]) == ["data-demo-0", "data-demo-1"]


def test_volume_is_not_marked_before_the_status_records_its_node() -> None:
    assert marks(SHARDS, disk="another") == []


def on(claim_label: str, *, stateful_set: bool = False) -> Observed:
    """The observed state with one volume, and a StatefulSet whose template has the same label."""
    labels = {ORIGIN: claim_label} if claim_label else {}
    volume = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data-demo-1", "labels": labels}}
    made = {"spec": {"volumeClaimTemplates": [volume]}} if stateful_set else None
    return Observed(stateful_set=made, instances=(Instance(1, "demo-1", volume=volume),))


@pytest.mark.parametrize(
    ("status", "found", "expected"),
    [
        ({}, Observed(), UID),
        ({}, on("original"), UID),  # a copy that a user handed over
        ({}, on(""), UID),
        ({"adoption": {"fromUID": FORMER}}, on(FORMER), FORMER),
        ({"adoption": {"fromUID": FORMER}}, on(""), ""),  # of an earlier build
        ({"formed": True}, on(UID), UID),
        ({"formed": True}, on(""), ""),
        ({"formed": True}, on("", stateful_set=True), ""),
        ({}, on(FORMER, stateful_set=True), FORMER),
    ],
    ids=[
        *("new", "labelled copy", "plain copy", "adopted", "adopted from an earlier build", "StatefulSet missing"),
        *("the same of an earlier build", "earlier build", "status lost"),
    ],
)
def test_only_own_and_adopted_volumes_keep_the_identity_of_their_nodes(
    status: Obj, found: Observed, expected: str
) -> None:
    assert origin(resource(status, adopt=None), found) == expected
    assert origin(resource(status, adopt=None, storage=None), found) == ""
