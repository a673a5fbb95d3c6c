"""Certificate files for tests of TLS connections."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared.pki import ca


class Authority:
    """A certificate authority whose certificates are files in a directory, valid for a day."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._begins = datetime.now(UTC) - timedelta(hours=1)
        self._ends = self._begins + timedelta(days=1)
        self._pair = ca.authority(name, begins=self._begins, ends=self._ends)
        self.certificate = directory / f"{name}.crt"
        self.certificate.write_text(self._pair.certificate)

    def issue(
        self, name: str, *hosts: str, days: int = 1, named: bool = True, client: bool = True
    ) -> tuple[Path, Path]:
        """Write a certificate and its key, for servers if `hosts` are given; overwrite earlier files.

        Args:
            name: file name and common name.
            days: validity in days; negative for a certificate that has expired.
            named: whether the certificate has a common name.
            client: whether the certificate is valid for clients.
        """
        ends = self._ends if days > 0 else self._begins
        begins = self._begins if days > 0 else ends + timedelta(days=days)
        pair = ca.issue(self._pair, name * named, begins=begins, ends=ends, hosts=hosts, client=client)
        files = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        for file, text in zip(files, pair, strict=True):
            file.write_text(text)
            file.chmod(0o644)  # readable by the user of a container
        return files

    def trust(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Build a client context that trusts this authority and presents a client certificate if given."""
        context = ssl.create_default_context(cafile=self.certificate)
        if client is not None:
            context.load_cert_chain(*client)
        return context
