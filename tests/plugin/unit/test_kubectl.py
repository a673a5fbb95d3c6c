"""Commands that kubectl runs for the plugin: here it is a script that runs on this machine, instead of in a pod."""

from __future__ import annotations

import base64
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from plugin import access
from plugin.commands import connect
from plugin.databases import REDIS
from plugin.problem import Problem
from plugin.session import Session, Target
from shared.kubernetes.client import Request, Response

PASSWORD = "correct horse"
ACCESS = {"type": "redis", "password": PASSWORD, "username": "default"}

KUBECTL = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *port-forward*settings-0*) echo "Forwarding from 127.0.0.1:40551 -> 2379"; exec sleep 60;;
  *port-forward*) echo "error: pod is not running" >&2; exit 1;;
esac
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""

CLIENT = """#!/bin/sh
case "$*" in *--askpass*) read -r password;; esac
echo "$@ with $password and input $(cat)"
"""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session whose kubectl is the script; its command lines are in `kubectl.log`."""
    scripts = {"kubectl": KUBECTL.format(log=tmp_path / "kubectl.log"), "redis-cli": CLIENT}
    for name, text in scripts.items():
        path = tmp_path / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("KUBECTL", str(tmp_path / "kubectl"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Session(None, "shop", Target())  # type: ignore[arg-type]


def test_command_gets_the_password_by_its_input_and_leaves_no_file(session: Session, tmp_path: Path) -> None:
    client = access.redis_cli(ACCESS, "redis 8.0.2", ["get", "a b"])
    arguments, given = access.once("orders-0", ACCESS, client)
    answer = session.run(*arguments, stdin=given)
    assert answer == f"--user default --askpass -c get a b with {PASSWORD} and input \n"
    assert PASSWORD not in (tmp_path / "kubectl.log").read_text()


def test_command_without_a_password_sends_none(session: Session) -> None:
    arguments, given = access.once("orders-0", {}, access.redis_cli({}, "", ["ping"]))
    assert session.run(*arguments, stdin=given) == "-c ping with  and input \n"


def test_session_gets_the_password_and_then_the_lines_of_the_user(
    session: Session, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    client = access.redis_cli(ACCESS, "valkey 9.1.0", [])
    assert client[0] == "valkey-cli"
    lines = ["get a\n", "get b\n"]
    assert access.session_of(session, "orders-0", ACCESS, ["redis-cli", *client[1:]], lines) == 0
    assert capfd.readouterr().out == f"--user default --askpass -c with {PASSWORD} and input get a\nget b\n"
    assert PASSWORD not in (tmp_path / "kubectl.log").read_text()


def test_session_whose_client_does_not_start_ends(session: Session) -> None:
    assert access.session_of(session, "orders-0", ACCESS, ["no-such-program"], ["get a\n"] * 10_000) != 0


def test_kubectl_does_not_consume_the_input_of_the_user(session: Session, tmp_path: Path) -> None:
    """A loop such as `while read name; do kubectl platform failover …; done < names` needs its input itself."""
    code = (
        "from plugin.session import Session, Target\n"
        "print(repr(Session(None, 'shop', Target()).run('exec', 'pod', '--', 'cat')))\n"
    )
    environment = {"KUBECTL": str(tmp_path / "kubectl"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="the next line\n",
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert done.stdout == "''\n"


def test_port_is_chosen_by_kubectl_and_ends_with_the_command(session: Session) -> None:
    """A port that was free a moment ago may belong to another process, which would get the password."""
    with connect.forwarded(session, "settings-0", "2379") as (port, process):
        assert port == 40551
        assert process.poll() is None
    assert process.poll() is not None


def test_port_that_is_not_forwarded_is_a_problem(session: Session) -> None:
    with pytest.raises(Problem, match="port-forward failed"), connect.forwarded(session, "other-0", "2379"):
        pass


@pytest.mark.parametrize(
    ("data", "message"), [({}, "is empty"), ({"type": "memcached", "password": "p"}, "is not one of a RedisCluster")]
)
async def test_connection_secret_of_another_resource_is_not_used(data: dict[str, str], message: str) -> None:
    class Secrets:
        async def request(self, request: Request) -> Response:
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
            metadata = {"name": "orders-connection", "namespace": "shop", "resourceVersion": "1"}
            return Response(200, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})

    with pytest.raises(Problem, match=message):
        await access.access_of(Session(Secrets(), "shop", Target()), REDIS, "orders")
