"""A memory limit for a process, as the kubelet sets it for a container: beyond it, the kernel kills the process."""

from __future__ import annotations

import contextlib
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
    """Limit memory by a cgroup; by RLIMIT_DATA, an allocation beyond which fails, where none can be created."""
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
    yield MemoryLimit("RLIMIT_DATA", ("sh", "-c", f'ulimit -d {size // 1024} && exec "$0" "$@"'))


def _is_set(limit: Path, size: int) -> bool:
    try:
        limit.write_text(str(size))
    except OSError:  # not privileged
        return False
    return True
