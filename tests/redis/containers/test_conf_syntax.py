"""The user's redis.conf: what is rendered of it loads in a real server and means the same, or it is refused."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import hiredis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from operators.redis.api.directives import RESERVED
from operators.redis.objects import redis_conf
from operators.redis.objects.conf_syntax import arguments
from tests.redis.containers.test_config import resource
from tools.databases import redis_programs

pytestmark = pytest.mark.nightly

EXAMPLES = 40
"""Random files for each engine; each starts two servers."""

VALUES = {
    "hz": ["10", "20", "0", "007", "x"],
    "MaxMemory": ["100mb", "1g", "104857600", "1gib"],
    "maxmemory-policy": ["allkeys-lru", "NOEVICTION", "sometimes"],
    "notify-keyspace-events": ["KEA", "", "Ex$", "Q"],
    "slowlog-log-slower-than": ["-1", "5"],
    "appendfsync": ["always", "No"],
    "rdbcompression": ["YES", "no", "true"],
}
WORDS = {
    "save": [["900", "1"], ["300", "10", "60", "1"], [""], ["900"]],
    "client-output-buffer-limit": [["replica", "1mb", "2mb", "30"], ["slave", "1kb", "0", "1"], ["pubsub", "0", "0"]],
    "shutdown-on-sigterm": [["save", "now"], ["default"], ["force now"]],
}
TEXTS = ("syslog-ident", "tls-ciphers", "ignore-warnings", "Proc-Title-Template")
JUNK = st.text(st.sampled_from("hzport \"'\\nx0a{}$#\t\x0b-é"), max_size=16)


def plain(text: str) -> bool:
    return bool(text) and not set(text) & set(" \t\n\r\v\f\"'\\#") and text.isprintable()


@st.composite
def written(draw: st.DrawFn, text: str) -> str:
    """A way to write a word: plain, in either quotes, with escapes, or with quotes that begin within the word."""
    if plain(text) and draw(st.booleans()):
        return text
    if "'" not in text and "\\" not in text and draw(st.booleans()):
        return f"'{text}'"
    escaped = "".join(
        "".join(f"\\x{byte:02x}" for byte in each.encode()) if each in '"\\\n\r\t' or draw(st.booleans()) else each
        for each in text
    )
    at = draw(st.integers(0, len(text)))
    if plain(text[:at]) and text == escaped:
        return f'{text[:at]}"{text[at:]}"'
    return f'"{escaped}"'


@st.composite
def line(draw: st.DrawFn) -> str:
    """A line that is often valid."""
    kind = draw(st.sampled_from(["value", "value", "words", "text", "text", "junk"]))
    if kind == "junk":
        return draw(JUNK)
    if kind == "value":
        name = draw(st.sampled_from(sorted(VALUES)))
        words = [draw(st.sampled_from(VALUES[name]))]
    elif kind == "words":
        name = draw(st.sampled_from(sorted(WORDS)))
        words = draw(st.sampled_from(WORDS[name]))
    else:
        name = draw(st.sampled_from(TEXTS))
        words = [draw(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8))]
    blank = draw(st.sampled_from([" ", "  ", "\t", " \x0b "]))
    return blank.join([draw(written(name)), *(draw(written(word)) for word in words)])


class Server:
    """Starts servers with a file, and returns their settings."""

    def __init__(self, engine: tuple[str, str], directory: Path) -> None:
        self._program, self._directory = redis_programs.server(*engine), directory
        self._count = 0

    def settings(self, text: str, names: list[str]) -> dict[str, str] | str:
        """Return the values of directives, or the last lines of a server that does not start."""
        self._count += 1
        directory = self._directory / str(self._count)
        directory.mkdir()
        file, path = directory / "redis.conf", directory / "s"
        file.write_text(text, encoding="utf-8")
        flags = [
            "--port",
            "0",
            "--unixsocket",
            str(path),
            "--dir",
            str(directory),
            "--daemonize",
            "no",
            "--logfile",
            "",
        ]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen([*self._program, str(file), *flags], stdout=log, stderr=log)
            try:
                deadline = time.monotonic() + 20
                while not path.exists():
                    if process.poll() is not None or time.monotonic() > deadline:
                        return (directory / "log").read_text(errors="replace")[-600:]
                    time.sleep(0.005)
                return self._values(path, names)
            finally:
                process.kill()
                process.wait()

    def _connected(self, path: Path) -> socket.socket:
        deadline = time.monotonic() + 20
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(path))
            except ConnectionRefusedError:  # it does not listen yet
                connection.close()
                assert time.monotonic() < deadline
                time.sleep(0.005)
            else:
                return connection

    def _values(self, path: Path, names: list[str]) -> dict[str, str]:
        reader, found = hiredis.Reader(), {}
        with self._connected(path) as connection:
            for name in names:
                connection.sendall(hiredis.pack_command(("CONFIG", "GET", name)))  # type: ignore[arg-type]
                while (answer := reader.gets()) is False:
                    reader.feed(connection.recv(65536))
                found[name] = answer[1].decode(errors="backslashreplace") if answer else ""
        return found


def given_by(template: str) -> list[str]:
    """Return the directives that the user's redis.conf sets, without those that only the operator sets."""
    names = (arguments(each)[0].lower() for each in template.split("\n") if arguments(each))
    return sorted({name for name in names if name not in RESERVED})


def test_rendered_files_mean_the_same_to_a_real_server(engine: tuple[str, str], tmp_path: Path) -> None:
    made, server = resource(engine, pod=[{"configmap": "mine"}], auth={"secretName": "a"}), Server(engine, tmp_path)
    loaded = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(line(), min_size=1, max_size=6))
    def check(template: list[str]) -> None:
        nonlocal loaded
        # One refused line refuses the file: the rest is tried without it.
        text = "\n".join(each for each in template if redis_conf.problem(made, each) is None)
        if redis_conf.problem(made, text) is not None:
            return
        names = given_by(text)
        own = [each for each in text.split("\n") if not arguments(each) or arguments(each)[0].lower() not in RESERVED]
        rendered = server.settings(redis_conf.render(made, text).partition("\n\n")[0] + "\n", names)
        original = server.settings("\n".join(own) + "\n", names)
        assert isinstance(rendered, dict), (text, rendered)
        assert rendered == original, text
        loaded += bool(names)

    check()
    assert loaded > EXAMPLES / 2


@pytest.mark.parametrize("text", ['"hz\\x0aport" 1', 'hz 20\n"x\\ny" 1', "appendonly maybe", "no-such-directive 1"])
def test_refused_files_would_not_load(engine: tuple[str, str], tmp_path: Path, text: str) -> None:
    made = resource(engine, pod=[{"configmap": "mine"}])
    assert redis_conf.problem(made, text) is not None
    assert isinstance(Server(engine, tmp_path).settings(text + "\n", ["hz"]), str)
