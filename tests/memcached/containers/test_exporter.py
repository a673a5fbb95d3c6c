"""The exporter as a process, with memcached in a container."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pymemcache.client.base import Client

from operators.memcached.exporter import metrics
from tests.memcached.containers.test_client import CLIENTS, NAME, TLS
from tests.support.containers.servers import FILES, VERSIONS, Memcached, Servers
from tests.support.memcached.exporter import Running, Samples, running, samples
from tests.support.tls import Authority

pytestmark = pytest.mark.nightly

TABLE = {metric.name for metric in (*metrics.SERVER, *metrics.SETTINGS, *metrics.SLAB)}
TLS_AND_EXTSTORE = {name for name in TABLE if name.startswith(("memcached_tls_", "memcached_extstore_"))}
PROXY = {name for name in TABLE if re.match("memcached_(proxy|round_robin|unexpected)_", name)}
SINCE_1_6_18 = {"memcached_tls_protocol_errors_total"}


def exporter_for(to: Memcached, *flags: str) -> AbstractContextManager[Running]:
    return running(f"--address={to.host}:{to.port}", *flags)


def trusting(authority: Authority) -> list[str]:
    return ["--tls", f"--tls-ca={authority.certificate}", f"--server-name={NAME}"]


def scraped(exporting: Running) -> Samples:
    return samples(exporting.get()[1])


def names(text: str) -> set[str]:
    """Return the names of the metrics that have samples."""
    return {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE ")}


def test_commands_of_clients_are_counted(servers: Servers, version: str) -> None:
    with servers.memcached(version, "--memory-limit=32", "--max-item-size=1m") as to, exporter_for(to) as exporting:
        before = scraped(exporting)
        client = Client((to.host, to.port), default_noreply=False)
        for number in range(7):
            client.set(f"key{number}", "x" * 1000)
        client.get_many([f"key{number}" for number in range(5)])
        client.get("none")
        client.delete("key0")
        client.cas("key1", "y", client.gets("key1")[1])
        client.incr("none", 1)
        after = scraped(exporting)
    assert after[f'memcached_version{{version="{version}"}}'] == 1
    assert after["memcached_limit_bytes"] == 32 * 2**20
    assert after["memcached_current_items"] == 6
    assert {
        name: value - before[name]
        for name, value in after.items()
        if name.startswith("memcached_commands_total") and value != before[name]
    } == {
        'memcached_commands_total{command="set",status="hit"}': 7,
        'memcached_commands_total{command="get",status="hit"}': 6,
        'memcached_commands_total{command="get",status="miss"}': 1,
        'memcached_commands_total{command="delete",status="hit"}': 1,
        'memcached_commands_total{command="cas",status="hit"}': 1,
        'memcached_commands_total{command="incr",status="miss"}': 1,
    }
    of_slabs = [value for name, value in after.items() if name.startswith("memcached_slab_current_items")]
    assert sum(of_slabs) == 6


@pytest.mark.commit
def test_every_metric_has_a_statistic_of_a_real_server(servers: Servers, version: str) -> None:
    # Only with temporary_ttl, items with a short TTL have a separate LRU.
    with servers.memcached(version, "--extended=temporary_ttl=60") as to, exporter_for(to) as exporting:
        Client((to.host, to.port)).set("key", "value", noreply=False)
        found = names(exporting.get()[1])
        assert found >= TABLE - TLS_AND_EXTSTORE - PROXY
        assert not found & TLS_AND_EXTSTORE


def test_metrics_of_tls_and_extstore_come_from_servers_that_have_them(
    servers: Servers, version: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", NAME)
    server = servers.memcached(version, *TLS, "--extended=ext_path=/tmp/items:64m", files=tmp_path)
    with server as to, exporter_for(to, *trusting(authority)) as exporting:
        found = names(exporting.get()[1])
    assert found >= TLS_AND_EXTSTORE - (SINCE_1_6_18 if version == "1.6.18" else set())


def test_metrics_of_the_proxy_come_from_a_proxy(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "proxy.lua").write_text("function mcp_config_pools() end\nfunction mcp_config_routes() end\n")
    try:
        server = servers.memcached(VERSIONS[-1], f"--extended=proxy_config={FILES}/proxy.lua", files=tmp_path)
        with server as to, exporter_for(to) as exporting:
            assert names(exporting.get()[1]) >= PROXY
    except AssertionError as error:
        if 'Illegal suboption "proxy_config' not in str(error):
            raise
        pytest.skip("the official images are built without the proxy")


def test_exporter_follows_changed_users_and_certificates(servers: Servers, version: str, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice:one\nbob:two\n")
    authority = Authority(tmp_path)
    authority.issue("server", NAME)
    certificate, key = authority.issue("client")
    flags = [f"--auth-file={users}", *trusting(authority), f"--tls-cert={certificate}", f"--tls-key={key}"]
    server = servers.memcached(version, *TLS, CLIENTS, f"--auth-file={FILES}/users", files=tmp_path)
    with server as to, exporter_for(to, *flags) as exporting:
        assert scraped(exporting)["memcached_up"] == 1
        authority = Authority(tmp_path)  # another CA of the same name, with new certificates
        authority.issue("server", NAME)
        authority.issue("client")
        users.write_text("carol:three\n")
        assert scraped(exporting)["memcached_up"] == 1  # open connections stay
        to.restart()
        found = scraped(exporting)
        assert found["memcached_up"] == 1
        assert found["memcached_authentication_failures_total"] == 0
        assert found["process_resident_memory_bytes"] < 40 * 2**20


def test_missing_client_certificate_or_user_is_counted_by_reason(
    servers: Servers, version: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", NAME)
    (tmp_path / "users").write_text("alice:one\n")
    arguments = (*TLS, CLIENTS, f"--auth-file={FILES}/users")
    with servers.memcached(version, *arguments, files=tmp_path) as to:
        certificate, key = authority.issue("client")
        for flags, reason in (
            ([], "TLSFailed"),
            ([f"--tls-cert={certificate}", f"--tls-key={key}"], "AuthenticationFailed"),
        ):
            with exporter_for(to, *trusting(authority), *flags) as exporting:
                found = scraped(exporting)
                assert found["memcached_up"] == 0
                assert found[f'memcached_exporter_errors_total{{reason="{reason}"}}'] == 1


def test_restarted_server_is_down_and_up_again(servers: Servers, version: str) -> None:
    with servers.memcached(version) as to, exporter_for(to) as exporting:
        assert scraped(exporting)["memcached_up"] == 1
        to.stop()
        found = scraped(exporting)
        assert found["memcached_up"] == 0
        assert "memcached_current_items" not in found
        to.restart()
        assert scraped(exporting)["memcached_up"] == 1
