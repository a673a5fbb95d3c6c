"""Decides when authorities and certificates are replaced, and which authority signs. Pure.

One engine rotates the serving certificate of an operator and the certificates of databases. stores.py defines how each
is stored; a policy defines lifetimes.

A certificate is replaced after two thirds of its lifetime. Servers load the new one without a restart.

An authority gets a successor after two thirds of its lifetime. The order of events (`AUTHORITY`) keeps every connection
trusted:

| event | effect |
|---|---|
| introduce | the successor is added to the trust bundle; it does not sign yet |
| promote | every server and client trusts the successor: it signs from now on; the key of its predecessor is deleted |
| forget | the predecessor has expired and is removed from the trust bundle; everything it signed expired earlier |

An authority whose key is lost also gets a successor. Before its promotion, the successor signs only certificates that
are missing: a certificate that some clients do not trust yet is better than none. An authority that a person writes
over the signer is introduced first, too.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from shared.pki.certs import MAX_CERTIFICATES, MAX_CERTIFICATES_BYTES, Certificate, IssuedCertificate, Pair
from shared.status.lifecycle import Lifecycle

LIFETIME = timedelta(days=90)
"""Default lifetime of a certificate."""

RENEWAL_FRACTION = 2 / 3
"""Fraction of its lifetime after which a certificate or an authority is replaced."""

BACKDATED = timedelta(minutes=5)
"""Time by which the start of validity is backdated, for clients whose clock is behind."""

SETTLINGS_PER_LIFE = 20
"""Minimum number of settling times in the lifetime of a certificate."""

MAX_RETIRED, MAX_RETIRED_BYTES = MAX_CERTIFICATES, MAX_CERTIFICATES_BYTES
"""Maximum number of retired authorities that stay trusted, and size of their text, as of the authorities in a Secret of
a user. Each deletion of a Secret adds one, and a bundle of twice as many is not read any longer (`certs.read`). The
bundle of a system, which may have the authority of a certificate from another source, fits."""

TAKEOVER_FACTOR = 1.5
"""Factor of both while the certificates that other replicas serve are unknown: everything that a replica with that
knowledge publishes is then taken over."""


@dataclass(frozen=True, slots=True)
class RotationPolicy:
    """Lifetimes of certificates and authorities.

    Attributes:
        authority_lives: lifetime of an authority, in lifetimes of a certificate.
        longest_settling: maximum time for clients to load a new authority before it signs.
        life: lifetime of a certificate.
    """

    authority_lives: int
    longest_settling: timedelta
    life: timedelta = LIFETIME

    def settling(self, life: timedelta) -> timedelta:
        """Return the time for clients to load a new authority, for certificates with the lifetime `life`."""
        return min(self.longest_settling, life / SETTLINGS_PER_LIFE)

    def authority_ends(self, now: datetime) -> datetime:
        """Return the expiry of an authority that is created now."""
        return now + self.authority_lives * self.life

    def order_authority(self, name: str, now: datetime) -> CertificateOrder:
        """Return an order for an authority only."""
        return CertificateOrder(name, (), now - BACKDATED, None, None, self.authority_ends(now))

    def order_certificate(
        self, name: str, hosts: tuple[str, ...], signer: Authority | None, now: datetime, *, client: bool = False
    ) -> CertificateOrder:
        """Return an order for a certificate that does not outlive its signer; None orders the authority as well."""
        ends = min(now + self.life, signer.certificate.ends) if signer else now + self.life
        return CertificateOrder(name, hosts, now - BACKDATED, ends, signer.pair if signer else None, None, client)


SERVING = RotationPolicy(authority_lives=4, longest_settling=timedelta(seconds=600))
"""Policy for the serving certificate of an operator. API servers load a changed caBundle at once; others poll."""

DATABASES = RotationPolicy(authority_lives=20, longest_settling=timedelta(days=1))
"""Policy for databases, whose servers may have to restart to load a new authority: every three years with certificates
of 90 days. The kubelet updates a mounted Secret within two minutes, but not every client reloads files at once."""


class AuthorityState(enum.Enum):
    """State of a certificate authority."""

    MISSING = "not created yet"
    INTRODUCED = "trusted, does not sign yet"
    SIGNING = "signs"
    RETIRED = "trusted, no longer signs"
    FORGOTTEN = "no longer trusted"


class AuthorityEvent(enum.Enum):
    """An event in the life of a certificate authority."""

    BEGIN = "created while no authority is trusted"
    INTRODUCE = "created while another authority is trusted"
    PROMOTE = "every server and client trusts it"
    RETIRE = "its key is deleted or lost"
    FORGET = "it has expired"


AUTHORITY = Lifecycle(
    "certificate authority",
    AuthorityState.MISSING,
    {
        AuthorityState.MISSING: {
            AuthorityEvent.BEGIN: AuthorityState.SIGNING,
            AuthorityEvent.INTRODUCE: AuthorityState.INTRODUCED,
        },
        AuthorityState.INTRODUCED: {
            AuthorityEvent.PROMOTE: AuthorityState.SIGNING,
            AuthorityEvent.RETIRE: AuthorityState.RETIRED,
            AuthorityEvent.FORGET: AuthorityState.FORGOTTEN,
        },
        AuthorityState.SIGNING: {
            AuthorityEvent.RETIRE: AuthorityState.RETIRED,
            AuthorityEvent.FORGET: AuthorityState.FORGOTTEN,
        },
        AuthorityState.RETIRED: {AuthorityEvent.FORGET: AuthorityState.FORGOTTEN},
        AuthorityState.FORGOTTEN: {},
    },
)

LIFECYCLES = (AUTHORITY,)
"""Lifecycles of this module, from which the diagrams in docs/reference/lifecycles.md are generated."""


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A certificate that a database needs, for a server or a client.

    Attributes:
        secret: name of the Secret for the certificate.
        name: common name, for people; empty for none.
        hosts: DNS names and IP addresses of the server; empty for a client only.
        uri: URI name for cert-manager, which requires a name, if there is no other.
    """

    secret: str
    name: str
    hosts: tuple[str, ...] = ()
    uri: str = ""


