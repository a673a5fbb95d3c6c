"""How the plugin reaches a database: what its connection Secret has, and redis-cli in a pod."""

from __future__ import annotations

import base64
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from plugin.databases import REDIS, Database
from plugin.problem import Problem
from plugin.session import Session
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import SECRET

TLS = "/etc/redis/tls"
"""Directory in a pod of Redis with its certificate."""

REDIS_TLS = ("--tls", "--cacert", f"{TLS}/ca.crt", "--cert", f"{TLS}/tls.crt", "--key", f"{TLS}/tls.key")
"""Arguments of redis-cli for the certificate of the pod."""


async def access_of(session: Session, database: Database, name: str) -> dict[str, str]:
    """Return what the connection Secret of a resource has.

    Raises:
        Problem: there is none, or it is that of another resource.
    """
    fix = "remove spec.connectionSecret: false, or wait until the resource is created"
    reference = f"Secret {session.namespace}/{name}-connection"
    try:
        secret = await session.kube.get(SECRET, session.namespace, f"{name}-connection")
    except NotFound:
        raise Problem(f"{reference} does not exist", fix) from None
    found = {key: base64.b64decode(value).decode(errors="replace") for key, value in (secret.get("data") or {}).items()}
    if not found:
        raise Problem(f"{reference} is empty", fix)
    if found.get("type") != database.operator:
        raise Problem(
            f"{reference} is not one of a {database.kind.name}", "docs/runbook/README.md#connectionsecrettaken"
        )
    return found


def redis_cli(access: Mapping[str, str], version: str, command: Sequence[str]) -> list[str]:
    """Return the command line of the client of the server's image, which reads the password from its input.

    Only in a pod can it follow redirections. It needs no shell, which an image may not have.

    Args:
        access: content of the connection Secret.
        version: engine and version of the server, such as `redis 8.0.2`.
        command: command of the database; empty to read commands from the input, after the password.
    """
    engine = version.split()[0] if version else "redis"
    user = ("--user", access.get("username") or "default", "--askpass") if access.get("password") else ()
    return [f"{engine}-cli", *user, "-c", *(REDIS_TLS if "ca.crt" in access else ()), *command]


def once(pod: str, access: Mapping[str, str], client: Sequence[str]) -> tuple[list[str], str]:
    """Return the arguments of kubectl that run a client in a pod, and its input: the password is in no command line."""
    password = access.get("password")
    return [*_in_pod(pod), *client], f"{password}\n" if password else ""


def session_of(
    session: Session, pod: str, access: Mapping[str, str], client: Sequence[str], lines: Iterable[str]
) -> int:
    """Run a client in a pod with the lines of the user as its input, and return its exit code."""
    arguments, password = once(pod, access, client)
    process = subprocess.Popen(session.kubectl(*arguments), stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process:  # it breaks if the client has ended
        for line in itertools.chain([password] if password else [], lines):
            process.stdin.write(line)
            process.stdin.flush()
            if process.poll() is not None:
                break
    return process.returncode


def typed() -> Iterator[str]:
    """Yield the lines of the user until the end of the input. A prompt would precede the answer to the last one."""
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    import readline  # noqa: F401 (input() then has a history)

    with contextlib.suppress(EOFError):
        while (line := input().strip()) not in ("exit", "quit"):
            yield f"{line}\n"


def _in_pod(pod: str) -> list[str]:
    return ["exec", pod, "--container", REDIS.container, "--stdin", "--"]
