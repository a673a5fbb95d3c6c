"""Serving certificates: sources, sharing between replicas, and rotation without interruption."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from shared.cli.options import parse_options
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.errors import Conflict, Forbidden, NotFound
from shared.kubernetes.kinds import SECRET
from shared.pki import ca, certs, rotation
from shared.pki.ca import authority, fulfil, issue
from shared.pki.certs import Pair
from shared.pki.issuing import make
from shared.pki.rotation import LIFETIME, CertificateOrder, Made
from shared.pki.serving import Certificates, FileCertificates, SelfSignedCertificates
from shared.pki.stores import Memory
from shared.pki.threads import MAX_AT_ONCE
from shared.pki.trust_bundle import MUTATING, VALIDATING, Clients
from shared.runtime.process import certificates_of
from tests.harness import cost
from tests.platform.unit.shared.pki.replicas import HOST, LIFE, START, Cluster, configuration, made, served_by, verify

NOW = datetime.now(UTC).replace(microsecond=0)


YEAR = 365 * 86400
"""Dates with seconds; X.509 has one format for years until 2049 and another one for later years."""


def signed(host: str = "localhost", *, days: int = 1) -> tuple[Pair, Pair]:
    """Return an authority and a certificate that it signed."""
    ends = NOW + timedelta(days=days)
    signer = authority("ca", begins=NOW, ends=ends)
    return signer, issue(signer, host, begins=NOW, ends=ends, hosts=[host])


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# Parsing certificates.


@settings(deadline=None, max_examples=30)
@given(
    begins=st.integers(-18 * YEAR, 230 * YEAR).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    hosts=st.lists(st.sampled_from(["localhost", "a.b.svc", "127.0.0.1", "fd00::1", "*.example.com"]), unique=True),
)
def test_certificate_is_parsed_as_cryptography_parses_it(begins: datetime, hosts: list[str]) -> None:
    signer = authority("ca", begins=begins, ends=begins + timedelta(days=2))
    pair = issue(signer, "name", begins=begins, ends=begins + timedelta(days=1), hosts=hosts, client=True)
    read, other = certs.read(f"# a comment\n{pair.certificate}\n{signer.certificate}")
    expected = x509.load_pem_x509_certificate(pair.certificate.encode())
    assert (read.begins, read.ends) == (expected.not_valid_before_utc, expected.not_valid_after_utc)
    assert read.subject == _inside(expected.subject.public_bytes())
    assert read.issuer == other.subject == _inside(expected.issuer.public_bytes())
    assert read.hosts == set(hosts)
    assert certs.read(read.pem) == (read,)


def _inside(der: bytes) -> bytes:
    assert der[1] < 0x80
    return der[2:]


@pytest.mark.parametrize("text", ["", "nonsense", signed()[1].key])
def test_text_without_a_certificate_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="no certificate"):
        certs.read(text)


@settings(max_examples=60)
@given(at=st.integers(0, 600), byte=st.integers(0, 255))
def test_broken_certificate_raises_value_error_only(at: int, byte: int) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(_SOUND))
    der[at % len(der)] = byte
    with contextlib.suppress(ValueError):
        certs.read(ssl.DER_cert_to_PEM_cert(bytes(der[: len(der) - at % 2])))


_SOUND = signed()[1].certificate


def test_key_of_another_certificate_is_rejected() -> None:
    (_, one), (_, other) = signed(), signed()
    with pytest.raises(ValueError, match="the key does not belong to the certificate"):
        certs.server_context(Pair(one.certificate, other.key))
    with pytest.raises(ValueError, match="cannot be used"):
        certs.server_context(Pair("nonsense", one.key))


# Text around keys.


def _rsa() -> Pair:
    """Return a certificate with an RSA key, in the traditional format of OpenSSL."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return Pair(
        builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode(),
    )


_PRINTED = "Private-Key: (4096 bit, 2 primes)\nmodulus:\n" + "    00:b6:2d:8f:4f:8c:3e:19:57:aa:c4:90:11:f2:6e:\n" * 220
"""Text as `openssl rsa -text` writes it before a key: 11 KB for RSA with 4,096 bits."""


