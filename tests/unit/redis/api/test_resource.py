"""The RedisCluster: what it takes, what it refuses and how, and what is read from it."""

from __future__ import annotations

import pytest
import yaml

from operators.redis.api import admission, resource
from operators.redis.api.engine_versions import Engine, Version, refusal
from operators.redis.api.resource import RedisCluster
from operators.redis.api.status import FormingNode, RecordedNode
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from shared.api.crd import to_yaml
from shared.api.reference import HEADER, to_markdown
from shared.api.spec import InvalidSpec
from shared.kubernetes.kinds import Obj
from tests.support import paths
from tests.support.cases import Case, Change
from tests.support.redis import cases
from tests.support.redis.changes import CHANGES, REFUSED_CHANGES
from tests.support.schema import broken_constraints, constraints, root_schema, spec_schema, uncovered

ROOT = paths.REPOSITORY


def obj(case: Case, status: Obj | None = None) -> Obj:
    return {
        "metadata": {"name": case.resource, "namespace": "default"},
        "spec": case.whole_spec,
        **({"status": status} if status else {}),
    }


def cluster(case: Case, status: Obj | None = None) -> RedisCluster:
    return RedisCluster.read(obj(case, status))


def complaints(case: Case) -> str:
    """All that the operator's own validation says of a case, as a reconcile would hear it."""
    try:
        return " ".join(admission.validate(cluster(case)))
    except InvalidSpec as refused:
        return str(refused)


def is_too_old(case: Case) -> bool:
    return cases.OLD_WORDS in case.advises


@pytest.mark.parametrize("case", cases.ACCEPTED, ids=str)
def test_good_specs_are_taken(case: Case) -> None:
    assert complaints(case) == ""
    assert admission.ADMISSION.review(obj(case), None).errors == ()


@pytest.mark.parametrize("case", [*cases.REFUSED, *cases.ONLY_HERE], ids=str)
def test_bad_specs_are_refused_with_advice(case: Case) -> None:
    assert case.advises in " ".join(admission.ADMISSION.review(obj(case), None).errors)
    assert is_too_old(case) or case.advises in complaints(case)


@pytest.mark.parametrize("case", [case for case in cases.REFUSED if is_too_old(case)], ids=str)
def test_a_version_that_is_too_old_is_refused_in_the_reconcile_too_and_contradicts_nothing(case: Case) -> None:
    """What runs is cared for meanwhile: a contradiction would end that."""
    assert complaints(case) == ""
    assert refusal(RedisCluster.parse(obj(case)).engine).endswith(cases.ADVICE_WORDS)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_good_changes_are_taken(change: Change) -> None:
    new, old = obj(change.new, change.status), obj(change.old, change.status)
    assert admission.ADMISSION.review(new, old).errors == ()


@pytest.mark.parametrize("change", REFUSED_CHANGES, ids=str)
def test_bad_changes_are_refused_with_advice(change: Change) -> None:
    new, old = obj(change.new, change.status), obj(change.old, change.status)
    (said,) = admission.ADMISSION.review(new, old).errors
    assert change.advises in said
    assert admission.ADMISSION.review(new, None).errors == (), "it may be created so"
    assert admission.ADMISSION.review(new, new).errors == (), "and stay so"


def test_every_constraint_of_the_crd_has_a_refused_case() -> None:
    changes = [(cluster(one.new, one.status), cluster(one.old, one.status)) for one in REFUSED_CHANGES]
    wanted, unproven = uncovered(resource.API, cluster, cases.REFUSED, changes)
    assert unproven == set()
    assert len(wanted) > 150


@pytest.mark.parametrize("case", cases.ACCEPTED, ids=str)
def test_every_accepted_case_breaks_nothing_that_the_schema_says(case: Case) -> None:
    """Or else the cases above prove less than they seem to."""
    assert list(broken_constraints(spec_schema(resource.API), case.whole_spec, "spec")) == []


def test_the_committed_crd_and_page_are_the_generated_ones() -> None:
    committed = ROOT / "charts/redis-operator/files/crds/redisclusters.yaml"
    assert committed.read_text() == to_yaml(resource.API), "run: make manifests"
    assert to_markdown(resource.API).removeprefix(HEADER) in (ROOT / "docs/reference/redis.md").read_text(), (
        "run: make manifests"
    )


