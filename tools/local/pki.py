"""Certificate authority (CA) of the cluster, its certificates, and kubeconfigs."""

import base64
import datetime
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shared.pki import ca, certs

VALID = datetime.timedelta(days=365)
QUARTER = datetime.timedelta(days=90)
BACKDATED = datetime.timedelta(hours=1)  # tolerates a clock that is set back


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A new certificate authority in a directory.

    Args:
        directory: directory for ``ca.crt``, ``ca.key`` and issued certificates; keys are readable by the owner only.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        begins = datetime.datetime.now(datetime.UTC) - QUARTER  # it can sign certificates that are as old
        self._authority = ca.authority("platform-cluster-ca", **{**_validity(), "begins": begins})
        self.pair = self._write("ca", self._authority)

    def issue(
        self,
        file: str,
        common_name: str,
        *,
        groups: Iterable[str] = (),
        hosts: Iterable[str] = (),
        ends: datetime.datetime | None = None,
    ) -> Pair:
        """Issue a client certificate, which is also a server certificate if `hosts` is not empty.

        Args:
            file: name of the two files, without suffix.
            common_name: user name in Kubernetes.
            groups: groups of the user in Kubernetes.
            hosts: addresses and DNS names of the server.
            ends: end of a validity of 90 days; None: in a year, and the validity begins now.
        """
        validity = {**_validity(), **({"begins": ends - QUARTER, "ends": ends} if ends else {})}
        made = ca.issue(self._authority, common_name, **validity, groups=groups, hosts=hosts, client=True)
        return self._write(file, made)

    def kubeconfig(self, path: Path, server: str, client: Pair, *, name: str = "platform") -> Path:
        """Write a self-contained kubeconfig, readable by its owner only."""
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

    def _write(self, file: str, made: certs.Pair) -> Pair:
        pair = Pair(self.directory / f"{file}.crt", self.directory / f"{file}.key")
        pair.certificate.write_text(made.certificate)
        _write_private(pair.key, made.key.encode())
        return pair


def _validity() -> dict[str, datetime.datetime]:
    now = datetime.datetime.now(datetime.UTC)
    return {"begins": now - BACKDATED, "ends": now + VALID}


def _write_private(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
