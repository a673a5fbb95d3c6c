"""Clients of etcd that write and read continuously through any reachable member and record every response."""

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
"""Seconds within which an operation must succeed, retries included."""

PAUSE = 0.02
"""Seconds between two operations of one client; limits the load on a small machine."""

REGISTERS = 5
"""Number of keys that clients write repeatedly; every other write creates a new key."""

NO_SPACE = "database space exceeded"
"""Error of etcd for a write that would exceed its quota."""

Find = Callable[[], Sequence[str]]
"""Function that returns the current addresses of the members' pods."""


class Failed(Exception):
    """Request without a successful response; it may or may not have taken effect."""


@dataclass(frozen=True)
class Access:
    """Credentials of a client."""

    tls: ssl.SSLContext | None = None
    user: str = ""
    password: str = ""


class Connection:
    """HTTP connection to one member."""

    def __init__(self, address: str, access: Access) -> None:
        self._http: http.client.HTTPConnection
        if access.tls is None:
            self._http = http.client.HTTPConnection(address, PORT, timeout=TIMEOUT)
        else:
            self._http = http.client.HTTPSConnection(address, PORT, timeout=TIMEOUT, context=access.tls)
        self._headers = {"Content-Type": "application/json"}
        if access.user:
            token = self.post("/v3/auth/authenticate", {"name": access.user, "password": access.password})["token"]
            self._headers["Authorization"] = token

    def post(self, path: str, body: object) -> dict[str, Any]:
        """Send a request.

        Raises:
            Failed: The member did not respond successfully.
        """
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
        """Write a value and return its revision."""
        return int(self.post("/v3/kv/put", {"key": _coded(key), "value": _coded(value)})["header"]["revision"])

    def get(self, key: str) -> tuple[str | None, int, int]:
        """Read linearizably; return the value, the revision of the store, and the revision of the value."""
        answer = self.post("/v3/kv/range", {"key": _coded(key)})
        revision = int(answer["header"]["revision"])
        if not (found := answer.get("kvs")):
            return None, revision, 0
        return base64.b64decode(found[0].get("value", "")).decode(), revision, int(found[0]["mod_revision"])

    def close(self) -> None:
        self._http.close()


@dataclass
class Load:
    """Operations of concurrent clients and their results.

    Attributes:
        prefix: prefix of the keys, which keeps them apart from those of an earlier load.
        history: every attempt, including those without a response.
        waits: seconds that each operation took, retries included.
        write_waits: seconds that each write took, retries included.
        failures: operations that did not succeed within PATIENCE.
        repeated: number of attempts that failed and were repeated.
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
    def running(cls, find: Find, access: Access | None = None, *, clients: int = 4, prefix: str = "") -> Iterator[Load]:
        """Run clients that write and read within the block, which starts after the first response."""
        load = cls(find, access or Access(), prefix)
        load._addresses = find()
        threads = [threading.Thread(target=load._refresh_addresses, daemon=True)]
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
        """Number of acknowledged writes."""
        return sum(each.write and each.returned is not None for each in self.history)

    def check(self) -> int:
        """Read every written key; check that the history is linearizable and that no acknowledged write is lost.

        Returns:
            Number of acknowledged writes that were checked.
        """
        assert not self.failures, self.failures[:3]
        keys = sorted({each.key for each in self.history if each.write})
        connection = self._connected(itertools.count())
        finals = [self._read(connection, key) for key in keys]
        connection.close()
        found = violations([*self.history, *finals])
        assert not found, f"{len(found)} violations, the first: " + "\n".join(found[:5])
        assert self.written > 0, "no write was acknowledged"
        return self.written

    def read(self, key: str) -> str | None:
        """Return the current value of a key."""
        connection = self._connected(itertools.count())
        try:
            return self._read(connection, key).value
        finally:
            connection.close()

    def put(self, key: str, value: str) -> int:
        """Write a key that no client uses and return its revision."""
        connection = self._connected(itertools.count())
        try:
            return connection.put(key, value)
        finally:
            connection.close()

    def fill(self, value: str, *, keys: int, at_most: int) -> int:
        """Write large values to a few keys until the quota of etcd is exceeded; return the number of accepted values.

        A write that times out may have taken effect. No value is written twice: the next one goes to the next key.

        Raises:
            AssertionError: All values were accepted.
        """
        for number in range(at_most):
            try:
                self.put(f"large-{number % keys}", f"{number} {value}")
            except Failed as failed:
                if NO_SPACE in str(failed):
                    return number
        raise AssertionError(f"{at_most} values of {len(value)} bytes did not exceed the quota")

    # The clients.

    def _refresh_addresses(self) -> None:
        while not self._ending.wait(0.5):
            try:
                self._addresses = self.find() or self._addresses
            except Exception:
                continue

    def _work(self, client: int) -> None:
        counter = itertools.count(client)
        connection: Connection | None = None
        for number in itertools.count():
            if self._ending.is_set():
                break
            register = f"{self.prefix}register-{number % REGISTERS}"
            key = register if number % 2 else f"{self.prefix}own-{client}-{number}"
            began, attempt, last = time.monotonic(), 0, ""
            while time.monotonic() - began < PATIENCE:
                try:
                    connection = connection or self._connect(counter)
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

    def _connect(self, counter: Iterator[int]) -> Connection:
        addresses = self._addresses
        if not addresses:
            raise Failed("no member has an address")
        return Connection(addresses[next(counter) % len(addresses)], self.access)

    def _connected(self, counter: Iterator[int]) -> Connection:
        """Connect to a member that serves linearizable reads."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._addresses = self.find()
                connection = self._connect(counter)
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
