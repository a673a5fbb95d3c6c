"""When which certificate is made anew, and who signs it. Pure.

A serving certificate is signed by an authority of ours, whose certificate clients are told to trust: the bundle. What
makes a rotation harmless:

- Clients learn of an authority before anything that it signed is served. A new authority first only stands in the
  bundle, before the old ones; once clients were seen to have it for a while (`settling`), it signs.
- An authority that has a successor signs no more, and its key is gone; it stays in the bundle until it ends, and it
  outlives all that it signed. So whoever still serves an older certificate is trusted as before.
- Everything is renewed when two thirds of its life are over. What is left is much more than anybody's time between two
  looks (`pause`), so that every replica takes up the new before the old ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from shared.pki.certs import Certificate, Pair

LIFETIME = timedelta(days=90)
"""How long a serving certificate is valid where nobody says otherwise."""

LIVES = 4
"""An authority's life, in lives of what it signs: 3/4 before it is succeeded, and the rest for its last certificate."""

DUE = 2 / 3
"""The part of a life after which a certificate is renewed."""

BACKDATED = timedelta(minutes=5)
"""How far a certificate reaches back: a client's clock may be behind."""

LONGEST_PAUSE = timedelta(seconds=600)
"""Between two looks at most, and until clients count as told: API servers hear of a change at once, others poll."""

SHORTEST_PAUSE = timedelta(seconds=0.2)

PAUSES = 20
"""Pauses in what is left of a certificate's life."""


class RotationStep(Enum):
    """What is made next."""

    KEEP = "nothing"
    RENEW = "a serving certificate, by the newest authority"
    SUCCEED = "an authority that only stands in the bundle yet, and a last serving certificate by the one before it"
    BEGIN = "an authority, and a serving certificate by it"


@dataclass(frozen=True, slots=True)
class SharedCertificates:
    """The certificates that the replicas share.

    Attributes:
        authorities: the bundle; the newest comes first, and it alone has its key.
        key: the newest authority's key.
        serving: what is served; None where it is missing or cannot be used.
        serving_key: its key.
    """

    authorities: tuple[Certificate, ...]
    key: str = field(repr=False)
    serving: Certificate | None
    serving_key: str = field(repr=False)

    @property
    def newest(self) -> Certificate:
        return self.authorities[0]

    @property
    def bundle(self) -> str:
        """What clients are to trust, as PEM."""
        return _joined(authority.pem for authority in self.authorities)


@dataclass(frozen=True, slots=True)
class CertificateOrder:
    """What authority.py is to make.

    Attributes:
        name: common name; of an authority, with something that tells it from others.
        hosts: what the serving certificate is for; none for one that is a client's alone.
        begins: when what is made begins to be valid.
        ends: when the serving certificate ends; None if none is to be made.
        signer: who signs it; None for the new authority.
        authority_ends: when the new authority ends; None if none is to be made.
        client: whether the serving certificate may be a client's, too.
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
    """What authority.py made: as much of it as was ordered."""

    serving: Pair | None = field(repr=False)
    authority: Pair | None = field(repr=False)


def decide(
    held: SharedCertificates | None,
    now: datetime,
    *,
    hosts: frozenset[str],
    trusted: datetime | None,
    lost: bool = False,
) -> tuple[RotationStep, str]:
    """What is to be made now, and why.

    Args:
        held: what the replicas share; None if there is nothing that could be used.
        hosts: what must be served.
        trusted: since when all clients were seen to have the newest authority; None if they have not.
        lost: what they shared is gone, and `held` is what this replica remembers of it.
    """
    if held is None:
        return RotationStep.BEGIN, "there are no certificates yet"
    if held.newest.ends <= now:
        return RotationStep.BEGIN, "the authority has ended"
    serving = held.serving
    if serving is None:
        return RotationStep.RENEW, "the serving certificate is missing, or its key is another's"
    if serving.ends <= now:
        return RotationStep.RENEW, "the serving certificate has ended"
    if serving.issuer not in {authority.subject for authority in held.authorities}:
        return RotationStep.RENEW, "the serving certificate was signed by somebody else"
    if missing := hosts - serving.hosts:
        return RotationStep.RENEW, f"the serving certificate is not for {', '.join(sorted(missing))}"
    if lost:
        return RotationStep.SUCCEED, "what the replicas shared is gone"
    if due(held.newest) <= now:
        return RotationStep.SUCCEED, "two thirds of the authority's life are over"
    if serving.issuer != held.newest.subject:
        if trusted is not None and now - trusted >= settling(serving):
            return RotationStep.RENEW, "clients have come to know the new authority"
        return RotationStep.KEEP, "clients are to know the new authority first"
    if due(serving) <= now:
        return RotationStep.RENEW, "two thirds of the serving certificate's life are over"
    return RotationStep.KEEP, "nothing is due"


def order(
    step: RotationStep,
    held: SharedCertificates | None,
    now: datetime,
    *,
    name: str,
    hosts: frozenset[str],
    life: timedelta,
) -> CertificateOrder:
    """What a step asks to be made; nothing that is signed outlives who signs it."""
    begins, authority_ends = now - BACKDATED, None if step is RotationStep.RENEW else now + LIVES * life
    if step is RotationStep.BEGIN or held is None:
        signer, ends = None, now + life
    else:
        signer, ends = Pair(held.newest.pem, held.key), min(now + life, held.newest.ends)
    return CertificateOrder(name, tuple(sorted(hosts)), begins, ends, signer, authority_ends)


def shared(made: Made, held: SharedCertificates | None, now: datetime) -> Mapping[str, str]:
    """What the replicas share after something was made, by file name; authorities that ended are left out.

    Args:
        made: a serving certificate, and an authority if one was ordered.
    """
    assert made.serving is not None
    before = [authority.pem for authority in held.authorities if authority.ends > now] if held else []
    key = held.key if held else ""
    if made.authority is not None:
        before, key = [made.authority.certificate, *before], made.authority.key
    return {"ca.crt": _joined(before), "ca.key": key, "tls.crt": made.serving.certificate, "tls.key": made.serving.key}


def due(certificate: Certificate) -> datetime:
    """When it is to be renewed."""
    return certificate.ends - (1 - DUE) * _life(certificate)


def settling(serving: Certificate) -> timedelta:
    """How long clients must be known to have an authority before it signs what is served."""
    return min(LONGEST_PAUSE, _life(serving) / PAUSES)


def pause(serving: Certificate | None, now: datetime) -> timedelta:
    """Until the next look: at most a resync, and many times in what is left of a short life."""
    if serving is None or serving.ends <= now:
        return LONGEST_PAUSE  # there is nothing left to lose
    return min(LONGEST_PAUSE, max((serving.ends - now) / PAUSES, SHORTEST_PAUSE))


def _life(certificate: Certificate) -> timedelta:
    """From when it was made until it ends."""
    return certificate.ends - (certificate.begins + BACKDATED)


def _joined(pems: Iterable[str]) -> str:
    return "".join(f"{pem.strip()}\n" for pem in pems)