def in_domains(host: str) -> tuple[str, str]:
    """Return a name as pods use it with their search list, and with the most common cluster domain."""
    return host, f"{host}.cluster.local"


def server_hosts(name: str, namespace: str, service: str) -> tuple[str, ...]:
    """Return the names by which clients connect to the servers of a resource.

    Args:
        name: name of the headless Service, which is that of the resource.
        service: name of the Service for clients; it may be the same one.
    """
    hosts = (
        *in_domains(f"*.{name}.{namespace}.svc"),
        *in_domains(f"{name}.{namespace}.svc"),
        *in_domains(f"{service}.{namespace}.svc"),
        *(f"{service}.{namespace}", service),
        *("localhost", "127.0.0.1", "::1"),  # for `kubectl port-forward` and exporters
    )
    return tuple(dict.fromkeys(hosts))


@dataclass(frozen=True, slots=True)
class CertificateOrder:
    """An order for ca.py.

    Attributes:
        name: common name; that of an authority gets a unique suffix.
        hosts: DNS names and IP addresses of the certificate; empty for a client only.
        begins: start of the validity.
        ends: end of the certificate's validity; None to issue no certificate.
        signer: authority that signs; None for the new authority.
        authority_ends: end of the new authority's validity; None to create none.
        client: whether the certificate is also valid for client authentication.
    """

    name: str
    hosts: tuple[str, ...]
    begins: datetime
    ends: datetime | None
    signer: Pair | None = field(repr=False)
    authority_ends: datetime | None
    client: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """The result of an order: the ordered parts."""

    serving: Pair | None = field(repr=False)
    authority: Pair | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authority:
    """A trusted authority.

    Attributes:
        pair: certificate and key; None after the key was deleted or lost.
    """

    state: AuthorityState
    certificate: Certificate
    pair: Pair | None = field(default=None, repr=False)

    def after(self, event: AuthorityEvent) -> Authority:
        """Return the authority after a legal event."""
        state = AUTHORITY.after(self.state, event)
        return replace(self, state=state, pair=self.pair if state is AuthorityState.SIGNING else None)


