"""A Docker daemon for machines without Docker: Debian's dockerd, unpacked from its package, in separate namespaces.

Containers use the host network, so the daemon changes no bridge, firewall rule or forwarding setting. It has its own
mount and PID namespaces: killing it ends all its processes, at the latest when the test process ends. Only a cache of
images remains.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import docker
from docker.errors import DockerException

from tools.local import binaries, debian
from tools.local.errors import ClusterError
from tools.local.machine import cgroups, processes
from tools.local.paths import CACHE

CGROUP = "platform-containers"
PROGRAMS = {"dockerd": "docker.io", "containerd": "containerd", "runc": "runc"}
"""Debian package of each program."""


def answers(url: str | None = None) -> bool:
    """Return whether a Docker daemon answers at `url`, or at the address in the environment."""
    try:
        with closing(docker.DockerClient(base_url=url) if url else docker.from_env()) as client:
            return bool(client.ping())
    except DockerException:
        return False


@contextmanager
def daemon() -> Iterator[str]:
    """Run a daemon until the end of the context; only one at a time on a machine.

    Yields:
        Address of the daemon, as in DOCKER_HOST.

    Raises:
        ClusterError: the user is not root, a package cannot be downloaded, or the daemon does not start.
    """
    if os.geteuid() != 0:
        raise ClusterError(
            "Docker is not running, and starting a daemon for the tests needs root",
            "start Docker, set DOCKER_HOST, or run the tests as root",
        )
    programs = {name: debian.program(name, package) for name, package in PROGRAMS.items()}
    with binaries.locked("docker"), tempfile.TemporaryDirectory(prefix="platform-docker-") as runtime:
        cgroups.remove(CGROUP)  # left by tests that were killed
        log = CACHE / "docker" / "log"
        log.unlink(missing_ok=True)
        dockerd = processes.start("dockerd", _command(programs, Path(runtime)), log=log, dies_with_us=True)
        url = f"unix://{runtime}/socket"
        try:
            processes.wait_until(lambda: answers(url), "the Docker daemon", needs=[dockerd], timeout=30)
            _remove_containers(url)
            yield url
            _remove_containers(url)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(dockerd.pid, signal.SIGTERM)  # the group: unshare ignores SIGTERM
            processes.stop([dockerd], grace=10)
            cgroups.remove(CGROUP)


def _remove_containers(url: str) -> None:
    """Remove all containers, including those of tests that were killed."""
    with closing(docker.DockerClient(base_url=url)) as client:
        for container in client.containers.list(all=True):
            container.remove(force=True)


def _command(programs: dict[str, Path], runtime: Path) -> list[str | Path]:
    configuration = runtime / "daemon.json"
    configuration.write_text("{}")  # instead of the machine's configuration
    path = ":".join([*(str(program.parent) for program in programs.values()), os.environ["PATH"]])
    return [
        "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
        "sh", "-c", 'mount -t tmpfs tmpfs /run && exec env "$@"', "sh", f"PATH={path}",  # dockerd writes to /run
        programs["dockerd"], f"--config-file={configuration}", f"--data-root={CACHE / 'docker' / 'images'}",
        f"--exec-root={runtime / 'exec'}", f"--pidfile={runtime / 'pid'}", f"--host=unix://{runtime / 'socket'}",
        "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
        f"--cgroup-parent=/{CGROUP}", "--log-level=warn",
    ]  # fmt: skip
