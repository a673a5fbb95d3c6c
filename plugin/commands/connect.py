"""`kubectl platform connect`: the shell of a database, with its address, password and certificates."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from plugin.access import access_of, redis_cli
from plugin.commands.base import command, only, pods_of, resources, seen
from plugin.databases import ETCD, MEMCACHED, REDIS, Database, parsed
from plugin.output import Output
from plugin.overview import GOOD, Server
from plugin.problem import Problem
from plugin.session import Session

PORTS = {ETCD: 2379, MEMCACHED: 11211}
"""Ports for clients of the databases to which a port is forwarded."""

FORWARD_SECONDS = 15.0
"""Seconds in which a forwarded port must accept connections."""


@command(
    "connect",
    examples=[
        "connect rediscluster/orders",
        'connect rediscluster/orders -c "cluster nodes"',
        'connect etcdcluster/settings -c "get --prefix /"',
    ],
    has_output=False,
)
@resources(many=False)
@click.option("--pod", default="", help="Pod to connect to (default: one that serves clients).")
@click.option("--command", "-c", "given", default="", help="Run this command of the database, and end.")
async def connect(session: Session, output: Output, words: tuple[str, ...], pod: str, given: str) -> None:
    """Open a shell of the database.

    That is redis-cli in the pod, etcdctl on this machine, or a port of memcached on this machine.

    Passwords appear in no command line, and so in no list of processes and in no audit log.
    """
    database, name = only(parsed(words))
    if database not in (REDIS, ETCD, MEMCACHED):
        raise Problem(f"{database.kind.name} has no servers", "name an EtcdCluster, a RedisCluster or a Memcached")
    resource = await session.resource(database, name)
    found = await seen(session, database, resource)
    names = {each["metadata"]["name"] for each in await pods_of(session, database, resource)}
    chosen = pod or _serving(found.servers)
    if chosen not in names:
        raise Problem(
            f"pod {chosen or '(none serves clients)'} is not there", f"pods: {', '.join(sorted(names)) or 'none'}"
        )
    access = await access_of(session, name)
    words_of_command = shlex.split(given)
    if database == REDIS:
        options = [] if words_of_command or not os.isatty(0) else ["--tty"]
        arguments = redis_cli(session, chosen, resource, access, words_of_command, *options)
        _finish(subprocess.run(session.kubectl(*arguments), check=False).returncode)
    else:
        _forwarded(session, output, database, chosen, access, words_of_command)


def _serving(servers: Sequence[Server]) -> str:
    """Return the pod to which a client connects best: the one that leads, or one that serves clients."""
    good = [server for server in servers if server.status == GOOD]
    leading = [server for server in good if server.role in ("leader", "primary")]
    return next((server.name for server in (*leading, *good)), "")


def _forwarded(
    session: Session, output: Output, database: Database, pod: str, access: Mapping[str, str], given: list[str]
) -> None:
    """Forward a port of a pod, and run a client of this machine."""
    with tempfile.TemporaryDirectory(prefix="platform-") as directory, _port(session, pod, PORTS[database]) as port:
        files = {}
        for key in ("ca.crt", "tls.crt", "tls.key"):
            if content := access.get(key):
                files[key] = Path(directory, key)
                files[key].touch(mode=0o600)
                files[key].write_text(content)
        if database == MEMCACHED:
            tls = f" with TLS; trust {files['ca.crt']}" if "ca.crt" in files else ""
            output.text(f"{pod} is at 127.0.0.1:{port}{tls}. Ctrl-C ends it.")
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    time.sleep(60)
            return
        program = shutil.which("etcdctl")
        if program is None:
            raise Problem(
                "etcdctl is not on the PATH",
                "install it: the image of etcd has no shell to which a password could be given",
            )
        _finish(_etcdctl(program, port, access, files, given))


def _etcdctl(program: str, port: int, access: Mapping[str, str], files: Mapping[str, Path], given: list[str]) -> int:
    """Run etcdctl, or a shell in which it is configured."""
    scheme = "https" if "ca.crt" in files else "http"
    variables = {"ETCDCTL_ENDPOINTS": f"{scheme}://localhost:{port}"}
    for name, key in (("CACERT", "ca.crt"), ("CERT", "tls.crt"), ("KEY", "tls.key")):
        if key in files:
            variables[f"ETCDCTL_{name}"] = str(files[key])
    if "password" in access:
        variables |= {"ETCDCTL_USER": access.get("username") or "client", "ETCDCTL_PASSWORD": access["password"]}
    command = [program, *given] if given else [os.environ.get("SHELL") or "/bin/sh"]
    return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode


@contextlib.contextmanager
def _port(session: Session, pod: str, port: int) -> Iterator[int]:
    """Forward a free port of this machine to a pod.

    Raises:
        Problem: the port does not accept connections.
    """
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        local: int = reserved.getsockname()[1]
    command = session.kubectl("port-forward", f"pod/{pod}", f"{local}:{port}")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + FORWARD_SECONDS
            while not _accepts(local):
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    raise Problem(f"kubectl port-forward failed: {process.communicate()[1].strip()[:500]}")
                time.sleep(0.1)
            yield local
        finally:
            process.terminate()


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _finish(code: int) -> None:
    """End as the program that ran ended."""
    if code:
        raise click.exceptions.Exit(code)


COMMANDS = (connect,)
