"""Address and credentials of the API server, read again when their files change.

A process outlives its credentials: the kubelet replaces the token and the CA of a service account, and the CA of a
cluster is rotated. The official client reads kubeconfigs and runs exec plugins; it reads neither a CA nor a client
certificate a second time. A pod needs no kubeconfig, and so does not import the client, which takes 9 MiB.
"""

from __future__ import annotations

import functools
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from shared.kubernetes.addresses import host_port
from shared.kubernetes.client import SERVICE_ACCOUNT
from shared.kubernetes.errors import KubeError

log = logging.getLogger(__name__)

MAX_AGE_SECONDS = 300.0
"""Seconds after which credentials are read again although their files did not change: exec plugins issue new ones."""

MIN_AGE_SECONDS = 1.0
"""Seconds for which credentials are not read again, after they were read or could not be read."""

MAX_UNTRUSTED_SECONDS = 120.0
"""Seconds without a successful TLS handshake after a failed one, until the liveness probe fails."""

Read = Callable[["Configuration"], Awaitable[None]]
"""Reads credentials into a configuration; raises any error if a file is missing or incomplete."""


class Configuration:
    """Address and credentials of the API server.

    The attributes have the names of the official client's configuration, because its loader sets them.

    Args:
        read: reads the credentials again; None if they never change.
        files: files whose change means that there are new credentials.
        clock: monotonic time in seconds.

    Attributes:
        host: URL of the API server.
        ssl_ca_cert: file with the CA; None for the CAs of the system.
        cert_file, key_file: files of the client certificate; None for none.
        verify_ssl: whether the certificate of the API server is verified.
        proxy: URL of a proxy; None for the one in the environment, if any.
        api_key: value of the Authorization header, under `BearerToken`.
    """

    def __init__(
        self,
        *,
        host: str = "",
        token: str = "",
        read: Read | None = None,
        files: tuple[Path, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host
        self.ssl_ca_cert: str | None = None
        self.cert_file: str | None = None
        self.key_file: str | None = None
        self.verify_ssl = True
        self.proxy: str | None = None
        self.api_key = {"BearerToken": token} if token else {}
        self._read = read
        self._files = files
        self._clock = clock
        self._stamps = _stamps(files)
        self._age_limit = clock() + MAX_AGE_SECONDS
        self._pause_until = 0.0

    @functools.cached_property
    def tls(self) -> ClientContext:
        """Context for connections to the API server. Each handshake uses the current CA and client certificate.

        Raises:
            OSError: a file is missing or is not a certificate.
        """
        return ClientContext(self)

    async def refresh(self, *, rejected: bool = False) -> bool:
        """Read the credentials again if they may have changed.

        Args:
            rejected: whether the API server rejected the present ones.

        Returns:
            Whether they were read. If that fails, the present ones stay in use.
        """
        now = self._clock()
        if self._read is None or now < self._pause_until:
            return False
        stamps = _stamps(self._files)
        if not rejected and stamps == self._stamps and now < self._age_limit:
            return False
        self._pause_until = float("inf")  # concurrent requests do not read as well
        try:
            await self._read(self)
        except Exception as error:  # the official client raises any error if a file is incomplete
            log.warning("cannot read the credentials of the API server again; the present ones stay in use: %s", error)
            return False
        finally:
            self._pause_until = self._clock() + MIN_AGE_SECONDS
        self._stamps, self._age_limit = stamps, now + MAX_AGE_SECONDS
        return True

    def untrusted(self) -> str | None:
        """Return why the operator must be restarted: no TLS handshake has succeeded for a long time."""
        return self.tls.problem(self._clock())

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return self._clock()


class ClientContext(ssl.SSLContext):
    """A TLS context for clients, whose handshakes use the files as they are. Open connections are not affected.

    Attributes:
        version: how often changed files were loaded. Connections of an earlier version may have another certificate.
    """

    def __new__(cls, _: Configuration) -> ClientContext:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._failed: tuple[float, str] | None = None  # time and error of the first of the latest failures
        self.version = 0
        self._content = self._read()
        self._current = self._load()

    def wrap_bio(self, *given: Any, **options: Any) -> ssl.SSLObject:
        """Begin a handshake, with the files as they are now."""
        self.reload()
        return self._current.wrap_bio(*given, **options)

    def reload(self) -> None:
        """Load the files if they changed. Files that cannot be loaded are not used."""
        try:
            content = self._read()
            if content == self._content:
                return
            self._current = self._load()
        except OSError as error:  # also of TLS
            log.warning("cannot load the CA of the API server; the previous one stays in use: %s", error)
            return
        self._content = content
        self.version += 1
        log.info("loaded the changed CA or client certificate for the API server")

    def problem(self, now: float) -> str | None:
        """Return the error of handshakes that have failed for `MAX_UNTRUSTED_SECONDS`."""
        if self._failed is None or now < self._failed[0] + MAX_UNTRUSTED_SECONDS:
            return None
        since, error = self._failed
        return (
            f"TLS connections to the API server have failed for {now - since:.0f} s: {error}. A restart reads all "
            "credentials again; if it does not help, compare the certificate of the API server with the CA"
        )

    def _report(self, error: ssl.SSLError | None) -> None:
        """Note the result of a handshake."""
        if error is None:
            self._failed = None
        elif self._failed is None:
            self._failed = self._configuration.now(), str(error)

    def _read(self) -> tuple[object, ...]:
        """Return all that the context depends on."""
        source = self._configuration
        files = (source.ssl_ca_cert, source.cert_file, source.key_file)
        return (*(Path(file).read_bytes() if file else None for file in files), source.verify_ssl)

    def _load(self) -> ssl.SSLContext:
        report = self._report

        class Observed(ssl.SSLObject):
            """A connection that reports the result of its handshake."""

            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError as error:
                    report(error)
                    raise
                report(None)

        source = self._configuration
        context = ssl.create_default_context(cafile=source.ssl_ca_cert)
        if source.cert_file:
            context.load_cert_chain(source.cert_file, source.key_file)
        if not source.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.sslobject_class = Observed
        return context


async def authorization(configuration: Configuration) -> dict[str, str]:
    """Return the Authorization header with the current token; empty if a client certificate authenticates."""
    await configuration.refresh()
    token = configuration.api_key.get("BearerToken")
    return {"Authorization": token} if token else {}


async def load_configuration(kubeconfig: str | None) -> Configuration:
    """Return the address and the credentials of the API server.

    Args:
        kubeconfig: path of a kubeconfig; None or empty uses the service account of the pod, or else the file that
            KUBECONFIG names, or else `~/.kube/config`. In a pod, the variable chooses no other cluster.

    Raises:
        KubeError: there is no usable configuration; the message lists the tried sources.
    """
    read: Read
    files: tuple[Path, ...]
    has_account = (SERVICE_ACCOUNT / "token").exists()
    if not (has_account and os.environ.get("KUBERNETES_SERVICE_HOST")):
        kubeconfig = kubeconfig or os.environ.get("KUBECONFIG")
    if has_account and not kubeconfig:
        read, files = _read_service_account, (SERVICE_ACCOUNT / "token",)
    else:
        paths = kubeconfig or "~/.kube/config"
        read = functools.partial(_read_kubeconfig, paths)
        files = tuple(Path(os.path.expanduser(path)) for path in paths.split(os.pathsep))  # noqa: ASYNC240, PTH111 (reads no file)
    configuration = Configuration(read=read, files=files)
    try:
        await read(configuration)
    except OSError as error:
        where = kubeconfig or "the service account of the pod or the default kubeconfig"
        raise KubeError(f"cannot connect to Kubernetes: {where}: {error}. Set --kubeconfig or KUBECONFIG.") from None
    return configuration


async def _read_service_account(configuration: Configuration) -> None:
    """Read the files that the kubelet mounts into each pod.

    Source: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api

    Raises:
        OSError: a file is missing or empty, or the address is not in the environment.
    """
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
    if not host or not port:
        raise OSError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    authority = SERVICE_ACCOUNT / "ca.crt"
    token = (SERVICE_ACCOUNT / "token").read_text().strip()
    if not token or not authority.read_bytes():
        raise OSError(f"{SERVICE_ACCOUNT}: the token or ca.crt is empty")
    configuration.host = f"https://{host_port(host, port)}"
    configuration.ssl_ca_cert = str(authority)
    configuration.api_key = {"BearerToken": f"Bearer {token}"}


async def _read_kubeconfig(kubeconfig: str, configuration: Configuration) -> None:
    """Read a kubeconfig by the official client, which also runs exec plugins.

    Raises:
        OSError: the file is missing or invalid.
    """
    from kubernetes.aio import config

    loader: Any = config  # the module has no type hints
    try:
        await loader.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    except Exception as error:  # the client raises any error if a file is empty or incomplete
        raise OSError(f"{kubeconfig}: {error}") from None


def _stamps(files: tuple[Path, ...]) -> list[tuple[int, int, int] | None]:
    """Return what changes with each file; None for a missing file."""
    stamps: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            found = os.stat(file)  # noqa: PTH116 (on each request: half the time of Path.stat)
            stamps.append((found.st_mtime_ns, found.st_ino, found.st_size))
        except OSError:
            stamps.append(None)
    return stamps
