"""Certificates and keys as PEM text: parsing, validation, and TLS contexts.

Parsing takes a few lines of DER instead of `cryptography`: the pods that back up etcd parse certificates as well, and
should not load the dependencies of an operator.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from shared.api.memo import remembered

MAX_CERTIFICATES, MAX_CERTIFICATES_BYTES = 256, 256 * 1024
"""Maximum number of authorities in a Secret of a user, and size of their text: a system's bundle has 150, and 220 KiB.
Parsing and loading them takes 40 ms. Twice as much is accepted of the operator's copy, which has those of two Secrets
while one replaces the other."""

MAX_SAME_NAME = 16
"""Maximum number of authorities with the same subject in such a Secret: all of them may have signed a certificate."""

MAX_CHAIN, MAX_CHAIN_BYTES = 16, 64 * 1024
"""Maximum number of certificates that a server presents, and size of their text. Each handshake verifies all."""

MAX_KEY_BYTES = 8 * 1024
"""Maximum size of a key as a PEM block: RSA with 8,192 bits has 6 KiB. Each handshake signs with it."""

MAX_KEY_FILE_BYTES = 64 * 1024
"""Maximum size of a key with the text around it: `openssl rsa -text` writes 22 KiB before a key with 8,192 bits."""

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"

_UTC_TIME = 0x17  # the other form, GeneralizedTime, has four-digit years
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87
_SEQUENCE, _SET = 0x30, 0x31
_UTF8_STRING = 0x0C
_STRINGS = {
    _UTF8_STRING: "utf-8",
    0x13: "latin-1",  # PrintableString
    0x14: "latin-1",  # TeletexString, which OpenSSL reads as Latin-1 too
    0x16: "latin-1",  # IA5String
    0x1A: "latin-1",  # VisibleString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
"""Encodings of the string types whose case and white space do not matter in names."""

MAX_ATTRIBUTES = 7
"""Maximum number of attributes of a name that is made comparable, so that the number of certificates bounds the time.
OpenSSL's default request has 7, an authority of Debian's bundle up to 6. Longer ones are compared byte by byte."""

_COMMON_NAME = bytes.fromhex("0603550403")  # OID 2.5.4.3 as a DER element
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")  # OID 2.5.29.17, subjectAltName


class Pair(NamedTuple):
    """A certificate, or a chain of them, and the key of the first one."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """The parsed fields of a certificate.

    Attributes:
        subject: subject, for comparison only (`comparable`).
        issuer: issuer, for comparison only.
        begins: start of the validity.
        ends: end of the validity.
        hosts: DNS names and IP addresses of the subject.
        pem: the certificate as PEM.
    """

    subject: bytes = field(repr=False)
    issuer: bytes = field(repr=False)
    begins: datetime
    ends: datetime
    hosts: frozenset[str]
    pem: str = field(repr=False)

    def serves(self, host: str) -> bool:
        """Whether clients accept the certificate for a DNS name: it has the name, or a wildcard for its first label."""
        names, name = {each.lower() for each in self.hosts}, host.lower()
        return name in names or f"*.{name.partition('.')[2]}" in names

    @property
    def is_named(self) -> bool:
        """Whether the subject has a common name."""
        return _COMMON_NAME in self.subject


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A usable certificate with its key."""

    pair: Pair = field(repr=False)
    certificate: Certificate


def usable(pair: Pair) -> IssuedCertificate | None:
    """Return the parsed certificate of a pair; None if a server cannot use the pair."""
    return IssuedCertificate(pair, read(pair.certificate)[0]) if _is_usable(pair) else None


@remembered(lambda _: 0)
def _is_usable(pair: Pair) -> bool:
    try:
        server_context(pair)
        read(pair.certificate)
    except ValueError:
        return False
    return True


def joined(certificates: Iterable[Certificate]) -> str:
    """Return certificates as one PEM text."""
    return "".join(f"{certificate.pem.strip()}\n" for certificate in certificates)


def read(text: str) -> tuple[Certificate, ...]:
    """Return the certificates in a text, in order.

    Raises:
        ValueError: there is none, one cannot be parsed, or there are too many.
    """
    if excess := excess_of(text, 2 * MAX_CERTIFICATES, 2 * MAX_CERTIFICATES_BYTES):
        raise ValueError(excess)
    found = _read(text)
    if isinstance(found, str):
        raise ValueError(found)  # noqa: TRY004 (the text is at fault)
    return found


def excess_of(text: str, most: int = MAX_CERTIFICATES, most_bytes: int = MAX_CERTIFICATES_BYTES) -> str:
    """Return how much more certificates a text has than are accepted; empty if it has not."""
    count = text.count(_BEGIN)
    if count <= most and len(text) <= most_bytes:
        return ""
    return (
        f"{count:,} certificates in {len(text):,} bytes; at most {most} in {most_bytes:,} bytes are accepted: remove "
        "those that are not needed"
    )


