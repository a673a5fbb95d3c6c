"""Processes are known by pid and start time."""

import dataclasses
import socket
import sys
from pathlib import Path

import pytest

from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import processes


def test_a_process_is_ended_and_waited_for(tmp_path: Path) -> None:
    process = processes.start("sleeper", ["sleep", "60"], log=tmp_path / "log")
    assert process.alive
    processes.stop([process])
    assert not process.alive


def test_a_process_whose_first_thread_has_ended_still_has_its_ports(tmp_path: Path) -> None:
    port = (
        "import ctypes, socket, threading, time\n"
        "held = socket.create_server(('127.0.0.1', 0))\n"
        "print(held.getsockname()[1], flush=True)\n"
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


def test_a_stranger_with_the_same_pid_is_left_alone(tmp_path: Path) -> None:
    ours = processes.start("sleeper", ["sleep", "60"], log=tmp_path / "log")
    stranger = dataclasses.replace(ours, started=ours.started - 1)
    try:
        assert not stranger.alive
        processes.stop([stranger])
        assert ours.alive
    finally:
        processes.stop([ours])


def test_waiting_ends_with_the_last_words_of_what_died(tmp_path: Path) -> None:
    process = processes.start("broken", ["sh", "-c", "echo no such flag; exit 1"], log=tmp_path / "log")
    with pytest.raises(ClusterError, match="broken ended while waiting for its port") as caught:
        processes.wait_until(lambda: False, "its port", needs=[process], timeout=10)
    assert "no such flag" in caught.value.what
