"""How the plugin reaches a database: what its connection Secret has, and redis-cli in a pod."""

from __future__ import annotations

import base64
import contextlib
import secrets
import subprocess
from collections.abc import Mapping, Sequence

from plugin.databases import REDIS, Database
from plugin.problem import Problem
from plugin.session import Session
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import SECRET

TLS = "/etc/redis/tls"
"""Directory in a pod of Redis with its certificate."""

REDIS_TLS = ("--tls", "--cacert", f"{TLS}/ca.crt", "--cert", f"{TLS}/tls.crt", "--key", f"{TLS}/tls.key")
"""Arguments of redis-cli for the certificate of the pod."""

_EXPORTED = 'VALKEYCLI_AUTH=$REDISCLI_AUTH; export REDISCLI_AUTH VALKEYCLI_AUTH; exec "$@"'

FROM_INPUT = f"REDISCLI_AUTH=$(cat) || exit; {_EXPORTED}"
"""Shell script: reads a password from standard input, and runs its arguments."""

FROM_FILE = f'REDISCLI_AUTH=$(cat "$1") || exit; rm -f "$1"; shift; {_EXPORTED}'
"""Shell script: reads a password from a file, removes the file, and runs the rest of its arguments."""


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
    """Return the command line of the client of the server's image, which gets the password from its environment.

    Only in a pod can it follow redirections.

    Args:
        access: content of the connection Secret.
        version: engine and version of the server, such as `redis 8.0.2`.
        command: command of the database; empty for a shell.
    """
    engine = version.split()[0] if version else "redis"
    user = ("--user", access.get("username") or "default", "--no-auth-warning") if access.get("password") else ()
    return [f"{engine}-cli", *user, "-c", *(REDIS_TLS if "ca.crt" in access else ()), *command]


def in_pod(pod: str, *options: str) -> list[str]:
    """Return the arguments of kubectl before a command that runs in a pod of Redis."""
    return ["exec", pod, "--container", REDIS.container, "--stdin", *options, "--"]


def once(pod: str, access: Mapping[str, str], client: Sequence[str]) -> tuple[list[str], str]:
    """Return the arguments of kubectl that run a client in a pod, and its input: the password is in no command line."""
    password = access.get("password", "")
    return [*in_pod(pod), *(("sh", "-c", FROM_INPUT, "sh") if password else ()), *client], password


def shell(session: Session, pod: str, access: Mapping[str, str], client: Sequence[str], *options: str) -> int:
    """Run a client in a pod with the input of the user, and return its exit code.

    The input cannot have the password then. It gets there before, in a file that the client removes.
    """
    password = access.get("password")
    if not password:
        return subprocess.run(session.kubectl(*in_pod(pod, *options), *client), check=False).returncode
    file = f"/dev/shm/.platform-{secrets.token_hex(8)}"  # noqa: S108 (memory of the pod; the name is random)
    session.run(*in_pod(pod), "sh", "-c", f"umask 077; cat > {file}", stdin=password)
    command = [*in_pod(pod, *options), "sh", "-c", FROM_FILE, "sh", file, *client]
    code = subprocess.run(session.kubectl(*command), check=False).returncode
    if code:  # perhaps it did not start
        with contextlib.suppress(Problem):
            session.run(*in_pod(pod), "rm", "-f", file)
    return code
