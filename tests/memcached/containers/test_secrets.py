"""Every version of memcached reads each users file that the operator accepts, also while it runs."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from operators.memcached.client import server as database
from operators.memcached.client.errors import AuthenticationFailed
from operators.memcached.client.users_file import MAX_LINE_BYTES, MAX_USERS
from operators.memcached.exporter.reload import Reloader
from operators.memcached.security.secrets import parse_secrets
from simulator.memcached.fake_servers import secret
from tests.memcached.unit.world import resource
from tests.support.containers.servers import FILES, Memcached, Servers

pytestmark = pytest.mark.nightly

TEXTS = {
    "one": "alice:open\n",
    "colons": "alice::a:b:\n",
    "letters": "älice:ünd\"'\\$%#\n",
    "several": "alice:one\nalice:two\nbob:one\n",
    "maximum": "".join(f"user{number}:password{number}\n" for number in range(MAX_USERS)),
    "too many": "".join(f"user{number}:password{number}\n" for number in range(MAX_USERS + 1)),
    "longest": f"alice:{'x' * (MAX_LINE_BYTES - 1 - len('alice:'))}\n",
    "too long": f"alice:{'x' * (MAX_LINE_BYTES + 1 - len('alice:'))}\n",
    "no line break": "alice:open",
    "windows": "alice:open\r\n",
    "empty line": "alice:open\n\n",
    "comment": "# users\nalice:open\n",
    "blank": "alice:open sesame\n",
    "no user": ":open\n",
    "no password": "alice:\n",
}


def accepted(text: str) -> bool:
    return parse_secrets(resource(auth={"secretName": "users"}), {"users": secret("users", users=text)}).problem is None


def test_only_files_that_memcached_reads_correctly_are_accepted() -> None:
    assert [name for name, text in TEXTS.items() if accepted(text)] == [
        "one",
        "colons",
        "letters",
        "several",
        "maximum",
        "longest",
    ]


@pytest.mark.parametrize("text", [text for text in TEXTS.values() if accepted(text)], ids=lambda text: text[:12])
async def test_every_user_of_an_accepted_file_can_log_in(
    servers: Servers, version: str, tmp_path: Path, text: str
) -> None:
    (tmp_path / "users").write_text(text)
    with servers.memcached(version, f"--auth-file={FILES}/users", files=tmp_path) as to:
        for line in text.splitlines():
            user, _, password = line.partition(":")
            server = await database.connect(to.host, to.port, auth=(user, password))
            assert await server.version() == version
            await server.aclose()


async def _accepts(to: Memcached, user: str, password: str) -> bool:
    try:
        server = await database.connect(to.host, to.port, auth=(user, password))
    except AuthenticationFailed:
        return False
    await server.aclose()
    return True


async def test_running_server_reloads_its_users_and_keeps_its_items(
    servers: Servers, version: str, tmp_path: Path
) -> None:
    """The sidecar's signal: a process reloads the file, and one that cannot use it keeps the former users."""
    files, processes = tmp_path / "files", tmp_path / "proc"
    files.mkdir()
    (processes / "1").mkdir(parents=True)
    (files / "users").write_text("app:one\n")
    with servers.memcached(version, f"--auth-file={FILES}/users", files=files) as to:
        for name in ("comm", "status", "cmdline"):  # of the real process, which runs in another namespace
            content = to.container.exec(["cat", f"/proc/1/{name}"]).output
            (processes / "1" / name).write_bytes(content.replace(FILES.encode(), bytes(files)))
        reloader = Reloader(
            files / "users", processes=processes, send=lambda _, number: to.signal(signal.Signals(number))
        )
        session = await asyncio.open_connection(to.host, to.port)
        assert await _sent(session, "set auth 0 0 7\r\napp one\r\n") == "STORED"
        assert await _sent(session, "set item 0 0 1\r\nx\r\n") == "STORED"
        for text, valid in (("app:two\nops:three\n", True), ("unusable", False), ("app:two\nops:four\n", True)):
            (files / "users").write_text(text)
            reloader.check()
            await asyncio.sleep(2.5)  # memcached checks for the signal each second
            assert await _accepts(to, "app", "two")
            assert not await _accepts(to, "app", "one")
            assert await _accepts(to, "ops", "four" if "four" in text else "three") or not valid
        assert await _sent(session, "get item\r\n") == "VALUE item 0 1", "item and session survived"
        session[1].close()


async def _sent(session: tuple[asyncio.StreamReader, asyncio.StreamWriter], text: str) -> str:
    reader, writer = session
    writer.write(text.encode())
    return (await reader.readline()).decode().strip()
