"""Record of what the running cluster created on this machine, with which any clone can remove it.

The record is under /run: a reboot deletes it together with the processes, interfaces and cgroups that it lists.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.local.machine.processes import Process
from tools.local.paths import CACHE, RUN

_FILE = RUN / "record.json"


@dataclass
class Record:
    """Processes, settings and files of one cluster.

    Attributes:
        state: `.cluster` directory of the clone that started the cluster.
        nodes: number of nodes.
        processes: all processes of the cluster, in the order of their start.
        settings: previous values of the kernel settings that the cluster changes, by path under /proc/sys.
        before: snapshot of the machine before the start (see snapshot.py).
        ready: whether the start was complete.
    """

    state: Path
    nodes: int
    processes: list[Process] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    before: dict[str, list[str]] = field(default_factory=dict)
    ready: bool = False

    @classmethod
    def load(cls) -> "Record | None":
        """Return the record of this machine's cluster, or None."""
        try:
            found: dict[str, Any] = json.loads(_FILE.read_text())
        except FileNotFoundError:
            return None
        found["state"] = Path(found["state"])
        found["processes"] = [Process(**{**each, "log": Path(each["log"])}) for each in found["processes"]]
        return cls(**found)

    def save(self) -> None:
        """Write the record atomically."""
        RUN.mkdir(exist_ok=True)
        fresh = _FILE.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), default=str, indent=1))
        os.replace(fresh, _FILE)  # noqa: PTH105

    def add(self, process: Process) -> None:
        """Add a process and save the record."""
        self.processes.append(process)
        self.save()

    def process(self, name: str) -> Process:
        """Return the process with the given name."""
        return next(process for process in self.processes if process.name == name)


@contextmanager
def changing() -> Iterator[None]:
    """Lock this machine's cluster, so that concurrent `up` and `down` do not interfere."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "cluster.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting for another `make up` or `make down` on this machine to finish …", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
