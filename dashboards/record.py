"""Record the metrics of real programs: `python -m dashboards.record [name …]` writes scrapes/*.prom.

Each recording is of a real server (Debian's memcached and Redis, etcd built from source) with light traffic. Servers
are scraped as in their pods: memcached with this project's exporter, Redis with oliver006's, etcd directly. The
operators run against a real API server. contract.py checks panels and rules against the recordings.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dashboards.scraping import merged, running, scrape
from operators.redis.objects.names import EXPORTER_USER as EXPORTERS_USER
from operators.redis.security.users import Passwords
from tools.databases.redis_programs import EXPORTER
from tools.databases.redis_servers import Redis
from tools.local import binaries, debian
from tools.local.environment import forget_clusters
from tools.local.machine import processes
from tools.local.machine.network import free_ports
from tools.local.pki import Authority

SCRAPES = Path(__file__).parent / "scrapes"
ETCD = "3.6.16"
PROJECT = Path(__file__).parents[1]


def started_by_its_own_loader(root: Path, program: str) -> list[str | Path]:
    """Return a command that runs a program of another Debian suite with the libraries of that suite."""
    [libraries] = root.glob("usr/lib/*-linux-gnu*")
    [loader] = libraries.glob("ld-linux-*.so.*")
    return [loader, "--library-path", libraries, root / "usr/bin" / program]


def memcached(directory: Path) -> str:
    """Record a full memcached (slabs, evictions, hits, misses), then one with TLS."""
    authority = Authority(directory / "authority")
    pair = authority.issue("server", "localhost", hosts=["localhost"])
    for file in (directory, *directory.rglob("*")):
        file.chmod(0o755)  # memcached does not run as root
    secure = ["-Z", "-o", f"ssl_chain_cert={pair.certificate},ssl_key={pair.key}"]
    return merged([_memcached(directory, "full", [], []), _memcached(directory, "secure", secure, ["--tls"])])


def _memcached(directory: Path, name: str, flags: list[str], of_exporter: list[str]) -> str:
    port, metrics = free_ports(2)
    root = debian.unpacked("trixie", "memcached")
    command = [*started_by_its_own_loader(root, "memcached"), "-u", "nobody", "-m", "64", "-l", f"127.0.0.1:{port}"]
    server = processes.start(name, [*command, *flags], log=directory / f"{name}.log", dies_with_us=True)
    exporter = [f"--address=127.0.0.1:{port}", f"--listen=127.0.0.1:{metrics}", *of_exporter]
    url = f"http://127.0.0.1:{metrics}/metrics"
    program = (sys.executable, "-m", "operators.memcached", "exporter", *exporter)
    try:
        with running(directory, f"exporter-{name}", url, *program):
            if not flags:
                asyncio.run(_memcached_traffic(port))
            _until(lambda: "memcached_up 1" in scrape(url))
            return scrape(url)
    finally:
        processes.stop([server])


async def _memcached_traffic(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**21)
    value = b"x" * 500_000
    for number in range(200):
        writer.write(b"set key-%d 0 0 %d\r\n%s\r\n" % (number, len(value), value))
        await reader.readline()
    for key in (b"key-199", b"absent"):
        writer.write(b"get %s\r\n" % key)
        while not (await reader.readline()).startswith(b"END"):
            pass
    writer.close()


def etcd(directory: Path) -> str:
    """Record the leader of a three-member cluster with a few keys, before and after a follower is stopped."""
    program = binaries.build(binaries.ETCD[ETCD]) / "etcd"
    ports = [free_ports(3) for _ in range(3)]
    peers = ",".join(f"m{number}=http://127.0.0.1:{peer}" for number, (_, peer, _) in enumerate(ports))
    members = []
    try:
        for number, (client, peer, metrics) in enumerate(ports):
            urls = {
                "listen-client": client,
                "advertise-client": client,
                "listen-peer": peer,
                "initial-advertise-peer": peer,
                "listen-metrics": metrics,
            }
            flags = [f"--{name}-urls=http://127.0.0.1:{port}" for name, port in urls.items()]
            flags += [f"--name=m{number}", f"--data-dir={directory}/m{number}", f"--initial-cluster={peers}"]
            name = f"etcd-{number}"
            command: list[str | Path] = [program, *flags, *ETCD_FLAGS]
            members.append(processes.start(name, command, log=directory / f"{name}.log", dies_with_us=True))
        urls_of_metrics = [f"http://127.0.0.1:{metrics}/metrics" for _, _, metrics in ports]
        leads = "etcd_server_is_leader 1"
        _until(lambda: any(leads in scrape(url) for url in urls_of_metrics))
        for number in range(20):
            key, value = (base64.b64encode(text.encode()).decode() for text in (f"key-{number}", "value"))
            body = json.dumps({"key": key, "value": value}).encode()
            urllib.request.urlopen(f"http://127.0.0.1:{ports[0][0]}/v3/kv/put", data=body, timeout=10).close()
        follower = next(number for number, url in enumerate(urls_of_metrics) if leads not in scrape(url))
        leader = next(url for url in urls_of_metrics if leads in scrape(url))
        before = scrape(leader)
        processes.stop([members[follower]])  # a member exposes some metrics only after it has lost a peer
        _until(lambda: all(name in scrape(leader) for name in LATE))
        return merged([before, scrape(leader)])
    finally:
        processes.stop(members)


ETCD_FLAGS = ("--quota-backend-bytes=33554432",)
LATE = ("etcd_network_peer_round_trip_time_seconds_count", "etcd_network_peer_sent_failures_total")
"""Metrics that etcd exposes about 30 s after it first reached or lost a peer."""


def _until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError):
            if holds():
                return
        if time.monotonic() > deadline:
            raise SystemExit(f"condition not met within {seconds:g} s")
        time.sleep(0.2)


def redis(directory: Path) -> str:
    """Record a primary, then a replica, of a cluster of three primaries and three replicas."""
    suite, package, _ = EXPORTER
    exporter = started_by_its_own_loader(debian.unpacked(suite, package), "prometheus-redis-exporter")
    lines = [line.split() for line in Passwords("", exporter="secret").text.splitlines()]
    [user] = [words[1:] for words in lines if words[:2] == ["user", EXPORTERS_USER]]  # the exporter's ACL, as in pods
    texts: list[str] = []

    async def recorded() -> None:
        with Redis(directory).cluster(("redis", "8.0.2"), maxmemory="64mb") as cluster:
            await cluster.form(3, 3)
            for number in range(100):
                with suppress(AssertionError):
                    cluster.cli("-p", str(cluster.nodes[number % 3].port), "set", f"key-{number}", "value")
            for name, node in (("primary", cluster.nodes[0]), ("replica", cluster.nodes[3])):
                [metrics] = free_ports(1)
                url = f"http://127.0.0.1:{metrics}/metrics"
                cluster.cli("-p", str(node.port), "acl", "setuser", *user)
                flags = [f"--redis.addr=redis://127.0.0.1:{node.port}", f"--web.listen-address=127.0.0.1:{metrics}"]
                flags += [f"--redis.user={EXPORTERS_USER}", "--redis.password=secret", "--config-command=-"]
                with running(directory, f"exporter-{name}", url, *exporter, *flags):
                    texts.append(scrape(url))

    asyncio.run(recorded())
    return merged(texts)


RECORDED = {"memcached": memcached, "etcd": etcd, "redis": redis}


def main(names: list[str]) -> None:
    """Record the named programs, or all."""
    forget_clusters()
    from dashboards.record_operators import operators

    programs = {**RECORDED, "operators": operators}
    SCRAPES.mkdir(exist_ok=True)
    for name in names or programs:
        with tempfile.TemporaryDirectory() as directory:
            text = programs[name](Path(directory))
        (SCRAPES / f"{name}.prom").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
