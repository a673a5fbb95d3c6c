"""Copies of certificates follow their original in stages during which every peer is trusted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kubernetes.secrets import encoded
from shared.pki import ca, certs
from shared.pki.certs import Certificate, Pair
from shared.pki.copies import TrustedCertificate, following
from shared.pki.stores import authority_key
from shared.pki.validity import signers

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@cache
def authority(name: str, days: int = 1000) -> Pair:
    """Return an authority; all have the same subject, as those of cert-manager after a renewal with a new key."""
    return ca.authority("team-ca", begins=NOW - 9 * DAY, ends=NOW + days * DAY)


@cache
def known(name: str, days: int = 1000) -> Certificate:
    return certs.read(authority(name, days).certificate)[0]


@cache
def certificate(
    name: str, by: str, *also: str, days: int = 90, authority_days: int = 1000, begins: int = -1
) -> TrustedCertificate:
    signer = authority(by, authority_days)
    pair = ca.issue(signer, name, begins=NOW + begins * DAY, ends=NOW + days * DAY, hosts=["a"], client=True)
    return TrustedCertificate(pair, (known(by, authority_days), *map(known, also)))


OLD, NEW = certificate("a", "old"), certificate("b", "new")


def test_copies_survive_a_round_trip() -> None:
    assert TrustedCertificate.of({"data": encoded(dict(OLD.content()))}) == OLD
    assert authority_key(OLD.trusted[0]) in OLD.content()
    assert TrustedCertificate.of(None) is None
    assert TrustedCertificate.of({"data": encoded(dict(OLD.content()) | {"ca.crt": "nonsense"})}) is None


def test_first_certificate_is_copied_at_once_and_an_unusable_one_never() -> None:
    assert following(None, OLD, informed=False, now=NOW) == ("first certificate", OLD)
    assert following(OLD, OLD, informed=True, now=NOW) == ("", None)
    assert following(OLD, None, informed=True, now=NOW) == ("", None)


def test_certificate_of_the_same_authority_is_copied_without_waiting() -> None:
    renewed = certificate("c", "old")
    assert following(OLD, renewed, informed=False, now=NOW) == ("new certificate", renewed)


def test_new_authority_of_the_same_name_is_trusted_before_its_certificate_is_used() -> None:
    _, first = following(OLD, NEW, informed=False, now=NOW)
    assert first == TrustedCertificate(OLD.pair, (*NEW.trusted, *OLD.trusted))
    assert following(first, NEW, informed=False, now=NOW) == ("", None)
    _, second = following(first, NEW, informed=True, now=NOW)
    assert second == TrustedCertificate(NEW.pair, first.trusted)
    assert following(second, NEW, informed=False, now=NOW) == ("", None)
    assert following(second, NEW, informed=True, now=NOW) == ("updating the trusted authorities", NEW)


def test_former_authority_can_stay_trusted_until_it_has_expired_and_another_one_comes() -> None:
    short, third = certificate("a", "short", days=9, authority_days=10), certificate("c", "third")
    _, first = following(short, NEW, informed=False, now=NOW, keeps_former=True)
    _, second = following(first, NEW, informed=True, now=NOW, keeps_former=True)
    assert second is not None
    assert second.trusted == (*NEW.trusted, *short.trusted)
    for now in (NOW, NOW + 11 * DAY):
        assert following(second, NEW, informed=True, now=now, keeps_former=True) == ("", None), "no server restarts"
    renewed = certificate("d", "new")
    _, later = following(second, renewed, informed=True, now=NOW + 11 * DAY, keeps_former=True)
    assert later == replace(second, pair=renewed.pair), "no server restarts"
    _, next_one = following(second, third, informed=True, now=NOW + 11 * DAY, keeps_former=True)
    assert next_one == TrustedCertificate(NEW.pair, (*third.trusted, *NEW.trusted))


def test_expired_certificate_is_replaced_without_waiting() -> None:
    _, found = following(OLD, NEW, informed=False, now=NOW + 91 * DAY)
    assert found is not None
    assert found.pair == NEW.pair


@pytest.mark.parametrize("informed", [True, False])
@pytest.mark.parametrize("signer", ["old", "new"])
def test_certificate_that_clients_reject_never_replaces_a_valid_one(signer: str, informed: bool) -> None:
    """Neither one that has ended, for example from a backup, nor one that is not valid yet."""
    ended = certificate("late", signer, days=5)
    assert following(OLD, ended, informed=informed, now=NOW + 6 * DAY) == ("", None)
    assert following(OLD, ended, informed=informed, now=NOW)[1] is not None
    early = certificate("early", signer)
    assert following(certificate("f", "old", begins=-9), early, informed=informed, now=NOW - 2 * DAY) == ("", None)


@dataclass
class Server:
    """A server that reads authorities at start, and presents what the copy has, or had a moment ago."""

    trusts: tuple[Certificate, ...]
    presents: Pair

    def accepts(self, pair: Pair) -> bool:
        return bool(signers(pair, self.trusts))


ORIGINALS = (OLD, NEW, certificate("c", "old"), certificate("d", "new", "old"), certificate("e", "third"))
EVENTS = st.one_of(
    st.tuples(st.just("replace"), st.integers(0, len(ORIGINALS) - 1)),
    st.tuples(st.just("step"), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, 2)),
    st.tuples(st.just("refresh"), st.integers(0, 2)),
)


@given(st.lists(EVENTS, max_size=40), st.booleans())
def test_servers_always_trust_each_other(events: list[tuple[str, int]], keeps_former: bool) -> None:
    """Combine replaced originals, slow kubelets, restarts, and an operator that observes the servers' files."""
    original = copy = OLD
    servers = [Server(OLD.trusted, OLD.pair) for _ in range(3)]
    for event, number in events:
        match event:
            case "replace":
                original = ORIGINALS[number]
            case "step":
                informed = all((each.trusts, each.presents) == (copy.trusted, copy.pair) for each in servers)
                _, desired = following(copy, original, informed=informed, now=NOW, keeps_former=keeps_former)
                copy = desired or copy
            case "restart":
                servers[number] = Server(copy.trusted, copy.pair)
            case "refresh":
                servers[number].presents = copy.pair
        started = Server(copy.trusted, copy.pair)
        for one in (*servers, started):
            assert all(one.accepts(other.presents) for other in (*servers, started))