def test_text_around_a_key_and_a_certificate_does_not_matter() -> None:
    pair = _rsa()
    for before, after in [
        (_PRINTED, ""),
        ("# NOT ENCRYPTED\n", "\n# NOT ENCRYPTED"),
        ("Bag Attributes\r\n    friendlyName: ENCRYPTED\r\n", ""),
        ("-----BEGIN NOTHING\nProc-Type: 4,ENCRYPTED\n", "\n-----BEGIN\n"),
        (signed()[1].certificate, ""),
    ]:
        certs.loadable(Pair(pair.certificate, f"{before}{pair.key}{after}"))
        certs.server_context(Pair(pair.certificate, f"{before}{pair.key}{after}"))
    for before in ("# NOT ENCRYPTED\n", "Certificate:\n    Subject: CN = ENCRYPTED\n"):
        certs.server_context(Pair(f"{before}{pair.certificate}", pair.key))
    parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    own = signed()[1]
    certs.server_context(Pair(own.certificate, (parameters + own.key).replace("\n", "\r\n")))


def _encrypted(form: serialization.PrivateFormat) -> str:
    key = serialization.load_pem_private_key(signed()[1].key.encode(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    return key.private_bytes(serialization.Encoding.PEM, form, encryption).decode()


@pytest.mark.parametrize(
    ("form", "mark"),
    [
        (serialization.PrivateFormat.PKCS8, "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"),
        (serialization.PrivateFormat.TraditionalOpenSSL, "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"),
    ],
)
def test_encrypted_key_is_refused_wherever_it_is(form: serialization.PrivateFormat, mark: str) -> None:
    pair, encrypted = signed()[1], _encrypted(form)
    assert encrypted.startswith(mark)
    inside = f"-----BEGIN CERTIFICATE-----\n{encrypted}-----END CERTIFICATE-----\n"
    for certificate, key in [
        (pair.certificate, encrypted),
        (pair.certificate, f"# a comment\n{encrypted}"),
        (pair.certificate, pair.key + encrypted),
        (pair.certificate, encrypted.partition("-----END")[0]),
        (pair.certificate, encrypted.replace("\n", "\r\n")),
        (pair.certificate + encrypted, pair.key),
        (pair.certificate + inside, pair.key),
    ]:
        for check in (certs.loadable, certs.server_context, certs.client_context):
            with pytest.raises(ValueError, match="the key is encrypted, and there is no password for it: store it"):
                check(Pair(certificate, key))


def test_encrypted_key_that_openssl_alone_would_find_is_never_decrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL splits lines of more than 254 characters, so that a block may begin in the middle of a line."""
    given = list[str]()

    @contextlib.contextmanager
    def recorded(text: str) -> Iterator[str]:
        given.append(text)
        with as_file(text) as path:
            yield path

    as_file = certs._as_file
    monkeypatch.setattr(certs, "_as_file", recorded)
    hidden = "x" * 254 + _encrypted(serialization.PrivateFormat.PKCS8)
    for pair in (Pair(signed()[1].certificate, hidden), Pair(hidden + signed()[1].certificate, "none")):
        with pytest.raises(ValueError, match="cannot be used"):
            certs.server_context(pair)
    assert len(given) == 2
    assert "ENCRYPTED" not in "".join(given)


@pytest.mark.parametrize(
    ("key", "because"),
    [
        ("# a comment\n" * 6_000, "72,000 bytes around and in the key; at most 65,536 are accepted: remove the text"),
        ("-----BEGIN PRIVATE KEY-----\n" + "A" * 9_000, "the key has 9,028 bytes; at most 8,192"),
        ((_PRINTED * 2) + "-----BEGIN RSA PRIVATE KEY-----\n" + "A" * 9_000, "the key has 9,0"),
    ],
)
def test_size_of_a_key_and_of_the_text_around_it_is_bounded(key: str, because: str) -> None:
    with pytest.raises(ValueError, match=because):
        certs.loadable(Pair(signed()[1].certificate, key))


@pytest.mark.parametrize(
    "part",
    [
        "-----BEGIN ",
        "-----BEGIN \n",
        "-----BEGIN A-----\n",
        "-----END A-----\n",
        "\n",
        "-----BEGIN A-----\n-----END A-----\n",
    ],
)
async def test_hostile_text_around_a_key_does_not_occupy_the_operator(part: str) -> None:
    text = part * (certs.MAX_KEY_FILE_BYTES // len(part))
    async with cost.bounded():
        certs.loadable(Pair(text, text))


# Issuing.


async def test_certificate_from_the_thread_is_as_ordered() -> None:
    order = CertificateOrder("ours", ("127.0.0.1", HOST), NOW, NOW + timedelta(days=1), None, NOW + timedelta(days=4))
    first = await make(order)
    assert first.authority is not None
    assert first.serving is not None
    verify(first.serving.certificate, first.authority.certificate, NOW)
    again = await make(CertificateOrder("ours", (HOST,), NOW, NOW + timedelta(days=1), first.authority, None))
    assert again.authority is None
    assert again.serving is not None
    verify(again.serving.certificate, first.authority.certificate, NOW)
    certs.server_context(again.serving)


async def test_failure_to_issue_does_not_reveal_the_key() -> None:
    broken = Pair(signed()[0].certificate, "-----BEGIN PRIVATE KEY-----\nsecret")
    with pytest.raises(OSError, match="issuing a certificate failed") as error:
        await make(CertificateOrder("ours", (HOST,), NOW, NOW + timedelta(days=1), broken, None))
    assert "secret" not in str(error.value)


async def test_few_certificates_are_issued_at_a_time_without_blocking_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signer, making, most, lock = signed()[0], 0, 0, threading.Lock()

    def counted(order: CertificateOrder) -> Made:
        nonlocal making, most
        with lock:
            making += 1
            most = max(most, making)
        time.sleep(0.01)
        with lock:
            making -= 1
        return fulfil(order)

    monkeypatch.setattr(ca, "fulfil", counted)
    orders = [CertificateOrder(f"{n}", (HOST,), NOW, NOW + timedelta(days=1), signer, None) for n in range(32)]
    everything = asyncio.gather(*(make(order) for order in orders))
    ticks = 0
    while not everything.done():
        await asyncio.sleep(0.005)
        ticks += 1
    assert len({each.serving for each in everything.result()}) == 32
    assert most == MAX_AT_ONCE
    assert ticks > 5


# Serving.


class Given(Certificates):
    """Serves the given pair."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.pair = pair

    async def _refresh(self) -> None:
        self._serve(self.pair)

    def _pause(self) -> float:
        return 0.0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_new_connections_get_the_new_certificate_and_open_ones_continue(version: ssl.TLSVersion) -> None:
    (first_ca, first), (second_ca, second) = signed(), signed()
    certificates = Given(first)
    await certificates.open()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificates.context)
    port = server.sockets[0].getsockname()[1]

    async def connect(signer: Pair) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        trusting = ssl.create_default_context(cadata=signer.certificate)
        trusting.maximum_version = version
        return await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")

    async def speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"hello\n")
        return await reader.readline() == b"hello\n"

    before = await connect(first_ca)
    assert await speaks(*before)
    certificates.pair = second
    await certificates.open()
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(first_ca)
    after = await connect(second_ca)
    assert await speaks(*after)
    assert await speaks(*before)
    for _, writer in (before, after):
        writer.close()
    server.close()


