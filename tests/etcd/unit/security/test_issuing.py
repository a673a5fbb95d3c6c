"""Certificates of tls.mode self: issuing, renewal, and CA rotation during which every peer stays trusted."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.etcd.security.secrets import judge
from shared.kubernetes.ownership import ForeignObject
from shared.kubernetes.secrets import content_of
from shared.pki import ca, certs, rotation
from shared.pki.certs import Certificate
from shared.pki.rotation import DATABASES, SETTLINGS_PER_LIFE
from shared.pki.stores import authority_key, certificates_in, fingerprint, trust_content
from tests.etcd.unit.security.secret_fixtures import AUTHORITY, CLIENT, LIFE, PEER, SERVER, ClusterSecrets, encoded

LEAVES = (PEER, SERVER, CLIENT)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def issued() -> ClusterSecrets:
    secrets = ClusterSecrets()
    secrets.settle()
    return secrets


def with_successor() -> ClusterSecrets:
    """Return Secrets whose CA has a successor that no member trusts yet."""
    secrets = issued()
    secrets.informed = secrets.judged().mounts.digest
    secrets.now += DATABASES.authority_lives * LIFE * rotation.RENEWAL_FRACTION
    secrets.settle()
    return secrets


# Creation.


def test_ca_is_created_before_the_certificates_that_it_signs() -> None:
    secrets = ClusterSecrets()
    assert secrets.step() == "there is no certificate authority yet"
    assert [name for name, secret in secrets.found.items() if secret] == [AUTHORITY]
    assert len(secrets.next()[1]) == 3, "all other certificates at once"
    secrets.settle()
    assert secrets.next() == ("updating the trust bundle", ())


def test_only_the_secret_of_the_ca_contains_its_key() -> None:
    secrets = issued()
    assert set(content_of(secrets.found[AUTHORITY])) == {"ca.crt", "ca.key"}
    (trusted,) = secrets.trusted(PEER)
    for name in LEAVES:
        assert set(content_of(secrets.found[name])) == {"tls.crt", "tls.key", "ca.crt", authority_key(trusted)}
        assert secrets.text(AUTHORITY, "ca.key") not in content_of(secrets.found[name]).values()


def test_every_secret_has_an_owner_reference_and_a_type() -> None:
    secrets = issued()
    kinds = {}
    for name, secret in secrets.found.items():
        assert secret is not None
        assert secret["metadata"]["ownerReferences"][0]["uid"] == secrets.resource.uid
        kinds[name] = secret["type"]
    assert kinds == {AUTHORITY: "Opaque"} | dict.fromkeys(LEAVES, "kubernetes.io/tls")


def test_only_member_certificates_have_host_names() -> None:
    secrets = issued()
    assert secrets.leaf(PEER).hosts == {"*.demo.default.svc", "*.demo.default.svc.cluster.local"}
    assert secrets.leaf(SERVER).hosts > secrets.leaf(PEER).hosts | {"demo-client.default.svc", "localhost", "::1"}
    assert secrets.leaf(CLIENT).hosts == frozenset()


def test_plan_contains_no_private_key() -> None:
    secrets = ClusterSecrets()
    assert "PRIVATE" not in repr(secrets.next())
    secrets.step()
    _, writes = secrets.next()
    assert "PRIVATE" not in repr(writes)
    assert all("tls.key" not in write.obj["data"] for write in writes)


def test_foreign_secret_is_never_overwritten() -> None:
    secrets = ClusterSecrets()
    secrets.found[AUTHORITY] = {"kind": "Secret", "metadata": {"name": AUTHORITY, "labels": {}}, "data": {}}
    with pytest.raises(ForeignObject, match="Secret demo-ca exists and was not created by this operator"):
        secrets.next()


# Renewal.


def test_certificate_is_renewed_after_two_thirds_of_its_lifetime() -> None:
    secrets = issued()
    before = secrets.leaf(PEER)
    secrets.now += LIFE * rotation.RENEWAL_FRACTION - HOUR
    assert secrets.settle() == []
    secrets.now += HOUR
    assert len(secrets.settle()) == 3
    assert secrets.leaf(PEER).ends == secrets.now + LIFE > before.ends


def test_renewal_restarts_no_member() -> None:
    secrets = issued()
    before = secrets.judged()
    secrets.now += LIFE * rotation.RENEWAL_FRACTION
    secrets.settle()
    after = secrets.judged()
    assert after.mounts == before.mounts
    assert after.access.pair != before.access.pair


@pytest.mark.parametrize("name", LEAVES)
def test_missing_or_invalid_certificate_is_reissued_by_the_same_ca(name: str) -> None:
    secrets = issued()
    digest = secrets.judged().mounts.digest
    secrets.found[name] = None
    assert secrets.settle() == [f"{name}: no usable certificate"]
    secret = secrets.found[name]
    assert secret is not None
    secret["data"]["tls.key"] = encoded("nonsense")
    assert secrets.settle() == [f"{name}: no usable certificate"]
    assert secrets.judged().mounts.digest == digest


def test_certificate_for_other_hosts_is_reissued() -> None:
    secrets = issued()
    secret, signer = (
        secrets.found[SERVER],
        certs.Pair(secrets.text(AUTHORITY, "ca.crt"), secrets.text(AUTHORITY, "ca.key")),
    )
    pair = ca.issue(signer, "x", begins=secrets.now - HOUR, ends=secrets.now + LIFE, hosts=["elsewhere"])
    assert secret is not None
    secret["data"] |= {"tls.crt": encoded(pair.certificate), "tls.key": encoded(pair.key)}
    assert secrets.settle() == [f"{SERVER}: the names have changed"]


def test_no_certificate_outlives_its_ca() -> None:
    secrets = issued()
    (newest,) = secrets.trusted(PEER)
    secrets.now = newest.ends - DAY  # the operator was down for years
    secrets.settle()
    assert all(secrets.leaf(name).ends <= newest.ends for name in LEAVES)


# CA rotation.


def test_new_ca_is_trusted_before_it_signs() -> None:
    secrets = with_successor()
    newest, former = secrets.trusted(PEER)
    assert secrets.judged().mounts.digest == fingerprint(newest) != secrets.informed
    assert secrets.judged().mounts.peer.authority_key == authority_key(newest)
    for name in LEAVES:
        assert secrets.leaf(name).issuer == former.subject
        assert authority_key(former) in content_of(secrets.found[name]), "older pods still mount it"


def test_new_ca_signs_once_members_trust_it_and_clients_had_time_to_update() -> None:
    secrets = with_successor()
    secrets.now += min(DATABASES.longest_settling, LIFE / SETTLINGS_PER_LIFE)
    assert secrets.settle() == [], "members were not restarted yet"
    secrets.informed = secrets.judged().mounts.digest
    secrets.now -= 2 * HOUR
    assert secrets.settle() == [], "clients had no time to update"
    secrets.now += 2 * HOUR
    assert secrets.settle()[0] == "every client trusts the new certificate authority; it signs from now on"
    newest, _ = secrets.trusted(PEER)
    assert {secrets.leaf(name).issuer for name in LEAVES} == {newest.subject}
    assert secrets.judged().mounts.digest == secrets.informed, "no member restarts"
    assert set(content_of(secrets.found[AUTHORITY])) == {"ca.crt", "ca.key", "former.crt"}


def test_new_ca_does_not_sign_while_a_secret_lacks_it() -> None:
    secrets = with_successor()
    secret, former_trust = secrets.found[CLIENT], trust_content(secrets.trusted(CLIENT)[1:])
    assert secret is not None
    secret["data"] = {key: encoded(text) for key, text in (dict(content_of(secret)) | former_trust).items()}
    secrets.informed = secrets.judged().mounts.digest
    secrets.now += DATABASES.longest_settling
    assert secrets.step() == "updating the trust bundle"
    assert secrets.step() == "every client trusts the new certificate authority; it signs from now on"


def test_expired_ca_leaves_the_trust_bundle_without_restarts() -> None:
    secrets = with_successor()
    secrets.informed = secrets.judged().mounts.digest
    secrets.now += DATABASES.longest_settling
    secrets.settle()
    _, former = secrets.trusted(PEER)
    secrets.now = former.ends
    assert "a certificate authority has expired" in secrets.settle()
    assert former not in secrets.trusted(PEER)
    assert authority_key(former) not in content_of(secrets.found[PEER])
    assert secrets.judged().mounts.digest == secrets.informed


def test_expired_ca_leaves_a_secret_of_which_another_client_owns_a_key_too() -> None:
    """After a restored backup: an apply does not remove the key, and the operator wrote it again for ever."""
    secrets = with_successor()
    secrets.informed = secrets.judged().mounts.digest
    secrets.now += DATABASES.longest_settling
    secrets.settle()
    secret = secrets.found[AUTHORITY]
    assert secret is not None
    restored = {"manager": "restore", "operation": "Update", "fieldsV1": {"f:data": {"f:former.crt": {}}}}
    secret["metadata"]["managedFields"] = [restored]
    secrets.now = secrets.trusted(PEER)[1].ends
    why, (write,) = secrets.next()
    assert (why, content_of(write.obj)["former.crt"]) == ("a certificate authority has expired", "")


def test_deleted_ca_gets_a_successor_and_its_certificates_stay_trusted() -> None:
    secrets = issued()
    secrets.informed, (former,) = secrets.judged().mounts.digest, secrets.trusted(PEER)
    before = secrets.leaf(PEER)
    secrets.found[AUTHORITY] = None
    assert secrets.settle()[0] == "the certificate authority is missing; adding a new one"
    assert former in secrets.trusted(PEER)
    assert secrets.leaf(PEER) == before
    secrets.informed = secrets.judged().mounts.digest
    secrets.now += DATABASES.longest_settling
    assert "every client trusts the new certificate authority; it signs from now on" in secrets.settle()
    assert secrets.leaf(PEER).issuer == secrets.trusted(PEER)[0].subject


def test_ca_that_signed_stays_trusted_however_often_its_successors_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each deletion adds an authority that signs nothing before members trust it; a bundle of 512 cannot be read."""
    monkeypatch.setattr(rotation, "MAX_RETIRED", 4)
    secrets = issued()
    former, before = secrets.trusted(PEER)[0], secrets.leaf(PEER)
    for _ in range(8):
        secrets.found[AUTHORITY] = None
        secrets.now += HOUR
        secrets.settle()
        assert former in secrets.trusted(PEER)
        assert len(secrets.trusted(PEER)) <= 1 + 4
    assert secrets.leaf(PEER) == before, "no other one has signed"


