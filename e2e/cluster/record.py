"""What the running cluster has on this machine, written down so that any clone can take it away again.

The record lies under /run: after a reboot it is gone, as are the processes, interfaces and cgroups it speaks of.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from e2e.cluster.machine.processes import Process
from e2e.cluster.paths import CACHE, RUN

_FILE = RUN / "record.json"


@dataclass
class Record:
    """One cluster's belongings.

    Attributes:
        state: the directory of the clone that made it, which holds its files.
        nodes: how many nodes it has.
        processes: every process of it, in the order of their start.
        settings: kernel settings that it changes (a file under /proc/sys each), with their values before.
        before: what the machine looked like before it (see snapshot.py).
        ready: whether it came up whole.
    """

    state: Path
    nodes: int
    processes: list[Process] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    before: dict[str, list[str]] = field(default_factory=dict)
    ready: bool = False

    @classmethod
    def load(cls) -> "Record | None":
        """The record of the cluster this machine has, or None."""
        try:
            found: dict[str, Any] = json.loads(_FILE.read_text())
        except FileNotFoundError:
            return None
        found["state"] = Path(found["state"])
        found["processes"] = [Process(**{**each, "log": Path(each["log"])}) for each in found["processes"]]
        return cls(**found)

    def save(self) -> None:
        """Write it down, all or nothing."""
        RUN.mkdir(exist_ok=True)
        fresh = _FILE.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), default=str, indent=1))
        os.replace(fresh, _FILE)  # noqa: PTH105

    def add(self, process: Process) -> None:
        """Write a process down as soon as it runs."""
        self.processes.append(process)
        self.save()

    def process(self, name: str) -> Process:
        """The process of that name."""
        return next(process for process in self.processes if process.name == name)


@contextmanager
def changing() -> Iterator[None]:
    """Hold this machine's one cluster for a change, so that two `up` or `down` do not mix."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "cluster.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another `make up` or `make down` is at work on this machine: waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
