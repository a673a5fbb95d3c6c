"""Metrics of a memcached server, and the process of the exporter."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.error import HTTPError

import pytest

from operators.memcached.client.attestation import Attestation, fetch
from operators.memcached.client.errors import UnexpectedAnswer, Unreachable
from operators.memcached.exporter import metrics
from operators.memcached.exporter import program as exporter
from operators.memcached.exporter.program import Exporter, connect, parse_options
from shared.observability.version import VERSION
from tests.memcached.unit.client.fake import NO_REPLY, Answer, Fake, fake
from tests.support import paths
from tests.support.memcached.exporter import EXPORTER, REPOSITORY, Running, Samples, running, samples
from tests.support.tls import Authority

RECORDED = paths.RECORDED / "memcached"
COMMANDS = ("stats", "stats settings", "stats slabs", "stats items")


def recorded() -> dict[str, Answer]:
    """Return the responses of memcached 1.6.38 after some traffic."""
    text = (RECORDED / "stats-1.6.38.txt").read_bytes().replace(b"\n", b"\r\n")
    parts = [part + b"END\r\n" for part in text.split(b"END\r\n")[:-1]]
    return dict(zip(COMMANDS, parts, strict=True))


def of_memcached(found: Samples) -> Samples:
    return {name: value for name, value in found.items() if re.match("memcached_(?!up|exporter_)", name)}


def exporter_of(to: Fake, *flags: str) -> Exporter:
    return Exporter(partial(connect, parse_options([f"--address=127.0.0.1:{to.port}", "--timeout=0.3", *flags])))


@pytest.mark.parametrize("text", ["1_000", "nan", "infinity", "1e999", "٣", " 1", "", "+1", "0x1", "9" * 5000])
def test_number_that_only_python_accepts_gives_no_sample(text: str) -> None:
    """Prometheus would reject the whole scrape, with the metrics of the server that are right."""
    server = {"curr_items": text, "cmd_set": text, "cas_hits": text, "reserved_fds": text, "uptime": "7"}
    found = samples(metrics.exposition(server, {"maxconns": text}, {}, {}))
    assert found == {'memcached_version{version=""}': 1, "memcached_uptime_seconds_total": 7}


def test_connections_that_the_server_reserves_for_itself_are_not_available_to_clients() -> None:
    """A server with -c 64 and 4 threads rejects connections from 43 on, which is less than 90 percent of 64."""
    found = samples(metrics.exposition({"reserved_fds": "20", "curr_connections": "40"}, {"maxconns": "64"}, {}, {}))
    assert found["memcached_max_connections"] == 43


async def test_scrape_returns_the_statistics_of_memcached() -> None:
    async with fake(recorded()) as to:
        found = samples(await exporter_of(to).scrape())
    expected = {
        "memcached_up": 1,
        'memcached_version{version="1.6.38"}': 1,
        "memcached_current_items": 3,
        "memcached_limit_bytes": 64 * 2**20,
        "memcached_malloced_bytes": 2 * 2**20,
        "memcached_max_connections": 1003,
        "memcached_item_too_large_total": 1,
        'memcached_commands_total{command="get",status="hit"}': 3,
        'memcached_commands_total{command="get",status="miss"}': 1,
        'memcached_commands_total{command="cas",status="badval"}': 1,
        'memcached_commands_total{command="set",status="hit"}': 3,  # cmd_set of memcached is 6: it includes each cas
        "memcached_lru_crawler_enabled": 1,
        "memcached_lru_crawler_hot_max_factor": 0.2,
        'memcached_slab_chunk_size_bytes{slab="19"}': 5680,
        'memcached_slab_current_items{slab="1"}': 2,
        'memcached_slab_lru_hits_total{slab="1",lru="cold"}': 2,
        'memcached_slab_commands_total{slab="1",command="incr",status="hit"}': 1,
        "memcached_authentication_failures_total": 0,
    }
    assert {name: found.get(name) for name in expected} == expected


async def test_build_info_has_the_labels_of_exporters_in_go() -> None:
    async with fake({}) as to:
        [line] = [line for line in (await exporter_of(to).scrape()).splitlines() if "exporter_build_info{" in line]
    labels = dict(re.findall(r'(\w+)="(.*?)"', line))
    assert sorted(labels) == ["branch", "goarch", "goos", "goversion", "revision", "tags", "version"]
    assert (labels["version"], labels["goos"]) == (VERSION, "linux")
    assert line.endswith(" 1"), "also while the server does not respond"


def test_version_is_that_of_the_project() -> None:
    assert tomllib.loads((paths.REPOSITORY / "pyproject.toml").read_text())["project"]["version"] == VERSION


def test_names_types_and_labels_are_those_of_memcached_exporter() -> None:
    implemented = {
        **{metric.name: (metric.type, metric.labels) for metric in (*metrics.SERVER, *metrics.SETTINGS)},
        **{metric.name: (metric.type, ("slab", *metric.labels)) for metric in metrics.SLAB},
        "memcached_up": ("gauge", ()),
        "memcached_version": ("gauge", ("version",)),
    }
    reference = {}
    for line in (RECORDED / "memcached_exporter.txt").read_text().splitlines()[1:]:
        name, kind, *labels = line.split(" ")
        reference[name] = (kind, tuple(labels[0].split(",")) if labels else ())
    assert len(reference) == 103
    assert {name: implemented.get(name) for name in reference} == reference


def test_statistics_and_metrics_are_unique() -> None:
    names = [metric.name for metric in (*metrics.SERVER, *metrics.SETTINGS, *metrics.SLAB)]
    assert len(names) == len(set(names))
    assert all(len(labels) == len(metric.labels) for metric in metrics.SERVER for labels in metric.stats.values())


def test_non_numeric_values_are_omitted_and_labels_are_escaped() -> None:
    server = {"version": 'a"b\\c\nd', "uptime": "(null)", "curr_items": "7", "cmd_set": "many"}
    found = samples(metrics.exposition(server, {"lru_crawler": "no", "maxconns": "on"}, {}, {}))
    assert found == {
        'memcached_version{version="a"b\\c\nd"}': 1,
        "memcached_current_items": 7,
        "memcached_lru_crawler_enabled": 0,
        "memcached_max_connections": 1,
    }


async def test_server_that_is_down_has_no_metrics() -> None:
    async with fake(recorded()) as to:
        exporting = exporter_of(to)
        assert len(of_memcached(samples(await exporting.scrape()))) > 120
    found = samples(await exporting.scrape())
    assert found["memcached_up"] == 0
    assert found['memcached_exporter_errors_total{reason="Unreachable"}'] == 1
    assert found['memcached_exporter_errors_total{reason="TLSFailed"}'] == 0
    assert not of_memcached(found)


async def test_incomplete_response_gives_no_metrics() -> None:
    async with fake({**recorded(), "stats items": b"SERVER_ERROR out of memory\r\n"}) as to:
        found = samples(await exporter_of(to).scrape())
        assert found["memcached_up"] == 0
        assert not of_memcached(found)


async def test_connection_is_kept_until_the_server_restarts() -> None:
    async with fake(recorded()) as to:
        exporting = exporter_of(to)
        for _ in range(3):
            assert samples(await exporting.scrape())["memcached_up"] == 1
        assert to.connections == 1
        to.close_connections()
        await asyncio.sleep(0.05)
        found = samples(await exporting.scrape())
        assert found["memcached_up"] == 1
        assert found['memcached_exporter_errors_total{reason="Unreachable"}'] == 0
        assert to.connections == 2
        await exporting.aclose()


async def test_concurrent_scrapes_do_not_mix_their_responses() -> None:
    async with fake(recorded()) as to:
        exporting = exporter_of(to)
        found = await asyncio.gather(*(exporting.scrape() for _ in range(8)))
        assert {samples(text)["memcached_current_items"] for text in found} == {3}
        assert to.connections == 1
        await exporting.aclose()


async def test_unresponsive_server_causes_a_single_timeout() -> None:
    async with fake(recorded()) as to:
        exporting = exporter_of(to, "--timeout=1")
        await exporting.scrape()
        to.answers["stats"] = NO_REPLY
        started = time.monotonic()
        assert samples(await exporting.scrape())['memcached_exporter_errors_total{reason="TimedOut"}'] == 1
        assert time.monotonic() - started < 1.9
        to.answers.update(recorded())
        assert samples(await exporting.scrape())["memcached_up"] == 1
        await exporting.aclose()


async def test_only_state_changes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with fake(recorded()) as to:
        exporting = exporter_of(to)
        for _ in range(3):
            await exporting.scrape()
        to.answers["version"] = to.answers["stats"] = b"SERVER_ERROR out of memory\r\n"
        for _ in range(3):
            await exporting.scrape()
    messages = [record.message for record in caplog.records if record.name == exporter.__name__]
    assert len(messages) == 2
    assert messages[0] == "memcached_up is 1."
    assert re.fullmatch(r"memcached_up is 0: 127\.0\.0\.1:\d+ returned 'SERVER_ERROR out.*", messages[1])


def requiring(password: str) -> dict[str, Answer]:
    """Return the responses of a server that requires the user alice with this password."""
    return {
        **recorded(),
        "version": b"CLIENT_ERROR unauthenticated\r\n",
        "set auth 0 0 9": b"",
        **{f"alice {other}": b"CLIENT_ERROR authentication failure\r\n" for other in ("one", "two")},
        f"alice {password}": b"STORED\r\n",
    }


def failure_reason(text: str) -> str:
    """Return the reason of the counted error; empty if the server is up."""
    found = samples(text)
    reasons = [name for name, value in found.items() if name.startswith("memcached_exporter_errors") and value]
    assert bool(reasons) != bool(found["memcached_up"])
    return reasons[0].split('"')[1] if reasons else ""


@pytest.mark.parametrize(
    ("text", "expected_reason"),
    [
        ("alice:one\nbob:two\n", ""),
        ("alice:one", ""),
        ("alice:two\n", "AuthenticationFailed"),
        ("alice\n", "FilesUnusable"),
        ("", "FilesUnusable"),
        (None, "FilesUnusable"),
    ],
)
async def test_first_user_of_the_users_file_is_used(tmp_path: Path, text: str | None, expected_reason: str) -> None:
    users = tmp_path / "users"
    if text is not None:
        users.write_text(text)
    async with fake(requiring("one")) as to:
        exporting = exporter_of(to, f"--auth-file={users}")
        assert failure_reason(await exporting.scrape()) == expected_reason
        await exporting.aclose()


async def test_exporter_follows_a_changed_password(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice:one\n")
    async with fake(requiring("one")) as to:
        exporting = exporter_of(to, f"--auth-file={users}")
        assert failure_reason(await exporting.scrape()) == ""
        users.write_text("alice:two\n")  # the kubelet updated the file, and the server is not replaced yet
        assert failure_reason(await exporting.scrape()) == ""
        to.answers.update(requiring("two"))
        to.close_connections()
        await asyncio.sleep(0.05)
        assert failure_reason(await exporting.scrape()) == ""
        await exporting.aclose()


async def test_exporter_follows_changed_certificates(tmp_path: Path) -> None:
    for directory in ("old", "new"):
        (tmp_path / directory).mkdir()
    current = tmp_path / "current"
    flags = [f"--tls-ca={current}/authority.crt", f"--tls-cert={current}/client.crt", f"--tls-key={current}/client.key"]
    exporting = None
    port = 0
    for directory in ("old", "new"):
        authority = Authority(tmp_path / directory)
        authority.issue("client")
        serving_with = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving_with.load_cert_chain(*authority.issue("server", "memcached.test"))
        serving_with.load_verify_locations(authority.certificate)
        serving_with.verify_mode = ssl.CERT_REQUIRED
        async with fake(recorded(), tls=serving_with, port=port) as to:
            port = to.port
            if exporting is not None:  # the files are not updated yet
                assert failure_reason(await exporting.scrape()) == "TLSFailed"
                current.unlink()
            current.symlink_to(directory)
            exporting = exporting or exporter_of(to, "--tls", "--server-name=memcached.test", *flags)
            assert samples(await exporting.scrape())["memcached_up"] == 1
            await exporting.aclose()


async def test_mismatch_of_certificate_and_key_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    (certificate, _), (_, key) = authority.issue("one"), authority.issue("two")
    async with fake() as to:
        exporting = exporter_of(to, "--tls", f"--tls-cert={certificate}", f"--tls-key={key}")
        assert failure_reason(await exporting.scrape()) == "FilesUnusable"
        assert "do not match: KEY_VALUES_MISMATCH" in caplog.text


async def test_loopback_accepts_any_certificate_unless_a_ca_is_set(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    serving_with = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving_with.load_cert_chain(*authority.issue("server", "memcached.test"))
    async with fake(recorded(), tls=serving_with) as to:
        for flags, expected_reason in (
            ([], ""),
            ([f"--tls-ca={authority.certificate}"], "TLSFailed"),  # the name does not match
            ([f"--tls-ca={authority.certificate}", "--server-name=memcached.test"], ""),
            ([f"--tls-ca={other.certificate}", "--server-name=memcached.test"], "TLSFailed"),
        ):
            exporting = exporter_of(to, "--tls", *flags)
            assert failure_reason(await exporting.scrape()) == expected_reason, flags
            await exporting.aclose()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--address=11211"], "'11211' is not an address: use host:port"),
        (["--address=::1:11211"], "is not an address: use host:port, or [host]:port for IPv6"),
        (["--address=:11211"], "--address requires a host"),
        (["--listen=:http"], "':http' is not an address"),
        (["--timeout=0"], "'0' is not a number of seconds greater than 0"),
        (["--tls", "--tls-cert=a"], "--tls-cert and --tls-key must be set together"),
        (["--tls-ca=a"], "require --tls"),
        (["--auth=a"], "unrecognized arguments"),
    ],
)
def test_invalid_flag_is_rejected_with_advice(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(flags)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_flags_of_the_pod_are_parsed() -> None:
    options = parse_options(["--address=[::1]:11212", "--listen=:9151", "--auth-file=/auth/users", "--tls"])
    assert (options.address, options.listen) == (("::1", 11212), (None, 9151))
    assert (options.auth_file, options.tls, options.timeout) == ("/auth/users", True, 2.0)


# The exporter as a process.


async def test_exporter_waits_for_its_server_and_stops_on_sigterm() -> None:
    async with fake(recorded()) as to:
        port = to.port
    with running(f"--address=127.0.0.1:{port}") as exporting:
        status, text = await asyncio.to_thread(exporting.get, "/metrics")
        assert (status, samples(text)["memcached_up"]) == (200, 0)
        assert await asyncio.to_thread(exporting.get, "/healthz") == (200, "ok\n")
        async with fake(recorded(), port=port):
            _, text = await asyncio.to_thread(exporting.get, "/metrics")
            found = samples(text)
            assert found["memcached_up"] == 1
            assert found["process_resident_memory_bytes"] < 40 * 2**20
            assert found["process_open_fds"] < 20
            assert "/metrics" in (await asyncio.to_thread(exporting.get, "/"))[1]
            exporting.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(exporting.process.wait, 5) == 0


def test_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flag = f"--listen=127.0.0.1:{taken.getsockname()[1]}"
        ended = subprocess.run(
            [*EXPORTER, flag], cwd=REPOSITORY, capture_output=True, text=True, timeout=20, check=False
        )
    assert ended.returncode == 1
    message = json.loads(ended.stderr)["message"]
    assert message.startswith(f"cannot listen on {flag.partition('=')[2]}: ")
    assert message.endswith("Use another address, or 0 to disable.")


def test_sidecar_imports_no_operator_dependencies() -> None:
    heavy = ("kopf", "kubernetes", "aiohttp", "pydantic", "prometheus_client", "yaml", "cryptography", "opentelemetry")
    program = (
        f"import sys, operators.memcached.exporter.program; print([name for name in {heavy} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def attested(exporting: Running, nonce: str = "n1") -> dict[str, object]:
    found: dict[str, object] = json.loads(exporting.get(f"/attestation?nonce={nonce}")[1])
    return found


async def eventually(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def test_sidecar_attests_what_its_server_runs_and_the_operator_reads_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    statistics = {"stats": b"STAT version 1.6.45\r\nSTAT uptime 9\r\nEND\r\n"}
    authority = Authority(tmp_path)
    serving_with = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving_with.load_cert_chain(*authority.issue("server", "memcached.test"))
    flags = ["--watch", "--tls", f"--attestation-key={tmp_path}/key"]
    async with fake(statistics, tls=serving_with) as to:
        with running(f"--address=127.0.0.1:{to.port}", *flags) as exporting:
            await eventually(lambda: attested(exporting)["certificate"] != "")
            served = ssl.PEM_cert_to_DER_cert((tmp_path / "server.crt").read_text())
            found = await fetch("127.0.0.1", exporting.port, "n1")
            assert found == Attestation(True, "1.6.45", hashlib.sha256(served).hexdigest())
            assert (await asyncio.to_thread(exporting.get, "/readyz")) == (200, "ok\n")
            assert to.connections <= 3, "it holds one connection"


async def test_sidecar_without_metrics_serves_only_what_probes_and_the_operator_need() -> None:
    async with fake({"stats": NO_REPLY}) as to:
        with running(f"--address=127.0.0.1:{to.port}", "--watch", "--no-metrics") as exporting:
            with pytest.raises(HTTPError, match="404"):
                await asyncio.to_thread(exporting.get, "/metrics")
            with pytest.raises(HTTPError, match="503"):
                await asyncio.to_thread(exporting.get, "/readyz")
            await eventually(lambda: "no response to 'stats'" in str(attested(exporting)["error"]))
            assert not attested(exporting)["serves"]


async def test_operator_believes_no_other_program() -> None:
    async with fake({"GET /attestation?nonce=n HTTP/1.1": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"}) as other:
        with pytest.raises(UnexpectedAnswer, match="is not the sidecar of a server"):
            await fetch("127.0.0.1", other.port, "n")
    with pytest.raises(Unreachable, match="is unreachable"):
        await fetch("127.0.0.1", other.port, "n")
