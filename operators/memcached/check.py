"""What `helm test` runs, from the operator's own image: `python -m operators.memcached.check …`.

It does what a user does: makes a Memcached, waits until it is Ready, sets and gets a value on each server at the
address that the status names, and deletes it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from operators.memcached.api import API
from shared import logs, status
from shared.connection import HttpTransport, load_configuration
from shared.kube import AlreadyExists, Kube, KubeError, NotFound, Obj, Unavailable

log = logging.getLogger(__name__)

KIND = API.kind
WITHIN = 240.0
"""Seconds until a Memcached that is not Ready has failed; `helm test` waits for five minutes."""

ANSWER = 10.0
"""Seconds that a server may take to answer."""

PAUSE = 1.0
"""Seconds between looks."""

LABEL = {"app.kubernetes.io/component": "check"}
"""By it the next check knows what an earlier one left."""

SPEC: Obj = {"size": 1, "memoryMB": 16}

Found = TypeVar("Found")


class Failed(Exception):
    """The platform does not do what it should; the message says what was seen."""


class NotYet(Exception):
    """What is waited for is not so; the message says what is."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Check the platform; the exit code says whether it does what it should, and the log why not."""
    parser = argparse.ArgumentParser(prog="python -m operators.memcached.check", description=__doc__)
    parser.add_argument("--namespace", required=True, help="where the Memcached is made; one that the operator serves")
    parser.add_argument("--name", required=True, help="the Memcached's name")
    parser.add_argument("--kubeconfig", default="", help="kubeconfig file (default: the pod's service account)")
    given = parser.parse_args(arguments)
    logs.configure("info", "text")
    try:
        asyncio.run(_run(given.kubeconfig, given.namespace, given.name))
    except (Failed, KubeError) as error:
        log.error("%s", error)
        sys.exit(1)


async def _run(kubeconfig: str, namespace: str, name: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # what was made is still deleted
    transport = HttpTransport(await load_configuration(kubeconfig))
    try:
        count = await check(Kube(transport, manager="check"), namespace, name)
        log.info("Memcached %s/%s became Ready, and %d of its servers gave back what they took", namespace, name, count)
    finally:
        await transport.close()


async def check(kube: Kube, namespace: str, name: str, *, within: float = WITHIN, pause: float = PAUSE) -> int:
    """Make a Memcached, use it, and delete it, whatever happens.

    Args:
        within: seconds until it must be there, and as many until it must be Ready.
        pause: seconds between looks.

    Returns:
        How many servers took a value and gave it back.

    Raises:
        Failed: it did not become Ready, or a server did not give back what it took.
        KubeError: the API server refuses something.
    """
    await _clear(kube, namespace, name)
    made = await _until(lambda: _create(kube, namespace, name), within, pause)
    try:
        servers = await _until(lambda: _servers(kube, namespace, name), within, pause)
        for server in servers:
            await set_and_get(server)
        return len(servers)
    finally:
        await kube.delete(KIND, namespace, name, uid=made["metadata"]["uid"])


async def set_and_get(server: str) -> None:
    """Set a value and get it again.

    Args:
        server: host:port.

    Raises:
        Failed: there was no answer in time, or another.
    """
    host, _, port = server.rpartition(":")
    value = secrets.token_hex(8).encode()
    asked = b"set platform-check 0 60 %d\r\n%s\r\nget platform-check\r\nquit\r\n" % (len(value), value)
    expected = b"STORED\r\nVALUE platform-check 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)
    try:
        async with asyncio.timeout(ANSWER):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.write(asked)
            answer = await reader.read()  # to the end: the server closes at quit
            writer.close()
    except OSError as error:
        raise Failed(f"{server} does not answer: {str(error) or type(error).__name__}") from None
    if answer != expected:
        raise Failed(f"{server} was to answer {expected!r}, and answered {answer!r}")


async def _clear(kube: Kube, namespace: str, name: str) -> None:
    """Delete what a check left that was killed before its end."""
    try:
        left = await kube.get(KIND, namespace, name)
    except NotFound:
        return
    if not LABEL.items() <= (left["metadata"].get("labels") or {}).items():
        raise Failed(f"Memcached {namespace}/{name} exists and is no check's; it was left alone. Rename it.")
    await kube.delete(KIND, namespace, name, uid=left["metadata"]["uid"])


async def _create(kube: Kube, namespace: str, name: str) -> Obj:
    metadata = {"name": name, "namespace": namespace, "labels": LABEL}
    body = {"apiVersion": KIND.api_version, "kind": KIND.name, "metadata": metadata, "spec": SPEC}
    try:
        return await kube.create(KIND, body)
    except AlreadyExists:
        raise NotYet(f"Memcached {namespace}/{name} of an earlier check is not gone.") from None


async def _servers(kube: Kube, namespace: str, name: str) -> list[str]:
    seen = await kube.get(KIND, namespace, name)
    if status.is_current(seen) and status.is_true(seen, status.READY):
        servers: list[str] = seen["status"]["servers"]
        return servers
    said = status.condition(seen, status.READY).get("message") or "No operator has said anything of it: see its log."
    raise NotYet(f"Memcached {namespace}/{name} is not Ready: {said}")


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


if __name__ == "__main__":
    main()