# A directory of files.


def put(directory: Path, pair: Pair, bundle: str = "") -> None:
    (directory / "tls.crt").write_text(pair.certificate)
    (directory / "tls.key").write_text(pair.key)
    if bundle:
        (directory / "ca.crt").write_text(bundle)


def metric(sample: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(sample, labels) or 0.0


async def eventually(check: Callable[[], bool]) -> None:
    for _ in range(500):
        if check():
            return
        await asyncio.sleep(0.01)
    pytest.fail("timed out")


async def test_changed_files_are_loaded(tmp_path: Path) -> None:
    (_, first), (_, second) = signed(), signed(days=3)
    put(tmp_path, first)
    certificates = FileCertificates(tmp_path)
    assert certificates.unready() is not None
    await certificates.open()
    assert certificates.unready() is None
    assert served_by(certificates.context) == first.certificate
    put(tmp_path, second)
    await certificates.open()
    assert served_by(certificates.context) == second.certificate
    expiry = metric("platform_certificate_expiry_timestamp_seconds", name="serving")
    assert expiry == (NOW + timedelta(days=3)).timestamp()
    begins = metric("platform_certificate_not_before_timestamp_seconds", name="serving")
    assert begins == certs.read(second.certificate)[0].begins.timestamp()


async def test_mismatched_files_are_not_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.pki.serving.POLL_INTERVAL_SECONDS", 0.01)
    (_, first), (_, second) = signed(), signed()
    put(tmp_path, first)
    certificates = FileCertificates(tmp_path)
    await certificates.open()
    errors = metric("certwatcher_read_certificate_errors_total")
    (tmp_path / "tls.crt").write_text(second.certificate)
    with caplog.at_level(logging.WARNING):
        running = asyncio.create_task(certificates.run())
        await eventually(lambda: metric("certwatcher_read_certificate_errors_total") > errors)
        assert served_by(certificates.context) == first.certificate
        (tmp_path / "tls.key").write_text(second.key)
        await eventually(lambda: served_by(certificates.context) == second.certificate)
        running.cancel()
    assert "the key does not belong to the certificate. Replace both files." in caplog.text


async def test_empty_directory_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"tls\.crt"):
        await FileCertificates(tmp_path).open()