def test_successor_of_a_deleted_ca_at_first_signs_only_missing_certificates() -> None:
    secrets = issued()
    peer = secrets.leaf(PEER)
    secrets.found[AUTHORITY] = secrets.found[CLIENT] = None
    secrets.settle()
    newest, former = secrets.trusted(CLIENT)
    assert (secrets.leaf(CLIENT).issuer, secrets.leaf(PEER)) == (newest.subject, peer)
    assert peer.issuer == former.subject


def test_all_secrets_are_recreated_after_all_were_deleted() -> None:
    secrets = issued()
    secrets.found = dict.fromkeys(secrets.found)
    assert secrets.settle()[0] == "there is no certificate authority yet"
    assert secrets.leaf(PEER).issuer == secrets.trusted(PEER)[0].subject


def test_ca_that_expired_while_the_operator_was_down_is_replaced_at_once() -> None:
    secrets = issued()
    secrets.now = secrets.trusted(PEER)[0].ends + DAY
    secrets.settle()
    for name in LEAVES:
        assert secrets.leaf(name).ends > secrets.now
        assert secrets.leaf(name).issuer == secrets.trusted(name)[0].subject


def test_due_time_of_the_next_write_is_known() -> None:
    secrets = issued()
    assert secrets.issuing.due == secrets.leaf(PEER).ends - (1 - rotation.RENEWAL_FRACTION) * LIFE
    secrets = with_successor()
    assert secrets.issuing.due == secrets.now + DATABASES.longest_settling
    assert ClusterSecrets().issuing.due is None


