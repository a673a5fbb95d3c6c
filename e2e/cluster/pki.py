"""The cluster's certificate authority, the certificates it signs, and kubeconfigs made of them."""

import base64
import datetime
import ipaddress
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=365)
BACKDATED = datetime.timedelta(hours=1)  # tolerates a clock that is set back after a start


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority in a directory; made anew each time, as its cluster is.

    Args:
        directory: where it writes ``ca.crt``, ``ca.key`` and what it signs; keys are readable by the owner only.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("platform-cluster-ca")
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pair = self._write("ca", certificate, self._key)

    def issue(self, file: str, common_name: str, *, groups: Iterable[str] = (), hosts: Iterable[str] = ()) -> Pair:
        """Sign a certificate for a client, and for a server when it has hosts.

        Args:
            file: name of the two files, without ending.
            common_name: Kubernetes reads it as the user's name.
            groups: Kubernetes reads them as the user's groups.
            hosts: addresses and DNS names it serves under.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [_general_name(host) for host in hosts]
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if alternatives else [])
        builder = (
            _builder(_name(common_name, groups), self._name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return self._write(file, builder.sign(self._key, hashes.SHA256()), key)

    def kubeconfig(self, path: Path, server: str, client: Pair, *, name: str = "platform") -> Path:
        """Write a kubeconfig that holds everything it needs, readable by its owner only."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": server, "certificate-authority-data": _base64(self.pair.certificate)},
                }
            ],
            "users": [
                {
                    "name": name,
                    "user": {
                        "client-certificate-data": _base64(client.certificate),
                        "client-key-data": _base64(client.key),
                    },
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
        _write_private(path, json.dumps(config, indent=2).encode())
        return path

    def _write(self, file: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
        pair = Pair(self.directory / f"{file}.crt", self.directory / f"{file}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_private(
            pair.key,
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )
        return pair


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + VALID)
    )


def _name(common_name: str, groups: Iterable[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


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


def _write_private(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