async def test_authority_of_the_user_becomes_the_bundle(tmp_path: Path, cluster: Cluster) -> None:
    signer, pair = signed()
    put(tmp_path, pair, signer.certificate)
    clients = Clients(Kube(cluster.server, manager="ours"), "ours")
    certificates = FileCertificates(tmp_path, clients, lambda: cluster.now)
    await certificates.open()
    assert cluster.trusted(MUTATING) == cluster.trusted(VALIDATING) == signer.certificate
    cluster.server.log.reset()
    await certificates.open()
    assert cluster.server.log.is_empty, "no requests while nothing changed"
    put(tmp_path, pair, signed()[0].certificate)
    await certificates.open()
    assert cluster.trusted() != signer.certificate


# Self-issued certificates in a Secret.


async def test_second_replica_serves_the_certificate_of_the_first(cluster: Cluster) -> None:
    one, other = cluster.replica(), cluster.replica()
    await one.open()
    await other.open()
    assert set(cluster.secret) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert served_by(one.context) == served_by(other.context) == cluster.secret["tls.crt"]
    assert cluster.trusted(MUTATING) == cluster.trusted(VALIDATING) == cluster.secret["ca.crt"]
    verify(served_by(one.context), cluster.trusted(), cluster.now)
    assert one.unready() is None
    assert other.unready() is None


async def test_both_replicas_may_start_at_once(cluster: Cluster) -> None:
    one, other = cluster.replica(), cluster.replica()
    await asyncio.gather(one.open(), other.open())
    await other.open()
    await one.open()
    assert served_by(one.context) == served_by(other.context) == cluster.secret["tls.crt"]


