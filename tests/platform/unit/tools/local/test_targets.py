"""Selection of the cluster for `make up`, and the configuration of kind."""

import json

import pytest

from tools.local import targets, teardown
from tools.local.__main__ import main
from tools.local.errors import ClusterError


def never() -> bool:
    raise AssertionError("kind was probed without need: the probe may pull an image")


@pytest.mark.parametrize("choice", ["local", "kind", "current"])
def test_explicit_choice_is_used(choice: str) -> None:
    assert targets.choose(choice, local_runs=True, kind_can_pull=never) == choice


def test_auto_uses_kind_if_it_can_pull() -> None:
    assert targets.choose("auto", local_runs=False, kind_can_pull=lambda: True) == "kind"


def test_auto_uses_the_local_cluster_if_kind_cannot_pull() -> None:
    assert targets.choose("auto", local_runs=False, kind_can_pull=lambda: False) == "local"


def test_auto_keeps_using_the_running_local_cluster() -> None:
    assert targets.choose("auto", local_runs=True, kind_can_pull=never) == "local"


def test_unknown_choice_error_lists_the_known_ones() -> None:
    with pytest.raises(ClusterError, match="CLUSTER=minikube") as caught:
        targets.choose("minikube", local_runs=False, kind_can_pull=never)
    assert "auto, local, kind, current" in caught.value.fix


def test_kind_gets_a_worker_for_each_node() -> None:
    roles = [node["role"] for node in json.loads(targets.kind_config(3))["nodes"]]
    assert roles == ["control-plane", "worker", "worker", "worker"]


def test_the_clusters_of_others_are_not_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(teardown, "take_down", lambda: pytest.fail("the local cluster was removed"))
    assert main(["down", "--cluster", "current"]) == 1
    assert "helm uninstall platform --namespace platform-system" in capsys.readouterr().err


def test_missing_kubeconfig_is_reported_for_the_current_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    with pytest.raises(ClusterError, match="/nowhere/config"):
        targets.current()
