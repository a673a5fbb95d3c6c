"""Whatever replicas do at whatever time: who trusts the caBundle can verify whoever serves, and nothing ends in use."""

from __future__ import annotations

import dataclasses
import enum
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.x509.verification import VerificationError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.pki import certs, rotation
from shared.pki.rotation import (
    SERVING,
    Authority,
    AuthorityEvent,
    AuthorityState,
    CertificateOrder,
    SharedCertificates,
)
from shared.pki.serving import LONGEST_PAUSE, SelfSignedCertificates
from shared.pki.serving import pause as pause_of
from shared.pki.stores import shared_certificates, shared_content
from shared.status.lifecycle import IllegalTransition
from tests.unit.shared.pki.replicas import HOST, LIFE, START, Cluster, Life, Wire, made, served_by, verify

SECONDS = LIFE.total_seconds()
LAG = SECONDS / rotation.SETTLINGS_PER_LIFE * 0.8
"""Until an API server has heard of a change of a caBundle; it must know a new authority before that one signs."""


class Witness:
    """Sees to it that at each moment every replica's certificate is verified with every bundle still in use.

    Args:
        lag: seconds for which a client may go on with a bundle that is no longer the caBundle.
    """

    def __init__(self, cluster: Cluster, lag: float) -> None:
        self._cluster = cluster
        self._lag = timedelta(seconds=lag)
        self._bundles: deque[tuple[datetime, str]] = deque()
        self._served: dict[object, str] = {}
        self._verified: dict[tuple[str, str], datetime] = {}
        self.life: Life
        self.looks_away = False
        self.certificates: set[str] = set()
        self.authorities: set[str] = set()

    def look(self) -> None:
        now, bundle = self._cluster.now, self._cluster.trusted()
        if bundle and (not self._bundles or self._bundles[-1][1] != bundle):
            self._bundles.append((now, bundle))
            self.authorities.add(certs.read(bundle)[0].pem)
        while len(self._bundles) > 1 and self._bundles[1][0] < now - self._lag:
            self._bundles.popleft()
        for replica in self.life.serving if not self.looks_away else ():
            served = self._leaf(replica)
            self.certificates.add(served)
            for since, known in self._bundles:
                if now >= self._ends(served, known, now):
                    held = certs.read(served)[0]
                    pytest.fail(f"at {now - START}: {held} against the bundle since {since - START}")

    def _ends(self, served: str, bundle: str, now: datetime) -> datetime:
        """Until when a client with a bundle can verify a certificate; the beginning of time if it cannot."""
        if (served, bundle) not in self._verified:
            try:
                verify(served, bundle, now)
                issuer = {held.subject: held for held in certs.read(bundle)}[certs.read(served)[0].issuer]
                self._verified[served, bundle] = min(certs.read(served)[0].ends, issuer.ends)
            except VerificationError:
                self._verified[served, bundle] = datetime.min.replace(tzinfo=UTC)
        return self._verified[served, bundle]

    def _leaf(self, replica: SelfSignedCertificates) -> str:
        context = replica._current
        if context not in self._served:
            self._served[context] = served_by(replica.context)
        return self._served[context]


@contextmanager
def living(chance: random.Random, *, lag: float, latency: float) -> Iterator[tuple[Cluster, Life, Witness]]:
    cluster = Cluster()
    witness = Witness(cluster, lag)
    life = Life(cluster, chance, witness.look, latency)
    witness.life = life
    try:
        yield cluster, life, witness
    finally:
        life.close()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), count=st.integers(1, 3), losses=st.sampled_from([0.0, 0.15]))