async def test_empty_secret_of_the_chart_is_filled_and_keeps_its_labels(cluster: Cluster) -> None:
    metadata = {"name": "ours-certificates", "namespace": "system", "labels": {"app": "ours"}}
    cluster.chart.apply(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"})
    await cluster.replica().open()
    secret = cluster.secret
    cluster.chart.apply(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"})
    assert cluster.secret == secret


async def test_check_without_due_work_reads_three_objects_and_writes_none(cluster: Cluster) -> None:
    replica = cluster.replica(life=LIFETIME)
    await replica.open()
    cluster.server.log.reset()
    await replica.open()
    assert cluster.server.log.all_writes == []
    assert cluster.server.log.reads == {"GET": 3}
    assert replica._pause() == 600


async def test_removed_bundle_is_restored_without_other_changes(cluster: Cluster) -> None:
    replica = cluster.replica()
    await replica.open()
    bundle = cluster.trusted()
    for kind in (MUTATING, VALIDATING):
        before = cluster.chart.get(kind, None, "ours")
        cluster.chart.update(kind, configuration(kind) | {"metadata": before["metadata"]})
        assert cluster.trusted(kind) == ""
    await replica.open()
    for kind in (MUTATING, VALIDATING):
        assert cluster.trusted(kind) == bundle
        (webhook,) = cluster.chart.get(kind, None, "ours")["webhooks"]
        webhook["clientConfig"].pop("caBundle")
        assert [webhook] == configuration(kind)["webhooks"]


async def test_deleted_secret_causes_a_rotation_that_clients_can_follow(cluster: Cluster) -> None:
    replica = cluster.replica()
    await replica.open()
    old = cluster.secret
    cluster.chart.delete(SECRET, "system", "ours-certificates")
    await replica.open()
    assert cluster.secret["ca.key"] != old["ca.key"]
    assert cluster.trusted() == cluster.secret["ca.crt"]
    assert cluster.trusted().endswith(old["ca.crt"]), "the former certificate stays trusted"
    verify(served_by(replica.context), old["ca.crt"], cluster.now)
    cluster.now += LIFE / 10
    await replica.open()
    with pytest.raises(x509.verification.VerificationError):
        verify(served_by(replica.context), old["ca.crt"], cluster.now)
    verify(served_by(replica.context), cluster.trusted(), cluster.now)


def _trust(cluster: Cluster, bundle: str) -> None:
    """Let the API servers trust a bundle, as another source of the certificate, or a user, publishes it."""
    encoded = base64.b64encode(bundle.encode()).decode()
    for kind in (MUTATING, VALIDATING):
        body = configuration(kind)
        body["webhooks"][0]["clientConfig"]["caBundle"] = encoded
        cluster.chart.apply(kind, body, force=True)


def _authorities(count: int, name: str = "foreign") -> list[Pair]:
    """Return authorities, each newer than the one before."""
    return [
        authority(f"{name}-{number}", begins=START - timedelta(days=count - number), ends=START + timedelta(days=400))
        for number in range(count)
    ]


def _joined(authorities: Iterable[Pair]) -> str:
    return "".join(each.certificate for each in authorities)


@pytest.mark.parametrize("count", [15, 16, 40])
async def test_certificate_is_loaded_with_any_number_of_trusted_authorities(cluster: Cluster, count: int) -> None:
    _trust(cluster, _joined(_authorities(count)))
    replica = cluster.replica(life=LIFETIME)
    await replica.open()
    verify(served_by(replica.context), cluster.trusted(), cluster.now)
    assert len(certs.read(cluster.trusted())) == count + 1
    assert replica.unready() is None
    cluster.server.log.reset()
    await replica.open()
    assert cluster.server.log.all_writes == [], "nothing is due"


async def test_replica_without_a_certificate_is_not_ready(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = cluster.replica()
    assert "no serving certificate" in (replica.unready() or "")
    monkeypatch.setattr("shared.pki.serving.shared_certificates", lambda _: None)
    with pytest.raises(ValueError, match="system/ours-certificates"):
        await replica.open()
    assert "no serving certificate" in (replica.unready() or "")


async def test_only_the_newest_retired_authorities_are_taken_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "MAX_RETIRED", 4)
    expired = authority("expired", begins=START - timedelta(hours=1), ends=START - timedelta(minutes=1))
    later = authority("later", begins=START + timedelta(days=1), ends=START + timedelta(days=2))
    foreign = _authorities(8)
    _trust(cluster, _joined([expired, later, *foreign]))
    await cluster.replica().open()
    _, *retired = certs.read(cluster.trusted())
    most = int(4 * rotation.TAKEOVER_FACTOR)
    assert [each.pem.strip() for each in retired] == [each.certificate.strip() for each in foreign[-most:]]


async def test_size_of_retired_authorities_is_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = _authorities(6)
    fitting = sum(len(each.certificate) for each in foreign[-3:]) / rotation.TAKEOVER_FACTOR
    monkeypatch.setattr(rotation, "MAX_RETIRED_BYTES", fitting + 8)
    _trust(cluster, _joined(foreign))
    await cluster.replica().open()
    assert len(certs.read(cluster.trusted())) == 1 + 3


async def test_authority_of_the_served_certificate_is_taken_over_although_it_is_the_oldest(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "MAX_RETIRED", 2)
    serving = cluster.replica()
    await serving.open()
    old = cluster.secret["ca.crt"]
    cluster.now += timedelta(seconds=1)
    newer = [
        authority(f"newer-{number}", begins=cluster.now, ends=cluster.now + timedelta(days=9)) for number in range(5)
    ]
    _trust(cluster, _joined([*newer, Pair(old, "")]))
    cluster.chart.merge(SECRET, "system", "ours-certificates", {"data": {"ca.key": "Z2FyYmFnZQ=="}})
    await cluster.replica().open()
    verify(served_by(serving.context), cluster.trusted(), cluster.now)
    assert len(certs.read(cluster.trusted())) == 1 + 3


async def test_authority_of_the_served_certificate_stays_trusted_however_often_the_secret_is_deleted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each deletion adds an authority, and restarts the settling time, before whose end none of them signs.

    A replica that starts after the last deletion knows only the caBundle.
    """
    monkeypatch.setattr(rotation, "MAX_RETIRED", 4)
    replicas = [cluster.replica(), cluster.replica()]
    for each in replicas:
        await each.open()
    first = certs.read(served_by(replicas[0].context))[0].issuer
    for _ in range(10):
        cluster.chart.delete(SECRET, "system", "ours-certificates")
        cluster.now += timedelta(seconds=1)
        for each in replicas:
            await each.open()
            verify(served_by(each.context), cluster.trusted(), cluster.now)
        assert len(certs.read(cluster.trusted())) <= 4 + 2  # the newest, and the one before it
    assert certs.read(served_by(replicas[0].context))[0].issuer == first, "no other one has signed"
    cluster.chart.delete(SECRET, "system", "ours-certificates")
    await cluster.replica().open()
    for each in replicas:
        verify(served_by(each.context), cluster.trusted(), cluster.now)


@pytest.mark.parametrize("spoiled", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
async def test_corrupt_secret_is_repaired(cluster: Cluster, spoiled: str) -> None:
    await cluster.replica().open()
    cluster.chart.merge(SECRET, "system", "ours-certificates", {"data": {spoiled: "Z2FyYmFnZQ=="}})
    replica = cluster.replica()
    await replica.open()
    verify(served_by(replica.context), cluster.trusted(), cluster.now)
    certs.server_context(Pair(cluster.secret["ca.crt"], cluster.secret["ca.key"]))
    certs.server_context(Pair(cluster.secret["tls.crt"], cluster.secret["tls.key"]))


async def test_replica_serves_but_is_not_ready_until_configurations_exist(cluster: Cluster) -> None:
    was = cluster.chart.get(VALIDATING, None, "ours")
    cluster.chart.delete(VALIDATING, None, "ours")
    replica = cluster.replica()
    await replica.open()
    assert replica.unready() is not None
    assert served_by(replica.context) == cluster.secret["tls.crt"]
    cluster.chart.create(VALIDATING, configuration(VALIDATING))
    await replica.open()
    assert replica.unready() is None
    assert cluster.chart.get(VALIDATING, None, "ours")["metadata"]["uid"] != was["metadata"]["uid"]


async def test_configuration_deleted_in_the_meantime_is_not_recreated(cluster: Cluster) -> None:
    clients = Clients(Kube(cluster.server, manager="ours"), "ours")
    seen = await clients.read()
    for kind in (MUTATING, VALIDATING):
        cluster.chart.delete(kind, None, "ours")
    with pytest.raises(Conflict):
        await clients.publish(seen, "bundle")
    with pytest.raises(NotFound):
        cluster.chart.get(MUTATING, None, "ours")


async def test_late_write_of_an_older_bundle_does_not_replace_a_newer_one(cluster: Cluster) -> None:
    clients = Clients(Kube(cluster.server, manager="ours"), "ours")
    seen = await clients.read()
    await clients.publish(seen, "newer")
    with pytest.raises(Conflict):
        await clients.publish(seen, "older")
    assert cluster.trusted() == "newer"


async def test_loser_of_a_race_uses_the_certificate_of_the_winner(cluster: Cluster) -> None:
    one = cluster.replica()
    await one.open()

    class Slow:
        """Connection of a replica whose first write arrives after that of another."""

        won = False

        async def request(self, request: Request) -> Response:
            if request.method == "PATCH" and not self.won:
                self.won = True
                await one.open()
            return await cluster.server.request(request)

    cluster.now += 0.7 * LIFE
    other = cluster.replica(Slow())
    cluster.server.log.reset()
    await other.open()
    assert served_by(other.context) == served_by(one.context) == cluster.secret["tls.crt"]
    assert len(cluster.server.log.writes("Secret", changed=True)) == 1
    assert len(cluster.server.log.writes("Secret", changed=False)) == 1


async def test_missing_permission_is_reported(cluster: Cluster) -> None:
    class Refusing:
        async def request(self, request: Request) -> Response:
            return Response(403, {"message": f'secrets "shared" is forbidden: cannot {request.method}'})

    replica = cluster.replica(Refusing())
    with pytest.raises(Forbidden, match="cannot GET"):
        await replica.open()


async def test_certificate_in_memory_is_renewed(cluster: Cluster) -> None:
    certificates = SelfSignedCertificates(
        Memory(), name="ours", hosts=frozenset({HOST}), life=LIFE, clock=lambda: cluster.now, maker=made
    )
    await certificates.open()
    first = served_by(certificates.context)
    cluster.now += 0.7 * LIFE
    await certificates.open()
    assert served_by(certificates.context) != first
    assert certs.read(served_by(certificates.context))[0].ends >= START + 1.7 * LIFE - timedelta(seconds=1)
    assert cluster.server.log.is_empty


# Flags.


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        ([], SelfSignedCertificates),
        (["--certificates=self:system/ours", "--webhook-configurations=ours"], SelfSignedCertificates),
        (["--certificates=/etc/certificates"], FileCertificates),
    ],
)
def test_flag_selects_the_source_of_the_certificate(cluster: Cluster, flags: list[str], kind: type) -> None:
    options = parse_options("ours", "", flags, {})
    assert type(certificates_of(options, Kube(cluster.server, manager="ours"))) is kind


@pytest.mark.parametrize(
    ("flag", "because"),
    [
        ("--certificates=self:ours", "use self:NAMESPACE/NAME"),
        ("--certificate-lifetime=5", "Use at least 20"),
    ],
)
def test_invalid_flag_is_rejected(flag: str, because: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options("ours", "", [flag], {})
    assert because in capsys.readouterr().err


async def test_only_clients_with_a_certificate_of_the_authority_are_served(tmp_path: Path) -> None:
    """Also after the serving certificate was renewed: OpenSSL verifies clients by the context of that certificate."""
    begins = datetime.now(UTC)
    trusted, other = (authority("clients", begins=begins, ends=begins + timedelta(days=1)) for _ in range(2))
    certificates = SelfSignedCertificates(Memory(), name="operator", hosts=frozenset({"localhost"}))
    await certificates.open()
    file = tmp_path / "ca.crt"
    file.write_text(trusted.certificate)
    context = certificates.for_clients_of(file)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(b"welcome")
            await writer.drain()
        writer.close()

    async def received(issuer: Pair | None, to: ssl.SSLContext) -> bytes:
        client = ssl.create_default_context()
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        if issuer is not None:
            pair = issue(issuer, "apiserver", begins=begins, ends=begins + timedelta(days=1), client=True)
            certs._holding(pair, client)
        async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=to) as server:
            with contextlib.suppress(OSError):
                address = server.sockets[0].getsockname()
                reader, writer = await asyncio.open_connection(
                    *address, ssl=client, server_hostname="localhost", ssl_handshake_timeout=5
                )
                try:
                    return await reader.read()
                finally:
                    writer.close()
        return b""

    for _ in range(2):
        assert [await received(issuer, context) for issuer in (trusted, other, None)] == [b"welcome", b"", b""]
        assert await received(None, certificates.context) == b"welcome", "the metrics' server"
        certificates._serve(signed()[1])
    file.write_text("nonsense")
    with pytest.raises(ValueError, match=r"ca\.crt has no PEM certificates"):
        certificates.for_clients_of(file)
