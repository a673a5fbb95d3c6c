"""The serving certificate of an operator, rotated without a restart and without dropped connections.

A flag sets the source:

- `self:NAMESPACE/SECRET`: issued by the operator and stored in a Secret that every replica reads by name. The replica
  that finds something due issues it and writes it with the observed resourceVersion; a replica that loses this race
  uses the result of the other. rotation.py decides, ca.py issues.
- a directory: tls.crt, tls.key and optionally ca.crt, such as a mounted Secret that a user or cert-manager maintains.
  An invalid pair is not loaded: the previous certificate stays in use.
- empty: issued at startup and kept in memory, for an operator that runs outside a cluster.

API servers, the clients of webhooks, trust the caBundle of the operator's WebhookConfigurations. The operator sets that
one field by server-side apply, and restores it if it was removed.

The Secret and the configurations are read when they change (`trust_watch.py`), and every 600 s. With certificates of 90
days, all replicas together write once in 60 days. With shorter lifetimes the objects are read more often (`pause`):
--certificate-lifetime 20 shows every kind of rotation within about a minute.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared.kubernetes.errors import Conflict, KubeError, Unavailable
from shared.kubernetes.kinds import Kind, Obj
from shared.observability import metrics
from shared.pki import certs, rotation
from shared.pki.certs import Certificate, Pair
from shared.pki.issuing import make
from shared.pki.rotation import CertificateOrder, Made, SharedCertificates
from shared.pki.stores import ReplicaStore, shared_certificates, shared_content, shared_serving, taken_over
from shared.pki.trust_bundle import Clients, authorities_in

log = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS = 10.0
"""Seconds between checks of the files in a directory."""

LONGEST_PAUSE, SHORTEST_PAUSE = timedelta(seconds=600), timedelta(seconds=0.2)
"""Bounds of the time between checks of the shared store."""

PAUSES_PER_LIFE = 20
"""Number of checks in the remaining lifetime of a certificate."""

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 60.0
"""Bounds of the retry delay, which doubles with each failure and never exceeds the usual pause."""

MAX_WRITES_PER_CHECK = 5
"""Maximum number of writes, or lost races, in one check."""

MAX_CLIENT_AUTHORITIES = 64
"""Maximum number of authorities of clients. OpenSSL parses them on the event loop, twice, 0.3 ms for each."""

Clock = Callable[[], datetime]

Wait = Callable[[float], Awaitable[object]]
"""Waits for a change, at most this number of seconds; the result is true if there was one."""


def _now() -> datetime:
    return datetime.now(UTC)


class Certificates(ABC):
    """Keeps a serving certificate up to date.

    Attributes:
        context: server context; each handshake uses the current certificate, open connections are not affected.
    """

    def __init__(self) -> None:
        self._current: ssl.SSLContext | None = None
        self._complete = False
        self._client_authorities = ""
        # load_cert_chain on the live context would replace the certificate only in part if the key does not match or
        # has another type.
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.sni_callback = self._choose

    def for_clients_of(self, file: Path) -> ssl.SSLContext:
        """Return a server context that accepts only clients with a certificate of these authorities.

        Args:
            file: PEM certificates of the authorities.

        Raises:
            ValueError: the certificates cannot be parsed, or are too many: each new serving certificate loads them.
            OSError: the file cannot be read.
        """
        authorities = file.read_text()
        if excess := certs.excess_of(authorities, MAX_CLIENT_AUTHORITIES):
            raise ValueError(f"{file} has {excess}.")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.sni_callback = self._choose
        self._client_authorities = authorities
        try:
            for each in (context, self._current):  # OpenSSL verifies by the context that `_choose` sets
                if each is not None:
                    each.load_verify_locations(cadata=authorities)
        except ssl.SSLError as error:
            raise ValueError(f"{file} has no PEM certificates ({error.reason or error}). Correct it.") from None
        return context

    async def open(self) -> None:
        """Load or issue a certificate; rotations may follow in `run`.

        Raises:
            Refused, Conflict, ValueError, OSError: there is no usable certificate; the message has the reason. If the
                API server does not answer, `run` waits for it: until then, connections fail.
        """
        try:
            await self._check()
        except (KubeError, ValueError, OSError) as error:
            if self._current is None and not isinstance(error, Unavailable):
                raise
            self._log_failure(error)

    async def run(self, wait: Wait | None = None) -> None:
        """Rotate the certificate until cancelled.

        Args:
            wait: waits for a change of what clients trust; None if only time passes.
        """
        retry = None if self._complete else FIRST_RETRY_SECONDS
        while True:
            seconds = min(self._pause(), retry or self._pause()) * random.uniform(0.8, 1.0)
            if await (wait or asyncio.sleep)(seconds):
                self._forget_published()
            try:
                await self._check()
                retry = None
            except (KubeError, ValueError, OSError) as error:
                retry = min(2 * retry, LAST_RETRY_SECONDS) if retry else FIRST_RETRY_SECONDS
                self._log_failure(error)

    def unready(self) -> str | None:
        """Return why clients cannot verify this server yet; None once the first check has succeeded."""
        if self._current is None:
            return "no serving certificate is loaded yet, so that every connection fails; the log has the reason"
        return None if self._complete else "waiting for the caBundle of the webhooks"

    async def _check(self) -> None:
        await self._refresh()
        self._complete = True

    def _forget_published(self) -> None:  # noqa: B027  # most sources compare each time
        """Compare the trust of clients at the next check, because something changed it."""

    @abstractmethod
    async def _refresh(self) -> None:
        """Check the served certificate and the trust of clients, and do what is due."""

    @abstractmethod
    def _pause(self) -> float:
        """Return the seconds until the next check."""

    def _serve(self, pair: Pair) -> None:
        """Serve with a pair from the next handshake on; an unusable pair raises ValueError and changes nothing."""
        certificate, *_ = certs.read(pair.certificate)
        context = certs.server_context(pair)
        if self._client_authorities:
            context.load_verify_locations(cadata=self._client_authorities)
        self._current = context
        metrics.CERTIFICATE_READS.inc()
        _show("serving", certificate)
        log.info("serving certificate loaded; valid until %s", certificate.ends.isoformat())

    def _choose(self, connection: ssl.SSLObject, _name: str, _front: ssl.SSLContext) -> None:
        if self._current is not None:
            connection.context = self._current

    def _log_failure(self, error: Exception) -> None:
        if isinstance(error, Conflict):  # another replica was quicker
            log.debug("checking again: %s", error)
            return
        metrics.CERTIFICATE_READ_ERRORS.inc()
        log.warning("cannot update certificates; the current certificate stays in use: %s", error)


class FileCertificates(Certificates):
    """A certificate in files that something else rotates.

    Args:
        directory: directory with tls.crt, tls.key and optionally ca.crt.
        clients: clients that should trust ca.crt; None if the trust is managed elsewhere.
        clock: wall clock.
    """

    def __init__(self, directory: Path, clients: Clients | None = None, clock: Clock = _now) -> None:
        super().__init__()
        self._directory = directory
        self._clients = clients
        self._clock = clock
        self._pair: Pair | None = None
        self._published: tuple[str, datetime] | None = None

    async def _refresh(self) -> None:
        pair = Pair(self._file("tls.crt"), self._file("tls.key"))
        if pair != self._pair:
            try:
                self._serve(pair)
            except ValueError as error:
                raise ValueError(f"{self._directory}/tls.crt and tls.key: {error}. Replace both files.") from None
            self._pair = pair
        if self._clients is None or not (self._directory / "ca.crt").exists():
            return
        now = self._clock()
        if self._published is None or self._published[1] + LONGEST_PAUSE <= now or self._bundle() != self._published[0]:
            seen = await self._clients.read()
            bundle = self._bundle()
            await self._clients.publish(seen, bundle)
            self._published = bundle, now

    def _pause(self) -> float:
        return POLL_INTERVAL_SECONDS

    def _forget_published(self) -> None:
        self._published = None

    def _bundle(self) -> str:
        bundle = self._file("ca.crt")
        certs.read(bundle)
        return bundle

    def _file(self, name: str) -> str:
        return (self._directory / name).read_text()


class SelfSignedCertificates(Certificates):
    """A certificate signed by an authority of the operator.

    Args:
        store: store of certificate and authority, shared by the replicas.
        clients: clients that should trust the authority; None for none.
        name: common name of the certificate.
        hosts: DNS names and IP addresses of the certificate.
        life: lifetime of the certificate.
        clock: wall clock.
        maker: fulfils orders.
    """

    def __init__(
        self,
        store: ReplicaStore,
        clients: Clients | None = None,
        *,
        name: str,
        hosts: frozenset[str],
        life: timedelta = rotation.LIFETIME,
        clock: Clock = _now,
        maker: Callable[[CertificateOrder], Awaitable[Made]] = make,
    ) -> None:
        super().__init__()
        self._store = store
        self._clients = clients
        self._name = name
        self._hosts = hosts
        self._policy = dataclasses.replace(rotation.SERVING, life=life)
        self._clock = clock
        self._make = maker
        self._content: Mapping[str, str] = {}
        self._shared: SharedCertificates | None = None
        self._known: SharedCertificates | None = None
        self._trusted: datetime | None = None

    async def _refresh(self) -> None:
        for _ in range(MAX_WRITES_PER_CHECK):
            problem: KubeError | None = None
            try:
                seen = await self._clients.read() if self._clients else []  # before the store is read: see `publish`
            except KubeError as error:
                problem, seen = error, []
            content = await self._store.read()
            if content != self._content:
                self._content, self._shared = content, shared_certificates(content)
            if self._shared is not None:
                if problem is None:
                    problem = await self._publish(seen, self._shared)
                self._take(self._shared, trusted=problem is None)
            if not await self._renew(seen, lost=self._shared is None):
                break
        if problem is not None:
            raise problem
        if self._current is None:
            raise ValueError(
                f"the certificates in {self._store} cannot be loaded, although this operator has issued them "
                f"{MAX_WRITES_PER_CHECK} times. Check whether something else changes their content."
            )

    async def _publish(self, seen: list[tuple[Kind, Obj]], known: SharedCertificates) -> KubeError | None:
        try:
            if self._clients:
                await self._clients.publish(seen, certs.joined(known.authorities.trusted))
        except KubeError as error:
            return error
        return None

    def _take(self, known: SharedCertificates, *, trusted: bool) -> None:
        """Serve the shared certificate, and record since when clients trust the newest authority."""
        before, self._known = self._known, known
        if not trusted:
            self._trusted = None
        elif self._trusted is None or before is None or before.newest != known.newest:
            self._trusted = self._clock()
        _show("authority", known.newest)
        if known.serving is not None and (before is None or before.serving != known.serving):
            self._serve(known.serving.pair)

    async def _renew(self, seen: list[tuple[Kind, Obj]], *, lost: bool) -> bool:
        """Issue what is due.

        Args:
            seen: the configurations. A replica that knows no authority starts from those that they trust: other
                replicas may still serve certificates of them.

        Returns:
            Whether the shared certificates changed, by this replica or another.
        """
        now = self._clock()
        known = self._known or taken_over(authorities_in(seen), shared_serving(self._content), now)
        order, why = rotation.next_order(
            known, now, self._policy, name=self._name, hosts=self._hosts, trusted=self._trusted, lost=lost
        )
        if order is None:
            return False
        try:
            await self._store.write(shared_content(await self._make(order), known, now))
        except Conflict:
            return True
        except (KubeError, OSError):
            metrics.CERTIFICATE_RENEWAL_ERRORS.inc()
            raise
        metrics.CERTIFICATE_RENEWALS.inc()
        log.info("certificates rotated: %s", why)
        return True

    def _pause(self) -> float:
        serving = self._known.serving if self._known else None
        return pause(serving.certificate if serving else None, self._clock()).total_seconds()


def _show(name: str, certificate: Certificate) -> None:
    """Expose the validity of a certificate as metrics."""
    metrics.CERTIFICATE_NOT_BEFORE.labels(name=name).set(certificate.begins.timestamp())
    metrics.CERTIFICATE_EXPIRY.labels(name=name).set(certificate.ends.timestamp())


def pause(serving: Certificate | None, now: datetime) -> timedelta:
    """Return the time until the store is read again, a fraction of the remaining lifetime."""
    if serving is None or serving.ends <= now:
        return LONGEST_PAUSE  # retrying sooner does not help clients
    return min(LONGEST_PAUSE, max((serving.ends - now) / PAUSES_PER_LIFE, SHORTEST_PAUSE))
