"""The certificate that an operator serves with, kept fresh without a restart and without a dropped connection.

Where it comes from is a flag's value:

- `self:NAMESPACE/SECRET`: of our own making, in a Secret that every replica reads by name. Whoever finds that something
  is due makes it and writes it with the resourceVersion that was read; whoever loses that race takes the winner's.
  rotation.py decides, ca.py makes.
- a directory: tls.crt, tls.key and maybe ca.crt, as a mounted Secret of somebody else's (a person, cert-manager). What
  does not fit together is kept out: the certificate before it is served on.
- nothing: made at start and kept in memory, for who runs an operator on a machine of their own.

Webhooks' clients, the API servers, trust the caBundle of the operator's WebhookConfigurations: it is kept by
server-side apply of that one field, and put back where somebody wiped it.

With certificates that live for 90 days, a replica reads each of these once in 600 s at most, and all replicas together
write once in 60 days. With shorter lives it looks more often (`pause`): --certificate-lifetime 20 shows every
kind of rotation within a minute or so.
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

from shared.kubernetes.errors import Conflict, KubeError
from shared.kubernetes.kinds import Kind, Obj
from shared.observability import metrics
from shared.pki import certs, rotation
from shared.pki.ca import make
from shared.pki.certs import Certificate, Pair
from shared.pki.rotation import CertificateOrder, Made, SharedCertificates
from shared.pki.stores import ReplicaStore, shared_certificates, shared_content
from shared.pki.trust_bundle import Clients

log = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS = 10.0
"""Between two looks at a directory's files."""

LONGEST_PAUSE, SHORTEST_PAUSE = timedelta(seconds=600), timedelta(seconds=0.2)
"""Between two looks at what replicas share."""

PAUSES_PER_LIFE = 20
"""Pauses in what is left of a certificate's life."""

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 60.0
"""Until what failed is tried again, doubled with each failure; never more than the usual pause."""

MAX_WRITES_PER_LOOK = 5
"""Writes, or races lost, in one look."""

Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


class Certificates(ABC):
    """Keeps a certificate fresh.

    Attributes:
        context: serves with the certificate of the moment: each handshake takes it anew, open connections stay.
    """

    def __init__(self) -> None:
        self._current: ssl.SSLContext | None = None
        self._complete = False
        # Not load_cert_chain on the live context: there, a key that does not fit, or one of another type, would leave
        # the certificate before it half in place.
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.sni_callback = self._choose

    async def open(self) -> None:
        """Have a certificate; what else is to be done may follow.

        Raises:
            KubeError, ValueError, OSError: there is none to be had; the message says why.
        """
        try:
            await self._look()
        except (KubeError, ValueError, OSError) as error:
            if self._current is None:
                raise
            self._tell(error)

    async def run(self) -> None:
        """Keep it fresh, for ever."""
        retry = None if self._complete else FIRST_RETRY_SECONDS
        while True:
            await asyncio.sleep(min(self._pause(), retry or self._pause()) * random.uniform(0.8, 1.0))
            try:
                await self._look()
                retry = None
            except (KubeError, ValueError, OSError) as error:
                retry = min(2 * retry, LAST_RETRY_SECONDS) if retry else FIRST_RETRY_SECONDS
                self._tell(error)

    def unready(self) -> str | None:
        """What is missing until clients can verify who answers; None from the first time that nothing was."""
        return None if self._complete else "waiting for the certificate, and for clients to be told whom to trust"

    async def _look(self) -> None:
        await self._refresh()
        self._complete = True

    @abstractmethod
    async def _refresh(self) -> None:
        """See what is served, and whom clients trust, and do what is due."""

    @abstractmethod
    def _pause(self) -> float:
        """Seconds until the next look."""

    def _serve(self, pair: Pair) -> None:
        """Serve with this one from the next handshake on; raises ValueError, and changes nothing, if it cannot be."""
        certificate, *_ = certs.read(pair.certificate)
        self._current = certs.server_context(pair)
        metrics.CERTIFICATE_READS.inc()
        metrics.CERTIFICATE_EXPIRY.labels(name="serving").set(certificate.ends.timestamp())
        log.info("serving with a certificate that is valid until %s", certificate.ends.isoformat())

    def _choose(self, connection: ssl.SSLObject, _name: str, _front: ssl.SSLContext) -> None:
        if self._current is not None:
            connection.context = self._current

    def _tell(self, error: Exception) -> None:
        if isinstance(error, Conflict):  # another replica was quicker
            log.debug("looking again: %s", error)
            return
        metrics.CERTIFICATE_READ_ERRORS.inc()
        log.warning("certificates are not as they should be; what was served is served on: %s", error)


