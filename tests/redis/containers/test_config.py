"""Configuration of real Redis and Valkey nodes: files, live settings, passwords and certificates."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from operators.redis.api.directives import RESERVED, RESTART, same
from operators.redis.api.resource import RedisCluster
from operators.redis.client.commands import ApplyDirective, Configure, SetPasswords, execute
from operators.redis.client.connection import connect
from operators.redis.client.errors import ConfigRefused, Denied, Refused
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.responses import mapping
from operators.redis.client.server import REPLICATION_USER, Access
from operators.redis.objects import names, redis_conf
from operators.redis.objects.names import USERS_MARK
from operators.redis.objects.pod import pod as pod_template
from operators.redis.objects.redis_conf import USERS_KEY
from operators.redis.security.certificates import MountedCertificates
from operators.redis.security.users import Passwords
from shared.pki import ca, certs
from shared.pki.certs import Pair, joined
from shared.pki.copies import following
from tools.databases import redis_programs
from tools.databases.redis_servers import Cluster, Node, Redis, free_port
from tools.local import debian
from tools.local.machine import processes
from tools.local.machine.network import free_ports

pytestmark = pytest.mark.nightly

NOW = datetime.now(UTC)
LIFE = timedelta(days=10)
UNUSUAL_PASSWORD = "sp ace\"quote\\back'tick#\x07é€"
"""A password with every character that needs quoting in a file."""

TEMPLATE = """\
# written by a user
bind 0.0.0.0
PORT 7000
cluster-announce-ip {POD_IP}
maxmemory-policy "allkeys-lru"
client-output-buffer-limit normal 0 0 0
client-output-buffer-limit replica 256mb 64mb 60
save 900 1
save 300 10
proc-title-template "{title} {listen-addr}"
notify-keyspace-events 'Kx'
slowlog-log-slower-than 20000
"""


def resource(engine: tuple[str, str], **spec: Any) -> RedisCluster:
    name, version = engine
    spec = {"replicas": 6, "repository": f"library/{name}", "version": version} | spec
    metadata = {"name": "demo", "namespace": "default", "uid": "u-1"}
    return RedisCluster.parse({"metadata": metadata, "spec": spec})


class Pod:
    """A server that reads the files that a pod mounts, from a directory."""

    def __init__(self, cluster: Cluster, made: RedisCluster, passwords: Passwords, template: str = "") -> None:
        directory = cluster.directory / f"demo-{len(cluster.nodes)}"
        for name in ("data", "config", "users", "tls"):
            (directory / name).mkdir(parents=True)
        self.port = free_port()
        self.node = Node(
            directory.name, self.port, redis_programs.server(cluster.engine, cluster.version), directory, {}
        )
        self._made, self._template = made, template
        self.mount_users(passwords)
        self.node.directory.joinpath("redis.conf").write_text(self._text())
        cluster.nodes.append(self.node)

    def mount_users(self, passwords: Passwords) -> None:
        (self.node.directory / "users" / USERS_KEY).write_text(passwords.text)

    def mount_certificate(self, mounted: MountedCertificates) -> None:
        """Replace all files of the volume, as the kubelet does."""
        for file in (self.node.directory / "tls").iterdir():
            file.unlink()
        for name, text in mounted.content().items():
            (self.node.directory / "tls" / name).write_text(text)

    def _text(self) -> str:
        text = redis_conf.render(self._made, self._template)
        for path in (redis_conf.USERS, redis_conf.TLS):
            text = text.replace(path, str(self.node.directory / Path(path).name))
        text = text.replace(f"dir {redis_conf.HOME}\n", f"dir {self.node.directory / 'data'}\n")
        assert "port 6379" in text
        return text.replace("port 6379", f"port {self.port}") + "bind 127.0.0.1\n"

    async def start(self, access: Access) -> None:
        self.node.start()
        async with self.node.connected(access) as server:
            self.node.id = await server.execute("CLUSTER", "MYID")

    async def settings(self, access: Access) -> dict[str, str]:
        async with self.node.connected(access) as server:
            found = await server.execute("CONFIG", "GET", "*")
            found += await server.execute("CONFIG", "GET", "masterauth")  # not part of `*`
        return mapping(found)


EVERYTHING: Mapping[str, str] = {
    "maxmemory": "100mb",
    "maxmemory-policy": "volatile-lru",
    "save": "3600 1 60 1000",
    "client-output-buffer-limit": "replica 128mb 32mb 60 pubsub 16mb 8mb 30",
    "io-threads": "2",
    "cluster-node-timeout": "7000",
    "latency-monitor-threshold": "100",
    "tcp-backlog": "100",
    "proc-title-template": "{title} and more",
    "appendfsync": "always",
}


@pytest.mark.parametrize("spec", [{}, {"config": EVERYTHING}], ids=["defaults", "many settings"])
async def test_rendered_file_and_live_settings_configure_a_server_alike(
    redis: Redis, engine: tuple[str, str], spec: dict[str, Any]
) -> None:
    made, passwords = resource(engine, **spec), Passwords(UNUSUAL_PASSWORD, exporter="reader")
    access = Access(password=UNUSUAL_PASSWORD)
    with redis.cluster(engine) as cluster:
        pod = Pod(cluster, made, passwords, TEMPLATE)
        await pod.start(access)
        started = await pod.settings(access)
        settings = redis_conf.live(made, TEMPLATE)
        await execute(connect, Configure(access, pod.node.endpoint, pod.node.id, settings))
        assert await pod.settings(access) == started, "live settings equal to the file change nothing"
        assert started["masterauth"] == UNUSUAL_PASSWORD
        assert started["cluster-allow-replica-migration"] == "no"
        assert started["port"] == str(pod.port)
        assert started["slowlog-log-slower-than"] == "20000"
        assert started["notify-keyspace-events"] in ("xK", "Kx")
        assert started["save"] == ("3600 1 60 1000" if spec else "900 1 300 10")
        assert "replica 134217728" in started["client-output-buffer-limit"].replace("slave", "replica") or not spec
        if spec:
            assert started["io-threads"] == "2"
            assert started["maxmemory"] == str(100 << 20)


@pytest.mark.parametrize("spec", [{}, {"config": EVERYTHING}], ids=["defaults", "many settings"])
async def test_report_shows_every_difference_from_the_desired_settings(
    redis: Redis, engine: tuple[str, str], spec: dict[str, Any]
) -> None:
    """A server that started with the file differs in nothing; one whose settings were changed, in exactly these."""
    made = resource(engine, **spec)
    desired = redis_conf.live(made, TEMPLATE)
    with redis.cluster(engine) as cluster:
        pod = Pod(cluster, made, Passwords(""), TEMPLATE)
        await pod.start(Access())

        async def differing() -> set[str]:
            async with pod.node.connected() as server:
                report = await inspect_node(server, redis_conf.names(made, TEMPLATE, None))
            assert report.settings.keys() == desired.keys()
            values = report.settings.items()
            return {name for name, found in values if not same(name, desired[name], found, made.engine)}

        assert await differing() == set()
        async with pod.node.connected() as server:
            await server.execute("CONFIG", "SET", "cluster-node-timeout", 276000)
            await server.execute("CONFIG", "SET", "proto-max-bulk-len", 2 << 30)
        assert await differing() == {"cluster-node-timeout", "proto-max-bulk-len"}
        for name in await differing():
            call = ApplyDirective(Access(), pod.node.endpoint, pod.node.id, name, desired[name], made.engine)
            await execute(connect, call)
            await execute(connect, call)
        assert await differing() == set()


async def test_refused_value_is_an_error_with_the_words_of_the_server(redis: Redis, engine: tuple[str, str]) -> None:
    made = resource(engine)
    with redis.cluster(engine) as cluster:
        pod = Pod(cluster, made, Passwords(""))
        await pod.start(Access())
        at = pod.node.endpoint
        with pytest.raises(ConfigRefused, match=r"one of the following|Invalid argument"):
            await execute(
                connect, ApplyDirective(Access(), at, pod.node.id, "maxmemory-policy", "sometimes", made.engine)
            )


async def test_settings_that_require_a_restart_are_exactly_the_listed_ones(
    redis: Redis, engine: tuple[str, str]
) -> None:
    made, access = resource(engine), Access()
    with redis.cluster(engine) as cluster:
        pod = Pod(cluster, made, Passwords(""))
        await pod.start(access)
        refused, taken = set(), set()
        for name, value in (await pod.settings(access)).items():
            async with pod.node.connected(access) as server:
                try:
                    await server.execute("CONFIG", "SET", name, value)
                    taken.add(name)
                except Refused as error:
                    if "immutable" in str(error) or "protected" in str(error):
                        refused.add(name)
        lives = {name for name in RESTART if redis_conf.is_live(name, made.engine)}
        assert refused - set(RESERVED) <= RESTART - lives
        assert not taken & (RESTART - lives)


# Passwords.


@pytest.mark.commit
async def test_password_changes_without_an_interruption(redis: Redis, engine: tuple[str, str]) -> None:
    """Each phase: the replica stays in sync, both passwords are accepted, and open connections stay open."""
    made, state = resource(engine), Passwords("one", exporter="reader")
    until = NOW + timedelta(minutes=10)
    with redis.cluster(engine) as cluster:
        pods = [Pod(cluster, made, state) for _ in range(3)]
        access = cluster.access = Access(password="one")
        for pod in pods:
            await pod.start(access)
        primary, replica, stale = pods
        async with primary.node.connected(access) as server:
            await server.execute("CLUSTER", "ADDSLOTSRANGE" if engine[1] >= "7" else "ADDSLOTS", 0, 16383)
        await cluster.meet(cluster.nodes[1:])
        await cluster.settled()
        await cluster.replicate(replica.node, primary.node)
        stayed = connect(primary.node.endpoint, access)
        await stayed.execute("SET", "key", 1)

        for what in ("introduce", "promote", "forget"):
            match what:
                case "introduce":
                    state = state.introduce(UNUSUAL_PASSWORD, until)
                case "promote":
                    state = state.promote(until)
                case "forget":
                    state = state.expire(until, "")
            for pod in pods:
                pod.mount_users(state)
            for pod in (primary, replica):  # the third node restarts and reads the file instead
                at, node_id = pod.node.endpoint, pod.node.id
                access = Access(password=state.current, former=("one",))
                await execute(connect, SetPasswords(access, at, node_id, state.digests))
                await execute(connect, Configure(access, at, node_id, {"masterauth": state.current}))
            stale.node.end(signal.SIGTERM)
            await stale.start(Access(password=state.current))
            for pod in pods:
                for password in state.good:
                    async with pod.node.connected(Access(password=password)) as server:
                        assert await server.execute("PING") == "PONG"
                settings = await pod.settings(Access(password=state.current))
                assert settings["masterauth"] == state.current
            await stayed.execute("INCR", "key")
            cluster.access = Access(password=state.current)
            await cluster.until(lambda reports: reports[replica.node.id].link_up)
            # A new replication link authenticates with the current masterauth.
            async with primary.node.connected(cluster.access) as server:
                await server.execute("CLIENT", "KILL", "TYPE", "replica")
            await cluster.until(lambda reports: reports[replica.node.id].link_up)
        async with primary.node.connected(Access(password="one")) as server:
            with pytest.raises(Denied):
                await server.execute("PING")
        await stayed.aclose()


async def test_authentication_is_turned_on_without_an_interruption(redis: Redis, engine: tuple[str, str]) -> None:
    made, state = resource(engine), Passwords("", exporter="reader")
    with redis.cluster(engine) as cluster:
        pods = [Pod(cluster, made, state) for _ in range(2)]
        for pod in pods:
            await pod.start(Access())
        await cluster.meet(cluster.nodes[1:])
        async with pods[0].node.connected() as server:
            await server.execute("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await cluster.settled()
        await cluster.replicate(pods[1].node, pods[0].node)
        between = state.introduce("first", NOW)
        for step in (between, between.promote(NOW)):
            for pod in pods:
                at, node_id, access = pod.node.endpoint, pod.node.id, Access(password=step.current, former=("first",))
                await execute(connect, SetPasswords(access, at, node_id, step.digests))
                await execute(connect, Configure(access, at, node_id, {"masterauth": step.current}))
            cluster.access = Access(password=step.current)
            async with pods[0].node.connected(cluster.access) as server:
                await server.execute("CLIENT", "KILL", "TYPE", "replica")
            await cluster.until(lambda reports: reports[pods[1].node.id].link_up)
        async with pods[0].node.connected() as server:
            with pytest.raises(Denied):
                await server.execute("PING")


@pytest.mark.parametrize("password", ["", UNUSUAL_PASSWORD], ids=["open", "secret"])
async def test_replicas_authenticate_as_their_own_user_from_the_start(
    redis: Redis, engine: tuple[str, str], password: str
) -> None:
    state = Passwords(password, exporter="reader", replication="of this cluster").use_replication()
    with redis.cluster(engine, Access(password=password)) as cluster:
        pods = [Pod(cluster, resource(engine), state) for _ in range(2)]
        for pod in pods:
            await pod.start(cluster.access)
        await cluster.meet(cluster.nodes[1:])
        async with pods[0].node.connected(cluster.access) as server:
            await server.execute("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await cluster.settled()
        await cluster.replicate(pods[1].node, pods[0].node)
        await cluster.until(lambda reports: reports[pods[1].node.id].link_up)
        for pod in pods:
            async with pod.node.connected(cluster.access) as server:
                report = await inspect_node(server)
                assert (report.gives_as, report.admits, report.takes) == (
                    REPLICATION_USER,
                    state.admitted,
                    state.digests,
                )
            async with pod.node.connected() as server:
                with pytest.raises(Denied, match="WRONGPASS"):
                    await server.execute("AUTH", REPLICATION_USER, "of another cluster")


async def test_exporter_user_may_only_read_metrics(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        pod = Pod(cluster, resource(engine), Passwords("secret", exporter="reader"))
        await pod.start(Access(password="secret"))
        async with pod.node.connected() as server:
            assert await server.execute("AUTH", names.EXPORTER_USER, "reader") == "OK"
            for may in ("PING", "INFO ALL", "CLUSTER INFO", "SLOWLOG LEN", "LATENCY LATEST"):
                await server.execute(*may.split())
            for may_not in ("CONFIG GET *", "GET key", "ACL LIST", "CLUSTER RESET"):
                with pytest.raises(Denied, match="NOPERM"):
                    await server.execute(*may_not.split())


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "encrypted"])
async def test_exporter_reads_metrics_with_the_environment_of_its_container(
    redis: Redis, engine: tuple[str, str], secure: bool
) -> None:
    if secure and not redis_programs.has_tls(*engine):
        pytest.skip("this build has no TLS")
    made = resource(engine, metrics={"enabled": True}, **({"tls": {"mode": "self"}} if secure else {}))
    certificates = issued(signer("own"))
    access = Access(joined(certificates.trusted), certificates.pair, "secret") if secure else Access(password="secret")
    with redis.cluster(engine, access) as cluster:
        pod = Pod(cluster, made, Passwords("secret", exporter="reader"))
        pod.mount_certificate(certificates)
        await pod.start(access)
        (port,) = free_ports(1)
        variables = {"REDIS_PASSWORD": "reader"}
        template = pod_template(made, names.owner(made, "x"), "image", {USERS_MARK: ""}, "")
        for variable in template["spec"]["containers"][1]["env"]:
            if "value" in variable:
                value = variable["value"].replace(redis_conf.TLS, str(pod.node.directory / "tls"))
                variables[variable["name"]] = value.replace("6379", str(pod.port)).replace("9121", str(port))
        suite, package, _ = redis_programs.EXPORTER
        program = debian.unpacked(suite, package) / "usr/bin" / package
        log = pod.node.directory / "exporter"
        started = processes.start("exporter", ["env", *(f"{n}={v}" for n, v in variables.items()), program], log=log)
        try:
            url = f"http://127.0.0.1:{port}/metrics"
            text = await asyncio.to_thread(read_when_served, url)
        finally:
            processes.stop([started])
    assert "\nredis_up 1" in text, log.read_text()[-1000:]
    assert 'redis_exporter_last_scrape_error{err=""} 0' in text
    assert "redis_cluster_enabled 1" in text
    assert "redis_cluster_known_nodes 1" in text, "the exporter user may run CLUSTER INFO"
    assert "masterauth" not in text


def read_when_served(url: str) -> str:
    for _ in range(100):
        with suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
        time.sleep(0.1)
    raise AssertionError(f"no server responds at {url}")


# Certificates.

HOSTS = ("localhost", "127.0.0.1", "*.demo.test")


def signer(name: str) -> Pair:
    return ca.authority(name, begins=NOW - LIFE, ends=NOW + 10 * LIFE)


def issued(by: Pair, *, trusted: tuple[Pair, ...] = ()) -> MountedCertificates:
    pair = ca.issue(by, "demo", begins=NOW - LIFE, ends=NOW + LIFE, hosts=HOSTS, client=True)
    return MountedCertificates(pair, tuple(certs.read(each.certificate)[0] for each in (by, *trusted)))


def shown(port: int, access: Access) -> str:
    """Return the certificate that a server presents on a new connection."""
    context = certs.client_context(access.pair, access.authority or "")
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as wrapped,
    ):
        return ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(binary_form=True) or b"").strip()


async def test_certificates_and_their_authority_change_while_nodes_run(
    redis: Redis, engine_with_tls: tuple[str, str]
) -> None:
    """Each step from one authority to another: processes keep running and links are established again."""
    made = resource(engine_with_tls, tls={"mode": "secret", "secretName": "x"})
    old, new = signer("old"), signer("new")
    current, original = issued(old), issued(new)
    with redis.cluster(engine_with_tls, Access(joined(current.trusted), current.pair)) as cluster:
        pods = [Pod(cluster, made, Passwords("")) for _ in range(3)]
        for pod in pods:
            pod.mount_certificate(current)
            await pod.start(cluster.access)
        await cluster.meet(cluster.nodes[1:])
        async with pods[0].node.connected(cluster.access) as server:
            await server.execute("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await cluster.settled()
        await cluster.replicate(pods[1].node, pods[0].node)
        run_ids = {
            node.id: report.run_id
            for node, report in zip(cluster.nodes, (await cluster.reports()).values(), strict=True)
        }

        steps = 0
        while True:
            why, following_step = following(current, original, informed=True, now=NOW)
            if following_step is None:
                break
            steps += 1
            access = Access(joined(dict.fromkeys((*current.trusted, *following_step.trusted))), current.pair)
            for pod in pods:
                file = {"tls-ca-cert-file": str(pod.node.directory / "tls" / following_step.file)}
                with pytest.raises(Refused, match=r"(?i)tls"):
                    await execute(connect, Configure(access, pod.node.endpoint, pod.node.id, file))
                pod.mount_certificate(following_step)
                await execute(connect, Configure(access, pod.node.endpoint, pod.node.id, file))
                assert shown(pod.port, access) == following_step.pair.certificate.strip(), why
                # While nodes differ by one step, broken links are established again.
                async with pods[1].node.connected(access) as server:
                    await server.execute("CLIENT", "KILL", "TYPE", "master")
                cluster.access = access
                await cluster.until(lambda reports: reports[pods[1].node.id].link_up)
            current = following_step
            cluster.access = Access(joined(current.trusted), current.pair)
            await cluster.settled()
        assert steps == 3
        assert {node_id: report.run_id for node_id, report in (await cluster.reports()).items()} == run_ids
        async with pods[0].node.connected(replace(cluster.access, authority=old.certificate)) as server:
            with pytest.raises(Exception, match="certificate"):
                await server.execute("PING")
