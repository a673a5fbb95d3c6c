"""Rotation is safe for any schedule of replicas: clients that trust the caBundle can verify every serving replica."""

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
from tests.platform.unit.shared.pki.replicas import HOST, LIFE, START, Cluster, Life, Wire, made, served_by, verify

SECONDS = LIFE.total_seconds()
LAG = SECONDS / rotation.SETTLINGS_PER_LIFE * 0.8
"""Seconds until an API server observes a changed caBundle; an authority must not sign before that."""


class Witness:
    """Checks after each step that every bundle in use verifies the certificate of every replica.

    Args:
        lag: seconds for which a client may continue to use a replaced caBundle.
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

    def check(self) -> None:
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
                    stored = certs.read(served)[0]
                    pytest.fail(f"at {now - START}: {stored} against the bundle since {since - START}")

    def _ends(self, served: str, bundle: str, now: datetime) -> datetime:
        """Return the time until which a bundle verifies a certificate; the minimum if it does not."""
        if (served, bundle) not in self._verified:
            try:
                verify(served, bundle, now)
                issuer = {stored.subject: stored for stored in certs.read(bundle)}[certs.read(served)[0].issuer]
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
    life = Life(cluster, chance, witness.check, latency)
    witness.life = life
    try:
        yield cluster, life, witness
    finally:
        life.close()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), count=st.integers(1, 3), losses=st.sampled_from([0.0, 0.15]))
def test_clients_can_always_verify_every_serving_replica(seed: int, count: int, losses: float) -> None:
    """Replicas start, stop and lose requests; one always runs. Two authorities expire during the test."""
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
        assert len(witness.authorities) >= 3, "authorities were rotated"
        assert len(witness.certificates) >= 10, "certificates were rotated"


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_rotation_recovers_after_any_absence_of_all_replicas(seed: int) -> None:
    """While no replica runs, certificates expire, and a replica that returns in the last seconds may be late."""
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


# Single decisions.


class RotationStep(enum.Enum):
    """The part that an order issues."""

    KEEP = "nothing"
    RENEW = "a serving certificate, by the existing authority"
    SUCCEED = "an authority, and a last serving certificate by its predecessor"
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
    stored: SharedCertificates | None,
    at: datetime,
    *,
    trusted: datetime | None = None,
    host: str = HOST,
    lost: bool = False,
) -> CertificateOrder | None:
    shared, hosts = stored or SharedCertificates(), frozenset({host})
    return rotation.next_order(shared, at, POLICY, name="ours", hosts=hosts, trusted=trusted, lost=lost)[0]


async def after(stored: SharedCertificates | None, order: CertificateOrder | None, at: datetime) -> SharedCertificates:
    """Return the shared certificates after an order was fulfilled."""
    assert order is not None
    found = shared_certificates(shared_content(await made(order), stored or SharedCertificates(), at))
    assert found is not None
    return found


async def stored_after(*steps: RotationStep, at: datetime = START) -> SharedCertificates:
    """Return the shared certificates after these steps, each at the same time."""
    stored: SharedCertificates | None = None
    for step in steps:
        order = ordered(stored, at, trusted=at - LIFE, lost=step is RotationStep.SUCCEED)
        assert RotationStep.of(order) is step
        stored = await after(stored, order, at)
    assert stored is not None
    return stored


def step(
    stored: SharedCertificates | None,
    after: float,
    *,
    trusted: float | None = 0.0,
    host: str = HOST,
    lost: bool = False,
) -> RotationStep:
    """Return the decision after some seconds, if clients have trusted the newest authority since `trusted`."""
    since = None if trusted is None else START + timedelta(seconds=trusted)
    return RotationStep.of(ordered(stored, START + timedelta(seconds=after), trusted=since, host=host, lost=lost))


async def test_serving_certificate_is_renewed_at_two_thirds_of_its_lifetime() -> None:
    stored = await stored_after(RotationStep.BEGIN)
    assert step(None, 0) is RotationStep.BEGIN
    assert step(stored, 0) is RotationStep.KEEP
    assert step(stored, SECONDS * 0.66) is RotationStep.KEEP
    assert step(stored, SECONDS * 0.67) is RotationStep.RENEW
    assert step(stored, SECONDS * 1.5) is RotationStep.RENEW, "an expired one is renewed as well"


async def test_authority_has_a_successor_long_before_it_expires() -> None:
    stored = await stored_after(RotationStep.BEGIN)
    assert step(stored, LIVES * SECONDS) is RotationStep.BEGIN
    assert step(stored, 2.6 * SECONDS) is RotationStep.RENEW
    fresh = await after(stored, ordered(stored, START + 2.6 * LIFE), START + 2.6 * LIFE)
    assert step(fresh, 2.6 * SECONDS) is RotationStep.KEEP
    assert step(fresh, 2.7 * SECONDS) is RotationStep.SUCCEED


async def test_new_authority_signs_only_after_the_settling_time() -> None:
    stored = await stored_after(RotationStep.BEGIN, RotationStep.SUCCEED)
    assert stored.serving is not None
    assert len(stored.authorities.trusted) == 2
    assert stored.serving.certificate.issuer == stored.authorities.trusted[1].subject, (
        "the predecessor signed once more"
    )
    assert step(stored, 10, trusted=None) is RotationStep.KEEP
    assert step(stored, 10, trusted=0) is RotationStep.KEEP
    assert step(stored, SECONDS * 0.9, trusted=None) is RotationStep.KEEP, "never before all clients trust it"
    assert step(stored, SECONDS / rotation.SETTLINGS_PER_LIFE + 1, trusted=0) is RotationStep.RENEW
    signed = await stored_after(RotationStep.BEGIN, RotationStep.SUCCEED, RotationStep.RENEW)
    assert signed.serving is not None
    assert signed.serving.certificate.issuer == signed.newest.subject
    assert len(signed.authorities.trusted) == 2, "the predecessor stays until it expires"


async def test_expired_authority_is_removed_from_the_bundle() -> None:
    stored, later = await stored_after(RotationStep.BEGIN, RotationStep.SUCCEED), START + (LIVES + 0.1) * LIFE
    assert RotationStep.of(ordered(stored, later)) is RotationStep.BEGIN
    assert len((await after(stored, ordered(stored, later), later)).authorities.trusted) == 1


async def test_unusable_certificate_is_replaced() -> None:
    stored = await stored_after(RotationStep.BEGIN)
    assert step(stored, 0, host="other.system.svc") is RotationStep.RENEW
    assert step(stored, 0, lost=True) is RotationStep.SUCCEED
    assert step(SharedCertificates(stored.authorities, None), 0) is RotationStep.RENEW
    unrelated = (await stored_after(RotationStep.BEGIN)).serving
    assert step(SharedCertificates(stored.authorities, unrelated), 0) is RotationStep.RENEW


async def test_certificate_does_not_outlive_its_signer() -> None:
    stored = await stored_after(RotationStep.BEGIN)
    late = START + (LIVES - 0.5) * LIFE
    order = ordered(stored, late)
    assert RotationStep.of(order) is RotationStep.SUCCEED
    assert order is not None
    assert order.ends == stored.newest.ends
    assert order.authority_ends == late + LIVES * LIFE


def test_checks_are_rare_for_long_lifetimes_and_frequent_for_short_ones() -> None:
    def pause(life: float, left: float) -> float:
        ends = START + timedelta(seconds=left)
        begins = ends - timedelta(seconds=life) - rotation.BACKDATED
        return pause_of(certs.Certificate(b"", b"", begins, ends, frozenset(), ""), START).total_seconds()

    assert pause(90 * 86400, 30 * 86400) == 600
    assert pause(20, 20) == 1.0
    assert pause(10, 1) == 0.2
    assert pause_of(None, START) == LONGEST_PAUSE


def test_authority_without_a_key_never_signs_again() -> None:
    certificate = certs.Certificate(b"", b"", START, START + LIFE, frozenset(), "")
    introduced = Authority(AuthorityState.INTRODUCED, certificate, certs.Pair("certificate", "key"))
    signing = introduced.after(AuthorityEvent.PROMOTE)
    assert signing == Authority(AuthorityState.SIGNING, certificate, introduced.pair)
    retired = signing.after(AuthorityEvent.RETIRE)
    assert retired == Authority(AuthorityState.RETIRED, certificate, None)
    with pytest.raises(IllegalTransition):
        retired.after(AuthorityEvent.PROMOTE)
    assert rotation.AUTHORITY.transitions[retired.after(AuthorityEvent.FORGET).state] == {}


async def test_lost_successor_that_clients_do_not_trust_signs_nothing() -> None:
    stored = await stored_after(RotationStep.BEGIN, RotationStep.SUCCEED)
    order = ordered(stored, START + LIFE / 10, lost=True)
    assert order is not None
    assert (order.signer, order.ends) == (None, None), "the serving certificate stays"
    again = await after(stored, order, START + LIFE / 10)
    assert again.serving == stored.serving
    assert again.authorities.former == stored.authorities.trusted
    assert again.authorities.successor is not None
