"""Every version of memcached reads each users file that the operator accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.memcached.client import server as database
from operators.memcached.security.secrets import MAX_LINE_BYTES, MAX_USERS, parse_secrets
from tests.containers.support.servers import FILES, Servers
from tests.unit.memcached.fake_servers import secret
from tests.unit.memcached.world import resource

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
