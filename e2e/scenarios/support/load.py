"""Load that runs during a disruption and measures its effect."""

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
"""Interval between two calls of a thread, in seconds, so that the load does not saturate the machine."""


class Memcacheds:
    """Memcached resources of a namespace, through an API client: 2 ms per call, where kubectl takes 80 ms."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self.namespace = namespace
        self.connection: Any = config.new_client_from_config(kubeconfig)  # type: ignore[no-untyped-call]
        self._api: Any = client.CustomObjectsApi(self.connection)

    def create(self, name: str, **spec: Any) -> None:
        """Create a resource; raises kubernetes.client.ApiException if the API server rejects it."""
        self._api.create_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, Memcached.manifest(name, **spec)
        )

    def try_out(self, name: str, **spec: Any) -> tuple[dict[str, Any], str]:
        """Return the result of a dry-run creation and the warnings of the API server; raises as `create` does."""
        resource, _, headers = self._api.create_namespaced_custom_object_with_http_info(
            GROUP, VERSION, self.namespace, PLURAL, Memcached.manifest(name, **spec), dry_run="All"
        )
        return resource, headers.get("Warning", "")

    def change(self, name: str, **spec: Any) -> None:
        """Merge fields into the spec; raises kubernetes.client.ApiException if the API server rejects the change."""
        self._api.patch_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name, {"spec": spec})

    def delete(self, name: str) -> None:
        self._api.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)


@contextmanager
def watched(listing: Any, on_event: Callable[[str, Any], None], namespace: str, **selected: str) -> Iterator[None]:
    """Watch objects until the end of the context.

    Args:
        listing: list method of an API.
        on_event: called in a separate thread with the type and the object of each event.
        namespace: namespace of the objects.
        selected: selectors and other arguments of `listing`.
    """
    watching: Any = watch.Watch()  # type: ignore[no-untyped-call]

    def receive() -> None:
        with contextlib.suppress(ProtocolError):  # raised when the watch is stopped
            for event in watching.stream(listing, namespace, timeout_seconds=300, **selected):
                on_event(event["type"], event["object"])

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        yield
    finally:
        watching.stop()
        thread.join(10)


class Pulse:
    """Periodic deletion of Services that measures how long the operator takes to recreate them.

    It measures the operator alone: Services have no webhook, and the resources have no servers.

    Attributes:
        waits: time that each deleted Service was missing, in seconds.
    """

    RESOURCES = 10

    def __init__(self, memcacheds: Memcacheds) -> None:
        self._memcacheds = memcacheds
        self._core = client.CoreV1Api(memcacheds.connection)
        self._existing: queue.Queue[str] = queue.Queue()
        self._deleted: dict[str, float] = {}
        self._ending = threading.Event()
        self.waits: list[float] = []

    @classmethod
    @contextmanager
    def beating(cls, memcacheds: Memcacheds, every: float = 0.1) -> Iterator[Pulse]:
        """Delete Services until the end of the context, then wait until all exist again.

        Args:
            memcacheds: resources that own the Services.
            every: interval between two deletions, in seconds.
        """
        pulse = cls(memcacheds)
        for number in range(cls.RESOURCES):
            memcacheds.create(f"pulse-{number}", size=0)
        with watched(pulse._core.list_namespaced_service, pulse._on_service, memcacheds.namespace):
            until("all Services exist", lambda: pulse._existing.qsize() == cls.RESOURCES)
            beating = threading.Thread(target=pulse._beat, args=(every,))
            beating.start()
            try:
                yield pulse
            finally:
                pulse._ending.set()
                beating.join()
            until("the last Services exist again", lambda: not pulse._deleted)

    @property
    def longest(self) -> float:
        """Longest time that a Service was missing, in seconds."""
        return max(self.waits)

    def _beat(self, every: float) -> None:
        while not self._ending.wait(every):
            with contextlib.suppress(queue.Empty):
                name = self._existing.get(timeout=every)
                self._deleted[name] = time.monotonic()
                self._core.delete_namespaced_service(name, self._memcacheds.namespace)

    def _on_service(self, kind: str, service: Any) -> None:
        if kind == "ADDED":
            name = service.metadata.name
            if name in self._deleted:
                self.waits.append(time.monotonic() - self._deleted.pop(name))
            self._existing.put(name)


class Callers:
    """Repeated calls from several threads.

    Attributes:
        calls: number of calls by thread.
        failures: error messages of failed calls.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.failures: list[str] = []
        self._ending = threading.Event()

    @classmethod
    @contextmanager
    def calling(cls, *calls: Callable[[int], None]) -> Iterator[Callers]:
        """Repeat each call in a separate thread until the end of the context.

        Args:
            calls: functions of the number of their previous calls; an exception is a failure.
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
