"""Every version of etcd starts, and serves, with each argument that admission accepts."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from operators.etcd.api.arguments import ACCEPTED, USER_FLAGS, absent
from operators.etcd.api.versions import Version, features
from tests.support.containers.etcd_servers import program
from tests.support.tls import Authority
from tools.local.machine.network import free_ports

pytestmark = pytest.mark.nightly

EXAMPLES = 30
"""Number of command lines per version, with five random flags on average; each takes 0.4 s."""

HOST = "127.0.0.1"

GATES_OF_3_7 = re.compile("FastLeaseKeepAlive|PriorityRequest")
"""Feature gates that 3.6 does not have: etcd names them in its log, which the status quotes."""

GATED = {
    *("feature-gates", "experimental-enable-lease-checkpoint", "experimental-enable-lease-checkpoint-persist"),
    *("experimental-stop-grpc-service-on-defrag", "experimental-txn-mode-write-with-shared-buffer"),
}
"""Flags that set feature gates, in both forms."""

_ASCII = st.characters(codec="ascii")


class Process:
    """A single member as a process, on a new data directory at each start."""

    def __init__(self, version: str, directory: Path) -> None:
        self._program, self._directory = program(version, "etcd"), directory
        self._peers, self._clients, self._metrics = free_ports(3)
        authority = Authority(directory)
        certificate, key = authority.issue("member", HOST)
        self._tls = (f"--cert-file={certificate}", f"--key-file={key}")
        self._checks = features(Version.parse(version)).corruption_checks

    @contextmanager
    def started(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        data, log = self._directory / "data", self._directory / "log"
        shutil.rmtree(data, ignore_errors=True)
        peers, clients = f"http://{HOST}:{self._peers}", f"https://{HOST}:{self._clients}"
        command = [
            *(str(self._program), "--name=a", f"--data-dir={data}", f"--initial-cluster=a={peers}"),
            *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
            *(f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}", *self._tls),
            *(f"--listen-metrics-urls=http://{HOST}:{self._metrics}", "--heartbeat-interval=10"),
            *("--election-timeout=50", *self._checks, "--logger=zap", "--log-outputs=stderr", *arguments),
        ]
        with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
            try:
                yield process, log
            finally:
                process.kill()

    def refusal(self, arguments: Sequence[str]) -> str:
        """Return the log of a member that exits, or does not become healthy; empty if it serves."""
        with self.started(*arguments) as (process, log):
            deadline = time.monotonic() + 10
            while process.poll() is None and time.monotonic() < deadline:
                if self._is_healthy():
                    return ""
                time.sleep(0.02)
            return f"exit code {process.poll()}: {log.read_text()[-1500:]}"

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._metrics}/health", timeout=2) as found:
                return b'"true"' in found.read()
        except OSError:
            return False


def _depends_on_the_machine(name: str, version: Version) -> bool:
    """Whether a flag needs rights of the container, or fails only with the Go version that builds this etcd."""
    return name.endswith("memory-mlock") or (name == "enable-pprof" and version.series == (3, 4))


def _flags(version: Version) -> list[str]:
    return [name for name, flag in USER_FLAGS.items() if flag.first <= version.series <= flag.last]


def _texts(pattern: str, version: Version) -> st.SearchStrategy[str]:
    found = st.from_regex(pattern, fullmatch=True, alphabet=_ASCII)
    return found if version.series >= (3, 7) else found.filter(lambda text: not GATES_OF_3_7.search(text))


@st.composite
def _command_lines(draw: st.DrawFn, version: Version) -> list[str]:
    """Return arguments that are accepted together: etcd also refuses some combinations, when it starts."""
    usable = [name for name in _flags(version) if not _depends_on_the_machine(name, version)]
    chosen = draw(st.lists(st.sampled_from(usable), min_size=1, max_size=10, unique_by=_group))
    given = [f"--{name}{draw(_texts(USER_FLAGS[name].value, version))}" for name in chosen]
    if "experimental-enable-lease-checkpoint-persist" in chosen:
        given.append("--experimental-enable-lease-checkpoint=true")
    return given


def _group(name: str) -> str:
    """Return a key that is equal for flags that conflict, or depend on each other."""
    if name.startswith(("tls-", "cipher-")):
        return "tls"
    if name in GATED:
        return "feature-gates"
    return name.removeprefix("experimental-")


@pytest.fixture
def process(etcd_version: str, tmp_path: Path) -> Process:
    return Process(etcd_version, tmp_path)


def test_etcd_serves_with_every_accepted_argument(process: Process, etcd_version: str) -> None:
    version = Version.parse(etcd_version)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(_command_lines(version))
    def run(arguments: list[str]) -> None:
        assert all(re.fullmatch(ACCEPTED, argument) for argument in arguments), arguments
        assert not any(re.fullmatch(absent(version.series), argument) for argument in arguments), arguments
        assert process.refusal(arguments) == "", arguments

    run()


def test_etcd_rejects_the_flags_that_its_series_lacks(process: Process, etcd_version: str) -> None:
    lacking = USER_FLAGS.keys() - _flags(Version.parse(etcd_version))
    defined = [name for name in lacking if "not defined" not in process.refusal([f"--{name}=1"])]
    assert defined == []


def test_feature_gates_of_the_user_keep_those_of_the_operator(process: Process, etcd_version: str) -> None:
    """The flag is given twice, and etcd merges the gates; its log lists the result."""
    if "feature-gates" not in _flags(Version.parse(etcd_version)):
        pytest.skip("this version has no feature gates")
    with process.started("--feature-gates=AllAlpha=false,StopGRPCServiceOnDefrag=true") as (_, log):
        deadline = time.monotonic() + 10
        while not (found := re.search('"feature-gates":"(.*?)"', log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
    given = found[1].split(",")
    assert {"InitialCorruptCheck=true", "CompactHashCheck=true", "StopGRPCServiceOnDefrag=true"} <= set(given)
