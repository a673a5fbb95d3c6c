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
from typing import Any, NamedTuple

import click

from plugin.access import access_of, once, redis_cli, session_of, typed
from plugin.commands.base import command, now, only, pods_of, resources
from plugin.databases import ETCD, MEMCACHED, REDIS, Database, parsed
from plugin.output import Output
from plugin.overview import GOOD, Server, overview
from plugin.problem import Problem
from plugin.results import Done, acted
from plugin.session import Session


@command(
    "connect",
    examples=[
        "connect rediscluster/orders",
        'connect rediscluster/orders -c "cluster nodes"',
        'connect etcdcluster/settings -c "get --prefix /"',
        'connect rediscluster/orders -c "info server" -o json',
    ],
    prints=acted("pod", "exit_code", "output", "address", "username", "authority"),
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
    if output.as_json and not given and database != MEMCACHED:
        raise Problem("a shell prints no JSON", "name a command with -c")
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
        ended = _redis(session, output, chosen, access, client, has_command=bool(given))
    else:
        ended = _forwarded(session, output, database, name, chosen, access, command_words)
    if output.as_json and given:
        details = {"pod": chosen, "exit_code": ended.code, "output": ended.output}
        line = f"{chosen} answered {given!r}."
        output.json(_connected(session, database, name, line, **details))
    if ended.code:
        raise click.exceptions.Exit(ended.code)


def _connected(session: Session, database: Database, name: str, line: str, **details: Any) -> Done:
    """Return the result of a connection: to a command, its output, or to a port, its address."""
    every: dict[str, Any] = {"pod": "", "exit_code": 0, "output": "", "address": "", "username": "", "authority": ""}
    return Done.of("connected", database, session.namespace, name, line, **every | details)


class Ended(NamedTuple):
    """How a client ended.

    Attributes:
        output: standard output of the client; empty if that went to the user.
    """

    code: int
    output: str = ""


def _run(command: Sequence[str], output: Output, **more: Any) -> Ended:
    """Run a client: its output goes to the user, unless that is part of a JSON object."""
    stdout = subprocess.PIPE if output.as_json else None
    done = subprocess.run(command, stdout=stdout, text=True, errors="replace", check=False, **more)
    return Ended(done.returncode, done.stdout or "")


def _split(given: str) -> list[str]:
    try:
        return shlex.split(given)
    except ValueError as error:
        raise Problem(f"-c {given}: {error}", "quote it as for a shell") from None


def _redis(
    session: Session, output: Output, pod: str, access: Mapping[str, str], client: Sequence[str], *, has_command: bool
) -> Ended:
    if has_command:
        arguments, password = once(pod, access, client)
        return _run(session.kubectl(*arguments), output, input=password)
    if sys.stdin.isatty():
        output.text(f"Connected to {pod}. Type commands such as `cluster nodes`; Ctrl-D ends it.")
        client = [*client, "--no-raw"]
    return Ended(session_of(session, pod, access, client, typed()))


def _serving(servers: Sequence[Server]) -> str:
    """Return the pod to which a client connects best: the one that leads, or one that serves clients."""
    good = [server for server in servers if server.status == GOOD]
    leading = [server for server in good if server.role in ("leader", "primary")]
    return next((server.name for server in (*leading, *good)), "")


def _forwarded(
    session: Session,
    output: Output,
    database: Database,
    name: str,
    pod: str,
    access: Mapping[str, str],
    given: list[str],
) -> Ended:
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
            line = f"{pod} is at 127.0.0.1:{port}{tls}{user}. Ctrl-C ends it."
            details = {"pod": pod, "address": f"127.0.0.1:{port}", "username": access.get("username", "")}
            details["authority"] = str(files.get("ca.crt", ""))
            output.result(_connected(session, database, name, line, **details), line)
            with contextlib.suppress(KeyboardInterrupt):
                raise Problem(f"the port of {pod} is no longer forwarded: kubectl ended with {forwarding.wait()}")
            return Ended(0)
        program = shutil.which("etcdctl")
        if program is None:
            raise Problem(
                "etcdctl is not on the PATH",
                "install it: the image of etcd has no shell to which a password could be given",
            )
        if not given:
            output.text("In this shell, etcdctl is connected: try `etcdctl endpoint status`. `exit` ends it.")
        return _etcdctl(program, output, port, access, files, given)


def _etcdctl(
    program: str, output: Output, port: int, access: Mapping[str, str], files: Mapping[str, Path], given: list[str]
) -> Ended:
    """Run etcdctl, or a shell in which it is configured."""
    scheme = "https" if "ca.crt" in files else "http"
    variables = {"ETCDCTL_ENDPOINTS": f"{scheme}://localhost:{port}"}
    for name, key in (("CACERT", "ca.crt"), ("CERT", "tls.crt"), ("KEY", "tls.key")):
        if key in files:
            variables[f"ETCDCTL_{name}"] = str(files[key])
    if "password" in access:
        variables |= {"ETCDCTL_USER": access.get("username") or "client", "ETCDCTL_PASSWORD": access["password"]}
    command = [program, *given] if given else [os.environ.get("SHELL") or "/bin/sh"]
    return _run(command, output, env={**os.environ, **variables})


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


COMMANDS = (connect,)
