"""Control groups of the nodes: one per node and hierarchy of the host (v1, v2 or both), named after the node."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tools.local.errors import ClusterError

CONTROLLERS = ("cpu", "cpuset", "memory", "pids")


def hierarchies() -> dict[Path, str]:
    """Return the mount point of each cgroup hierarchy with its type: ``cgroup`` (v1) or ``cgroup2``."""
    found = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if kind in {"cgroup", "cgroup2"}:
            found[Path(mount)] = kind
    return found


def missing_controllers() -> list[str]:
    """Return the controllers that a kubelet needs and no hierarchy has."""
    present = set[str]()
    for mount, kind in hierarchies().items():
        if kind == "cgroup2":
            present.update((mount / "cgroup.controllers").read_text().split())
        else:
            present.update(mount.name.split(","))
    return [name for name in CONTROLLERS if name not in present]


def make(name: str) -> None:
    """Create a node's cgroup in every hierarchy and prepare it for child groups."""
    for mount, kind in hierarchies().items():
        group = mount / name
        if kind == "cgroup2":
            _delegate(mount)
        group.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):  # v1: empty in a new group, which then accepts no process
            if kind == "cgroup" and (group / setting).exists():
                (group / setting).write_text((mount / setting).read_text())


def remove(name_prefix: str) -> None:
    """Remove all cgroups whose name begins with `name_prefix`, children first.

    Raises:
        ClusterError: a cgroup still contains a process.
    """
    for group in list(_groups(name_prefix)):
        deadline = time.monotonic() + 10
        while group.exists():
            try:
                for inner in sorted(group.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
                    if inner.is_dir():
                        inner.rmdir()
                group.rmdir()
            except OSError as error:  # EBUSY until the kernel has released the last process
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"cannot remove the cgroup {group}: {error}",
                        f"end the processes that `cat {group}/cgroup.procs` lists",
                    ) from error
                time.sleep(0.1)


def _groups(name_prefix: str) -> Iterator[Path]:
    for mount in hierarchies():
        yield from mount.glob(f"{name_prefix}*/")


def _delegate(mount: Path) -> None:
    """Enable the controllers for the children of a v2 root (systemd enables most of them)."""
    present = (mount / "cgroup.controllers").read_text().split()
    with suppress(OSError):
        (mount / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in present))
