"""A registry of images and charts on this machine (distribution), used instead of a public one."""

import json
import urllib.error
import urllib.request
from pathlib import Path

from tools.local import binaries
from tools.local.machine import processes
from tools.local.machine.network import HOST_ADDRESS
from tools.local.machine.processes import Process

NAME = "registry"
PORT = 5000
NODES_ADDRESS = f"{HOST_ADDRESS}:{PORT}"
"""Address of the registry that the nodes of the local cluster pull from; no packet leaves the machine."""


def start(address: str, directory: Path, *, port: int = PORT, dies_with_us: bool = False) -> Process:
    """Start the registry and wait until it answers, without TLS.

    Args:
        address: IP address to listen on: a loopback address, or that of the host on the nodes' network.
        directory: files of the registry; created if missing.
        port: TCP port to listen on.
        dies_with_us: the kernel kills the process when the thread that started it ends.

    Raises:
        ClusterError: the registry did not start; the error has the end of its log.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "config.json"
    config.write_text(json.dumps(configuration(f"{address}:{port}", directory / "data")))
    command: list[str | Path] = [binaries.find("registry"), "serve", config]
    process = processes.start(NAME, command, log=directory / "registry.log", dies_with_us=dies_with_us)
    processes.wait_until(lambda: _answers(f"{address}:{port}"), "the registry", needs=[process], timeout=30)
    return process


def configuration(address: str, data: Path) -> dict[str, object]:
    """Return the configuration of distribution; JSON is valid YAML, which it reads."""
    return {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(data)}},
        "http": {"addr": address},
    }


def hosts_toml(address: str) -> str:
    """Return the file that makes containerd use plain HTTP for a registry."""
    return f'server = "http://{address}"\n\n[host."http://{address}"]\n  capabilities = ["pull", "resolve"]\n'


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=2) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False
