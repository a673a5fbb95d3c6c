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
        self.start(1, "pause", flags="")
        self.start(7, "memcached")
        self.users.write_text("app:one\n")
        self.reloader = Reloader(
            self.users, processes=self.processes, send=lambda pid, number: self.signals.append((pid, number))
        )

    def start(self, pid: int, name: str, *, caught: str = CATCHES, flags: str | None = None) -> None:
        flags = f"--auth-file={self.users}" if flags is None else flags
        process = self.processes / str(pid)
        process.mkdir(parents=True, exist_ok=True)
        (process / "comm").write_text(f"{name}\n")
        (process / "cmdline").write_text(f"{name}\0--port=11211\0{flags}\0")
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


@pytest.mark.parametrize("users", ["", "app:one", "app\n", "app:\0\n", "app:\u00e9\n\xff", f"app:{'x' * 300}\n"])
def test_file_that_locks_users_out_is_not_loaded(pod: Pod, users: str, caplog: pytest.LogCaptureFixture) -> None:
    """From an empty file, memcached loads no user, and then rejects every one; others lose users or password."""
    pod.reloader.check()
    pod.users.write_text(users, encoding="latin-1")
    pod.reloader.check()
    pod.reloader.check()
    assert len(pod.signals) == 1
    assert pod.reloader.signalled is None
    [record] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert record.startswith("The users file was not reloaded: ")
    pod.users.write_text("app:two\n")
    pod.reloader.check()
    assert len(pod.signals) == 2


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


def test_each_server_with_the_file_gets_the_signal_and_no_other_one(pod: Pod) -> None:
    """Another container of the pod may run a memcached server too, with a process that is found first."""
    pod.start(10, "memcached", flags="--auth-file=/another/users")
    pod.start(11, "memcached", flags="")
    pod.start(100, "memcached")
    pod.reloader.check()
    pod.reloader.check()
    assert pod.signals == [(7, signal.SIGHUP), (100, signal.SIGHUP)]


def test_restarted_server_gets_a_signal(pod: Pod) -> None:
    """The new process may have read the file just before the kubelet replaced it."""
    pod.reloader.check()
    (pod.processes / "7" / "comm").unlink()
    pod.start(20, "memcached")
    pod.reloader.check()
    pod.reloader.check()
    assert pod.signals == [(7, signal.SIGHUP), (20, signal.SIGHUP)]


def test_server_that_cannot_reload_keeps_no_other_from_it(pod: Pod) -> None:
    pod.start(6, "memcached", caught=IGNORES)
    pod.reloader.check()
    pod.reloader.check()
    assert pod.signals == [(7, signal.SIGHUP)]
