"""Which cluster `make up` takes, and what it tells kind."""

import json

import pytest

from e2e.cluster import targets
from e2e.cluster.errors import ClusterError


def never() -> bool:
    raise AssertionError("kind was asked for without need: it may pull an image")


@pytest.mark.parametrize("wanted", ["local", "kind", "current"])
def test_what_people_ask_for_is_what_they_get(wanted: str) -> None:
    assert targets.choose(wanted, local_runs=True, kind_can_pull=never) == wanted


def test_auto_takes_kind_where_it_can_pull() -> None:
    assert targets.choose("auto", local_runs=False, kind_can_pull=lambda: True) == "kind"


def test_auto_is_local_where_kind_cannot_pull() -> None:
    assert targets.choose("auto", local_runs=False, kind_can_pull=lambda: False) == "local"


def test_auto_stays_with_the_local_cluster_that_runs() -> None:
    assert targets.choose("auto", local_runs=True, kind_can_pull=never) == "local"


def test_an_unknown_choice_names_the_known_ones() -> None:
    with pytest.raises(ClusterError, match="CLUSTER=minikube") as caught:
        targets.choose("minikube", local_runs=False, kind_can_pull=never)
    assert "auto, local, kind, current" in caught.value.mend


def test_kind_gets_a_worker_for_each_node() -> None:
    roles = [node["role"] for node in json.loads(targets.kind_config(3))["nodes"]]
    assert roles == ["control-plane", "worker", "worker", "worker"]


def test_current_without_a_kubeconfig_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    with pytest.raises(ClusterError, match="/nowhere/config"):
        targets.current()
