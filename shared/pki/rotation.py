"""Decides when authorities and certificates are replaced, and who signs. Pure.

One engine rotates the certificate that an operator serves with, and the certificates of databases. stores.py says how
each is kept; a policy says how long things live.

A certificate is replaced after two thirds of its life. Its servers take up the new one without a restart.

An authority has a successor after two thirds of its life. The order of events (`AUTHORITY`) makes that harmless:

| event | effect |
|---|---|
| introduce | the successor is added to the trust bundle; it signs nothing yet |
| promote | every server and client trusts it: it signs from now on, and the key of its predecessor is deleted |
| forget | the predecessor has ended and leaves the trust bundle; it outlived everything that it signed |

An authority whose key is lost gets a successor, too. Until that one is promoted, it signs only what is missing: a
certificate that nobody trusts yet is better than none.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from shared.pki.certs import Certificate, IssuedCertificate, Pair
from shared.status.lifecycle import Lifecycle

LIFETIME = timedelta(days=90)
"""How long a certificate is valid by default."""

RENEWAL_FRACTION = 2 / 3
"""The fraction of a life after which a certificate or an authority is replaced."""

BACKDATED = timedelta(minutes=5)
"""How far a certificate reaches back: the clock of a client may be behind."""

SETTLINGS_PER_LIFE = 20
"""Settling times in the life of a certificate, at least."""


@dataclass(frozen=True, slots=True)
class RotationPolicy:
    """How long things live.

    Attributes:
        authority_lives: an authority's life, in lives of the certificates that it signs.
        longest_settling: what clients get at most to learn of a new authority before it signs.
        life: how long a certificate is valid.
    """

    authority_lives: int
    longest_settling: timedelta
    life: timedelta = LIFETIME

    def settling(self, life: timedelta) -> timedelta:
        """How long clients get to learn of a new authority, if certificates live for `life`."""
        return min(self.longest_settling, life / SETTLINGS_PER_LIFE)

    def authority_ends(self, now: datetime) -> datetime:
        """When an authority that is made now ends."""
        return now + self.authority_lives * self.life

    def order_authority(self, name: str, now: datetime) -> CertificateOrder:
        """Order an authority, and nothing that it signs."""
        return CertificateOrder(name, (), now - BACKDATED, None, None, self.authority_ends(now))

    def order_certificate(
        self, name: str, hosts: tuple[str, ...], signer: Authority | None, now: datetime, *, client: bool = False
    ) -> CertificateOrder:
        """Order a certificate, which never outlives its signer; None for an authority that is ordered with it."""
        ends = min(now + self.life, signer.certificate.ends) if signer else now + self.life
        return CertificateOrder(name, hosts, now - BACKDATED, ends, signer.pair if signer else None, None, client)


SERVING = RotationPolicy(authority_lives=4, longest_settling=timedelta(seconds=600))
"""For the operator's own certificate. API servers learn of a changed caBundle at once; others poll."""

DATABASES = RotationPolicy(authority_lives=20, longest_settling=timedelta(days=1))
"""For databases, whose servers may have to restart for a new authority: with certificates of 90 days, every three
years. A mounted Secret is updated within two minutes, but not every client reads files again at once."""


class AuthorityState(enum.Enum):
    """Where an authority is in its life."""

    MISSING = "not made yet"
    INTRODUCED = "trusted, does not sign yet"
    SIGNING = "signs"
    RETIRED = "trusted, signs no longer"
    FORGOTTEN = "no longer trusted"


