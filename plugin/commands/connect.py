"""`kubectl platform connect`: the shell of a database, with its address, password and certificates."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Thread

import click

from plugin.access import access_of, once, redis_cli, session_of, typed
from plugin.commands.base import command, now, only, pods_of, resources
from plugin.databases import ETCD, MEMCACHED, REDIS, Database, parsed
from plugin.output import Output
from plugin.overview import GOOD, Server, overview
from plugin.problem import Problem
from plugin.session import Session


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

    The password appears in no command line, and so in no list of processes and in no audit log. A command of -c does.
    """
    database, name = only(parsed(words))
    if database not in (REDIS, ETCD, MEMCACHED):
        raise Problem(f"{database.kind.name} has no servers", "name an EtcdCluster, a RedisCluster or a Memcached")
    if database == MEMCACHED and given:
        raise Problem("memcached has no client that could run a command", "leave -c out, and use the forwarded port")
    command_words = _split(given)
    resource = await session.resource(database, name)
    pods = await pods_of(session, database, resource)
    found = overview(database, resource, pods, now())
    names = {each["metadata"]["name"] for each in pods}
    chosen = pod or _serving(found.servers)
    if chosen not in names:
        raise Problem(
            f"pod {chosen or '(none serves clients)'} is not there", f"pods: {', '.join(sorted(names)) or 'none'}"
        )
    access = await access_of(session, database, name)
    if database == REDIS:
        version = next((each.details.get("version") for each in found.servers if each.name == chosen), "")
        command_words = ["-e", *command_words] if given else []  # an error ends it with code 1
        client = redis_cli(access, version or found.version, command_words)
        _finish(_redis(session, output, chosen, access, client, has_command=bool(given)))
    else:
        _forwarded(session, output, database, chosen, access, command_words)


def _split(given: str) -> list[str]:
    try:
        return shlex.split(given)
    except ValueError as error:
        raise Problem(f"-c {given}: {error}", "quote it as for a shell") from None


def _redis(
    session: Session, output: Output, pod: str, access: Mapping[str, str], client: Sequence[str], *, has_command: bool
) -> int:
    if has_command:
        arguments, password = once(pod, access, client)
        return subprocess.run(session.kubectl(*arguments), input=password, text=True, check=False).returncode
    if sys.stdin.isatty():
        output.text(f"Connected to {pod}. Type commands such as `cluster nodes`; Ctrl-D ends it.")
        client = [*client, "--no-raw"]
    return session_of(session, pod, access, client, typed())


def _serving(servers: Sequence[Server]) -> str:
    """Return the pod to which a client connects best: the one that leads, or one that serves clients."""
    good = [server for server in servers if server.status == GOOD]
    leading = [server for server in good if server.role in ("leader", "primary")]
    return next((server.name for server in (*leading, *good)), "")


def _forwarded(
    session: Session, output: Output, database: Database, pod: str, access: Mapping[str, str], given: list[str]
) -> None:
    """Forward a port of a pod, and run a client of this machine."""
    with (
        tempfile.TemporaryDirectory(prefix="platform-") as directory,
        forwarded(session, pod, access["port"]) as (port, forwarding),
    ):
        files = {}
        for key in ("ca.crt", "tls.crt", "tls.key"):
            if content := access.get(key):
                files[key] = Path(directory, key)
                files[key].touch(mode=0o600)
                files[key].write_text(content)
        if database == MEMCACHED:
            tls = f" with TLS; trust {files['ca.crt']}" if "ca.crt" in files else ""
            user = f" as {access['username']}" if "username" in access else ""
            output.text(f"{pod} is at 127.0.0.1:{port}{tls}{user}. Ctrl-C ends it.")
            with contextlib.suppress(KeyboardInterrupt):
                raise Problem(f"the port of {pod} is no longer forwarded: kubectl ended with {forwarding.wait()}")
            return
        program = shutil.which("etcdctl")
        if program is None:
            raise Problem(
                "etcdctl is not on the PATH",
                "install it: the image of etcd has no shell to which a password could be given",
            )
        if not given:
            output.text("In this shell, etcdctl is connected: try `etcdctl endpoint status`. `exit` ends it.")
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
def forwarded(session: Session, pod: str, port: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Forward a free port of this machine, which kubectl chooses, to a pod. Yield it, and the process that forwards.

    Raises:
        Problem: kubectl does not forward it.
    """
    command = session.kubectl("port-forward", f"pod/{pod}", f":{port}")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.match(r"Forwarding from \S+:(\d+) ->", process.stdout.readline())
            if found is None:
                raise Problem("kubectl port-forward failed", "its message is above")
            rest = Thread(target=deque, args=(process.stdout, 0), daemon=True)  # a line for each connection
            rest.start()
            yield int(found[1]), process
        finally:
            process.terminate()


def _finish(code: int) -> None:
    """End as the program that ran ended."""
    if code:
        raise click.exceptions.Exit(code)


COMMANDS = (connect,)
