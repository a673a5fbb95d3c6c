"""Copies of the certificates of other issuers: what members mount, and with what the operator connects."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects import names
from operators.etcd.security import secrets
from operators.etcd.state.observed import Instance, Observed
from operators.etcd.steps import provisioning
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.kubernetes.secrets import content_of
from shared.pki import ca, certs
from shared.pki.certs import Certificate, Pair
from shared.pki.stores import authority_key, certificates_in
from shared.pki.validity import signers
from shared.runtime.plan import Apply, Step, WriteSecret
from shared.status.verdict import Progress
from shared.steps.certificates import COPY_SETTLING
from tests.etcd.unit.world import NOW, assess, cluster
from tests.platform.unit.drawer import Drawer

GIVEN: Obj = {"tls": {"mode": "secret", "peer": {"secretName": "peers"}, "client": {"secretName": "clients"}}}
ISSUED: Obj = {"tls": {"mode": "certManager", "issuer": {"name": "team-ca"}}}
PEER, SERVER, CLIENT = "demo-peer-mounted", "demo-server-mounted", "demo-client-mounted"
MEMBER, SERVICE = "*.demo.default.svc", "demo-client.default.svc"
DAY = timedelta(days=1)


@cache
def authority(name: str) -> Pair:
    return ca.authority("team-ca", begins=NOW - DAY, ends=NOW + 1000 * DAY)


def known(name: str) -> Certificate:
    return certs.read(authority(name).certificate)[0]


@cache
def issued(by: str, number: int, *hosts: str) -> Pair:
    return ca.issue(authority(by), "", begins=NOW - DAY, ends=NOW + 90 * DAY, hosts=hosts, client=True)


@dataclass
class World(Drawer):
    """Secrets, the StatefulSet and its pods, as the steps observe them."""

    resource: EtcdCluster = field(default_factory=lambda: cluster(**GIVEN))
    template: Obj | None = None
    pods: list[Obj] = field(default_factory=list)
    now: Any = NOW

    def __post_init__(self) -> None:
        self.found = dict.fromkeys(secrets.names(self.resource))

    def issue(self, by: str, *only: str, number: int = 0) -> None:
        """Fill the Secrets of the issuer, or only some of them."""
        hosts: dict[str, tuple[str, ...]] = {
            names.peer_secret(self.resource): (MEMBER,),
            names.server_secret(self.resource): (MEMBER, SERVICE),
        }
        hosts.setdefault(names.client_secret(self.resource), ())
        for name in only or hosts:
            pair = issued(by, number, *hosts[name])
            content = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority(by).certificate}
            self.put(name, content)

    @property
    def seen(self) -> Observed:
        judged = secrets.judge(self.resource, self.found)
        made: Obj | None = (
            {"metadata": {}, "spec": {"replicas": 3, "template": self.template}} if self.template else None
        )
        instances = tuple(Instance(n, f"demo-{n}", pod_obj=obj) for n, obj in enumerate(self.pods))
        return Observed(stateful_set=made, instances=instances, secrets=judged)

    def ensure(self) -> Step:
        return provisioning.ensure_secrets(assess(self.resource, self.seen, self.now))

    def settle(self) -> list[str]:
        """Reconcile until nothing is written, and crash after each write; return the messages."""
        messages: list[str] = []
        for _ in range(12):
            step = self.ensure()
            writes = [action for action in step.actions if isinstance(action, WriteSecret)]
            if not writes:
                return messages
            messages.append(step.message)
            self.write(writes[0])
        raise AssertionError(messages)

    def apply(self) -> None:
        keep = provisioning.create_stateful_set if self.template is None else provisioning.ensure_stateful_set
        (action,) = keep(assess(self.resource, self.seen)).actions
        assert isinstance(action, Apply)
        assert action.kind == STATEFUL_SET
        self.template = action.obj["spec"]["template"]

    def roll(self) -> None:
        assert self.template is not None
        self.pods = [self.template] * 3

    def created(self) -> World:
        self.issue("first")
        self.settle()
        self.apply()
        self.roll()
        return self

    def mounted(self) -> set[str]:
        assert self.template is not None
        return {volume["secret"]["secretName"] for volume in self.template["spec"]["volumes"]}

    def signer(self, name: str) -> Certificate:
        content = content_of(self.found[name])
        (found,) = signers(Pair(content["tls.crt"], content["tls.key"]), (known("first"), known("second")))
        return found

    def trusted(self, name: str) -> tuple[Certificate, ...]:
        return certificates_in(self.found[name])


MODES = pytest.mark.parametrize("spec", [GIVEN, ISSUED], ids=["secret", "certManager"])


@MODES
def test_pods_mount_copies_which_exist_before_them(spec: Obj) -> None:
    world = World(resource=cluster(**spec))
    assert world.ensure().progress is Progress.DONE, "there is nothing to copy"
    world.issue("first")
    step = provisioning.require_secrets(assess(world.resource, world.seen))
    assert (step.progress, step.reason) == (Progress.WAITING, "ReplacingCertificates")
    world.created()
    assert provisioning.require_secrets(assess(world.resource, world.seen)) == Step()
    assert world.mounted() == {PEER, SERVER}
    keys = {item["key"] for volume in world.template["spec"]["volumes"] for item in volume["secret"]["items"]}  # type: ignore[index]
    assert keys == {"tls.crt", "tls.key", authority_key(known("first"))}, "a node with an outdated copy lacks the key"
    assert world.settle() == []
    assert (CLIENT in world.found) is (spec is ISSUED)


@MODES
def test_new_authority_is_trusted_by_every_member_before_it_is_used(spec: Obj) -> None:
    world = World(resource=cluster(**spec)).created()
    first, second = known("first"), known("second")
    world.issue("second")
    assert "trusting the new authority before it is used" in world.settle()[0]
    copies = [name for name in (PEER, SERVER, CLIENT) if name in world.found]
    assert {world.trusted(name) for name in copies} == {(second, first)}
    assert {world.signer(name) for name in copies} == {first}

    world.now += COPY_SETTLING
    assert "every server must trust the new certificate authority" in world.ensure().message
    before = world.template
    world.apply()
    assert annotation(world.template, names.SECRETS) != annotation(before, names.SECRETS)
    assert world.ensure().actions == () or spec is ISSUED
    assert world.settle() == [], "pods were not recreated yet"
    world.roll()
    assert world.settle(), "every member trusts it, and all files are up to date"
    assert {world.signer(name) for name in copies} == {second}

    world.now += COPY_SETTLING
    if spec is ISSUED:
        assert world.settle() == [], "certificates of the former authority may still be in use"
        world.apply()
        assert {world.trusted(name) for name in copies} == {(second, first)}
    else:
        assert "updating the trusted authorities" in world.settle()[0], "the user no longer trusts the former one"
        world.apply()
        world.roll()
        world.settle()  # the operator stopped between the two writes
        assert {world.trusted(name) for name in copies} == {(second,)}


def test_next_stage_waits_until_mounted_files_are_up_to_date() -> None:
    world = World().created()
    world.issue("second")
    world.settle()
    world.apply()
    world.roll()
    step = world.ensure()
    assert (step.progress, step.reason) == (Progress.PROGRESSING, "ReplacingCertificates")
    assert step.requeue == COPY_SETTLING.total_seconds()
    assert (
        step.message == "peers, clients: the next step follows at 12:05:00 UTC, when all mounted files are up to date."
    )
    world.now += COPY_SETTLING - timedelta(seconds=1)
    assert world.settle() == []


@pytest.mark.parametrize("edited", [None, "2099-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_copy_without_a_known_time_of_its_change_is_not_switched_at_once(edited: str | None) -> None:
    world = World().created()
    world.issue("second")
    world.settle()
    world.apply()
    world.roll()
    world.now += DAY
    for name in (PEER, SERVER):
        world.found[name]["metadata"]["annotations"][names.COPIED] = edited  # type: ignore[index]
    assert "recording the time of the last change" in world.settle()[0]
    assert world.signer(PEER) == known("first")


@MODES
def test_renewed_certificate_of_the_same_authority_restarts_no_member(spec: Obj) -> None:
    world = World(resource=cluster(**spec)).created()
    before = world.template
    world.pods[0] = {"metadata": {"annotations": {names.SECRETS: "of a pod that cannot be recreated"}}}
    world.issue("first", number=1)
    assert "new certificate" in world.settle()[0]
    world.apply()
    assert world.template == before


def test_renewal_of_one_certificate_adds_its_authority_to_every_bundle() -> None:
    """cert-manager renews each certificate on its own: clients, members and peers change at different times."""
    world = World(resource=cluster(**ISSUED)).created()
    world.issue("second", "demo-client-tls")
    world.settle()
    assert {world.trusted(name) for name in (PEER, SERVER, CLIENT)} == {(known("second"), known("first"))}
    world.apply()
    digest = annotation(world.template, names.SECRETS)
    world.issue("second")
    world.settle()
    world.apply()
    assert annotation(world.template, names.SECRETS) == digest, "one rolling update"


def test_authorities_of_peers_and_clients_stay_apart() -> None:
    world = World()
    world.issue("first", "peers")
    world.issue("second", "clients")
    world.settle()
    assert (world.trusted(PEER), world.trusted(SERVER)) == ((known("first"),), (known("second"),))


@MODES
def test_operator_is_accepted_by_every_member_during_a_rotation(spec: Obj) -> None:
    world = World(resource=cluster(**spec)).created()
    started_with = world.trusted(SERVER)
    world.issue("second")
    for _ in range(4):
        access = world.seen.secrets.access
        assert access.pair is not None
        assert signers(access.pair, started_with), "members read their authorities at their start"
        trusted = certs.read(access.authority or "")
        assert {known("first"), known("second")} <= {*trusted}, "a member may present either"
        world.settle()


@MODES
def test_invalid_original_changes_nothing_of_running_members(spec: Obj) -> None:
    world = World(resource=cluster(**spec)).created()
    before, access = world.template, world.seen.secrets.access
    world.put(names.peer_secret(world.resource), {"tls.crt": "nonsense", "tls.key": "nonsense", "ca.crt": "nonsense"})
    assert world.settle() == []
    world.apply()
    assert (world.template, world.seen.secrets.access) == (before, access)
    step = provisioning.require_secrets(assess(world.resource, world.seen))
    assert (step.progress, step.reason, step.warning) == (Progress.PROGRESSING, "SecretInvalid", True)
    assert step.message.endswith("Members continue with the last valid content.")


def test_foreign_secret_with_the_name_of_a_copy_is_not_changed() -> None:
    world = World()
    world.issue("first")
    world.put(PEER, {"tls.crt": "of a user"})
    step = world.ensure()
    assert (step.progress, step.reason, step.actions) == (Progress.BLOCKED, "ForeignObject", ())