# Random sequences of events.


@dataclass
class Running:
    """Member with the trust bundle of its start and the certificate that the kubelet mounted last.

    Attributes:
        key: key of the trust bundle in the Secret that the pod mounts.
    """

    key: str
    trusts: tuple[Certificate, ...]
    presents: Certificate
    digest: str


@dataclass
class Lab:
    """Three members, and an operator that may crash after each write."""

    secrets: ClusterSecrets = field(default_factory=ClusterSecrets)
    template: tuple[str, str] = ("", "")
    running: list[Running | None] = field(default_factory=lambda: [None, None, None])

    def __post_init__(self) -> None:
        self.secrets.settle()
        self.apply()
        for number in range(3):
            self.restart(number)

    def apply(self) -> None:
        """Update the StatefulSet unless a certificate must be written first."""
        if not self.secrets.next()[1]:
            judged = self.secrets.judged()
            self.template = judged.mounts.digest, judged.mounts.peer.authority_key
        self._observe()

    def restart(self, number: int) -> None:
        """Recreate the pod of a member; it starts if the Secret has every key that it mounts."""
        digest, key = self.template
        bundle = certificates_in(self.secrets.found[PEER], key)
        self.running[number] = Running(key, bundle, self.secrets.leaf(PEER), digest) if bundle else None
        self._observe()

    def refresh(self, number: int) -> None:
        """Update the mounted files as the kubelet does: not at all if a key is missing."""
        member = self.running[number]
        if member is not None and member.key in content_of(self.secrets.found[PEER]):
            member.presents = self.secrets.leaf(PEER)

    def _observe(self) -> None:
        digests = {member.digest for member in self.running if member} | {self.template[0]}
        missing = any(member is None for member in self.running)
        self.secrets.informed = digests.pop() if len(digests) == 1 and not missing else ""

    def check(self) -> None:
        """Check that every member trusts the certificates of all others, now and after any restart.

        Expired certificates are not checked: a kubelet that updates nothing for a month is out of scope.
        """
        running = [member for member in self.running if member is not None]
        presented = {member.presents.issuer for member in running if member.presents.ends > self.secrets.now}
        for member in running:
            subjects = {known.subject for known in member.trusts}
            assert self.secrets.leaf(PEER).issuer in subjects, "the next member to start must be trusted"
            assert presented <= subjects
        bundle = {known.subject for known in certificates_in(self.secrets.found[PEER], self.template[1])}
        assert not bundle or presented <= bundle, "the next member to start must trust the others"


