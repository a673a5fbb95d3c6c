"""etcd's own robustness tests judge clusters that the operator changes, and detect a second of lost writes."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from e2e.scenarios.etcd.actions import ACTIONS, LEADER_DELETED, Action
from e2e.scenarios.etcd.judge import KINDS, Clients
from e2e.scenarios.etcd.versions import NEWEST_36
from e2e.scenarios.support.commands import Kubectl
from tests.support import seeds
from tools.local import binaries
from tools.local.machine.network import free_ports

ENOUGH_REQUESTS = 100


def level(action: Action) -> tuple[pytest.MarkDecorator, ...]:
    """Return the marks of an action's test: the quickest one runs for each commit."""
    return () if action is LEADER_DELETED else (pytest.mark.nightly,)


@pytest.mark.parametrize("action", [pytest.param(each, id=each.name, marks=level(each)) for each in ACTIONS])
def test_etcds_own_judge_finds_nothing(kubectl: Kubectl, tmp_path: Path, action: Action) -> None:
    kind = random.Random(f"{seeds.seed()} {action.name}").choice(KINDS)
    verdict = action.judged(kubectl, tmp_path, kind)
    assert not verdict.failures, f"report: {tmp_path}"
    assert verdict.requests - verdict.failed > ENOUGH_REQUESTS, verdict
    assert verdict.events > 0


@pytest.mark.nightly
@pytest.mark.parametrize("loses", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_etcds_own_judge_finds_a_second_of_lost_writes(tmp_path: Path, kind: str, loses: bool) -> None:
    """An etcd on loopback is killed; with `loses` it starts with the data that it had a second before."""
    ports = list(free_ports(2))
    clients, peers = (f"http://127.0.0.1:{port}" for port in ports)
    data, former = tmp_path / "data", tmp_path / "former"
    command = [str(binaries.build(binaries.ETCD[NEWEST_36]) / "etcd"), "--name=one", f"--data-dir={data}"]
    command += [f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"]
    command += [f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"]
    command += [f"--initial-cluster=one={peers}", f"--log-outputs={tmp_path / 'log'}"]
    judged = Clients(tmp_path, lambda: {"one": f"127.0.0.1:{ports[0]}"}, kind)
    with ExitStack() as running:
        etcd = running.enter_context(killed_at_the_end(command))
        with judged.running():
            time.sleep(2)
            if loses:
                etcd.send_signal(signal.SIGSTOP)  # so that the copy is what a crash at this moment leaves
                shutil.copytree(data, former)
                etcd.send_signal(signal.SIGCONT)
            time.sleep(1)
            etcd.kill()
            etcd.wait()
            if loses:
                shutil.rmtree(data)
                former.rename(data)
            running.enter_context(killed_at_the_end(command))
            time.sleep(2)
        verdict = judged.verdict({"one": data / "member" / "wal"})
    if loses:
        assert verdict.failures["linearization"] == "Failure: illegal"
    else:
        assert not verdict.failures


@contextmanager
def killed_at_the_end(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.kill()
