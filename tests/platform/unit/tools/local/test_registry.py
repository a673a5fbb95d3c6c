"""Registries of `make up`: the local one, and a prefix of images for the current cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.local import __main__ as main
from tools.local import images, node, registry, release
from tools.local.cluster import Cluster
from tools.local.console import Steps
from tools.local.errors import ClusterError
from tools.local.machine.processes import Process
from tools.local.record import Record
from tools.local.targets import Target
from tools.release import charts, publishing

IMAGES = {name: f"10.240.0.1:5000/platform/{name}-operator@sha256:{'0' * 64}" for name in release.operators()}


@pytest.mark.parametrize("choice", ["kind", "current"])
def test_local_registry_is_only_for_the_local_cluster(choice: str) -> None:
    with pytest.raises(ClusterError, match=f"REGISTRY=local is the registry of the local cluster.*{choice}"):
        main._check_registry("local", choice)


@pytest.mark.parametrize("choice", ["kind", "local"])
def test_other_registry_is_only_for_the_current_cluster(choice: str) -> None:
    with pytest.raises(ClusterError, match=r"REGISTRY=registry\.example/team is for CLUSTER=current"):
        main._check_registry("registry.example/team", choice)


@pytest.mark.parametrize(("given", "choice"), [("", "kind"), ("local", "local"), ("registry.example/team", "current")])
def test_matching_registry_is_accepted(given: str, choice: str) -> None:
    main._check_registry(given, choice)


def test_prefix_names_the_image_of_every_operator_for_the_current_cluster() -> None:
    operator_images = {name: images.operator_image(name) for name in release.operators()}
    options = argparse.Namespace(image=None, registry="registry.example/team", tag="")
    tags = main._tags(Target("current", None), operator_images, options, Steps())
    assert tags["redis"] == f"registry.example/team/redis-operator:{release.version()}"
    assert tags.keys() == operator_images.keys()


def test_tag_of_the_images_for_the_current_cluster_can_be_set() -> None:
    options = argparse.Namespace(image=None, registry="registry.example/team", tag="abc")
    tags = main._tags(Target("current", None), dict.fromkeys(IMAGES), options, Steps())  # type: ignore[arg-type]
    assert tags == {name: f"registry.example/team/{name}-operator:abc" for name in IMAGES}


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail instead of starting a cluster if `make up` passes its checks."""
    monkeypatch.setattr(main, "changing", lambda: pytest.fail("make up began to change this machine"))


@pytest.mark.usefixtures("no_cluster")
@pytest.mark.parametrize("choice", ["current", "local", "kind", "auto"])
def test_image_of_one_operator_is_refused_for_all(choice: str) -> None:
    given = ["up", "--cluster", choice, "--image", "registry.example/team/redis-operator:dev"]
    with pytest.raises(ClusterError, match=r"IMG=registry\.example/team/redis-operator:dev names one image") as caught:
        main.up(main._parser().parse_args(given))
    assert "REGISTRY=" in caught.value.fix
    assert "make deploy OPERATOR=" in caught.value.fix


@pytest.mark.usefixtures("no_cluster")
def test_tag_without_a_registry_is_refused() -> None:
    with pytest.raises(ClusterError, match="TAG=abc is the tag of images in REGISTRY"):
        main.up(main._parser().parse_args(["up", "--tag", "abc"]))


def test_current_cluster_without_registry_is_refused_with_the_command_that_helps() -> None:
    options = argparse.Namespace(image=None, registry="", tag="")
    with pytest.raises(ClusterError, match="CLUSTER=current needs REGISTRY") as caught:
        main._tags(Target("current", None), {}, options, Steps())
    assert "make push-images up CLUSTER=current REGISTRY=" in caught.value.fix


def test_nodes_pull_from_the_local_registry_without_tls() -> None:
    assert 'config_path = "/run/node/registries"' in node._containerd()
    assert registry.NODES_ADDRESS == "10.240.0.1:5000"


def test_published_chart_is_installed_with_its_own_images(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []

    def helm(self: release.Helm, *arguments: str | Path, fix: str = "") -> str:
        commands.append(tuple(map(str, arguments)))
        return "[]"

    monkeypatch.setattr(release.Helm, "__call__", helm)
    assert release.install_published(None, "oci://10.240.0.1:5000/charts/platform", "0.2.0", IMAGES)
    upgrade = commands[-1]
    assert upgrade[:4] == ("upgrade", "--install", "platform", "oci://10.240.0.1:5000/charts/platform")
    assert upgrade[upgrade.index("--version") :][:3] == ("--version", "0.2.0", "--plain-http")
    assert not [each for each in upgrade if ".image." in each]


def test_installed_images_and_charts_are_not_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def helm(self: release.Helm, *arguments: Any, fix: str = "") -> str:
        assert arguments[0] == "list"
        return '[{"name": "platform"}]'

    monkeypatch.setattr(release.Helm, "__call__", helm)
    assert not release.install_published(None, "oci://10.240.0.1:5000/charts/platform", "0.2.0", IMAGES)


def test_images_and_charts_are_pushed_before_the_installation_and_the_registry_is_started_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []
    started = Process(registry.NAME, 1, 1, tmp_path / "log")
    record = Record(tmp_path, 1)
    monkeypatch.setattr(Record, "save", lambda self: None)
    monkeypatch.setattr(Cluster, "running", lambda: Cluster(record))

    def doing(name: str, result: object) -> Callable[..., object]:
        def do(*_: object) -> object:
            done.append(name)
            return result

        return do

    monkeypatch.setattr(main, "_build_programs", lambda *_: None)
    monkeypatch.setattr(registry, "start", doing("registry", started))
    monkeypatch.setattr(publishing, "push_images", doing("images", IMAGES))
    monkeypatch.setattr(charts, "package", doing("package", [tmp_path / "a.tgz"]))
    monkeypatch.setattr(publishing, "push_charts", doing("charts", "oci://registry/platform"))

    def install(kubeconfig: Path | None, chart: str, version: str, found: dict[str, str], values: list[str]) -> bool:
        assert (chart, version, found) == ("oci://registry/platform", release.version(), IMAGES)
        assert values == release.local_values()
        done.append("install")
        return True

    monkeypatch.setattr(release, "install_published", install)
    main._install_from_registry(Target("local", tmp_path / "kubeconfig"), Steps())
    assert done == ["registry", "images", "package", "charts", "install"]
    assert record.processes == [started]
    main._install_from_registry(Target("local", tmp_path / "kubeconfig"), Steps())
    assert done[5:] == ["images", "package", "charts", "install"]
