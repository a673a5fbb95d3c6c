"""Clients of etcd that never rest: they write and read through whichever member answers, and note what it said."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from e2e.scenarios.etcd.linearizability import Operation, violations

PORT = 2379
TIMEOUT = 3.0
"""Seconds until a client tries another member."""

PATIENCE = 30.0
"""Seconds within which an operation must succeed, by whatever number of attempts."""

PAUSE = 0.02
"""Seconds between two operations of one client: the machine is small."""

REGISTERS = 5
"""Keys that clients write again and again; every other write is of a key of its own."""

NO_ROOM = "database space exceeded"
"""What etcd says of a write whose value its quota has no room for."""

Find = Callable[[], Sequence[str]]
"""The addresses of members' pods as they are now."""


class Failed(Exception):
    """A request that was not answered with success; whether it was carried out, nobody knows."""


@dataclass(frozen=True)
class Access:
    """What a client must bring."""

    tls: ssl.SSLContext | None = None
    user: str = ""
    password: str = ""


class Connection:
    """One member, over HTTP."""

    def __init__(self, address: str, access: Access) -> None:
        self._http: http.client.HTTPConnection
        if access.tls is None:
            self._http = http.client.HTTPConnection(address, PORT, timeout=TIMEOUT)
        else:
            self._http = http.client.HTTPSConnection(address, PORT, timeout=TIMEOUT, context=access.tls)
        self._headers = {"Content-Type": "application/json"}
        if access.user:
            token = self.ask("/v3/auth/authenticate", {"name": access.user, "password": access.password})["token"]
            self._headers["Authorization"] = token

    def ask(self, path: str, body: object) -> dict[str, Any]:
        """Raises Failed."""
        try:
            self._http.request("POST", path, json.dumps(body), self._headers)
            answer = self._http.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{self._http.host}: {error or type(error).__name__}") from error
        if answer.status != http.client.OK:
            raise Failed(f"{self._http.host}: {answer.status} {text.decode(errors='replace')[:200]}")
        found: dict[str, Any] = json.loads(text)
        return found

    def put(self, key: str, value: str) -> int:
        """Write; the revision of it."""
        return int(self.ask("/v3/kv/put", {"key": _coded(key), "value": _coded(value)})["header"]["revision"])

    def get(self, key: str) -> tuple[str | None, int, int]:
        """Read, linearizable: the value, the store's revision, and the revision at which the value was written."""
        answer = self.ask("/v3/kv/range", {"key": _coded(key)})
        revision = int(answer["header"]["revision"])
        if not (found := answer.get("kvs")):
            return None, revision, 0
        return base64.b64decode(found[0].get("value", "")).decode(), revision, int(found[0]["mod_revision"])

    def close(self) -> None:
        self._http.close()