def _size(found: tuple[Certificate, ...] | str) -> int:
    """Return the approximate size of the result of `_read`, in bytes."""
    if isinstance(found, str):
        return len(found)
    return sum(
        1024 + len(each.pem) + len(each.subject) + len(each.issuer) + sum(160 + len(host) for host in each.hosts)
        for each in found
    )


@remembered(_size)
def _read(text: str) -> tuple[Certificate, ...] | str:
    """Return the certificates in a text, or why there is none or one cannot be parsed."""
    try:
        found = tuple(map(_certificate, _blocks(text)))
    except ValueError as error:
        return str(error)
    return found or f"no certificate in PEM format found ({_BEGIN})"


def _blocks(text: str) -> Iterator[str]:
    """Yield the PEM blocks of the certificates in a text."""
    at = text.find(_BEGIN)
    while at >= 0 and (end := text.find(_END, at)) >= 0:
        end += len(_END)
        yield text[at:end]
        at = text.find(_BEGIN, end)


def parse(der: bytes) -> Certificate:
    """Return a certificate in DER form, as servers present it.

    Raises:
        ValueError: the data is no certificate.
    """
    return _certificate(ssl.DER_cert_to_PEM_cert(der))


def chain(text: str) -> tuple[Certificate, ...]:
    """Return the first certificate in a text, and the authorities between it and a root, as far as the text has them.

    Raises:
        ValueError: see `read`.
    """
    leaf, *others = read(text)
    found = [leaf]
    while (issuer := next((each for each in others if each.subject == found[-1].issuer), None)) is not None:
        others.remove(issuer)
        found.append(issuer)
    return tuple(found)


