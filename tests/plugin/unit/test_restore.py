"""`kubectl platform restore`: the manifest of a new EtcdCluster with the data of a backup."""

from __future__ import annotations

import json

import pytest
import yaml

from operators.etcd.api.resource import EtcdCluster
from plugin.commands.backup import NOT_RESTORED, restored
from plugin.databases import BACKUP, ETCD
from plugin.problem import Problem
from shared.kubernetes.kinds import Obj
from tests.harness.scenario import apply
from tests.support.etcd import scenarios as etcd
from tests.support.etcd.cases import ACCEPTED
from tests.support.plugin import Terminal


def backup(phase: str = "Complete", cluster: str = "cache") -> Obj:
    status: Obj = {"phase": phase, "etcdVersion": "3.6.11", "conditions": []}
    if phase == "Failed":
        status["conditions"] = [{"type": "Ready", "status": "False", "reason": "Failed", "message": "No space."}]
    metadata = {"name": "monday", "namespace": "default"}
    spec = {"clusterName": cluster, "destination": {"volume": {"claimName": "a"}}}
    head = {"apiVersion": BACKUP.kind.api_version, "kind": BACKUP.kind.name}
    return head | {"metadata": metadata, "spec": spec, "status": status}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal(monkeypatch, etcd.ETCD, etcd.cluster(1, labels={"team": "shop"}))
    stage = made.play.stage
    stored = backup()
    stage.user_client.create(BACKUP.kind, {key: value for key, value in stored.items() if key != "status"})
    status = {"status": stored["status"]}
    stage.user_client.merge(BACKUP.kind, stage.namespace, "monday", status, subresource="status")
    return made


def test_manifest_is_a_new_cluster_with_the_settings_of_the_former_one(terminal: Terminal) -> None:
    text = terminal.text("restore etcdbackup/monday --as cache-restored")
    made = yaml.safe_load(text)
    assert made == json.loads(terminal.run("restore etcdbackup/monday --as cache-restored -o json").stdout)
    assert (made["kind"], made["metadata"]) == ("EtcdCluster", {"name": "cache-restored", "namespace": "default"})
    assert made["spec"]["restore"] == {"from": {"backup": "monday"}}
    assert (made["spec"]["size"], made["spec"]["labels"]) == (1, {"team": "shop"})
    assert not terminal.transport.requests


def test_manifest_creates_the_cluster(terminal: Terminal) -> None:
    made = yaml.safe_load(terminal.text("restore etcdbackup/monday --as cache-restored"))
    stage = terminal.play.stage
    stage.user_client.create(ETCD.kind, made)
    assert {each["metadata"]["name"] for each in stage.find()} == {"cache", "cache-restored"}


def test_manifest_is_valid_for_every_spec_of_the_former_cluster() -> None:
    for case in ACCEPTED:
        if (case.whole_spec.get("storage") or {}).get("medium") == "Memory":
            continue  # a restore needs a volume, and the API server states that
        cluster = {"metadata": {"name": "cache", "namespace": "default", "uid": "1"}, "spec": case.whole_spec}
        made = restored(backup(), cluster, "cache-restored")
        parsed = EtcdCluster.parse(made | {"metadata": made["metadata"] | {"uid": "2", "generation": 1}})
        assert parsed.spec.restore is not None, case
        assert not NOT_RESTORED - {"restore"} & made["spec"].keys()


def test_backup_of_a_deleted_cluster_has_a_manifest(terminal: Terminal) -> None:
    stage = terminal.play.stage
    patch = {"spec": {"clusterName": "former"}}
    stage.user_client.merge(BACKUP.kind, stage.namespace, "monday", patch)
    text = terminal.text("restore etcdbackup/monday --as former")
    assert text.startswith("# EtcdCluster former no longer exists")
    assert yaml.safe_load(text)["spec"] == {"size": 3, "version": "3.6.11", "restore": {"from": {"backup": "monday"}}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("restore etcdbackup/monday --as cache", "a restore always creates a new cluster"),
        ("restore etcdcluster/cache --as other", "EtcdCluster is not a backup"),
        ("restore etcdbackup/none --as other", "EtcdBackup default/none does not exist"),
    ],
)
def test_error_names_the_problem_and_the_fix(terminal: Terminal, line: str, message: str) -> None:
    result = terminal.run(line)
    assert result.exit_code == 1
    assert message in result.output
    assert "  fix: " in result.output


@pytest.mark.parametrize(("phase", "why"), [("Failed", "Failed: No space."), ("", "the operator has not begun")])
def test_backup_that_is_not_complete_is_refused(phase: str, why: str) -> None:
    with pytest.raises(Problem, match=f"EtcdBackup monday is not complete: {why}"):
        restored(backup(phase), None, "other")


def test_name_of_another_cluster_is_refused(terminal: Terminal) -> None:
    terminal.do(apply("other", size=1, version=etcd.MIDDLE))
    result = terminal.run("restore etcdbackup/monday --as other")
    assert "EtcdCluster other exists" in result.output
