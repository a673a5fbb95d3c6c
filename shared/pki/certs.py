"""Certificates and keys as PEM text: parsing, validation, and TLS contexts.

Parsing takes a few lines of DER instead of `cryptography`: the pods that back up etcd parse certificates as well, and
should not load the dependencies of an operator.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

_UTC_TIME = 0x17  # the other form, GeneralizedTime, has four-digit years
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87
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
        subject: subject as a DER name, for comparison only.
        issuer: issuer as a DER name, for comparison only.
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

    @property
    def is_named(self) -> bool:
        """Whether the subject has a common name."""
        return _COMMON_NAME in self.subject


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A usable certificate with its key."""

    pair: Pair = field(repr=False)
    certificate: Certificate


@lru_cache(maxsize=1024)  # the same few are parsed repeatedly
def usable(pair: Pair) -> IssuedCertificate | None:
    """Return the parsed certificate of a pair; None if a server cannot use the pair."""
    try:
        server_context(pair)
        return IssuedCertificate(pair, read(pair.certificate)[0])
    except ValueError:
        return None


def joined(certificates: Iterable[Certificate]) -> str:
    """Return certificates as one PEM text."""
    return "".join(f"{certificate.pem.strip()}\n" for certificate in certificates)


def read(text: str) -> tuple[Certificate, ...]:
    """Return the certificates in a text, in order.

    Raises:
        ValueError: there is none, or one cannot be parsed.
    """
    found = tuple(_certificate(block) for block in _BLOCK.findall(text))
    if not found:
        raise ValueError("no certificate in PEM format found (-----BEGIN CERTIFICATE-----)")
    return found


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
        try:
            context.load_verify_locations(cadata=authority)
        except ssl.SSLError as error:
            raise ValueError(f"no certificate authority found: {error.reason or error}") from None
    return context if pair is None else _holding(pair, context)


def _holding(pair: Pair, context: ssl.SSLContext) -> ssl.SSLContext:
    with _as_file(f"{pair.key}\n{pair.certificate}") as path:
        try:
            # Without a password OpenSSL would prompt for one on the terminal if the key is encrypted.
            context.load_cert_chain(path, password="")
        except ssl.SSLError as error:
            what = "the key does not belong to the certificate" if error.reason == "KEY_VALUES_MISMATCH" else str(error)
            raise ValueError(f"certificate and key cannot be used: {what}") from None
    return context


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
        return Certificate(subject, issuer, begins, ends, frozenset(_hosts(extensions)), pem)
    except (ValueError, IndexError) as error:
        raise ValueError(f"a certificate cannot be parsed: {error}") from None


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
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


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
