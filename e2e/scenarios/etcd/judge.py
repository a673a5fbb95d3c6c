"""etcd's own robustness tests as a judge of a cluster that the operator changes meanwhile.

The program (tools/local/go/judge) has the clients, the model and the checks of etcd's project, and none of this one.
Its clients put, delete, read former revisions, watch, lease and compact through each member. Afterwards it compares
what they saw with the write-ahead logs of the members, and returns six results (`RESULTS`).

Not judged: clusters with `spec.auth` or a raised alarm, which the model of etcd's project does not have, and restores
and recoveries, after which revisions begin again. `linearizability.py` judges these.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.local import binaries

RESULTS = {
    "assumptions": "the database was empty at first, and no client had two requests at a time",
    "logs": "the write-ahead logs have every entry, and agree on those that were committed",
    "linearization": "one order of all requests explains every response",
    "watch": "watches returned every event once, in order, and with the values before it",
    "serializable": "reads of former revisions returned what these had",
    "hashes": "all members have the same data at the end",
}
"""Results of a verdict, and what each states."""

KINDS = ("etcd", "kubernetes")
"""Kinds of requests: of any client of etcd, and those of a kube-apiserver."""

REFRESH_SECONDS = 0.5
"""Interval at which the addresses of the members are read again."""

SUCCESS = "Success"

STARTED = b"started\n"

DEADLINE_SECONDS = 960.0
"""Time for the clients to end; the program's own limit is shorter."""

Find = Callable[[], Mapping[str, str]]
"""Function that returns the present address, host:port, of each member by name."""


class NotJudged(AssertionError):
    """The clients could not end, or the judge returned no verdict."""


@dataclass(frozen=True)
class Verdict:
    """Results of the judge for one report.

    Attributes:
        results: message of each of RESULTS; SUCCESS if it holds, empty if it was not checked.
        requests: requests of the clients.
        failed: requests without a successful response.
        events: events that watches returned.
    """

    results: Mapping[str, str]
    requests: int
    failed: int
    events: int

    @property
    def failures(self) -> dict[str, str]:
        """Results that do not hold or were not checked."""
        return {name: self.results.get(name, "") for name in RESULTS if self.results.get(name) != SUCCESS}

    def __str__(self) -> str:
        return f"{self.requests} requests ({self.failed} failed), {self.events} events"


@dataclass
class Clients:
    """Clients of the judge and the report of what they did.

    Attributes:
        directory: directory of the members' addresses and of the report.
        find: addresses of the members; of those that exist now, each must still exist when the clients end.
        kind: kind of the requests, of KINDS.
        large: number of values of 1 MiB that the clients write first.
        server_name: name in the certificates of the members; empty without TLS.
        credentials: function that returns ca.crt, tls.crt and tls.key of a client, for TLS.
    """

    directory: Path
    find: Find
    kind: str = KINDS[0]
    large: int = 0
    server_name: str = ""
    credentials: Callable[[], Mapping[str, bytes]] = dict
    _ending: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the clients within the block.

        Raises:
            NotJudged: the clients did not end, for example because a member did not return.
        """
        names = self._refresh(set(self.find()))
        arguments = ["--members", self._members, "--report", self.report, "--kind", self.kind, "--large", self.large]
        if self.server_name:
            arguments += ["--tls", self._files, "--server-name", self.server_name]
        command = [str(each) for each in (binaries.find("judge"), "traffic", *arguments)]
        refreshing = threading.Thread(target=self._keep_refreshed, args=(names,), daemon=True)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                refreshing.start()
                assert process.stdout is not None
                if process.stdout.readline() != STARTED:
                    raise NotJudged(f"the clients did not start: {_end(process.communicate()[1])}")
                yield
                _, errors = process.communicate(timeout=DEADLINE_SECONDS)
                if process.returncode != 0:
                    raise NotJudged(f"the clients did not end: {_end(errors)}")
            finally:
                process.kill()
                self._ending.set()
                refreshing.join()

    def verdict(self, logs: Mapping[str, Path]) -> Verdict:
        """Judge what the clients saw.

        Args:
            logs: directory of the write-ahead log of each member, by name. They are copied, also while members run.

        Raises:
            NotJudged: there is no verdict.
        """
        for name, directory in logs.items():
            shutil.copytree(directory, self.report / f"server-{name}" / "member" / "wal")
        command = [str(binaries.find("judge")), "validate", str(self.report)]
        done = subprocess.run(command, capture_output=True, check=False, timeout=DEADLINE_SECONDS)
        try:
            *_, line = done.stdout.splitlines()  # before it, differences of a failure
            found: dict[str, Any] = json.loads(line)
        except ValueError:
            raise NotJudged(f"no verdict: {_end(done.stderr)}") from None
        results = {name: str(found[name]) for name in RESULTS}
        verdict = Verdict(results, int(found["requests"]), int(found["failed"]), int(found["events"]))
        if not verdict.failures:
            for name in logs:  # 64 MiB each
                shutil.rmtree(self.report / f"server-{name}")
        return verdict

    @property
    def report(self) -> Path:
        """Directory of the report, with the logs of the members after a failure."""
        return self.directory / "report"

    @property
    def _members(self) -> Path:
        return self.directory / "members"

    @property
    def _files(self) -> Path:
        return self.directory / "credentials"

    def _keep_refreshed(self, names: set[str]) -> None:
        while not self._ending.wait(REFRESH_SECONDS):
            with suppress(Exception):  # as clients do, keep what was found last
                self._refresh(names)

    def _refresh(self, names: set[str]) -> set[str]:
        """Write the addresses of members and the credentials into files; return the names of the members."""
        for directory, content in (
            (self._members, {name: at.encode() for name, at in self.find().items() if name in names}),
            (self._files, self.credentials()),
        ):
            directory.mkdir(parents=True, exist_ok=True)
            for name, value in content.items():
                written = self.directory / f".{name}"
                written.write_bytes(value)
                written.rename(directory / name)
        return names


def _end(output: bytes) -> str:
    return output.decode(errors="replace").strip()[-1000:]
