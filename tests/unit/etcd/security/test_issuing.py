"""Certificates of tls.mode self: which is made when, and that nobody is ever shown one that they do not trust."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.etcd.security.secrets import judge
from shared.kubernetes.ownership import NotOurs
from shared.kubernetes.secrets import content_of
from shared.pki import ca, certs, rotation
from shared.pki.certs import Certificate
from shared.pki.rotation import DATABASES, SETTLINGS_PER_LIFE
from shared.pki.stores import authority_key, certificates_in, fingerprint, trust_content
from tests.unit.etcd.security.secret_fixtures import AUTHORITY, CLIENT, LIFE, PEER, SERVER, Vault, encoded

LEAVES = (PEER, SERVER, CLIENT)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def begun() -> Vault:
    vault = Vault()
    vault.settle()
    return vault


def succeeding() -> Vault:
    """A vault whose authority has got a successor, of which nobody knows yet."""
    vault = begun()
    vault.informed = vault.judged().digest
    vault.now += DATABASES.authority_lives * LIFE * rotation.RENEWAL_FRACTION
    vault.settle()
    return vault


# The beginning.


def test_the_authority_comes_first_and_then_what_it_signs() -> None:
    vault = Vault()
    assert vault.step() == "there is no certificate authority yet"
    assert [name for name, secret in vault.found.items() if secret] == [AUTHORITY]
    assert len(vault.next()[1]) == 3, "the rest at once"
    vault.settle()
    assert vault.next() == ("updating the trust bundle", ())


def test_only_the_authoritys_secret_has_its_key() -> None:
    vault = begun()
    assert set(content_of(vault.found[AUTHORITY])) == {"ca.crt", "ca.key"}
    (trusted,) = vault.trusted(PEER)
    for name in LEAVES:
        assert set(content_of(vault.found[name])) == {"tls.crt", "tls.key", "ca.crt", authority_key(trusted)}
        assert vault.text(AUTHORITY, "ca.key") not in content_of(vault.found[name]).values()


def test_every_secret_belongs_to_the_cluster_and_says_what_it_is() -> None:
    vault = begun()
    kinds = {}
    for name, secret in vault.found.items():
        assert secret is not None
        assert secret["metadata"]["ownerReferences"][0]["uid"] == vault.resource.uid
        kinds[name] = secret["type"]
    assert kinds == {AUTHORITY: "Opaque"} | dict.fromkeys(LEAVES, "kubernetes.io/tls")


def test_members_are_known_by_their_names_and_clients_by_none() -> None:
    vault = begun()
    assert vault.leaf(PEER).hosts == {"*.demo.default.svc", "*.demo.default.svc.cluster.local"}
    assert vault.leaf(SERVER).hosts > vault.leaf(PEER).hosts | {"demo-client.default.svc", "localhost", "::1"}
    assert vault.leaf(CLIENT).hosts == frozenset()


def test_no_key_is_in_a_plan_before_it_is_written() -> None:
    vault = Vault()
    assert "PRIVATE" not in repr(vault.next())
    vault.step()
    _, writes = vault.next()
    assert "PRIVATE" not in repr(writes)
    assert all("tls.key" not in write.obj["data"] for write in writes)


def test_somebody_elses_secret_is_left_alone() -> None:
    vault = Vault()
    vault.found[AUTHORITY] = {"kind": "Secret", "metadata": {"name": AUTHORITY, "labels": {}}, "data": {}}
    with pytest.raises(NotOurs, match="Secret demo-ca exists and was not created by this operator"):
        vault.next()


# Renewal.


def test_a_certificate_is_renewed_after_two_thirds_of_its_life_and_not_before() -> None:
    vault = begun()
    before = vault.leaf(PEER)
    vault.now += LIFE * rotation.RENEWAL_FRACTION - HOUR
    assert vault.settle() == []
    vault.now += HOUR
    assert len(vault.settle()) == 3
    assert vault.leaf(PEER).ends == vault.now + LIFE > before.ends


def test_a_renewed_certificate_restarts_nobody() -> None:
    vault = begun()
    before = vault.judged()
    vault.now += LIFE * rotation.RENEWAL_FRACTION
    vault.settle()
    after = vault.judged()
    assert (after.digest, after.authority_key) == (before.digest, before.authority_key)
    assert after.access.pair != before.access.pair


@pytest.mark.parametrize("name", LEAVES)
def test_a_certificate_that_is_gone_or_spoilt_is_made_again_by_the_same_authority(name: str) -> None:
    vault = begun()
    digest = vault.judged().digest
    vault.found[name] = None
    assert vault.settle() == [f"{name}: no usable certificate"]
    secret = vault.found[name]
    assert secret is not None
    secret["data"]["tls.key"] = encoded("nonsense")
    assert vault.settle() == [f"{name}: no usable certificate"]
    assert vault.judged().digest == digest


def test_one_that_is_for_other_names_is_made_again() -> None:
    vault = begun()
    secret, signer = vault.found[SERVER], certs.Pair(vault.text(AUTHORITY, "ca.crt"), vault.text(AUTHORITY, "ca.key"))
    pair = ca.issue(signer, "x", begins=vault.now - HOUR, ends=vault.now + LIFE, hosts=["elsewhere"])
    assert secret is not None
    secret["data"] |= {"tls.crt": encoded(pair.certificate), "tls.key": encoded(pair.key)}
    assert vault.settle() == [f"{SERVER}: the names have changed"]


def test_nothing_outlives_its_authority() -> None:
    vault = begun()
    (newest,) = vault.trusted(PEER)
    vault.now = newest.ends - DAY  # an operator that slept for years
    vault.settle()
    assert all(vault.leaf(name).ends <= newest.ends for name in LEAVES)


# Succession.


def test_a_successor_is_trusted_before_it_signs() -> None:
    vault = succeeding()
    newest, former = vault.trusted(PEER)
    assert vault.judged().digest == fingerprint(newest) != vault.informed
    assert vault.judged().authority_key == authority_key(newest)
    for name in LEAVES:
        assert vault.leaf(name).issuer == former.subject
        assert authority_key(former) in content_of(vault.found[name]), "pods of before still mount it"


def test_it_signs_when_every_member_knows_it_and_clients_had_their_time() -> None:
    vault = succeeding()
    vault.now += min(DATABASES.longest_settling, LIFE / SETTLINGS_PER_LIFE)
    assert vault.settle() == [], "members were not restarted yet"
    vault.informed = vault.judged().digest
    vault.now -= 2 * HOUR
    assert vault.settle() == [], "clients had not their time"
    vault.now += 2 * HOUR
    assert vault.settle()[0] == "every client trusts the new certificate authority; it signs from now on"
    newest, _ = vault.trusted(PEER)
    assert {vault.leaf(name).issuer for name in LEAVES} == {newest.subject}
    assert vault.judged().digest == vault.informed, "and nobody restarts for it"
    assert set(content_of(vault.found[AUTHORITY])) == {"ca.crt", "ca.key", "former.crt"}


def test_it_does_not_sign_while_a_secret_does_not_tell_of_it() -> None:
    vault = succeeding()
    secret, told = vault.found[CLIENT], trust_content(vault.trusted(CLIENT)[1:])
    assert secret is not None
    secret["data"] = {key: encoded(text) for key, text in (dict(content_of(secret)) | told).items()}
    vault.informed = vault.judged().digest
    vault.now += DATABASES.longest_settling
    assert vault.step() == "updating the trust bundle"
    assert vault.step() == "every client trusts the new certificate authority; it signs from now on"


def test_one_that_has_ended_is_trusted_no_more_and_nobody_restarts() -> None:
    vault = succeeding()
    vault.informed = vault.judged().digest
    vault.now += DATABASES.longest_settling
    vault.settle()
    _, former = vault.trusted(PEER)
    vault.now = former.ends
    assert "a certificate authority has expired" in vault.settle()
    assert former not in vault.trusted(PEER)
    assert authority_key(former) not in content_of(vault.found[PEER])
    assert vault.judged().digest == vault.informed


def test_an_authority_that_was_deleted_gets_a_successor_and_what_it_signed_is_trusted_on() -> None:
    vault = begun()
    vault.informed, (former,) = vault.judged().digest, vault.trusted(PEER)
    before = vault.leaf(PEER)
    vault.found[AUTHORITY] = None
    assert vault.settle()[0] == "the certificate authority is missing; adding a new one"
    assert former in vault.trusted(PEER)
    assert vault.leaf(PEER) == before
    vault.informed = vault.judged().digest
    vault.now += DATABASES.longest_settling
    assert "every client trusts the new certificate authority; it signs from now on" in vault.settle()
    assert vault.leaf(PEER).issuer == vault.trusted(PEER)[0].subject


def test_while_an_authority_is_gone_its_successor_signs_what_is_missing_and_nothing_else() -> None:
    vault = begun()
    peer = vault.leaf(PEER)
    vault.found[AUTHORITY] = vault.found[CLIENT] = None
    vault.settle()
    newest, former = vault.trusted(CLIENT)
    assert (vault.leaf(CLIENT).issuer, vault.leaf(PEER)) == (newest.subject, peer)
    assert peer.issuer == former.subject


def test_where_all_is_gone_all_begins_anew() -> None:
    vault = begun()
    vault.found = dict.fromkeys(vault.found)
    assert vault.settle()[0] == "there is no certificate authority yet"
    assert vault.leaf(PEER).issuer == vault.trusted(PEER)[0].subject


def test_an_authority_that_ended_while_nobody_looked_is_replaced_at_once() -> None:
    vault = begun()
    vault.now = vault.trusted(PEER)[0].ends + DAY
    vault.settle()
    for name in LEAVES:
        assert vault.leaf(name).ends > vault.now
        assert vault.leaf(name).issuer == vault.trusted(name)[0].subject


def test_what_is_due_next_is_known() -> None:
    vault = begun()
    assert vault.issuing.due == vault.leaf(PEER).ends - (1 - rotation.RENEWAL_FRACTION) * LIFE
    vault = succeeding()
    assert vault.issuing.due == vault.now + DATABASES.longest_settling
    assert Vault().issuing.due is None


# Whatever comes, in whatever order.


@dataclass
class Running:
    """A member: it knows whom it trusted at its start, and shows what the kubelet last brought.

    Attributes:
        key: under which its pod mounts whom to trust.
    """

    key: str
    trusts: tuple[Certificate, ...]
    shows: Certificate
    digest: str


@dataclass
class Lab:
    """Three members, and an operator that may die after each write."""

    vault: Vault = field(default_factory=Vault)
    template: tuple[str, str] = ("", "")
    running: list[Running | None] = field(default_factory=lambda: [None, None, None])

    def __post_init__(self) -> None:
        self.vault.settle()
        self.apply()
        for number in range(3):
            self.restart(number)

    def apply(self) -> None:
        """The StatefulSet follows, if no certificate is to be written first."""
        if not self.vault.next()[1]:
            judged = self.vault.judged()
            self.template = judged.digest, judged.authority_key
        self._tell()

    def restart(self, number: int) -> None:
        """Its pod is made anew, and starts if the kubelet finds all that it mounts."""
        digest, key = self.template
        bundle = certificates_in(self.vault.found[PEER], key)
        self.running[number] = Running(key, bundle, self.vault.leaf(PEER), digest) if bundle else None
        self._tell()

    def refresh(self, number: int) -> None:
        """The kubelet brings what changed; it brings nothing if a key is missing."""
        member = self.running[number]
        if member is not None and member.key in content_of(self.vault.found[PEER]):
            member.shows = self.vault.leaf(PEER)

    def _tell(self) -> None:
        digests = {member.digest for member in self.running if member} | {self.template[0]}
        missing = any(member is None for member in self.running)
        self.vault.informed = digests.pop() if len(digests) == 1 and not missing else ""

    def check(self) -> None:
        """Nobody is shown what they do not trust: neither by members, nor by what a Secret holds for the next.

        But for what has ended: a kubelet that brings nothing for a month cannot be helped.
        """
        running = [member for member in self.running if member is not None]
        shown = {member.shows.issuer for member in running if member.shows.ends > self.vault.now}
        for member in running:
            subjects = {known.subject for known in member.trusts}
            assert self.vault.leaf(PEER).issuer in subjects, "the next one to start would not be trusted"
            assert shown <= subjects
        told = {known.subject for known in certificates_in(self.vault.found[PEER], self.template[1])}
        assert not told or shown <= told, "nor would it trust the others"


EVENTS = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 29)),
    st.tuples(st.just("step"), st.just(0)),
    st.tuples(st.just("settle"), st.just(0)),
    st.tuples(st.just("apply"), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, 2)),
    st.tuples(st.just("refresh"), st.integers(0, 2)),
    st.tuples(st.just("delete"), st.sampled_from([0, 1])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, min_size=20, max_size=80))
def test_nobody_is_ever_shown_a_certificate_that_they_do_not_trust(events: list[tuple[str, int]]) -> None:
    """An operator that is slow or dies, members that restart at any time, kubelets that lag, a deleted Secret."""
    lab = Lab(Vault(policy=dataclasses.replace(DATABASES, authority_lives=2)))
    for event, number in events:
        match event:
            case "wait" if lab.vault.leaf(PEER).ends > lab.vault.now + number * DAY:
                lab.vault.now += number * DAY
            case "step":
                lab.vault.step()
            case "settle":
                lab.vault.settle()
                lab.apply()
            case "apply":
                lab.apply()
            case "restart":
                lab.restart(number)
            case "refresh":
                lab.refresh(number)
            case "delete":
                lab.vault.found[(AUTHORITY, CLIENT)[number]] = None
        lab.check()


def test_the_whole_life_of_an_authority_goes_by_without_a_gap() -> None:
    """Twelve years, a look a week, members restarted one by one where the template asks for it."""
    lab, digests = Lab(), set()
    for _ in range(12 * 52):
        lab.vault.now += 7 * DAY
        while lab.vault.step():
            lab.check()
        lab.apply()
        digests.add(lab.template[0])
        outdated = [n for n, member in enumerate(lab.running) if member is None or member.digest != lab.template[0]]
        if outdated:
            lab.restart(outdated[0])
        for number in range(3):
            lab.refresh(number)
        lab.check()
        assert all(lab.vault.leaf(name).ends > lab.vault.now for name in LEAVES)
        assert all(member and member.shows.ends > lab.vault.now for member in lab.running)
    assert len(digests) == 1 + 3, "members restart every three years and a bit"


def test_a_secret_that_tells_of_a_new_authority_lacks_no_key_that_pods_mount() -> None:
    vault = succeeding()
    for known in vault.trusted(PEER):
        assert certificates_in(vault.found[PEER], authority_key(known)) == vault.trusted(PEER)
    assert judge(vault.resource, vault.found) == vault.judged()
    assert dataclasses.replace(vault.judged(), found={}) != vault.judged()