def test_constraints_are_found_where_they_stand() -> None:
    """Or else the coverage above could be of nothing."""
    wanted = constraints(spec_schema(resource.API))
    assert ("spec.pod[].volumes.type", "enum") in wanted
    assert ("spec.updateStrategy.assignStrategies[].fromReplicas", "pattern") in wanted
    assert any(path == "spec" and "oldSelf.storage" in keyword for path, keyword in wanted)


def test_a_list_of_conditions_may_have_many_of_a_type() -> None:
    """The seed's has an entry for each node, which are masters or slaves all."""
    conditions = root_schema(resource.API)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "atomic"
    assert "x-kubernetes-list-map-keys" not in conditions


def test_the_seeds_words_are_in_the_schema_as_the_seed_writes_them() -> None:
    seed = next(yaml.safe_load_all((ROOT / "samples/redis/seed.yaml").read_text()))
    properties = root_schema(resource.API)["properties"]
    assert list(broken_constraints(properties["spec"], seed["spec"], "spec")) in ([], [("spec.pod[].affinity", "type")])
    (entry,) = seed["status"]["conditions"]
    assert entry.keys() <= properties["status"]["properties"]["conditions"]["items"]["properties"].keys()
    assert seed["status"].keys() <= properties["status"]["properties"].keys()


def recorded(**status: object) -> RedisCluster:
    return RedisCluster.parse({**obj(Case("", base=cases.BASE)), "status": status})


ID, OTHER = "a" * 40, "b" * 40


def test_what_the_status_records_is_read_from_it() -> None:
    seen = recorded(
        formed=True,
        phase="Running",
        version="redis 7.0.15",
        conditions=[
            {
                "name": "demo-0",
                "type": "master",
                "nodeId": ID,
                "masterNodeId": ID,
                "slots": "0-5460",
                "disk": "u-1",
                "version": "redis 7.0.15",
                "status": "True",
            },
            {"name": "demo-1", "type": "slave", "nodeId": OTHER, "masterNodeId": ID, "status": "False", "version": "?"}
            | {"copyOf": ID},
            {"name": "demo-2", "type": "slave", "status": "Unknown"},
            {"type": "Ready", "status": "True"},
        ],
        assigned=[{"from": ID, "to": OTHER, "slots": "1-3"}],
        recovery={"token": "t"},
    )
    assert seen.recorded_nodes == (
        RecordedNode("demo-0", ID, "u-1", "", "master", Slots.parse("0-5460"), Engine("redis", Version(7, 0, 15))),
        RecordedNode("demo-1", OTHER, "", ID, "slave", copy_of=ID),
        RecordedNode("demo-2", type="slave"),
    )
    assert seen.recorded_assigned == (Move(ID, OTHER, Slots.parse("1-3")),)
    assert (seen.formed, seen.phase, seen.recovery_token) == (True, "Running", "t")


def test_a_cluster_that_is_about_to_begin_is_read_as_it_was_written_down() -> None:
    seen = recorded(forming=[{"name": "demo-0", "nodeId": ID, "epoch": 1, "slots": "0-16383"}])
    assert seen.forming == (FormingNode(name="demo-0", node_id=ID, epoch=1, slots="0-16383"),)
    assert not seen.formed


def test_a_new_resource_has_recorded_nothing() -> None:
    seen = recorded()
    assert (seen.recorded_nodes, seen.forming, seen.recorded_assigned) == ((), (), ())
    assert (seen.formed, seen.phase, seen.recovery_token) == (False, "", "")


def test_a_resource_whose_version_nobody_tells_is_no_cluster() -> None:
    given = cases.imaged("redis:latest", replicas=6)
    with pytest.raises(
        InvalidSpec, match=r"spec\.version: 'latest' is not a version of redis or valkey; set it, for example to 8"
    ):
        RedisCluster.parse(obj(Case("", given)))


def test_one_that_is_too_old_is_parsed_all_the_same_so_that_what_runs_is_told_of() -> None:
    seen = RedisCluster.parse(obj(Case("", {**cases.SEED, "version": "3.2.8"})))
    assert str(seen.engine) == "redis 3.2.8"