def test_no_client_ever_meets_a_certificate_that_it_cannot_verify(seed: int, count: int, losses: float) -> None:
    """Replicas come, go and lose requests; one is always there. Two authorities end in the time."""
    chance = random.Random(seed)
    with living(chance, lag=LAG, latency=SECONDS / 500) as (cluster, life, witness):
        for _ in range(count):
            life.start(cluster.replica(Wire(cluster.server, chance, losses)))
        while cluster.now < START + 2 * SERVING.authority_lives * LIFE:
            life.pass_time(chance.uniform(0, SECONDS / 2))
            if chance.random() < 0.5:
                successor = cluster.replica(Wire(cluster.server, chance, losses))
                life.start(successor)
                life.pass_time(chance.uniform(0, SECONDS / 10))
                if successor in life.serving:
                    life.stop(chance.choice(sorted(life.up - {successor}, key=id)))
        assert len(witness.authorities) >= 3, "authorities followed each other"
        assert len(witness.certificates) >= 10, "so did certificates"


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_after_any_absence_of_all_replicas_the_next_one_mends_everything(seed: int) -> None:
    """While nobody is there things end, and whoever comes back in the last seconds is late; but not for long."""
    chance = random.Random(seed)
    with living(chance, lag=LAG, latency=SECONDS / 500) as (cluster, life, witness):
        witness.looks_away = True
        for _ in range(6):
            life.start(cluster.replica(Wire(cluster.server, chance, 0.1)))
            life.pass_time(chance.uniform(0, SECONDS))
            for replica in list(life.up):
                life.stop(replica)
            life.pass_time(chance.uniform(0, (SERVING.authority_lives + 1) * SECONDS))
        life.start(cluster.replica())
        life.pass_time(SECONDS / 10)
        witness.looks_away = False
        life.pass_time(2 * SECONDS)
        assert len(life.serving) == 1
        assert len(witness.certificates) >= 3


# The single decisions.


class RotationStep(enum.Enum):
    """What is made next."""

    KEEP = "nothing"
    RENEW = "a serving certificate, by an authority that is there"
    SUCCEED = "an authority, and a last serving certificate by the one before it"
    BEGIN = "an authority, and a serving certificate by it"

    @classmethod
    def of(cls, order: CertificateOrder | None) -> RotationStep:
        if order is None:
            return cls.KEEP
        if order.authority_ends is None:
            return cls.RENEW
        return cls.BEGIN if order.signer is None else cls.SUCCEED


POLICY = dataclasses.replace(SERVING, life=LIFE)
LIVES = SERVING.authority_lives


def ordered(
    held: SharedCertificates | None,
    at: datetime,
    *,
    trusted: datetime | None = None,
    host: str = HOST,
    lost: bool = False,
) -> CertificateOrder | None:
    shared, hosts = held or SharedCertificates(), frozenset({host})
    return rotation.next_order(shared, at, POLICY, name="ours", hosts=hosts, trusted=trusted, lost=lost)[0]


async def after(held: SharedCertificates | None, order: CertificateOrder | None, at: datetime) -> SharedCertificates:
    """What is shared once an order is carried out."""
    assert order is not None
    found = shared_certificates(shared_content(await made(order), held or SharedCertificates(), at))
    assert found is not None
    return found


async def held_after(*steps: RotationStep, at: datetime = START) -> SharedCertificates:
    """What is shared after these steps, one at a time and the next at the same time."""
    held: SharedCertificates | None = None
    for step in steps:
        order = ordered(held, at, trusted=at - LIFE, lost=step is RotationStep.SUCCEED)
        assert RotationStep.of(order) is step
        held = await after(held, order, at)
    assert held is not None
    return held


def step(
    held: SharedCertificates | None, after: float, *, trusted: float | None = 0.0, host: str = HOST, lost: bool = False
) -> RotationStep:
    """What is decided so many seconds after the start, where clients have known the newest one since `trusted`."""
    since = None if trusted is None else START + timedelta(seconds=trusted)
    return RotationStep.of(ordered(held, START + timedelta(seconds=after), trusted=since, host=host, lost=lost))


async def test_a_serving_certificate_is_renewed_at_two_thirds_of_its_life() -> None:
    held = await held_after(RotationStep.BEGIN)
    assert step(None, 0) is RotationStep.BEGIN
    assert step(held, 0) is RotationStep.KEEP
    assert step(held, SECONDS * 0.66) is RotationStep.KEEP
    assert step(held, SECONDS * 0.67) is RotationStep.RENEW
    assert step(held, SECONDS * 1.5) is RotationStep.RENEW, "and so is one that has ended"


async def test_an_authority_has_a_successor_long_before_it_ends() -> None:
    held = await held_after(RotationStep.BEGIN)
    assert step(held, LIVES * SECONDS) is RotationStep.BEGIN
    assert step(held, 2.6 * SECONDS) is RotationStep.RENEW
    fresh = await after(held, ordered(held, START + 2.6 * LIFE), START + 2.6 * LIFE)
    assert step(fresh, 2.6 * SECONDS) is RotationStep.KEEP
    assert step(fresh, 2.7 * SECONDS) is RotationStep.SUCCEED