class AuthorityEvent(enum.Enum):
    """What happens to an authority."""

    BEGIN = "made where no authority is trusted yet"
    INTRODUCE = "made beside a trusted authority"
    PROMOTE = "every server and client trusts it"
    RETIRE = "its key is deleted or lost"
    FORGET = "it has ended"


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
"""The lifecycles of this module; the diagrams in docs/architecture.md are generated from them."""


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A certificate that a database needs; its holder may be a client.

    Attributes:
        secret: name of its Secret.
        name: common name, for people; empty for none.
        hosts: names and addresses that it serves; none for one that is a client's alone.
        uri: a name for cert-manager, which requires one, if there is no other.
    """

    secret: str
    name: str
    hosts: tuple[str, ...] = ()
    uri: str = ""


def in_domains(host: str) -> tuple[str, str]:
    """A name as a pod may say it, whose search list completes it; and with the domain that most clusters have."""
    return host, f"{host}.cluster.local"


def server_hosts(name: str, namespace: str, service: str) -> tuple[str, ...]:
    """By what names clients know the servers of a resource.

    Args:
        name: of the headless Service, which is the resource's.
        service: of the Service for clients.
    """
    return (
        *in_domains(f"*.{name}.{namespace}.svc"),
        *in_domains(f"{name}.{namespace}.svc"),
        *in_domains(f"{service}.{namespace}.svc"),
        *(f"{service}.{namespace}", service),
        *("localhost", "127.0.0.1", "::1"),  # as `kubectl port-forward` has it, and exporters
    )


@dataclass(frozen=True, slots=True)
class CertificateOrder:
    """What ca.py is to make.

    Attributes:
        name: common name; an authority's is extended by a suffix that tells it from others.
        hosts: what the certificate serves; none for one that is a client's alone.
        begins: when what is made begins to be valid.
        ends: when the certificate ends; None if none is to be made.
        signer: who signs it; None for the new authority.
        authority_ends: when the new authority ends; None if none is to be made.
        client: whether the certificate may be a client's, too.
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
    """What ca.py made: as much of it as was ordered."""

    serving: Pair | None = field(repr=False)
    authority: Pair | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority that is trusted.

    Attributes:
        pair: its certificate and key; None once the key is deleted or lost.
    """

    state: AuthorityState
    certificate: Certificate
    pair: Pair | None = field(default=None, repr=False)

    def after(self, event: AuthorityEvent) -> Authority:
        """What it becomes by a legal event."""
        state = AUTHORITY.after(self.state, event)
        return replace(self, state=state, pair=self.pair if state is AuthorityState.SIGNING else None)


@dataclass(frozen=True, slots=True)
class Authorities:
    """The authorities that servers and clients are to trust, the newest first."""

    held: tuple[Authority, ...] = ()

    @property
    def signer(self) -> Authority | None:
        return self._only(AuthorityState.SIGNING)

    @property
    def successor(self) -> Authority | None:
        return self._only(AuthorityState.INTRODUCED)

    @property
    def former(self) -> tuple[Certificate, ...]:
        return tuple(each.certificate for each in self.held if each.state is AuthorityState.RETIRED)

    @property
    def trusted(self) -> tuple[Certificate, ...]:
        return tuple(each.certificate for each in self.held)

    def usable(self, now: datetime) -> Authorities:
        """Those that have not ended; the others are forgotten."""
        return Authorities(tuple(each for each in self.held if each.certificate.ends > now))

    def promoted(self) -> Authorities:
        """Those that are trusted once the successor signs, and its predecessor is retired."""
        events = {AuthorityState.INTRODUCED: AuthorityEvent.PROMOTE, AuthorityState.SIGNING: AuthorityEvent.RETIRE}
        return Authorities(
            tuple(each.after(events[each.state]) if each.state in events else each for each in self.held)
        )

    def _only(self, state: AuthorityState) -> Authority | None:
        return next((each for each in self.held if each.state is state), None)


def next_event(
    authorities: Authorities, now: datetime, *, informed: bool, lost: bool = False
) -> tuple[AuthorityEvent | None, str]:
    """What is to happen to an authority now, and why; None for nothing.

    Args:
        informed: whether every server and client trusts the successor, and had time to.
        lost: whether the keys that are held were deleted from their store.
    """
    usable = authorities.usable(now)
    if usable.signer is None and usable.successor is None:
        if usable.former:
            return AuthorityEvent.INTRODUCE, "the authority is gone, and gets a successor"
        return AuthorityEvent.BEGIN, "there is no authority yet"
    if lost:
        return AuthorityEvent.INTRODUCE, "what the replicas shared is gone"
    if usable.successor is not None and informed:
        return AuthorityEvent.PROMOTE, "the new authority is known, and signs from now on"
    if usable.signer is not None and usable.successor is None and due(usable.signer.certificate) <= now:
        return AuthorityEvent.INTRODUCE, "two thirds of the authority's life are over, and it gets a successor"
    if usable != authorities:
        return AuthorityEvent.FORGET, "an authority has ended"
    return None, ""


def why_replaced(certificate: Certificate | None, signer: Authority | None, now: datetime, *, fits: bool = True) -> str:
    """Why a certificate is replaced; empty if it is not.

    Args:
        certificate: None if there is none that can be used.
        signer: None where only a successor could sign, which nobody may trust yet: then only what cannot be used is
            replaced.
        fits: whether it is for the right names.
    """
    if certificate is None:
        return "there is none that can be used"
    if certificate.ends <= now:
        return "it has ended"
    if signer is None:
        return ""
    if certificate.issuer != signer.certificate.subject:
        return "another authority signs now"
    if not fits:
        return "it is for other names"
    return "two thirds of its life are over" if due(certificate) <= now else ""


@dataclass(frozen=True, slots=True)
class SharedCertificates:
    """The certificates that an operator's replicas share; no key but the newest authority's is kept.

    Attributes:
        serving: what is served; None where it is missing or cannot be used.
    """

    authorities: Authorities = field(default_factory=Authorities)
    serving: IssuedCertificate | None = None

    @property
    def newest(self) -> Certificate:
        return self.authorities.trusted[0]

    def serves(self, hosts: frozenset[str]) -> Certificate | None:
        """The serving certificate, if clients that trust these authorities take it for these hosts."""
        found = self.serving.certificate if self.serving else None
        issuers = {authority.subject for authority in self.authorities.trusted}
        return found if found and found.issuer in issuers and hosts <= found.hosts else None


def next_order(
    held: SharedCertificates,
    now: datetime,
    policy: RotationPolicy,
    *,
    name: str,
    hosts: frozenset[str],
    trusted: datetime | None,
    lost: bool = False,
) -> tuple[CertificateOrder | None, str]:
    """What the replicas are to make now, in one write, and why; None for nothing.

    An authority that gets a successor signs a last certificate in the same write, for its key is then deleted.

    Args:
        hosts: what must be served.
        trusted: since when all clients were seen to trust the newest authority; None if they do not.
        lost: what the replicas shared is gone, and `held` is what this replica remembers of it.
    """
    authorities, serving = held.authorities.usable(now), held.serves(hosts)
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
    return order, why or f"the serving certificate: {cause}"


def due(certificate: Certificate) -> datetime:
    """When a certificate is to be replaced."""
    return certificate.ends - (1 - RENEWAL_FRACTION) * life_of(certificate)


def life_of(certificate: Certificate) -> timedelta:
    """From when it was made until it ends."""
    return certificate.ends - (certificate.begins + BACKDATED)