@dataclass
class Load:
    """What clients did and were told.

    Attributes:
        prefix: what the keys begin with: others may have written before.
        history: every attempt; those without an answer too.
        waits: seconds that each operation took, its repetitions counted in; write_waits: those of writes.
        failures: operations that did not succeed within PATIENCE.
        repeated: how many attempts had to be repeated.
    """

    find: Find
    access: Access = field(default_factory=Access)
    prefix: str = ""
    history: list[Operation] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    write_waits: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    repeated: int = 0
    _addresses: Sequence[str] = ()
    _ending: threading.Event = field(default_factory=threading.Event)

    @classmethod
    @contextmanager
    def going_on(
        cls, find: Find, access: Access | None = None, *, clients: int = 4, prefix: str = ""
    ) -> Iterator[Load]:
        """So many clients write and read within the block; there is a first answer when it begins."""
        load = cls(find, access or Access(), prefix)
        load._addresses = find()
        threads = [threading.Thread(target=load._look, daemon=True)]
        threads += [threading.Thread(target=load._work, args=(number,), daemon=True) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            deadline = time.monotonic() + PATIENCE
            while not load.waits and time.monotonic() < deadline:
                time.sleep(0.05)
            yield load
        finally:
            load._ending.set()
            for thread in threads:
                thread.join(PATIENCE + 2 * TIMEOUT)

    @property
    def written(self) -> int:
        """How many writes were acknowledged."""
        return sum(each.write and each.returned is not None for each in self.history)

    def check(self) -> int:
        """Read every key that was ever written, and see that nothing acknowledged was lost, and all could have been.

        Returns:
            How many acknowledged writes were checked.
        """
        assert not self.failures, self.failures[:3]
        keys = sorted({each.key for each in self.history if each.write})
        connection = self._connected(itertools.count())
        finals = [self._read(connection, key) for key in keys]
        connection.close()
        found = violations([*self.history, *finals])
        assert not found, f"{len(found)} violations, the first: " + "\n".join(found[:5])
        assert self.written > 0, "nothing was ever written"
        return self.written

    def read(self, key: str) -> str | None:
        """What a key holds now."""
        connection = self._connected(itertools.count())
        try:
            return self._read(connection, key).value
        finally:
            connection.close()

    def put(self, key: str, value: str) -> int:
        """Write a key that no client knows; its revision."""
        connection = self._connected(itertools.count())
        try:
            return connection.put(key, value)
        finally:
            connection.close()

    def fill(self, value: str, *, keys: int, at_most: int) -> int:
        """Write large values to a few keys until etcd has no room for more; returns how many it was given.

        What a busy member does not answer in time it may have taken all the same: so the next key has its turn, and
        no value is written twice for that.

        Raises:
            AssertionError: it took them all.
        """
        for number in range(at_most):
            try:
                self.put(f"large-{number % keys}", f"{number} {value}")
            except Failed as failed:
                if NO_ROOM in str(failed):
                    return number
        raise AssertionError(f"{at_most} values of {len(value)} bytes were not too many")

    # The clients.

    def _look(self) -> None:
        while not self._ending.wait(0.5):
            try:
                self._addresses = self.find() or self._addresses
            except Exception:
                continue

    def _work(self, client: int) -> None:
        turn = itertools.count(client)
        connection: Connection | None = None
        for number in itertools.count():
            if self._ending.is_set():
                break
            register = f"{self.prefix}register-{number % REGISTERS}"
            key = register if number % 2 else f"{self.prefix}own-{client}-{number}"
            began, attempt, last = time.monotonic(), 0, ""
            while time.monotonic() - began < PATIENCE:
                try:
                    connection = connection or self._connect(turn)
                    if number % 3 == 2:
                        self.history.append(self._read(connection, register))
                    else:
                        self._write(connection, key, f"{client}.{number}.{attempt}")
                        self.write_waits.append(time.monotonic() - began)
                    self.waits.append(time.monotonic() - began)
                    break
                except Failed as failed:
                    last, attempt = str(failed), attempt + 1
                    self.repeated += 1
                    if connection is not None:
                        connection.close()
                    connection = None
                    time.sleep(PAUSE)
            else:
                self.failures.append(f"{key}: {attempt} attempts in {PATIENCE:g} s, the last: {last}")
            time.sleep(PAUSE)
        if connection is not None:
            connection.close()

    def _connect(self, turn: Iterator[int]) -> Connection:
        addresses = self._addresses
        if not addresses:
            raise Failed("no member has an address")
        return Connection(addresses[next(turn) % len(addresses)], self.access)

    def _connected(self, turn: Iterator[int]) -> Connection:
        """A connection to a member that answers a linearizable read."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._addresses = self.find()
                connection = self._connect(turn)
                connection.get("any")
                return connection
            except Failed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _write(self, connection: Connection, key: str, value: str) -> None:
        called = time.monotonic()
        try:
            revision = connection.put(key, value)
        except Failed:
            self.history.append(Operation(key, value, write=True, called=called))
            raise
        self.history.append(Operation(key, value, True, called, time.monotonic(), revision))

    def _read(self, connection: Connection, key: str) -> Operation:
        called = time.monotonic()
        value, revision, written = connection.get(key)
        return Operation(key, value, False, called, time.monotonic(), revision, written)


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
