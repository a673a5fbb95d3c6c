"""Selection of the version of Kubernetes, and what depends on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.local import __main__ as main
from tools.local import binaries, cluster, node
from tools.local.console import Steps
from tools.local.controlplane import ControlPlane
from tools.local.errors import ClusterError
from tools.local.machine.network import NodeAddress
from tools.local.paths import STATE
from tools.local.record import Record
from tools.local.release import CHARTS

NEWEST, *_, OLDEST = binaries.KUBERNETES


@pytest.mark.parametrize(
    ("setting", "version"),
    [
        (None, NEWEST),
        ("", NEWEST),
        ("newest", NEWEST),
        ("oldest", OLDEST),
        *((each, each) for each in (NEWEST, OLDEST)),
    ],
)
def test_version_is_set_by_name_or_number(setting: str | None, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if setting is None:
        monkeypatch.delenv("KUBERNETES", raising=False)
    else:
        monkeypatch.setenv("KUBERNETES", setting)
    assert binaries.kubernetes() is binaries.program_of("kube-apiserver") is binaries.KUBERNETES[version]
    assert ControlPlane(Path("unused"), "127.0.0.1", 1).kubernetes is binaries.KUBERNETES[version]


def test_option_is_stronger_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES", "oldest")
    assert binaries.kubernetes(NEWEST) is binaries.KUBERNETES[NEWEST]


@pytest.mark.parametrize("setting", ["1.29", "1.36.3", "latest"])
def test_unknown_version_error_lists_the_versions(setting: str) -> None:
    with pytest.raises(ClusterError, match=f"KUBERNETES={setting} is not available") as refused:
        main.up(main._parser().parse_args(["up", "--kubernetes", setting]))
    assert refused.value.fix == f"use one of newest, oldest, {NEWEST}, {OLDEST}"


@pytest.mark.parametrize("version", binaries.KUBERNETES)
def test_versions_are_those_of_the_modules(version: str) -> None:
    program = binaries.KUBERNETES[version]
    required = (program.directory / "go.mod").read_text()
    exact = binaries.version(program).removeprefix("v")
    assert exact.startswith(f"{version}.")
    libraries = [line.split()[-1] for line in required.splitlines() if " => " in line]
    assert set(libraries) == {f"v0.{exact.partition('.')[2]}"}, "libraries of another version"


@pytest.mark.parametrize("chart", sorted(CHARTS.glob("*/Chart.yaml")), ids=lambda path: path.parent.name)
def test_oldest_version_is_the_oldest_that_the_charts_accept(chart: Path) -> None:
    accepted = yaml.safe_load(chart.read_text()).get("kubeVersion", f">={OLDEST}.0-0")
    assert accepted == f">={OLDEST}.0-0"


def test_progress_names_the_version_that_is_built_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    steps = Steps()
    monkeypatch.setattr(steps, "write", lines.append)
    monkeypatch.setattr(binaries, "is_built", lambda _: False)
    built: list[list[binaries.Program]] = []
    monkeypatch.setattr(binaries, "build_module", built.append)
    newest, oldest = binaries.kubernetes("newest"), binaries.kubernetes("oldest")
    main._build_programs({newest: "the nodes", oldest: "a test", binaries.HELM: "installs the charts"}, steps)
    assert built == [[newest, binaries.HELM], [oldest]], "one command for each module"
    assert f"Build from source: Kubernetes {binaries.version(newest)} with etcd, kube-apiserver," in lines[0]
    assert lines[0].endswith("kubelet (the nodes), helm (installs the charts)")
    assert lines[2].endswith("kubelet (a test)")


@pytest.mark.parametrize("choice", ["kind", "current"])
def test_cluster_that_brings_its_own_version_is_refused(choice: str) -> None:
    main._check_kubernetes(binaries.kubernetes("newest"), choice)
    with pytest.raises(ClusterError, match=f"KUBERNETES={OLDEST} is .* but the cluster is {choice}") as caught:
        main._check_kubernetes(binaries.kubernetes("oldest"), choice)
    assert caught.value.fix == f"make up CLUSTER=local KUBERNETES={OLDEST}"


@pytest.mark.parametrize("runs", binaries.KUBERNETES)
def test_running_cluster_of_another_version_is_refused(runs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    running = cluster.Cluster(Record(state=STATE, nodes=2))
    major, minor = runs.split(".")
    monkeypatch.setattr(running, "kubectl", lambda *_: json.dumps({"major": major, "minor": minor}))
    cluster._same(running, 2, binaries.KUBERNETES[runs])
    (other,) = binaries.KUBERNETES.keys() - {runs}
    with pytest.raises(ClusterError, match=f"has Kubernetes {runs}, but KUBERNETES={other}") as refused:
        cluster._same(running, 2, binaries.KUBERNETES[other])
    assert refused.value.fix == f"make up KUBERNETES={runs}, or make down and try again"


def test_kubelet_gets_only_fields_that_its_version_has() -> None:
    configs: list[dict[str, Any]] = [node._kubelet(NodeAddress(1), minor) for minor in (30, 31)]
    assert configs[1].keys() - configs[0].keys() == {"failCgroupV1"}