EVENTS = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 29)),
    st.tuples(st.just("step"), st.just(0)),
    st.tuples(st.just("settle"), st.just(0)),
    st.tuples(st.just("apply"), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, 2)),
    st.tuples(st.just("refresh"), st.integers(0, 2)),
    st.tuples(st.just("delete"), st.sampled_from([0, 1])),
)


@pytest.mark.nightly
@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, min_size=20, max_size=80))
def test_members_always_trust_each_others_certificates(events: list[tuple[str, int]]) -> None:
    """Combine slow or crashing operators, restarts of members, lagging kubelets and deleted Secrets."""
    lab = Lab(ClusterSecrets(policy=dataclasses.replace(DATABASES, authority_lives=2)))
    for event, number in events:
        match event:
            case "wait" if lab.secrets.leaf(PEER).ends > lab.secrets.now + number * DAY:
                lab.secrets.now += number * DAY
            case "step":
                lab.secrets.step()
            case "settle":
                lab.secrets.settle()
                lab.apply()
            case "apply":
                lab.apply()
            case "restart":
                lab.restart(number)
            case "refresh":
                lab.refresh(number)
            case "delete":
                lab.secrets.found[(AUTHORITY, CLIENT)[number]] = None
        lab.check()


def test_certificates_stay_valid_and_trusted_over_the_lifetime_of_a_ca() -> None:
    """Simulate twelve years with one reconcile a week; outdated members restart one by one."""
    lab, digests = Lab(), set()
    for _ in range(12 * 52):
        lab.secrets.now += 7 * DAY
        while lab.secrets.step():
            lab.check()
        lab.apply()
        digests.add(lab.template[0])
        outdated = [n for n, member in enumerate(lab.running) if member is None or member.digest != lab.template[0]]
        if outdated:
            lab.restart(outdated[0])
        for number in range(3):
            lab.refresh(number)
        lab.check()
        assert all(lab.secrets.leaf(name).ends > lab.secrets.now for name in LEAVES)
        assert all(member and member.presents.ends > lab.secrets.now for member in lab.running)
    assert len(digests) == 1 + 3, "members restart about every three years"


def test_secret_with_a_new_ca_keeps_every_key_that_pods_mount() -> None:
    secrets = with_successor()
    for known in secrets.trusted(PEER):
        assert certificates_in(secrets.found[PEER], authority_key(known)) == secrets.trusted(PEER)
    assert judge(secrets.resource, secrets.found) == secrets.judged()
    assert dataclasses.replace(secrets.judged(), found={}) != secrets.judged()
