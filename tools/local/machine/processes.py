"""Long-running processes, identified by PID and start time so that a reused PID is never mistaken for them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.local.errors import ClusterError


@dataclass(frozen=True)
class Process:
    """A process that `start` started.

    Attributes:
        name: display name, such as ``kube-apiserver``.
        pid: process ID.
        started: clock ticks after boot (field 22 of /proc/<pid>/stat); unique with the PID until the next boot.
        log: file with the output of the process.
    """

    name: str
    pid: int
    started: int
    log: Path

    @property
    def alive(self) -> bool:
        """Whether this process is still running; a zombie is not."""
        return _start_time(self.pid) == self.started

    @property
    def cpu(self) -> float:
        """CPU time used so far, in seconds; 0 after the process has ended."""
        fields = _stat(self.pid)
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if this process is still running."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def log_tail(self, lines: int = 12) -> str:
        """Return the last lines of the log, indented for an error message."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n    ".join(text.strip().splitlines()[-lines:]) or "(no output)"


def start(name: str, command: Sequence[str | Path], *, log: Path, dies_with_us: bool = False) -> Process:
    """Start a process in a new session.

    Args:
        name: display name.
        command: program and arguments.
        log: file to which the output is appended.
        dies_with_us: the kernel kills the process when the thread that started it ends for any reason.
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
    """Stop processes and wait until they have ended.

    Args:
        processes: processes to stop; those that have already ended are ignored.
        grace: seconds between SIGTERM and SIGKILL; with 0, SIGKILL is sent at once, for processes without state.
        timeout: seconds to wait after SIGKILL.

    Raises:
        ClusterError: a process does not end (it hangs in the kernel).
    """
    rest = list(processes)
    if grace:
        for process in rest:
            process.signal(signal.SIGTERM)
        _wait_until_ended(rest, grace)
    for process in rest:
        process.signal(signal.SIGKILL)
    stuck = _wait_until_ended(rest, timeout)
    if stuck:
        names = ", ".join(f"{process.name} (pid {process.pid})" for process in stuck)
        raise ClusterError(
            f"processes still running {timeout:g} s after SIGKILL: {names}", "check `dmesg` for a stuck task"
        )


def wait_until(ready: Callable[[], bool], what: str, *, needs: Iterable[Process] = (), timeout: float = 60) -> None:
    """Wait until `ready` returns true; stop waiting as soon as a needed process has ended.

    Raises:
        ClusterError: a needed process ended (with the end of its log), or the time is up.
    """
    needed = list(needs)
    deadline = time.monotonic() + timeout
    while not ready():
        for process in needed:
            if not process.alive:
                raise ClusterError(
                    f"{process.name} exited while waiting for {what}; end of its log:\n    {process.log_tail()}",
                    f"read {process.log}",
                )
        if time.monotonic() > deadline:
            logs = ", ".join(str(process.log) for process in needed) or "the logs"
            raise ClusterError(f"timed out after {timeout:g} s waiting for {what}", f"read {logs}")
        time.sleep(0.1)


_children: list[subprocess.Popen[bytes]] = []
"""Child processes of this one; polled so that they do not stay zombies."""


def _wait_until_ended(processes: list[Process], seconds: float) -> list[Process]:
    deadline = time.monotonic() + seconds
    while (alive := [process for process in processes if process.alive]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for child in _children:
        child.poll()
    return alive


def _start_time(pid: int) -> int | None:
    """Return the clock ticks after boot at which a process started, or None if it has ended or is a zombie.

    A killed process keeps its files and ports until its last thread has ended (num_threads, field 20), even if its
    first thread is already a zombie.
    """
    fields = _stat(pid)
    return None if not fields or (fields[0] in "ZX" and int(fields[17]) <= 1) else int(fields[19])


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat from field 3 (state); empty if the process has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat.rpartition(")")[2].split()  # the name in parentheses may contain blanks and parentheses
