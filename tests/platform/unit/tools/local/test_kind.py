"""Command lines of kind and docker, recorded from programs of the same name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.local import images, release, targets

RECORD = """\
#!/bin/sh
printf '%s' "{name}" >> {log}; printf ' %s' "$@" >> {log}; echo >> {log}
case "{name} $*" in
    "kind get clusters") cat {clusters} ;;
    "kind get kubeconfig"*) echo "kind: Config" ;;
    "kind create cluster"*) cat > {config}; echo platform > {clusters} ;;
    "kind delete cluster"*) : > {clusters} ;;
    "docker pull"*) exit {pull} ;;
    "docker image inspect"*) exit 1 ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], list[str]]]:
    """Return a function that installs a recorded kind and docker, and returns what reads their commands."""

    def install(*, pull: int = 0) -> Callable[[], list[str]]:
        programs, log = tmp_path / "bin", tmp_path / "log"
        programs.mkdir()
        (tmp_path / "clusters").touch()
        for name in ("kind", "docker"):
            text = RECORD.format(
                name=name, log=log, clusters=tmp_path / "clusters", config=tmp_path / "config.json", pull=pull
            )
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        monkeypatch.setattr(targets, "STATE", tmp_path / "state")
        monkeypatch.setattr(targets, "KUBECONFIG", tmp_path / "state" / "kubeconfig")
        return lambda: log.read_text().splitlines() if log.exists() else []

    return install


def test_kind_cluster_is_created_once_with_its_workers_and_a_private_kubeconfig(
    machine: Callable[..., Callable[[], list[str]]], tmp_path: Path
) -> None:
    commands = machine()
    target = targets.start_kind(2)
    targets.start_kind(2)
    assert [each for each in commands() if "create" in each] == ["kind create cluster --name platform --config -"]
    assert len(json.loads((tmp_path / "config.json").read_text())["nodes"]) == 3
    assert target.kubeconfig is not None
    assert target.kubeconfig.read_text() == "kind: Config\n"
    assert target.kubeconfig.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("operator", release.operators())
def test_operator_image_is_built_with_docker_and_loaded_into_the_nodes(
    machine: Callable[..., Callable[[], list[str]]], operator: str
) -> None:
    commands = machine()
    target = targets.start_kind(1)
    image = images.operator_image(operator)
    assert target.load is not None
    target.load(image)
    build, load = commands()[-2:]
    assert build == f"docker build --build-arg=OPERATOR={operator} --tag {image.tag} {image.context}"
    assert load == f"kind load docker-image {image.tag} --name platform"


def test_only_the_cluster_of_this_project_is_deleted(machine: Callable[..., Callable[[], list[str]]]) -> None:
    commands = machine()
    targets.stop_kind()
    assert commands() == ["kind get clusters"]
    targets.start_kind(1)
    targets.stop_kind()
    assert commands()[-1] == "kind delete cluster --name platform"


@pytest.mark.parametrize(("pull", "usable"), [(0, True), (1, False)])
def test_kind_is_chosen_only_if_images_can_be_pulled(
    machine: Callable[..., Callable[[], list[str]]], pull: int, usable: bool
) -> None:
    commands = machine(pull=pull)
    assert targets.kind_can_pull() is usable
    assert commands()[-1] == "docker pull busybox:stable"
