"""Errors for missing requirements, each with its fix."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.local import debian, host, images
from tools.local.errors import ClusterError
from tools.local.machine import network


def test_only_missing_packages_are_installed() -> None:
    absent = {"containerd", "/usr/lib/cni/bridge", "buildah"}
    required = ["containerd", "/usr/lib/cni/bridge", "runc"]
    assert host.missing_packages(required, lambda program: program not in absent) == [
        "containerd",
        "containernetworking-plugins",
    ]


def test_image_build_installs_its_tools_on_a_machine_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Container tests build images before the first `make up`, which installs the packages of the cluster."""
    installed: set[str] = set()
    monkeypatch.setattr(shutil, "which", lambda name: name if name in installed else None)
    monkeypatch.setattr(debian, "install", lambda packages: installed.update(packages))
    for part in ("_build", "_push", "_prune", "build_base"):
        monkeypatch.setattr(images, part, lambda *_: None)
    images.build(images.Image("test/tools:1", Path(__file__), Path(__file__).parent, ()))
    assert installed == {"buildah", "debootstrap"}


def test_error_without_root_names_the_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="needs root") as caught:
        host.prepare()
    assert "CLUSTER=kind" in caught.value.fix


def test_full_disk_error_names_the_directory_and_the_required_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1.5e9))
    with pytest.raises(ClusterError, match=r"1\.5 GB free at /"):
        host._disk()


def test_missing_kernel_module_is_named_with_its_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_has_overlay", lambda: False)
    monkeypatch.setattr(host, "succeeds", lambda *_: False)
    with pytest.raises(ClusterError, match="lacks overlay: required for container file systems") as caught:
        host._kernel()
    assert "modprobe overlay" in caught.value.fix


@pytest.fixture
def taken_port() -> Iterator[int]:
    with closing(socket.socket()) as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_port_in_use_error_names_a_command_to_find_its_owner(taken_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "API_PORT", taken_port)
    with pytest.raises(ClusterError, match=f"port {taken_port}") as caught:
        host._port()
    assert f"sport = :{taken_port}" in caught.value.fix


def test_overlapping_route_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = '[{"dst": "default", "dev": "eth0"}, {"dst": "10.0.0.0/8", "dev": "tun0"}, {"dst": "192.168.1.0/24"}]'
    monkeypatch.setattr(network, "run", lambda *_: routes)
    with pytest.raises(ClusterError, match=r"10\.0\.0\.0/8 dev tun0"):
        host._addresses()
