"""The period in which clients accept a certificate, and the authorities that signed it."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type

from shared.pki import ca, certs
from shared.pki.certs import Certificate, Pair
from shared.pki.validity import Validity, signers, validity_of
from tests.harness import cost

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def authority(begins: int = -10, ends: int = 1000) -> tuple[Pair, Certificate]:
    pair = ca.authority("team-ca", begins=NOW + begins * DAY, ends=NOW + ends * DAY)
    return pair, certs.read(pair.certificate)[0]


def issued(by: Pair, begins: int = -10, ends: int = 90, *, server: bool = True, client: bool = True) -> Pair:
    hosts = ["a.example.com"] if server else []
    return ca.issue(by, "x", begins=NOW + begins * DAY, ends=NOW + ends * DAY, hosts=hosts, client=client)


def _name(
    text: str, type_: _ASN1Type = _ASN1Type.UTF8String, *, oid: x509.ObjectIdentifier = x509.NameOID.COMMON_NAME
) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, text, type_)])


@pytest.mark.parametrize(("server", "client"), [(True, True), (True, False), (False, True)])
def test_only_the_authority_with_the_key_signed_and_not_another_one_of_the_same_name(
    server: bool, client: bool
) -> None:
    (one, first), (_, second) = authority(), authority()
    assert first.subject == second.subject
    assert signers(issued(one, server=server, client=client), (second, first)) == (first,)
    assert signers(issued(one, ends=-5, server=server, client=client), (first,)) == (first,), "regardless of the time"


@pytest.mark.parametrize(
    ("leaf", "signer", "expected"),
    [
        ((-10, 90), (-10, 1000), (-10, 90)),
        ((-10, 90), (-10, 20), (-10, 20)),
        ((-10, 90), (5, 1000), (5, 90)),
        ((3, 90), (-10, 1000), (3, 90)),
    ],
)
def test_period_is_limited_by_the_authority(
    leaf: tuple[int, int], signer: tuple[int, int], expected: tuple[int, int]
) -> None:
    pair, trusted = authority(*signer)
    _, unrelated = authority(-10, -5)
    begins, ends = (NOW + days * DAY for days in expected)
    found = validity_of(issued(pair, *leaf), (unrelated, trusted))
    assert (found.begins, found.ends) == (begins, ends)


def test_period_of_a_certificate_without_its_authority_is_its_own() -> None:
    pair, _ = authority(-10, 20)
    assert validity_of(issued(pair), ()) == Validity(NOW - 10 * DAY, NOW + 90 * DAY)


def test_period_is_limited_by_intermediate_authorities() -> None:
    pair, _ = authority(-10, 20)  # presented next to the certificate, although no client trusts it itself
    leaf = issued(pair)
    assert validity_of(Pair(leaf.certificate + pair.certificate, leaf.key), ()).ends == NOW + 20 * DAY


def test_end_is_reported_a_week_before_or_in_the_last_sixth() -> None:
    assert Validity(NOW, NOW + 90 * DAY).warns == NOW + 83 * DAY
    assert Validity(NOW, NOW + DAY).warns == NOW + DAY * 5 / 6
    period = Validity(NOW, NOW + 90 * DAY)
    times = [NOW - DAY, NOW, NOW + 83 * DAY, NOW + 90 * DAY]
    assert [period.next_change(now) for now in times] == [NOW, NOW + 83 * DAY, NOW + 90 * DAY, None]


def test_end_of_a_certificate_is_reported_by_its_own_life_although_its_authority_is_newer() -> None:
    """An authority that is renewed with the same key keeps its certificates valid."""
    key, renewed = authority(-1, 1000)
    period = validity_of(issued(key, -80, 10), (renewed,))
    assert (period.begins, period.lives_from) == (NOW - DAY, NOW - 80 * DAY)
    assert period.warns == NOW + 3 * DAY


@pytest.mark.parametrize(("days", "includes"), [(-2, False), (-1, True), (0, True), (1, False)])
def test_period_includes_its_begin_and_not_its_end(days: int, includes: bool) -> None:
    assert Validity(NOW - DAY, NOW + DAY).includes(NOW + days * DAY) is includes


def test_only_authorities_with_the_name_of_an_issuer_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def verifies(pem: str, _: Pair) -> bool:
        tried.append(pem)
        return True

    monkeypatch.setattr("shared.pki.validity._verifies", verifies)
    pair, trusted = authority()
    others = [
        certs.read(ca.authority(f"other-{number}", begins=NOW, ends=NOW + DAY).certificate)[0] for number in (1, 2)
    ]
    assert signers(issued(pair), (*others, trusted)) == (trusted,)
    assert tried == [trusted.pem]


def test_authority_of_an_intermediate_one_is_a_signer() -> None:
    root, namesake = _authority("root", 1000), certs.read(_authority("root", 1000).certificate)[0]
    trusted, intermediate = certs.read(root.certificate)[0], _authority("intermediate", 5, root)
    leaf = ca.issue(intermediate, "x", begins=NOW - DAY, ends=NOW + 9 * DAY, hosts=["a.example.com"], client=True)
    chained = Pair(leaf.certificate + intermediate.certificate, leaf.key)
    assert signers(chained, (namesake, trusted)) == (trusted,)
    assert validity_of(chained, (namesake, trusted)).ends == NOW + 5 * DAY, "of the intermediate authority"


_TEXT = (_ASN1Type.UTF8String, _ASN1Type.PrintableString, _ASN1Type.BMPString, _ASN1Type.T61String)


@pytest.mark.parametrize("other", _TEXT)
@pytest.mark.parametrize("written", ["Team CA", "TEAM ca", "  Team   CA "])
def test_authority_whose_name_is_written_differently_is_the_signer(written: str, other: _ASN1Type) -> None:
    """RFC 5280, section 7.1: neither the type of a string, nor case, nor the amount of white space matters."""
    root = _authority("Team CA", 20)
    trusted = certs.read(root.certificate)[0]
    intermediate = _authority("intermediate", 60, root, issuer=_name(written, other))
    leaf = ca.issue(intermediate, "x", begins=NOW - DAY, ends=NOW + 90 * DAY, hosts=["a.example.com"], client=True)
    chained = Pair(leaf.certificate + intermediate.certificate, leaf.key)
    assert signers(chained, (trusted,)) == (trusted,)
    assert validity_of(chained, (trusted,)).ends == NOW + 20 * DAY


def test_intermediate_authority_whose_name_is_written_differently_limits_the_period() -> None:
    root = _authority("root", 1000)
    intermediate = _authority("Team CA", 5, root)
    renamed = _authority("unused", 1000, root, subject=_name("TEAM CA", _ASN1Type.PrintableString))
    signer = Pair(renamed.certificate, renamed.key)
    leaf = ca.issue(signer, "x", begins=NOW - DAY, ends=NOW + 90 * DAY, hosts=["a.example.com"], client=True)
    chained = certs.chain(leaf.certificate + intermediate.certificate)
    assert [each.ends for each in chained] == [NOW + 90 * DAY, NOW + 5 * DAY]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_name("team ca"), _name("team cb")),
        (_name("team ca"), _name("teamca")),
        (_name("ca"), _name("ca", oid=x509.NameOID.ORGANIZATION_NAME)),
        (x509.Name([*_name("a"), *_name("b")]), x509.Name([*_name("b"), *_name("a")])),
        (
            x509.Name([*_name("a"), *_name("b")]),
            x509.Name([x509.RelativeDistinguishedName([*_name("a"), *_name("b")])]),
        ),
        (_name("a"), x509.Name([*_name("a"), *_name("a")])),
    ],
)
def test_other_names_differ(one: x509.Name, other: x509.Name) -> None:
    assert _subject(one) != _subject(other)


def test_order_of_the_values_of_a_relative_name_does_not_matter() -> None:
    """DER sorts them by their encoding, which the type and the case change."""
    values = [*_name("a", _ASN1Type.PrintableString), *_name("b", _ASN1Type.UTF8String)]
    others = [*_name("A", _ASN1Type.UTF8String), *_name("B", _ASN1Type.PrintableString)]
    one, other = (x509.Name([x509.RelativeDistinguishedName(each)]) for each in (values, others))
    assert _subject(one) == _subject(other)


def test_name_that_is_no_text_is_compared_as_it_is() -> None:
    name = b"1\x0d0\x0b\x06\x03U\x04\x03\x0c\x04\xff\xfeAb"  # a UTF8String that is not UTF-8
    assert certs.comparable(name) == certs.comparable(name) != certs.comparable(name.lower())


def _der(tag: int, content: bytes) -> bytes:
    return bytes((tag, 0x83)) + len(content).to_bytes(3) + content


def _hostile(name: bytes) -> str:
    """Return a certificate with a name, whose other parts are as short as possible."""
    dates = b"\x30\x1e" + b"\x17\x0d260101000000Z" * 2
    signed = b"\x02\x01\x01" + b"\x30\x00" + _der(0x30, name) + dates + _der(0x30, name)
    return ssl.DER_cert_to_PEM_cert(_der(0x30, _der(0x30, signed)))


_ATTRIBUTE = b"\x30\x06\x06\x01\x2a\x0c\x01A"


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (1, b"\x31\x00" * 45_000),
        (1, (b"\x31\x08" + _ATTRIBUTE) * 9_000),
        (1, _der(0x31, _ATTRIBUTE * 11_000)),
        (1, _der(0x31, _der(0x30, b"\x06\x01\x2a" + _der(0x0C, b" \xc3\x9f" * 30_000)))),
        (2 * certs.MAX_CERTIFICATES, (b"\x31\x08" + _ATTRIBUTE) * certs.MAX_ATTRIBUTES),
        (2 * certs.MAX_CERTIFICATES, _der(0x31, _ATTRIBUTE * certs.MAX_ATTRIBUTES)),
    ],
    ids=["empty", "many sets", "one set", "a long text", "bundle of many sets", "bundle of one set each"],
)
async def test_hostile_names_of_the_largest_bundle_do_not_occupy_the_operator(count: int, name: bytes) -> None:
    bundle = "".join(f"{number}\n{_hostile(name)}" for number in range(count))
    assert not certs.excess_of(bundle, 2 * certs.MAX_CERTIFICATES, 2 * certs.MAX_CERTIFICATES_BYTES)
    async with cost.bounded():
        assert len(certs.read(bundle)) == count


def _subject(name: x509.Name) -> bytes:
    return certs.read(_authority("unused", 1, subject=name).certificate)[0].subject


def _authority(
    name: str, days: int, by: Pair | None = None, *, subject: x509.Name | None = None, issuer: x509.Name | None = None
) -> Pair:
    """Return an authority that may sign further ones, signed by another one or by itself.

    Args:
        subject: subject, if it is not just this name.
        issuer: issuer, if it is not written as the subject of the signer.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = subject or _name(name)
    issuer = issuer or (x509.load_pem_x509_certificate(by.certificate.encode()).subject if by else subject)
    signer = serialization.load_pem_private_key(by.key.encode(), None) if by else key
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + days * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return Pair(
        made.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(serialization.Encoding.PEM, form, plain).decode(),
    )
