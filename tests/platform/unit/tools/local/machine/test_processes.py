"""Processes, identified by PID and start time."""

import dataclasses
import socket
import sys
from pathlib import Path

import pytest

from tools.local.errors import ClusterError
from tools.local.machine import processes


def test_stop_waits_until_the_process_has_ended(tmp_path: Path) -> None:
    process = processes.start("sleeper", ["sleep", "60"], log=tmp_path / "log")
    assert process.alive
    processes.stop([process])
    assert not process.alive


def test_process_without_its_first_thread_keeps_its_ports(tmp_path: Path) -> None:
    port = (
        "import ctypes, socket, threading, time\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "print(listener.getsockname()[1], flush=True)\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    process = processes.start("threads", [sys.executable, "-c", port], log=tmp_path / "log")
    state = Path(f"/proc/{process.pid}/status")
    try:
        processes.wait_until(lambda: "State:\tZ" in state.read_text(), "the first thread's end", timeout=20)
        assert process.alive
        socket.create_connection(("127.0.0.1", int(process.log.read_text())), 1).close()
    finally:
        processes.stop([process])
    assert not process.alive


def test_other_process_with_the_same_pid_is_not_stopped(tmp_path: Path) -> None:
    process = processes.start("sleeper", ["sleep", "60"], log=tmp_path / "log")
    other = dataclasses.replace(process, started=process.started - 1)
    try:
        assert not other.alive
        processes.stop([other])
        assert process.alive
    finally:
        processes.stop([process])


def test_wait_fails_with_the_log_of_the_process_that_exited(tmp_path: Path) -> None:
    process = processes.start("broken", ["sh", "-c", "echo no such flag; exit 1"], log=tmp_path / "log")
    with pytest.raises(ClusterError, match="broken exited while waiting for its port") as caught:
        processes.wait_until(lambda: False, "its port", needs=[process], timeout=10)
    assert "no such flag" in caught.value.what
