"""RedisCluster: accepted and rejected specs, and the recorded status."""

from __future__ import annotations

import pytest
import yaml

from docs.resources import HEADER, to_markdown
from operators.redis.api import admission, resource
from operators.redis.api.engine_versions import Engine, Version, refusal
from operators.redis.api.resource import RedisCluster
from operators.redis.api.status import FormingNode, RecordedNode
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from shared.api.crd import to_yaml
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


def validation_errors(case: Case) -> str:
    """Return all errors of the operator's own validation, as a reconcile gets them."""
    try:
        return " ".join(admission.validate(cluster(case)))
    except InvalidSpec as refused:
        return str(refused)


def is_unsupported(case: Case) -> bool:
    return cases.OLD_WORDS in case.operator_error


@pytest.mark.parametrize("case", cases.ACCEPTED, ids=str)
def test_valid_spec_is_accepted(case: Case) -> None:
    assert validation_errors(case) == ""
    assert admission.ADMISSION.review(obj(case), None).errors == ()


@pytest.mark.parametrize("case", [*cases.REFUSED, *cases.ONLY_HERE], ids=str)
def test_invalid_spec_is_rejected_with_advice(case: Case) -> None:
    assert case.operator_error in " ".join(admission.ADMISSION.review(obj(case), None).errors)
    assert is_unsupported(case) or case.operator_error in validation_errors(case)


@pytest.mark.parametrize("case", [case for case in cases.REFUSED if is_unsupported(case)], ids=str)
def test_unsupported_version_is_refused_without_contradicting_the_spec(case: Case) -> None:
    """Contradictory specs stop the management of a running cluster; an unsupported version must not."""
    assert validation_errors(case) == ""
    assert refusal(RedisCluster.parse(obj(case)).engine).endswith(cases.ADVICE_WORDS)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_valid_change_is_accepted(change: Change) -> None:
    new, old = obj(change.new, change.status), obj(change.old, change.status)
    assert admission.ADMISSION.review(new, old).errors == ()


@pytest.mark.parametrize("change", REFUSED_CHANGES, ids=str)
def test_invalid_change_is_rejected_with_advice(change: Change) -> None:
    new, old = obj(change.new, change.status), obj(change.old, change.status)
    (error,) = admission.ADMISSION.review(new, old).errors
    assert change.operator_error in error
    assert admission.ADMISSION.review(new, None).errors == (), "the new spec is valid at creation"
    assert admission.ADMISSION.review(new, new).errors == (), "the new spec is valid without a change"


def test_every_crd_constraint_has_a_rejected_case() -> None:
    changes = [(cluster(one.new, one.status), cluster(one.old, one.status)) for one in REFUSED_CHANGES]
    declared, uncovered_constraints = uncovered(resource.API, cluster, cases.REFUSED, changes)
    assert uncovered_constraints == set()
    assert len(declared) > 150


@pytest.mark.parametrize("case", cases.ACCEPTED, ids=str)
def test_accepted_case_satisfies_the_schema(case: Case) -> None:
    """Accepted cases must satisfy the schema, or the tests above prove too little."""
    assert list(broken_constraints(spec_schema(resource.API), case.whole_spec, "spec")) == []


def test_committed_crd_and_reference_page_are_up_to_date() -> None:
    committed = ROOT / "charts/redis-operator/files/crds/redisclusters.yaml"
    assert committed.read_text() == to_yaml(resource.API), "run: make manifests"
    assert to_markdown(resource.API).removeprefix(HEADER) in (ROOT / "docs/reference/redis.md").read_text(), (
        "run: make manifests"
    )


def test_constraints_are_extracted_with_their_path() -> None:
    """The coverage above depends on the extracted constraints."""
    declared = constraints(spec_schema(resource.API))
    assert ("spec.pod[].volumes.type", "enum") in declared
    assert ("spec.updateStrategy.assignStrategies[].fromReplicas", "pattern") in declared
    assert any(path == "spec" and "oldSelf.storage" in keyword for path, keyword in declared)


def test_conditions_may_repeat_a_type() -> None:
    """With spec.nodesInConditions, there is an entry for each node, all of type `master` or `slave`."""
    conditions = root_schema(resource.API)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "atomic"
    assert "x-kubernetes-list-map-keys" not in conditions


def test_fields_of_the_first_release_are_in_the_schema() -> None:
    seed = next(yaml.safe_load_all((ROOT / "samples/redis/seed.yaml").read_text()))
    properties = root_schema(resource.API)["properties"]
    assert list(broken_constraints(properties["spec"], seed["spec"], "spec")) in ([], [("spec.pod[].affinity", "type")])
    (entry,) = seed["status"]["conditions"]
    assert entry.keys() <= properties["status"]["properties"]["conditions"]["items"]["properties"].keys()
    assert seed["status"].keys() <= properties["status"]["properties"].keys()


def recorded(**status: object) -> RedisCluster:
    return RedisCluster.parse({**obj(Case("", base=cases.BASE)), "status": status})


ID, OTHER = "a" * 40, "b" * 40


def test_recorded_nodes_are_read_from_the_entries_of_the_first_api() -> None:
    parsed = recorded(
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
    assert parsed.recorded_nodes == (
        RecordedNode("demo-0", ID, "u-1", "", "primary", Slots.parse("0-5460"), Engine("redis", Version(7, 0, 15))),
        RecordedNode("demo-1", OTHER, "", ID, "replica", copy_of=ID),
        RecordedNode("demo-2", role="replica"),
    )
    assert parsed.recorded_assigned == (Move(ID, OTHER, Slots.parse("1-3")),)
    assert (parsed.formed, parsed.phase) == (True, "Running")


def test_forming_nodes_are_read_from_the_status() -> None:
    parsed = recorded(forming=[{"name": "demo-0", "nodeId": ID, "epoch": 1, "slots": "0-16383"}])
    assert parsed.forming == (FormingNode(name="demo-0", node_id=ID, epoch=1, slots="0-16383"),)
    assert not parsed.formed


def test_new_resource_has_no_recorded_nodes() -> None:
    parsed = recorded()
    assert (parsed.recorded_nodes, parsed.forming, parsed.recorded_assigned) == ((), (), ())
    assert (parsed.formed, parsed.phase) == (False, "")


def test_unknown_version_is_an_invalid_spec() -> None:
    given = cases.imaged("redis:latest", replicas=6)
    with pytest.raises(
        InvalidSpec, match=r"spec\.version: 'latest' is not a version of redis or valkey; set it, for example to 8"
    ):
        RedisCluster.parse(obj(Case("", given)))


def test_old_version_is_parsed_so_that_status_is_reported() -> None:
    parsed = RedisCluster.parse(obj(Case("", {**cases.SEED, "version": "3.2.8"})))
    assert str(parsed.engine) == "redis 3.2.8"
