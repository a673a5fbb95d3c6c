"""Taking the cluster away: whole, half-made or left by a crash, of this clone or another."""

import shutil
from pathlib import Path

from e2e.cluster.machine import cgroups, host, network, processes
from e2e.cluster.machine.commands import run
from e2e.cluster.paths import RUN, STATE
from e2e.cluster.record import Record

NODE_PREFIX = "platform-"


def take_down() -> bool:
    """Remove everything a local cluster made on this machine; nothing there is no error.

    Returns:
        Whether there was anything to remove.
    """
    record = Record.load()
    if record:
        # Nodes before what they talk to, and all at once: there is nothing in a cluster that is kept.
        processes.stop(reversed(record.processes))
    network.remove()
    cgroups.remove(NODE_PREFIX)
    if record:
        host.take_back(record)
    states = {STATE, record.state} if record else {STATE}
    found = record is not None or STATE.exists()
    for state in states:
        _remove_tree(state)
    shutil.rmtree(RUN, ignore_errors=True)
    return found


def is_ours(line: str) -> bool:
    """Whether a line of a snapshot speaks of something by a name that only this cluster gives."""
    return any(mark in line for mark in (network.BRIDGE, network.CABLE, NODE_PREFIX, str(STATE)))


def _remove_tree(directory: Path) -> None:
    """Remove a directory, but never what is mounted in it."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted(mounts, reverse=True):
        if Path(mount).is_relative_to(directory):
            run("umount", "--lazy", mount)
    if directory.exists():
        shutil.rmtree(directory)
