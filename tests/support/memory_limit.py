"""A memory limit for a process, as the kubelet sets it for a container: beyond it, the kernel kills the process."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.local.machine.cgroups import hierarchies


@dataclass(frozen=True)
class MemoryLimit:
    """A limit, and how it is enforced.

    Attributes:
        kind: cgroup v1, cgroup v2 or RLIMIT_DATA.
        prefix: beginning of a command line that runs the rest within the limit.
    """

    kind: str
    prefix: tuple[str, ...]


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[MemoryLimit]:
    """Limit memory by a cgroup; by RLIMIT_DATA, an allocation beyond which fails, where none can be created.

    Raises:
        AssertionError: root gets no limit in a cgroup, although cgroups are writable: a suite that is meant to run in
            one would show nothing about the memory of pods.
    """
    for mount, kind in hierarchies().items():
        group = mount / f"platform-test-{uuid.uuid4().hex[:8]}"
        name = "memory.max" if kind == "cgroup2" else "memory.limit_in_bytes"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / name).exists() and _is_set(group / name, size):
                yield MemoryLimit(
                    "cgroup v2" if kind == "cgroup2" else "cgroup v1",
                    ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$0" "$@"'),
                )
                return
        finally:
            group.rmdir()
    assert os.geteuid() or not writable(), (
        f"no cgroup in {', '.join(map(str, writable()))} takes a memory limit. With cgroups of version 2, enable the "
        "controller: echo +memory > cgroup.subtree_control"
    )
    yield MemoryLimit("RLIMIT_DATA", ("sh", "-c", f'ulimit -d {size // 1024} && exec "$0" "$@"'))


def writable() -> list[Path]:
    """Return the mount points of the cgroup hierarchies that can limit memory and take new groups."""
    v1 = [mount for mount, kind in hierarchies().items() if kind == "cgroup" and "memory" in mount.name.split(",")]
    v2 = [mount for mount, kind in hierarchies().items() if kind == "cgroup2"]
    v2 = [mount for mount in v2 if "memory" in (mount / "cgroup.controllers").read_text().split()]
    return [mount for mount in (*v1, *v2) if os.access(mount, os.W_OK)]


def _is_set(limit: Path, size: int) -> bool:
    try:
        limit.write_text(str(size))
    except OSError:  # not privileged
        return False
    return True
