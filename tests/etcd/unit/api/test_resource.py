"""EtcdCluster and EtcdBackup: accepted specs, refused specs with their advice, and the recorded state."""

from __future__ import annotations

from typing import Any

import pytest

from docs.resources import HEADER, to_markdown
from operators.etcd.api import backup, resource
from operators.etcd.api.backup import EtcdBackup
from operators.etcd.api.resource import EtcdCluster, RecordedMember
from operators.etcd.api.versions import Version
from shared.api.crd import Resource, to_yaml
from shared.api.spec import CustomResource, InvalidSpec
from shared.kubernetes.kinds import Obj
from tests.support import paths
from tests.support.cases import Case, Change
from tests.support.etcd import backup_cases, cases
from tests.support.etcd.changes import CHANGES, REFUSED_CHANGES
from tests.support.schema import broken_constraints, constraints, spec_schema, uncovered

ROOT = paths.REPOSITORY

ACCEPTED = [
    *((EtcdCluster, case) for case in cases.ACCEPTED),
    *((EtcdBackup, case) for case in backup_cases.ACCEPTED),
]
REFUSED = [
    *((EtcdCluster, case) for case in (*cases.REFUSED, *cases.ONLY_HERE)),
    *((EtcdBackup, case) for case in backup_cases.REFUSED),
]
REFUSED_OF_ALL = [
    *((EtcdCluster, change) for change in REFUSED_CHANGES),
    *((EtcdBackup, change) for change in backup_cases.REFUSED_CHANGES),
]
MODULES: dict[type, Any] = {EtcdCluster: resource, EtcdBackup: backup}


def obj(case: Case, status: Obj | None = None) -> Obj:
    return {
        "metadata": {"name": case.resource, "namespace": "default"},
        "spec": case.whole_spec,
        **({"status": status} if status else {}),
    }


def cluster(case: Case, status: Obj | None = None) -> EtcdCluster:
    return EtcdCluster.read(obj(case, status))


def complaints(kind: type, case: Case) -> str:
    """Return every error that the operator's own validation reports for a case during a reconcile."""
    module = MODULES[kind]
    try:
        return " ".join(module.validate(cluster(case) if kind is EtcdCluster else EtcdBackup.parse(obj(case))))
    except InvalidSpec as refusal:
        return str(refusal)


@pytest.mark.parametrize(("kind", "case"), ACCEPTED, ids=str)
def test_valid_spec_is_accepted(kind: type, case: Case) -> None:
    assert complaints(kind, case) == ""
    assert MODULES[kind].ADMISSION.review(obj(case), None).errors == ()


@pytest.mark.parametrize(("kind", "case"), REFUSED, ids=str)
def test_invalid_spec_is_refused_with_advice(kind: type, case: Case) -> None:
    message = complaints(kind, case)
    assert message
    assert case.operator_error in message
    assert case.operator_error in " ".join(MODULES[kind].ADMISSION.review(obj(case), None).errors)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_valid_change_is_accepted(change: Change) -> None:
    new, old = obj(change.new, change.status), obj(change.old, change.status)
    assert resource.ADMISSION.review(new, old).errors == ()


@pytest.mark.parametrize(("kind", "change"), REFUSED_OF_ALL, ids=str)
def test_invalid_change_is_refused_with_advice(kind: type, change: Change) -> None:
    review = MODULES[kind].ADMISSION.review
    new, old = obj(change.new, change.status), obj(change.old, change.status)
    (message,) = review(new, old).errors
    assert change.operator_error in message
    assert review(new, None).errors == (), "the same spec may be created"
    assert review(new, new).errors == (), "an unchanged spec is accepted"


