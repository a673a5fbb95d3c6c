"""Issues certificate authorities and certificates. Keys are ECDSA P-256.

No other module imports `cryptography`.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.pki.certs import Pair
from shared.pki.rotation import CertificateOrder, Made

_Key = ec.EllipticCurvePrivateKey


def authority(name: str, *, begins: datetime, ends: datetime) -> Pair:
    """Create a self-signed authority that signs certificates but no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name, ())
    builder = (
        _builder(subject, subject, key, begins, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(
    signer: Pair,
    name: str,
    *,
    begins: datetime,
    ends: datetime,
    hosts: Iterable[str] = (),
    groups: Iterable[str] = (),
    client: bool = False,
) -> Pair:
    """Issue a certificate for a server, a client, or both.

    Args:
        signer: the authority.
        name: common name, which Kubernetes reads as the user of a client; empty for none.
        hosts: DNS names and IP addresses of a server; empty for a client only.
        groups: organizations, which Kubernetes reads as the groups of a client.
        client: whether the certificate is valid for client authentication.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(signer.certificate.encode())
    issuer_key = serialization.load_pem_private_key(signer.key.encode(), None)
    if not isinstance(issuer_key, _Key):
        raise TypeError("the key of an authority must be an elliptic curve key")
    alternatives = [_general_name(host) for host in hosts]
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH] * client + [ExtendedKeyUsageOID.SERVER_AUTH] * bool(alternatives)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _builder(_name(name, groups), issuer.subject, key, begins, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(identifier, critical=False)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def fulfil(order: CertificateOrder) -> Made:
    """Fulfil an order."""
    made = None
    if order.authority_ends is not None:
        # The name is unique, so that the issuer of a certificate is visible.
        made = authority(f"{order.name[:50]}-ca-{secrets.token_hex(4)}", begins=order.begins, ends=order.authority_ends)
    signer = order.signer or made
    if order.ends is None:
        return Made(None, made)
    if signer is None:
        raise ValueError("an order for a certificate needs a signer or a new authority")
    begins, ends, hosts = order.begins, order.ends, order.hosts
    return Made(issue(signer, order.name, begins=begins, ends=ends, hosts=hosts, client=order.client), made)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _Key, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str, groups: Iterable[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    if common_name:
        parts.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64]))
    return x509.Name(parts)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: _Key) -> Pair:
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(serialization.Encoding.PEM, form, plain).decode(),
    )
