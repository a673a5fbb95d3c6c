"""Removal of the cluster, complete or partial, started by this clone or another one."""

import shutil
from pathlib import Path

from tools.local import host
from tools.local.machine import cgroups, network, processes
from tools.local.machine.commands import run
from tools.local.paths import RUN, STATE
from tools.local.record import Record

NODE_PREFIX = "platform-"


def take_down() -> bool:
    """Remove everything that a local cluster created on this machine.

    Returns:
        Whether there was a cluster to remove.
    """
    record = Record.load()
    if record:
        # Nodes before the control plane; SIGKILL suffices, as no data of the cluster is kept.
        processes.stop(reversed(record.processes))
    network.remove()
    cgroups.remove(NODE_PREFIX)
    if record:
        host.restore_kernel_settings(record)
    states = {STATE, record.state} if record else {STATE}
    found = record is not None or STATE.exists()
    for state in states:
        _remove_tree(state)
    shutil.rmtree(RUN, ignore_errors=True)
    return found


def belongs_to_cluster(line: str) -> bool:
    """Return whether a line of a snapshot contains a name that only the cluster uses."""
    return any(mark in line for mark in (network.BRIDGE, network.VETH_PREFIX, NODE_PREFIX, str(STATE)))


def _remove_tree(directory: Path) -> None:
    """Remove a directory; file systems mounted in it are unmounted first."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted(mounts, reverse=True):
        if Path(mount).is_relative_to(directory):
            run("umount", "--lazy", mount)
    if directory.exists():
        shutil.rmtree(directory)
