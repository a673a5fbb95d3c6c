"""Long-running processes, known by pid and start time so that a stranger's process is never taken for ours."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError


@dataclass(frozen=True)
class Process:
    """One process of ours.

    Attributes:
        name: what people call it, e.g. ``kube-apiserver``.
        pid: process id.
        started: clock ticks after boot (field 22 of /proc/<pid>/stat): with the pid, unique until the next boot.
        log: where its output goes.
    """

    name: str
    pid: int
    started: int
    log: Path

    @property
    def alive(self) -> bool:
        """Whether this very process still runs; a zombie does not."""
        return _start_time(self.pid) == self.started

    @property
    def cpu(self) -> float:
        """Processor time it has used, in seconds; 0 when it is gone."""
        fields = _stat(self.pid)
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if this very process still runs."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def last_words(self, lines: int = 12) -> str:
        """The end of its log, indented for an error."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n    ".join(text.strip().splitlines()[-lines:]) or "(it said nothing)"


def start(name: str, command: Sequence[str | Path], *, log: Path, dies_with_us: bool = False) -> Process:
    """Start a process in a session of its own.

    Args:
        name: what people call it.
        command: program and arguments.
        log: file that takes its output.
        dies_with_us: the kernel kills it when the starting thread ends, however that comes about.
    """
    arguments = [str(part) for part in command]
    if dies_with_us:
        arguments = ["setpriv", "--pdeathsig", "KILL", *arguments]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    started = _start_time(child.pid)
    process = Process(name, child.pid, started or 0, log)
    _children.append(child)
    return process


def stop(processes: Iterable[Process], *, grace: float = 0, timeout: float = 30) -> None:
    """End processes and wait until they are gone.

    Args:
        processes: those to end; one that is gone already is fine.
        grace: seconds between SIGTERM and SIGKILL; 0 kills at once, right for what keeps nothing.
        timeout: seconds to wait for a killed one.

    Raises:
        ClusterError: one cannot be killed (it hangs in the kernel).
    """
    rest = list(processes)
    if grace:
        for process in rest:
            process.signal(signal.SIGTERM)
        _wait_gone(rest, grace)
    for process in rest:
        process.signal(signal.SIGKILL)
    stuck = _wait_gone(rest, timeout)
    if stuck:
        names = ", ".join(f"{process.name} (pid {process.pid})" for process in stuck)
        raise ClusterError(f"killed, but still there after {timeout:g} s: {names}", "`dmesg` may name a stuck task")


def wait_until(ready: Callable[[], bool], what: str, *, needs: Iterable[Process] = (), timeout: float = 60) -> None:
    """Wait until something holds, and give up as soon as a process it needs has died.

    Raises:
        ClusterError: with the dead process's last words, or what was waited for in vain.
    """
    needed = list(needs)
    deadline = time.monotonic() + timeout
    while not ready():
        for process in needed:
            if not process.alive:
                raise ClusterError(
                    f"{process.name} ended while waiting for {what}; its last words:\n    {process.last_words()}",
                    f"read {process.log}",
                )
        if time.monotonic() > deadline:
            logs = ", ".join(str(process.log) for process in needed) or "the logs"
            raise ClusterError(f"{what} did not come within {timeout:g} s", f"read {logs}")
        time.sleep(0.1)


_children: list[subprocess.Popen[bytes]] = []
"""Our own children, kept so that their exit is taken in (a zombie would hold the pid)."""


def _wait_gone(processes: list[Process], seconds: float) -> list[Process]:
    deadline = time.monotonic() + seconds
    while (alive := [process for process in processes if process.alive]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for child in _children:
        child.poll()
    return alive


def _start_time(pid: int) -> int | None:
    """Clock ticks after boot at which the process began, or None when it is gone or a zombie.

    While a thread of it still ends (num_threads, field 20), a killed process keeps its files and ports, whatever
    state the first thread is in.
    """
    fields = _stat(pid)
    return None if not fields or (fields[0] in "ZX" and int(fields[17]) <= 1) else int(fields[19])


def _stat(pid: int) -> list[str]:
    """What /proc says of a process from its state on (field 3 of /proc/<pid>/stat); empty when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat.rpartition(")")[2].split()  # the name before it may hold blanks and parentheses