class FileCertificates(Certificates):
    """A certificate in files that somebody else keeps fresh.

    Args:
        directory: holds tls.crt and tls.key, and maybe ca.crt.
        clients: who is to trust ca.crt; None where that is somebody else's to see to, too.
        clock: the wall clock.
    """

    def __init__(self, directory: Path, clients: Clients | None = None, clock: Clock = _now) -> None:
        super().__init__()
        self._directory = directory
        self._clients = clients
        self._clock = clock
        self._pair: Pair | None = None
        self._taught: tuple[str, datetime] | None = None

    async def _refresh(self) -> None:
        pair = Pair(self._file("tls.crt"), self._file("tls.key"))
        if pair != self._pair:
            try:
                self._serve(pair)
            except ValueError as error:
                raise ValueError(f"{self._directory}/tls.crt and tls.key: {error}. Replace both.") from None
            self._pair = pair
        if self._clients is None or not (self._directory / "ca.crt").exists():
            return
        now = self._clock()
        if self._taught is None or self._taught[1] + LONGEST_PAUSE <= now or self._bundle() != self._taught[0]:
            seen = await self._clients.look()
            bundle = self._bundle()
            await self._clients.teach(seen, bundle)
            self._taught = bundle, now

    def _pause(self) -> float:
        return POLL_INTERVAL_SECONDS

    def _bundle(self) -> str:
        bundle = self._file("ca.crt")
        certs.read(bundle)
        return bundle

    def _file(self, name: str) -> str:
        return (self._directory / name).read_text()


class SelfSignedCertificates(Certificates):
    """A certificate of an authority of our own.

    Args:
        store: where replicas share both.
        clients: who is to trust the authority; None for nobody.
        name: the certificate's name, for people.
        hosts: what the certificate is for.
        life: how long it is valid.
        clock: the wall clock.
        maker: makes what is ordered.
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
        self._held: SharedCertificates | None = None
        self._trusted: datetime | None = None

    async def _refresh(self) -> None:
        for _ in range(MAX_WRITES_PER_LOOK):
            trouble: KubeError | None = None
            try:
                seen = await self._clients.look() if self._clients else []  # before the store is read: see `teach`
            except KubeError as error:
                trouble, seen = error, []
            content = await self._store.read()
            if content != self._content:
                self._content, self._shared = content, shared_certificates(content)
            if self._shared is not None:
                if trouble is None:
                    trouble = await self._teach(seen, self._shared)
                self._take(self._shared, trusted=trouble is None)
            if not await self._renew(lost=self._shared is None):
                break
        if trouble is not None:
            raise trouble

    async def _teach(self, seen: list[tuple[Kind, Obj]], held: SharedCertificates) -> KubeError | None:
        try:
            if self._clients:
                await self._clients.teach(seen, certs.joined(held.authorities.trusted))
        except KubeError as error:
            return error
        return None

    def _take(self, held: SharedCertificates, *, trusted: bool) -> None:
        """Serve what the replicas share, and note since when clients trust its newest authority."""
        before, self._held = self._held, held
        if not trusted:
            self._trusted = None
        elif self._trusted is None or before is None or before.newest != held.newest:
            self._trusted = self._clock()
        metrics.CERTIFICATE_EXPIRY.labels(name="authority").set(held.newest.ends.timestamp())
        if held.serving is not None and (before is None or before.serving != held.serving):
            self._serve(held.serving.pair)

    async def _renew(self, *, lost: bool) -> bool:
        """Make what is due.

        Returns:
            Whether the replicas now share something else, made by us or by another.
        """
        held, now = self._held or SharedCertificates(), self._clock()
        order, why = rotation.next_order(
            held, now, self._policy, name=self._name, hosts=self._hosts, trusted=self._trusted, lost=lost
        )
        if order is None:
            return False
        try:
            await self._store.write(shared_content(await self._make(order), held, now))
        except Conflict:
            return True
        except (KubeError, OSError):
            metrics.CERTIFICATE_RENEWAL_ERRORS.inc()
            raise
        metrics.CERTIFICATE_RENEWALS.inc()
        log.info("certificates rotated: %s", why)
        return True

    def _pause(self) -> float:
        serving = self._held.serving if self._held else None
        return pause(serving.certificate if serving else None, self._clock()).total_seconds()


def pause(serving: Certificate | None, now: datetime) -> timedelta:
    """Time until the store is read again: many times in what is left of a short life."""
    if serving is None or serving.ends <= now:
        return LONGEST_PAUSE  # there is nothing left to lose
    return min(LONGEST_PAUSE, max((serving.ends - now) / PAUSES_PER_LIFE, SHORTEST_PAUSE))