@dataclass(frozen=True, slots=True)
class Authorities:
    """The authorities that servers and clients should trust, newest first."""

    stored: tuple[Authority, ...] = ()

    @property
    def signer(self) -> Authority | None:
        return self._only(AuthorityState.SIGNING)

    @property
    def successor(self) -> Authority | None:
        return self._only(AuthorityState.INTRODUCED)

    @property
    def former(self) -> tuple[Certificate, ...]:
        return tuple(each.certificate for each in self.stored if each.state is AuthorityState.RETIRED)

    @property
    def trusted(self) -> tuple[Certificate, ...]:
        return tuple(each.certificate for each in self.stored)

    def usable(self, now: datetime) -> Authorities:
        """Return the authorities that have not expired."""
        return Authorities(tuple(each for each in self.stored if each.certificate.ends > now))

    def bounded(self, now: datetime, in_use: Collection[Certificate], factor: float = 1.0) -> Authorities:
        """Return the authorities that have not expired, without the oldest retired ones beyond `MAX_RETIRED`.

        Those that are valid already are preferred to those that are not valid yet.

        Args:
            in_use: certificates in use, whose issuers are preferred to all other authorities.
            factor: factor of the maximum.
        """
        usable, issuers = self.usable(now), {each.issuer for each in in_use}
        most, left = int(MAX_RETIRED * factor), int(MAX_RETIRED_BYTES * factor)
        kept = set[Certificate]()
        for each in sorted(
            usable.former, key=lambda each: (each.subject in issuers, each.begins <= now, each.begins), reverse=True
        ):
            left -= len(each.pem) + 1
            if len(kept) == most or left < 0:
                break
            kept.add(each)
        return Authorities(
            tuple(
                each for each in usable.stored if each.state is not AuthorityState.RETIRED or each.certificate in kept
            )
        )

    def promoted(self) -> Authorities:
        """Return the authorities after the successor is promoted and its predecessor retired."""
        events = {AuthorityState.INTRODUCED: AuthorityEvent.PROMOTE, AuthorityState.SIGNING: AuthorityEvent.RETIRE}
        return Authorities(
            tuple(each.after(events[each.state]) if each.state in events else each for each in self.stored)
        )

    def introducing(self, trusted: Iterable[Certificate]) -> Authorities:
        """Return the authorities while nothing trusts the signer yet: a person replaced the one that signed.

        Args:
            trusted: the authorities that servers and clients trust.
        """
        assert self.signer is not None
        signer = replace(self.signer, state=AuthorityState.INTRODUCED)
        return Authorities((signer, *(Authority(AuthorityState.RETIRED, each) for each in trusted)))

    def _only(self, state: AuthorityState) -> Authority | None:
        return next((each for each in self.stored if each.state is state), None)


def next_event(
    authorities: Authorities, now: datetime, *, informed: bool, lost: bool = False
) -> tuple[AuthorityEvent | None, str]:
    """Return the next event of an authority and its reason; None if nothing is due.

    Args:
        informed: whether every server and client trusts the successor and the settling time is over.
        lost: whether the stored keys were deleted from their store.
    """
    usable = authorities.usable(now)
    if usable.signer is None and usable.successor is None:
        if usable.former:
            return AuthorityEvent.INTRODUCE, "the certificate authority is missing; adding a new one"
        return AuthorityEvent.BEGIN, "there is no certificate authority yet"
    if lost:
        return AuthorityEvent.INTRODUCE, "the shared certificates were deleted"
    if usable.successor is not None and informed:
        return AuthorityEvent.PROMOTE, "every client trusts the new certificate authority; it signs from now on"
    if usable.signer is not None and usable.successor is None and due(usable.signer.certificate) <= now:
        return (
            AuthorityEvent.INTRODUCE,
            "the certificate authority is past two thirds of its lifetime; adding its successor",
        )
    if usable != authorities:
        return AuthorityEvent.FORGET, "a certificate authority has expired"
    return None, ""