@pytest.mark.parametrize(
    ("kind", "parse", "refused", "changes", "least"),
    [
        (
            resource.API,
            cluster,
            cases.REFUSED,
            [(cluster(one.new, one.status), cluster(one.old, one.status)) for one in REFUSED_CHANGES],
            120,
        ),
        (
            backup.API,
            lambda case: EtcdBackup.parse(obj(case)),
            backup_cases.REFUSED,
            [(EtcdBackup.parse(obj(one.new)), EtcdBackup.parse(obj(one.old))) for one in backup_cases.REFUSED_CHANGES],
            15,
        ),
    ],
    ids=["EtcdCluster", "EtcdBackup"],
)
def test_every_constraint_of_the_crd_has_a_refused_case(
    kind: Resource,
    parse: Any,
    refused: tuple[Case, ...],
    changes: list[tuple[CustomResource[Any], CustomResource[Any]]],
    least: int,
) -> None:
    covered, untested = uncovered(kind, parse, refused, changes)
    assert untested == set()
    assert len(covered) > least


@pytest.mark.parametrize(("kind", "case"), ACCEPTED, ids=str)
def test_accepted_case_satisfies_every_constraint_of_the_schema(kind: type, case: Case) -> None:
    """Check the helper of the coverage test: it must find no violation in a valid spec."""
    assert list(broken_constraints(spec_schema(MODULES[kind].API), case.whole_spec, "spec")) == []


@pytest.mark.parametrize("module", [resource, backup], ids=lambda module: module.API.kind.name)
def test_committed_crd_and_reference_page_are_up_to_date(module: Any) -> None:
    committed = ROOT / f"charts/etcd-operator/files/crds/{module.API.kind.plural}.yaml"
    assert committed.read_text() == to_yaml(module.API), "run: make manifests"
    assert to_markdown(module.API).removeprefix(HEADER) in (ROOT / "docs/reference/etcd.md").read_text(), (
        "run: make manifests"
    )


def test_constraints_are_collected_with_their_paths() -> None:
    """Check the helper of the coverage test: without constraints, the coverage would be trivially complete."""
    found = constraints(spec_schema(resource.API))
    assert ("spec.backup.destination.s3.bucket", "minLength") in found
    assert ("spec.tls.client.auth", "enum") in found
    assert any(path == "spec" and "oldSelf.storage.medium" in keyword for path, keyword in found)


def recorded(**status: Any) -> EtcdCluster:
    return EtcdCluster.parse({**obj(Case("", base=cases.BASE)), "status": status})


def test_recorded_state_is_read_from_the_status() -> None:
    parsed = recorded(
        clusterID="00000000000000ff",
        version="3.5.35",
        phase="Running",
        members=[
            {"name": "demo-0", "id": "8000000000000001", "volume": "u-1", "version": "3.5.35"},
            {"name": "demo-1"},
        ],
    )
    assert parsed.recorded_cluster_id == 255
    assert parsed.recorded_members == (
        RecordedMember("demo-0", 1 << 63 | 1, "u-1"),
        RecordedMember("demo-1", 0, "", False),
    )
    assert parsed.recorded_version == Version(3, 5, 35)
    assert parsed.phase == "Running"


def test_new_resource_has_no_recorded_state() -> None:
    parsed = recorded()
    assert (parsed.recorded_cluster_id, parsed.recorded_members, parsed.recorded_version, parsed.phase) == (
        0,
        (),
        None,
        "",
    )


def test_ids_in_the_status_have_16_hex_digits() -> None:
    schema = to_yaml(resource.API)
    assert schema.count("pattern: ^[0-9a-f]{16}$") == 5


def test_resource_without_a_known_version_is_invalid() -> None:
    with pytest.raises(
        InvalidSpec, match=r"spec.version: 'latest' is not a version of etcd\. Set it, for example to 3\.6\.16"
    ):
        EtcdCluster.parse({"metadata": {}, "spec": {"size": 3, "image": "etcd:latest"}})
    with pytest.raises(InvalidSpec, match=r"spec\.version: is missing, and the image has no tag that is a version"):
        EtcdCluster.parse({"metadata": {}, "spec": {"size": 3, "image": "etcd"}})
