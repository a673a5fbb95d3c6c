"""The check that `helm test` runs from the image of an operator; it acts as a user does.

It creates a resource, waits until the resource is Ready, uses the servers as a client, and always deletes the resource.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from shared.kubernetes import accessors
from shared.kubernetes.client import Kube
from shared.kubernetes.credentials import load_configuration
from shared.kubernetes.errors import AlreadyExists, KubeError, Unavailable
from shared.kubernetes.kinds import Kind, Obj
from shared.kubernetes.transport import HttpTransport
from shared.observability import logs
from shared.status import conditions

log = logging.getLogger(__name__)

CHECK_TIMEOUT_SECONDS = 240.0
"""Seconds after which a resource that is not Ready has failed; `helm test` waits for five minutes."""

RETRY_SECONDS = 1.0
"""Seconds between attempts."""

LABEL = {"app.kubernetes.io/component": "check"}
"""Label of the resource, by which a later check recognizes a leftover."""

Found = TypeVar("Found")


class Failed(Exception):
    """The platform does not work as it should; the message describes what was observed."""


class NotYet(Exception):
    """The awaited state has not been reached; the message describes the current state."""


@dataclass(frozen=True, slots=True)
class Check:
    """Check of one kind of resource.

    Attributes:
        kind: kind of the resource.
        spec: smallest spec that exercises all features to check.
        use: uses a Ready resource as a client does and returns what works, such as "2 servers". Raises Failed for a
            failure, and NotYet for a state that may pass (a DNS name that has not propagated yet).
    """

    kind: Kind
    spec: Obj
    use: Callable[[Obj], Awaitable[str]]

    async def run(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        *,
        within: float = CHECK_TIMEOUT_SECONDS,
        pause: float = RETRY_SECONDS,
    ) -> str:
        """Create a resource, use it, and delete it.

        Args:
            within: seconds allowed for each of: creating the resource, becoming Ready, using it.
            pause: seconds between attempts.

        Returns:
            What works.

        Raises:
            Failed: the resource did not become Ready, or does not work.
            KubeError: the API server rejected a request.
        """
        await self._clear(kube, namespace, name)
        made = await _until(lambda: self._create(kube, namespace, name), within, pause)
        try:
            ready = await _until(lambda: self._ready(kube, namespace, name), within, pause)
            return await _until(lambda: self.use(ready), within, pause)
        finally:
            await kube.delete(self.kind, namespace, name, uid=made["metadata"]["uid"])

    async def _clear(self, kube: Kube, namespace: str, name: str) -> None:
        """Delete the resource of an earlier check that was killed."""
        left = await kube.find(self.kind, namespace, name)
        if left is None:
            return
        if not LABEL.items() <= (left["metadata"].get("labels") or {}).items():
            raise Failed(
                f"{self.kind.name} {namespace}/{name} exists but belongs to no check. It was not changed. Rename it."
            )
        await kube.delete(self.kind, namespace, name, uid=left["metadata"]["uid"])

    async def _create(self, kube: Kube, namespace: str, name: str) -> Obj:
        metadata = {"name": name, "namespace": namespace, "labels": LABEL}
        identity = {"apiVersion": self.kind.api_version, "kind": self.kind.name}
        try:
            return await kube.create(self.kind, {**identity, "metadata": metadata, "spec": self.spec})
        except AlreadyExists:
            raise NotYet(f"{self.kind.name} {namespace}/{name} of an earlier check is still being deleted.") from None

    async def _ready(self, kube: Kube, namespace: str, name: str) -> Obj:
        seen = await kube.get(self.kind, namespace, name)
        if accessors.is_current(seen) and accessors.is_true(seen, conditions.READY):
            return seen
        reported = (
            accessors.condition(seen, conditions.READY).get("message")
            or "No operator has reported a status: see the log of the operator."
        )
        raise NotYet(f"{self.kind.name} {namespace}/{name} is not Ready: {reported}")


def main(check: Check, program: str, arguments: Sequence[str] | None = None) -> None:
    """Run a check. The exit code is 0 if the platform works, and 1 otherwise; the log has the reason."""
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--namespace", required=True, help="namespace for the resource; the operator must serve it")
    parser.add_argument("--name", required=True, help="name of the resource")
    parser.add_argument("--kubeconfig", default="", help="kubeconfig file (default: the service account of the pod)")
    parser.add_argument("--database-version", default="", help="spec.version of the resource (default: the operator's)")
    given = parser.parse_args(arguments)
    if given.database_version:
        check = replace(check, spec={**check.spec, "version": given.database_version})
    logs.configure("info", "text")
    try:
        asyncio.run(_run(check, given.kubeconfig, given.namespace, given.name))
    except (Failed, KubeError) as error:
        log.error("%s", error)
        sys.exit(1)


async def _run(check: Check, kubeconfig: str, namespace: str, name: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # the resource is still deleted
    transport = HttpTransport(await load_configuration(kubeconfig))
    try:
        well = await check.run(Kube(transport, manager="check"), namespace, name)
        log.info("%s %s/%s is Ready; works: %s", check.kind.name, namespace, name, well)
    finally:
        await transport.close()


async def _until(attempt: Callable[[], Awaitable[Found]], within: float, pause: float) -> Found:
    """Return the result of `attempt`, repeated while it raises NotYet or the API server or a webhook is unavailable."""
    now = asyncio.get_running_loop().time
    deadline = now() + within
    while True:
        try:
            return await attempt()
        except (NotYet, Unavailable) as error:
            if now() >= deadline:
                raise Failed(f"{error} Timed out after {within:g} s.") from None
        await asyncio.sleep(pause)
