"""What `helm test` runs, from an operator's own image: it does what a user does.

It makes a resource, waits until it is Ready, uses what came of it, and deletes it, whatever happens.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shared.kubernetes import accessors
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import AlreadyExists, KubeError, NotFound, Unavailable
from shared.kubernetes.kinds import Kind, Obj
from shared.kubernetes.transport import HttpTransport, load_configuration
from shared.observability import logs
from shared.status import conditions

log = logging.getLogger(__name__)

CHECK_TIMEOUT_SECONDS = 240.0
"""Seconds until a resource that is not Ready has failed; `helm test` waits for five minutes."""

RETRY_SECONDS = 1.0
"""Seconds between looks."""

LABEL = {"app.kubernetes.io/component": "check"}
"""By it the next check knows what an earlier one left."""

Found = TypeVar("Found")


class Failed(Exception):
    """The platform does not do what it should; the message says what was seen."""


class NotYet(Exception):
    """What is waited for is not so; the message says what is."""


@dataclass(frozen=True, slots=True)
class Check:
    """How a kind of resource is tried.

    Attributes:
        kind: of what is made.
        spec: its spec: the smallest that shows that all works.
        use: uses a Ready one as a client does, and says what of it was found well, such as "2 servers"; it raises
            Failed for what is wrong, and NotYet for what may come (a name that is not known everywhere yet).
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
        """Make a resource, use it, and delete it.

        Args:
            within: seconds until it must be there, as many until it must be Ready, and until it must be of use.
            pause: seconds between looks.

        Returns:
            What was found well.

        Raises:
            Failed: it did not become Ready, or is of no use.
            KubeError: the API server refuses something.
        """
        await self._clear(kube, namespace, name)
        made = await _until(lambda: self._create(kube, namespace, name), within, pause)
        try:
            ready = await _until(lambda: self._ready(kube, namespace, name), within, pause)
            return await _until(lambda: self.use(ready), within, pause)
        finally:
            await kube.delete(self.kind, namespace, name, uid=made["metadata"]["uid"])

    async def _clear(self, kube: Kube, namespace: str, name: str) -> None:
        """Delete what a check left that was killed before its end."""
        try:
            left = await kube.get(self.kind, namespace, name)
        except NotFound:
            return
        if not LABEL.items() <= (left["metadata"].get("labels") or {}).items():
            raise Failed(f"{self.kind.name} {namespace}/{name} exists and is no check's; it was left alone. Rename it.")
        await kube.delete(self.kind, namespace, name, uid=left["metadata"]["uid"])

    async def _create(self, kube: Kube, namespace: str, name: str) -> Obj:
        metadata = {"name": name, "namespace": namespace, "labels": LABEL}
        identity = {"apiVersion": self.kind.api_version, "kind": self.kind.name}
        try:
            return await kube.create(self.kind, {**identity, "metadata": metadata, "spec": self.spec})
        except AlreadyExists:
            raise NotYet(f"{self.kind.name} {namespace}/{name} of an earlier check is not gone.") from None

    async def _ready(self, kube: Kube, namespace: str, name: str) -> Obj:
        seen = await kube.get(self.kind, namespace, name)
        if accessors.is_current(seen) and accessors.is_true(seen, conditions.READY):
            return seen
        said = (
            accessors.condition(seen, conditions.READY).get("message")
            or "No operator has said anything of it: see its log."
        )
        raise NotYet(f"{self.kind.name} {namespace}/{name} is not Ready: {said}")


def main(check: Check, program: str, arguments: Sequence[str] | None = None) -> None:
    """Run a check; the exit code says whether the platform does what it should, and the log why not."""
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--namespace", required=True, help="where the resource is made; one that the operator serves")
    parser.add_argument("--name", required=True, help="the resource's name")
    parser.add_argument("--kubeconfig", default="", help="kubeconfig file (default: the pod's service account)")
    given = parser.parse_args(arguments)
    logs.configure("info", "text")
    try:
        asyncio.run(_run(check, given.kubeconfig, given.namespace, given.name))
    except (Failed, KubeError) as error:
        log.error("%s", error)
        sys.exit(1)


async def _run(check: Check, kubeconfig: str, namespace: str, name: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # what was made is still deleted
    transport = HttpTransport(await load_configuration(kubeconfig))
    try:
        well = await check.run(Kube(transport, manager="check"), namespace, name)
        log.info("%s %s/%s became Ready, and %s", check.kind.name, namespace, name, well)
    finally:
        await transport.close()


async def _until(look: Callable[[], Awaitable[Found]], within: float, pause: float) -> Found:
    """What is found at last; an API server, or a webhook, that does not answer is asked again, too."""
    now = asyncio.get_running_loop().time
    deadline = now() + within
    while True:
        try:
            return await look()
        except (NotYet, Unavailable) as error:
            if now() >= deadline:
                raise Failed(f"{error} It was waited for {within:g} s.") from None
        await asyncio.sleep(pause)