def server_context(pair: Pair) -> ssl.SSLContext:
    """Return a server context with a certificate.

    Raises:
        ValueError: key and certificate do not match, or one of them cannot be parsed.
    """
    return _holding(pair, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def client_context(pair: Pair | None, authority: str = "") -> ssl.SSLContext:
    """Return a client context, which verifies the server.

    Args:
        pair: client certificate to present if the server requests one; None for none.
        authority: PEM certificates of the trusted authorities; empty trusts no server.

    Raises:
        ValueError: see `server_context`; or the authorities cannot be parsed.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority:
        if excess := excess_of(authority, 2 * MAX_CERTIFICATES, 2 * MAX_CERTIFICATES_BYTES):
            raise ValueError(excess)
        try:
            context.load_verify_locations(cadata=authority)
        except ssl.SSLError as error:
            raise ValueError(f"no certificate authority found: {error.reason or error}") from None
    return context if pair is None else _holding(pair, context)


def _holding(pair: Pair, context: ssl.SSLContext) -> ssl.SSLContext:
    with _as_file(loadable(pair)) as path:
        try:
            # Without a password OpenSSL would prompt for one on the terminal if the key is encrypted.
            context.load_cert_chain(path, password="")
        except ssl.SSLError as error:
            what = "the key does not belong to the certificate" if error.reason == "KEY_VALUES_MISMATCH" else str(error)
            raise ValueError(f"certificate and key cannot be used: {what}") from None
    return context


def loadable(pair: Pair) -> str:
    """Return the PEM blocks of a pair that OpenSSL loads within milliseconds: keys, then certificates.

    The text around them is neither judged nor given to OpenSSL, which might find a block in it that is not judged.

    Raises:
        ValueError: the pair is too large, or the key is encrypted: its author chooses how long OpenSSL tries to decrypt
            it, up to hours.
    """
    if excess := excess_of(pair.certificate, MAX_CHAIN, MAX_CHAIN_BYTES):
        raise ValueError(excess)
    if len(pair.key) > MAX_KEY_FILE_BYTES:
        raise ValueError(
            f"{len(pair.key):,} bytes around and in the key; at most {MAX_KEY_FILE_BYTES:,} are accepted: remove the "
            "text around the key"
        )
    keys = [block for label, block in _pem_blocks(pair.key) if label.endswith("PRIVATE KEY")]
    if (size := sum(map(len, keys))) > MAX_KEY_BYTES:
        raise ValueError(
            f"the key has {size:,} bytes; at most {MAX_KEY_BYTES:,} are accepted: use an elliptic-curve key, "
            "or RSA with up to 8,192 bits"
        )
    presented = list(_pem_blocks(pair.certificate))
    if any("ENCRYPTED" in block for block in (*keys, *(block for _, block in presented))):
        raise ValueError("the key is encrypted, and there is no password for it: store it unencrypted")
    return "\n".join((*keys, *(block for label, block in presented if label.endswith("CERTIFICATE"))))


def _pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield label and text of each PEM block (RFC 7468, section 2).

    A block begins at the start of a line, as for OpenSSL. One without its last line reaches to the end of the text.
    """
    text, mark, dashes = f"\n{text}", "\n-----BEGIN ", "-----"
    at = text.find(mark)
    while at >= 0:
        line_ends = text.find("\n", at + 1)
        line = text[at + len(mark) : line_ends if line_ends >= 0 else len(text)].rstrip()
        if not line.endswith(dashes) or line_ends < 0:
            at = text.find(mark, at + 1)
            continue
        label = line.removesuffix(dashes)
        end = f"\n-----END {label}{dashes}"
        ends = text.find(end, line_ends)
        yield label, text[at + 1 : ends + len(end) if ends >= 0 else len(text)]
        at = text.find(mark, ends + 1) if ends >= 0 else -1


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Provide a text as a file, as OpenSSL requires; in memory if possible, because root file systems are read-only."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile("w", encoding="ascii", errors="replace") as file:
            file.write(text)
            file.flush()
            yield file.name
        return
    with os.fdopen(os.memfd_create("pem"), "w", encoding="ascii", errors="replace") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


# DER (X.690), as far as X.509 (RFC 5280, section 4.1) requires it.


def _certificate(pem: str) -> Certificate:
    try:
        ((_, whole),) = _elements(ssl.PEM_cert_to_DER_cert(pem))
        (_, signed), *_ = _elements(whole)
        parts = [part for part in _elements(signed) if part[0] != _VERSION]
        _, _, (_, issuer), (_, validity), (_, subject), *rest = parts
        begins, ends = (_time(*part) for part in _elements(validity))
        extensions = next((content for tag, content in rest if tag == _EXTENSIONS), b"")
        hosts = frozenset(_hosts(extensions))
        return Certificate(comparable(subject), comparable(issuer), begins, ends, hosts, pem)
    except (ValueError, IndexError) as error:
        raise ValueError(f"a certificate cannot be parsed: {error}") from None


def comparable(name: bytes) -> bytes:
    """Return the form that a name has in common with all names that match it (RFC 5280, section 7.1).

    Of texts, neither the type, nor the case, nor the amount of white space matters: an authority may write its name
    differently in its own certificate and in those that it signs. OpenSSL compares names in the same way, but folds the
    case of ASCII letters only. Unicode normalization is omitted: its time can grow with the square of the size.

    A name with more than `MAX_ATTRIBUTES` attributes is returned as it is.

    Args:
        name: content of a DER name.

    Raises:
        ValueError: the data is no name.
    """
    found, count = list[bytes](), 0
    for _, relative in _elements(name):
        attributes = [each for _, each in islice(_elements(relative), MAX_ATTRIBUTES + 1)]
        count += max(len(attributes), 1)
        if count > MAX_ATTRIBUTES:
            return name
        found.append(_element(_SET, b"".join(sorted(map(_comparable_attribute, attributes)))))
    return b"".join(found)


def _comparable_attribute(attribute: bytes) -> bytes:
    kind = attribute[: 2 + attribute[1]]  # an object identifier of under 128 bytes
    ((tag, value),) = _elements(attribute[len(kind) :])
    if (encoding := _STRINGS.get(tag)) is None:
        return _element(_SEQUENCE, attribute)
    try:
        text = " ".join(value.decode(encoding).casefold().split())
    except UnicodeDecodeError:
        return _element(_SEQUENCE, attribute)
    return _element(_SEQUENCE, kind + _element(_UTF8_STRING, text.encode()))


def _element(tag: int, content: bytes) -> bytes:
    """Return an element in DER form."""
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each element."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:  # long form: the number of length bytes
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size]), at + size
        if at + length > len(der):
            raise ValueError("the data is truncated")
        yield tag, der[at : at + length]
        at += length


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # years from 1950 to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    if len(text) != 15 or text[14] != "Z" or not text[:14].isdecimal():  # strptime takes four times as long
        raise ValueError(f"{text!r} is no time")
    month, day, hour, minute, second = (int(text[at : at + 2]) for at in range(4, 14, 2))
    return datetime(int(text[:4]), month, day, hour, minute, second, tzinfo=UTC)


def _hosts(extensions: bytes) -> Iterator[str]:
    for _, all_of_them in _elements(extensions):
        for _, extension in _elements(all_of_them):
            (_, identity), *_, (_, value) = _elements(extension)
            if identity != _ALTERNATIVE_NAMES:
                continue
            for _, names in _elements(value):
                for tag, name in _elements(names):
                    if tag == _DNS_NAME:
                        yield name.decode("ascii")
                    elif tag == _IP_ADDRESS:
                        yield str(ipaddress.ip_address(name))
