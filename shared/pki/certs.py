"""Certificates and keys as PEM text: what stands in them, whether they fit, and serving with them.

Reading takes a few lines of DER rather than `cryptography`: the pods that back up etcd read certificates too, and must
not load what an operator loads.
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

_UTC_TIME = 0x17  # the other form, GeneralizedTime, writes years in full
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87
_COMMON_NAME = bytes.fromhex("0603550403")  # 2.5.4.3, as an element
_ALTERNATIVE_NAMES = bytes.fromhex("551d11")  # 2.5.29.17, X.509's subjectAltName


class Pair(NamedTuple):
    """A certificate, or a chain of them, and the key of the first."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """What stands in a certificate.

    Attributes:
        subject: whose it is, as a DER name: to be compared, not shown.
        issuer: who signed it, likewise.
        begins: when it begins to be valid.
        ends: when it ceases to.
        hosts: DNS names and IP addresses that it serves.
        pem: the certificate itself.
    """

    subject: bytes = field(repr=False)
    issuer: bytes = field(repr=False)
    begins: datetime
    ends: datetime
    hosts: frozenset[str]
    pem: str = field(repr=False)

    @property
    def is_named(self) -> bool:
        """Whether it bears a common name."""
        return _COMMON_NAME in self.subject


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate that can be used, and its key."""

    pair: Pair = field(repr=False)
    certificate: Certificate


@lru_cache(maxsize=1024)  # the same few are read again and again
def usable(pair: Pair) -> IssuedCertificate | None:
    """A certificate that can be served with; None if it cannot be."""
    try:
        server_context(pair)
        return IssuedCertificate(pair, read(pair.certificate)[0])
    except ValueError:
        return None


def joined(certificates: Iterable[Certificate]) -> str:
    """Certificates as one PEM text."""
    return "".join(f"{certificate.pem.strip()}\n" for certificate in certificates)


def read(text: str) -> tuple[Certificate, ...]:
    """The certificates in a text, in its order.

    Raises:
        ValueError: there is none, or one cannot be read.
    """
    found = tuple(_certificate(block) for block in _BLOCK.findall(text))
    if not found:
        raise ValueError("there is no certificate in PEM form (-----BEGIN CERTIFICATE-----)")
    return found


def server_context(pair: Pair) -> ssl.SSLContext:
    """A context that serves with a certificate.

    Raises:
        ValueError: key and certificate do not belong together, or one of them cannot be read.
    """
    return _holding(pair, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def client_context(pair: Pair | None, authority: str = "") -> ssl.SSLContext:
    """A context of a client, which looks who the server is.

    Args:
        pair: the certificate that it shows if it is asked for one; None for none.
        authority: certificates that vouch for servers; without any, none is trusted.

    Raises:
        ValueError: as `server_context`; or the authority's certificates cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority:
        try:
            context.load_verify_locations(cadata=authority)
        except ssl.SSLError as error:
            raise ValueError(f"there is no authority to trust in it: {error.reason or error}") from None
    return context if pair is None else _holding(pair, context)


def _holding(pair: Pair, context: ssl.SSLContext) -> ssl.SSLContext:
    with _as_file(f"{pair.key}\n{pair.certificate}") as path:
        try:
            # The password keeps OpenSSL from asking for one at the terminal where a key is encrypted.
            context.load_cert_chain(path, password="")
        except ssl.SSLError as error:
            what = "the key is not the certificate's" if error.reason == "KEY_VALUES_MISMATCH" else str(error)
            raise ValueError(f"certificate and key cannot be served with: {what}") from None
    return context


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A text under a path, which alone OpenSSL takes here; in memory where the system can, for roots are read-only."""
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


# DER (X.690), as far as X.509 (RFC 5280, section 4.1) needs it.


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
        raise ValueError(f"a certificate cannot be read: {error}") from None


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element, one after the other."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:  # the length of the length
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size]), at + size
        if at + length > len(der):
            raise ValueError("it is cut off")
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