async def test_a_new_authority_signs_only_when_clients_have_known_it_for_a_while() -> None:
    held = await held_after(RotationStep.BEGIN, RotationStep.SUCCEED)
    assert held.serving is not None
    assert len(held.authorities.trusted) == 2
    assert held.serving.certificate.issuer == held.authorities.trusted[1].subject, "the old one signed once more"
    assert step(held, 10, trusted=None) is RotationStep.KEEP
    assert step(held, 10, trusted=0) is RotationStep.KEEP
    assert step(held, SECONDS * 0.9, trusted=None) is RotationStep.KEEP, "never while a client does not know it"
    assert step(held, SECONDS / rotation.SETTLINGS_PER_LIFE + 1, trusted=0) is RotationStep.RENEW
    signed = await held_after(RotationStep.BEGIN, RotationStep.SUCCEED, RotationStep.RENEW)
    assert signed.serving is not None
    assert signed.serving.certificate.issuer == signed.newest.subject
    assert len(signed.authorities.trusted) == 2, "the old one stays until it ends"


async def test_an_authority_that_ended_leaves_the_bundle() -> None:
    held, later = await held_after(RotationStep.BEGIN, RotationStep.SUCCEED), START + (LIVES + 0.1) * LIFE
    assert RotationStep.of(ordered(held, later)) is RotationStep.BEGIN
    assert len((await after(held, ordered(held, later), later)).authorities.trusted) == 1


async def test_what_cannot_be_served_is_made_anew() -> None:
    held = await held_after(RotationStep.BEGIN)
    assert step(held, 0, host="other.system.svc") is RotationStep.RENEW
    assert step(held, 0, lost=True) is RotationStep.SUCCEED
    assert step(SharedCertificates(held.authorities, None), 0) is RotationStep.RENEW
    stranger = (await held_after(RotationStep.BEGIN)).serving
    assert step(SharedCertificates(held.authorities, stranger), 0) is RotationStep.RENEW


async def test_nothing_outlives_who_signed_it() -> None:
    held = await held_after(RotationStep.BEGIN)
    late = START + (LIVES - 0.5) * LIFE
    order = ordered(held, late)
    assert RotationStep.of(order) is RotationStep.SUCCEED
    assert order is not None
    assert order.ends == held.newest.ends
    assert order.authority_ends == late + LIVES * LIFE


def test_looks_are_rare_for_long_lives_and_many_for_short_ones() -> None:
    def pause(life: float, left: float) -> float:
        ends = START + timedelta(seconds=left)
        begins = ends - timedelta(seconds=life) - rotation.BACKDATED
        return pause_of(certs.Certificate(b"", b"", begins, ends, frozenset(), ""), START).total_seconds()

    assert pause(90 * 86400, 30 * 86400) == 600
    assert pause(20, 20) == 1.0
    assert pause(10, 1) == 0.2
    assert pause_of(None, START) == LONGEST_PAUSE


def test_an_authority_without_a_key_never_signs_again() -> None:
    certificate = certs.Certificate(b"", b"", START, START + LIFE, frozenset(), "")
    introduced = Authority(AuthorityState.INTRODUCED, certificate, certs.Pair("certificate", "key"))
    signing = introduced.after(AuthorityEvent.PROMOTE)
    assert signing == Authority(AuthorityState.SIGNING, certificate, introduced.pair)
    retired = signing.after(AuthorityEvent.RETIRE)
    assert retired == Authority(AuthorityState.RETIRED, certificate, None)
    with pytest.raises(IllegalTransition):
        retired.after(AuthorityEvent.PROMOTE)
    assert rotation.AUTHORITY.transitions[retired.after(AuthorityEvent.FORGET).state] == {}


async def test_a_successor_that_was_lost_before_clients_knew_it_signs_nothing() -> None:
    held = await held_after(RotationStep.BEGIN, RotationStep.SUCCEED)
    order = ordered(held, START + LIFE / 10, lost=True)
    assert order is not None
    assert (order.signer, order.ends) == (None, None), "what is served stays"
    again = await after(held, order, START + LIFE / 10)
    assert again.serving == held.serving
    assert again.authorities.former == held.authorities.trusted
    assert again.authorities.successor is not None
