"""Docker where there is none: Debian's dockerd, unpacked from its package, in namespaces of its own.

Containers share the machine's network, so no bridge, no firewall rule and no forwarding is touched. Mounts and
processes are the daemon's own: one kill ends them all, and it comes at the latest when the tests' process ends. What
stays is a cache of images.
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

from e2e.cluster import binaries
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import cgroups, debian, processes
from e2e.cluster.paths import CACHE

CGROUP = "platform-containers"
PROGRAMS = {"dockerd": "docker.io", "containerd": "containerd", "runc": "runc"}
"""Debian's package for each program."""


def answers(url: str | None = None) -> bool:
    """Whether a Docker daemon answers at an address; by default where the environment says."""
    try:
        with closing(docker.DockerClient(base_url=url) if url else docker.from_env()) as client:
            return bool(client.ping())
    except DockerException:
        return False


@contextmanager
def daemon() -> Iterator[str]:
    """A daemon until the context is left; one at a time on a machine.

    Yields:
        Its address, as in DOCKER_HOST.

    Raises:
        ClusterError: it cannot be had or does not start.
    """
    if os.geteuid() != 0:
        raise ClusterError(
            "no Docker answers, and a daemon of our own needs root",
            "start Docker, name yours in DOCKER_HOST, or run the tests as root",
        )
    programs = {name: debian.program(name, package) for name, package in PROGRAMS.items()}
    with binaries.locked("docker"), tempfile.TemporaryDirectory(prefix="platform-docker-") as runtime:
        cgroups.remove(CGROUP)  # of tests that were killed
        log = CACHE / "docker" / "log"
        log.unlink(missing_ok=True)
        dockerd = processes.start("dockerd", _command(programs, Path(runtime)), log=log, dies_with_us=True)
        url = f"unix://{runtime}/socket"
        try:
            processes.wait_until(lambda: answers(url), "the Docker daemon", needs=[dockerd], timeout=30)
            _end_containers(url)
            yield url
            _end_containers(url)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(dockerd.pid, signal.SIGTERM)  # unshare is deaf to it, dockerd is not
            processes.stop([dockerd], grace=10)
            cgroups.remove(CGROUP)


def _end_containers(url: str) -> None:
    """End and forget all containers, also those of tests that were killed."""
    with closing(docker.DockerClient(base_url=url)) as client:
        for container in client.containers.list(all=True):
            container.remove(force=True)


def _command(programs: dict[str, Path], runtime: Path) -> list[str | Path]:
    configuration = runtime / "daemon.json"
    configuration.write_text("{}")  # not the machine's
    path = ":".join([*(str(program.parent) for program in programs.values()), os.environ["PATH"]])
    return [
        "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
        "sh", "-c", 'mount -t tmpfs tmpfs /run && exec env "$@"', "sh", f"PATH={path}",  # it writes to /run
        programs["dockerd"], f"--config-file={configuration}", f"--data-root={CACHE / 'docker' / 'images'}",
        f"--exec-root={runtime / 'exec'}", f"--pidfile={runtime / 'pid'}", f"--host=unix://{runtime / 'socket'}",
        "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
        f"--cgroup-parent=/{CGROUP}", "--log-level=warn",
    ]  # fmt: skip
