"""How the plugin reaches a database: what its connection Secret has, and redis-cli in a pod."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence

from plugin.databases import REDIS
from plugin.problem import Problem
from plugin.session import Session
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import SECRET, Obj

TLS = "/etc/redis/tls"
"""Directory in a pod of Redis with its certificate."""

REDIS_TLS = ("--tls", "--cacert", f"{TLS}/ca.crt", "--cert", f"{TLS}/tls.crt", "--key", f"{TLS}/tls.key")
"""Arguments of redis-cli for the certificate of the pod."""

AUTHENTICATED = (
    'REDISCLI_AUTH=$(cat "$1") || exit; rm -f "$1"; shift; '
    'VALKEYCLI_AUTH=$REDISCLI_AUTH; export REDISCLI_AUTH VALKEYCLI_AUTH; exec "$@"'
)
"""Shell script: reads a password from a file, removes the file, and runs the rest of its arguments."""


async def access_of(session: Session, name: str) -> dict[str, str]:
    """Return what the connection Secret of a resource has.

    Raises:
        Problem: there is none.
    """
    try:
        secret = await session.kube.get(SECRET, session.namespace, f"{name}-connection")
    except NotFound:
        fix = "remove spec.connectionSecret: false, or wait until the resource is created"
        raise Problem(f"Secret {session.namespace}/{name}-connection does not exist", fix) from None
    return {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}


def redis_cli(
    session: Session, pod: str, resource: Obj, access: Mapping[str, str], command: Sequence[str], *options: str
) -> list[str]:
    """Return the arguments of kubectl that run the client of the server's image in a pod.

    Only there can it follow redirections. The password gets there before, by standard input, in a file that the client
    removes, so that no command line has it.

    Args:
        access: content of the connection Secret.
        command: command of the database; empty for a shell.
        options: more flags of kubectl exec.
    """
    engine = str((resource.get("status") or {}).get("version") or "redis").split()[0]
    client = [f"{engine}-cli", "-c", *(REDIS_TLS if "ca.crt" in access else ()), *command]
    inside = ["exec", pod, "--container", REDIS.container, "--stdin"]
    if password := access.get("password"):
        client[1:1] = ["--user", access.get("username") or "default", "--no-auth-warning"]
        file = f"/dev/shm/.platform-{secrets.token_hex(8)}"  # noqa: S108 (memory of the pod; the name is random)
        session.run(*inside, "--", "sh", "-c", f"umask 077; cat > {file}", stdin=password)
        client = ["sh", "-c", AUTHENTICATED, "sh", file, *client]
    return [*inside, *options, "--", *client]