def why_replaced(certificate: Certificate | None, signer: Authority | None, now: datetime, *, fits: bool = True) -> str:
    """Return the reason to replace a certificate; empty if there is none.

    Args:
        certificate: the current certificate; None if there is no usable one.
        signer: the signing authority; None if only a successor could sign, which some clients may not trust yet: then
            only an unusable certificate is replaced.
        fits: whether the names of the certificate are the desired ones.
    """
    if certificate is None:
        return "no usable certificate"
    if certificate.ends <= now:
        return "the certificate has expired"
    if signer is None:
        return ""
    if certificate.issuer != signer.certificate.subject:
        return "a new certificate authority signs"
    if not fits:
        return "the names have changed"
    return "past two thirds of its lifetime" if due(certificate) <= now else ""


@dataclass(frozen=True, slots=True)
class SharedCertificates:
    """Certificates that the replicas of an operator share; only the key of the newest authority is stored.

    Attributes:
        serving: the serving certificate; None if it is missing or unusable.
    """

    authorities: Authorities = field(default_factory=Authorities)
    serving: IssuedCertificate | None = None

    @property
    def newest(self) -> Certificate:
        return self.authorities.trusted[0]

    def serves(self, hosts: frozenset[str]) -> Certificate | None:
        """Return the serving certificate if clients that trust these authorities accept it for these hosts."""
        found = self.serving.certificate if self.serving else None
        issuers = {authority.subject for authority in self.authorities.trusted}
        return found if found and found.issuer in issuers and hosts <= found.hosts else None


def next_order(
    stored: SharedCertificates,
    now: datetime,
    policy: RotationPolicy,
    *,
    name: str,
    hosts: frozenset[str],
    trusted: datetime | None,
    lost: bool = False,
) -> tuple[CertificateOrder | None, str]:
    """Return the next order of the replicas, for one write, and its reason; None if nothing is due.

    An authority that gets a successor signs a last certificate in the same write, because its key is then deleted.

    Args:
        hosts: names that the serving certificate must have.
        trusted: time since which all clients trust the newest authority; None if they do not.
        lost: whether the shared certificates were deleted, so that `held` is what this replica remembers.
    """
    authorities, serving = stored.authorities.usable(now), stored.serves(hosts)
    informed = serving is not None and trusted is not None and now - trusted >= policy.settling(life_of(serving))
    event, why = next_event(authorities, now, informed=informed, lost=lost)
    if event is AuthorityEvent.PROMOTE:
        authorities = authorities.promoted()
    signer = authorities.signer
    cause = why_replaced(serving, signer, now)
    makes_authority = event in (AuthorityEvent.BEGIN, AuthorityEvent.INTRODUCE)
    if makes_authority and signer is None and not cause:
        return policy.order_authority(name, now), why
    if not makes_authority and not cause:
        return None, ""
    order = policy.order_certificate(name, tuple(sorted(hosts)), signer or authorities.successor, now)
    if makes_authority:
        order = replace(order, authority_ends=policy.authority_ends(now))
    return order, why or f"serving certificate: {cause}"


def due(certificate: Certificate) -> datetime:
    """Return the time at which a certificate is to be replaced."""
    return certificate.ends - (1 - RENEWAL_FRACTION) * life_of(certificate)


def life_of(certificate: Certificate) -> timedelta:
    """Return the lifetime of a certificate, without the backdated part."""
    return certificate.ends - (certificate.begins + BACKDATED)
