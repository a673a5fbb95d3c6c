"""Load that goes on beside a disturbance, and tells what was felt of it."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes import client, config, watch
from urllib3.exceptions import ProtocolError

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.commands import until

GROUP, VERSION, PLURAL = "cache.example.com", "v1alpha1", "memcacheds"

PAUSE = 0.01
"""Seconds between two calls of one thread: a machine that is wholly busy would measure itself."""


class Memcacheds:
    """Memcached resources of one namespace through an API client that is fast: 2 ms a call, where kubectl takes 80."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self.namespace = namespace
        self.connection: Any = config.new_client_from_config(kubeconfig)  # type: ignore[no-untyped-call]
        self._api: Any = client.CustomObjectsApi(self.connection)

    def create(self, name: str, **spec: Any) -> None:
        """Raises kubernetes.client.ApiException if the API server refuses it."""
        self._api.create_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, Memcached.manifest(name, **spec)
        )

    def try_out(self, name: str, **spec: Any) -> tuple[dict[str, Any], str]:
        """What a creation would make, without making it, and what the API server warns of; raises as `create` does."""
        resource, _, headers = self._api.create_namespaced_custom_object_with_http_info(
            GROUP, VERSION, self.namespace, PLURAL, Memcached.manifest(name, **spec), dry_run="All"
        )
        return resource, headers.get("Warning", "")

    def change(self, name: str, **spec: Any) -> None:
        """Merge into its spec; raises kubernetes.client.ApiException if the API server refuses it."""
        self._api.patch_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name, {"spec": spec})

    def delete(self, name: str) -> None:
        self._api.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)


@contextmanager
def watched(listing: Any, seen: Callable[[str, Any], None], namespace: str, **selected: str) -> Iterator[None]:
    """Watch objects within the block.

    Args:
        listing: a list method of an API.
        seen: told of each event's type and object, in a thread of its own.
    """
    watching: Any = watch.Watch()  # type: ignore[no-untyped-call]

    def look() -> None:
        with contextlib.suppress(ProtocolError):  # so ends a watch that is stopped
            for event in watching.stream(listing, namespace, timeout_seconds=300, **selected):
                seen(event["type"], event["object"])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        watching.stop()
        looking.join(10)


class Pulse:
    """Services deleted one after the other, and how long the operator took to put each back.

    What is measured is the operator alone: no webhook is asked about a Service, and the resources want no servers.

    Attributes:
        waits: how long each was missing, in seconds.
    """

    RESOURCES = 10

    def __init__(self, memcacheds: Memcacheds) -> None:
        self._memcacheds = memcacheds
        self._core = client.CoreV1Api(memcacheds.connection)
        self._there: queue.Queue[str] = queue.Queue()
        self._deleted: dict[str, float] = {}
        self._ending = threading.Event()
        self.waits: list[float] = []

    @classmethod
    @contextmanager
    def beating(cls, memcacheds: Memcacheds, every: float = 0.1) -> Iterator[Pulse]:
        """One that beats within the block; at its end every Service is back.

        Args:
            every: seconds between two deletions.
        """
        pulse = cls(memcacheds)
        for number in range(cls.RESOURCES):
            memcacheds.create(f"pulse-{number}", size=0)
        with watched(pulse._core.list_namespaced_service, pulse._see, memcacheds.namespace):
            until("the Services are there", lambda: pulse._there.qsize() == cls.RESOURCES)
            beating = threading.Thread(target=pulse._beat, args=(every,))
            beating.start()
            try:
                yield pulse
            finally:
                pulse._ending.set()
                beating.join()
            until("the last Services are back", lambda: not pulse._deleted)

    @property
    def longest(self) -> float:
        """The longest that a Service was missing, in seconds."""
        return max(self.waits)

    def _beat(self, every: float) -> None:
        while not self._ending.wait(every):
            with contextlib.suppress(queue.Empty):
                name = self._there.get(timeout=every)
                self._deleted[name] = time.monotonic()
                self._core.delete_namespaced_service(name, self._memcacheds.namespace)

    def _see(self, kind: str, service: Any) -> None:
        if kind == "ADDED":
            name = service.metadata.name
            if name in self._deleted:
                self.waits.append(time.monotonic() - self._deleted.pop(name))
            self._there.put(name)


class Callers:
    """Calls again and again from several threads, and what came of them.

    Attributes:
        calls: how many were made, by thread.
        failures: what failed, as text.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.failures: list[str] = []
        self._ending = threading.Event()

    @classmethod
    @contextmanager
    def calling(cls, *calls: Callable[[int], None]) -> Iterator[Callers]:
        """Make each of these calls in a thread of its own, over and over, within the block.

        Args:
            calls: each is given how often it was called before; what it raises is a failure.
        """
        callers = cls()
        threads = [threading.Thread(target=callers._call, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        try:
            yield callers
        finally:
            callers._ending.set()
            for thread in threads:
                thread.join()

    def _call(self, call: Callable[[int], None]) -> None:
        number = 0
        while not self._ending.is_set():
            try:
                call(number)
            except Exception as error:
                self.failures.append(f"call {number}: {error}")
            number += 1
            time.sleep(PAUSE)
            self.calls[threading.current_thread().name] = number
