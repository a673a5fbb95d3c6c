"""Records the execution of a change on a real cluster: watches, and the operator's log."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from e2e.plans.executed import Event, Execution, execution
from e2e.scenarios.support.commands import ROOT, SYSTEM, Kubectl, until
from shared.kubernetes.ownership import INSTANCE

if TYPE_CHECKING:
    from e2e.scenarios.support.resource import Resource

OPERATORS = {"Memcached": "memcached", "EtcdCluster": "etcd", "RedisCluster": "redis"}
"""Names of the operators by the kind of their resources."""


class Recording:
    """Events of a resource and its pods since a change.

    Args:
        events: events of the watches, to which more are added.
        began: Unix time of the change.
    """

    def __init__(self, resource: Resource, events: list[Event], began: float) -> None:
        self._resource, self._events, self._began = resource, events, began

    def execution(self) -> Execution:
        """Return the steps and effects until now."""
        kubectl = self._resource.kubectl
        log = _log(kubectl.within(SYSTEM), OPERATORS[self._resource.KIND], self._began)
        return execution(tuple(self._events), log, self._began, f"{kubectl.namespace}/{self._resource.name}")


def _log(system: Kubectl, operator: str, began: float) -> list[str]:
    """Return the lines that all replicas of an operator have logged since a time."""
    labels = f"app.kubernetes.io/component=operator,app.kubernetes.io/name={operator}-operator"
    since = datetime.fromtimestamp(began, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return system("logs", "-l", labels, "--tail=-1", f"--since-time={since}").splitlines()


@contextmanager
def recorded(resource: Resource) -> Iterator[Callable[[], Recording]]:
    """Watch a resource and its pods until the end of the context.

    Yields:
        Function to call right before the change.
    """
    events: list[Event] = []
    kubectl, kind = resource.kubectl, resource.KIND.lower()
    with (
        _watch(kubectl, events, kind, resource.name),
        _watch(kubectl, events, "pods", "-l", f"{INSTANCE}={resource.name}"),
    ):
        pods = {pod["metadata"]["uid"] for pod in kubectl.items("pods", "-l", f"{INSTANCE}={resource.name}")}

        def are_listed() -> bool:
            known = {(event.obj["kind"], event.obj["metadata"]["uid"]) for event in tuple(events)}
            return resource.KIND in {name for name, _ in known} and pods <= {uid for _, uid in known}

        until("the watches have the present state", are_listed, seconds=30)
        yield lambda: Recording(resource, events, time.time())


@contextmanager
def _watch(kubectl: Kubectl, events: list[Event], *what: str) -> Iterator[None]:
    """Add the events of a watch to a list until the end of the context."""
    program, options = str(ROOT / ".venv/bin/kubectl"), ["--watch", "--output-watch-events", "-o", "json"]
    command = [program, "--namespace", kubectl.namespace, "get", *what, *options]
    with subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(process.stdout, events), daemon=True)
        reader.start()
        try:
            yield
        finally:
            process.terminate()
            reader.join()


def _read(output: Iterable[str], events: list[Event]) -> None:
    for line in output:  # kubectl prints each event on a line
        found = json.loads(line)
        if found["type"] in ("ADDED", "MODIFIED", "DELETED"):
            events.append(Event(time.time(), found["type"], found["object"]))
