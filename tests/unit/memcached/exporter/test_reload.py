"""Reload of the users file: when the sidecar sends a signal, and to which process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from operators.memcached.exporter.reload import Reloader

CATCHES, IGNORES = "0000000000004203", "0000000000004202"
"""SigCgt of memcached 1.6.18, and the same without SIGHUP."""


class Pod:
    """A process namespace, and the users file of its server."""

    def __init__(self, directory: Path) -> None:
        self.processes = directory / "proc"
        self.users = directory / "users"
        self.signals: list[tuple[int, int]] = []
        self.start(1, "pause")
        self.start(7, "memcached")
        self.users.write_text("app:one\n")
        self.reloader = Reloader(
            self.users, processes=self.processes, send=lambda pid, number: self.signals.append((pid, number))
        )

    def start(self, pid: int, name: str, *, caught: str = CATCHES) -> None:
        process = self.processes / str(pid)
        process.mkdir(parents=True, exist_ok=True)
        (process / "comm").write_text(f"{name}\n")
        (process / "status").write_text(f"Name:\t{name}\nSigCgt:\t{caught}\n")


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_server_gets_one_signal_per_change(pod: Pod) -> None:
    pod.reloader.check()
    assert pod.signals == [(7, signal.SIGHUP)], "the file may have changed before the sidecar started"
    pod.reloader.check()
    assert len(pod.signals) == 1
    pod.users.write_text("app:two\n")
    pod.reloader.check()
    pod.reloader.check()
    assert len(pod.signals) == 2


def test_server_without_a_handler_gets_no_signal_until_it_has_one(pod: Pod, caplog: pytest.LogCaptureFixture) -> None:
    """The signal would end a server that is starting, or too old."""
    pod.start(7, "memcached", caught=IGNORES)
    pod.reloader.check()
    pod.reloader.check()
    assert pod.signals == []
    assert [record.getMessage() for record in caplog.records] == [
        "The users file was not reloaded: process 7 has no handler of SIGHUP"
    ]
    pod.start(7, "memcached")
    pod.reloader.check()
    assert len(pod.signals) == 1


def test_missing_file_or_server_is_retried(pod: Pod) -> None:
    pod.users.unlink()
    pod.reloader.check()
    (pod.processes / "7" / "comm").unlink()
    pod.users.write_text("app:two\n")
    pod.reloader.check()
    assert pod.signals == []
    pod.start(9, "memcached")
    pod.reloader.check()
    assert pod.signals == [(9, signal.SIGHUP)]
