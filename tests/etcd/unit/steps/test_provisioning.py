"""Provisioning: disruption budgets, Secrets before pods, and the expansion of volumes."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operators.etcd.database import DATABASE
from operators.etcd.objects.names import COMPONENT, SECRETS, owner
from operators.etcd.security.secrets import Secrets, judge
from operators.etcd.state.observed import Instance, Observed
from operators.etcd.steps import provisioning
from shared.kubernetes.kinds import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET, Obj
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS
from shared.pki.secret_checks import SecretProblem
from shared.pki.validity import Validity
from shared.runtime.plan import PASS, Apply, Delete, Patch, Step, WriteSecret
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from shared.steps.database import require_valid_certificates
from tests.etcd.unit.security.secret_fixtures import AUTHORITY, PEER
from tests.etcd.unit.security.secret_fixtures import ClusterSecrets as Vault
from tests.etcd.unit.world import ABSENT, NOW, SETTINGS, VOTER, assess, cluster, seen
from tests.support import extension_cases

HOUR = timedelta(hours=1)

# Budgets.


def budget(spec: Obj) -> Obj:
    own = owner(cluster(), SETTINGS.operator)
    made: Obj = own.object(DISRUPTION_BUDGET, "demo", component=COMPONENT, spec=spec)
    made["metadata"]["uid"] = "b-1"
    return made


def test_orphaned_disruption_budget_is_not_deleted() -> None:
    """A copied manifest has the labels of the resource, too."""
    found = budget({"maxUnavailable": 1})
    del found["metadata"]["ownerReferences"]
    assert DATABASE.ensure_disruption_budget(assess(cluster(1), Observed(disruption_budget=found))) == PASS


def test_disruption_budget_that_is_no_longer_needed_is_deleted() -> None:
    resource, found = cluster(1), budget({"maxUnavailable": 1})
    step = DATABASE.ensure_disruption_budget(assess(resource, Observed(disruption_budget=found)))
    (action,) = step.actions
    assert isinstance(action, Delete)
    assert DATABASE.ensure_disruption_budget(assess(resource, Observed())) == PASS


def test_disruption_budget_with_the_other_limit_is_recreated() -> None:
    resource = cluster(podDisruptionBudget={"minAvailable": 2})
    (action,) = DATABASE.ensure_disruption_budget(
        assess(resource, Observed(disruption_budget=budget({"maxUnavailable": 1})))
    ).actions
    assert isinstance(action, Delete), "Kubernetes accepts only one of the two limits"
    (action,) = DATABASE.ensure_disruption_budget(
        assess(resource, Observed(disruption_budget=budget({"minAvailable": 1})))
    ).actions
    assert isinstance(action, Apply)


# Secrets.


def keep(fixture: Vault, found: Observed) -> Step:
    found = replace(found, secrets=fixture.judged())
    return provisioning.ensure_secrets(assess(fixture.resource, found, fixture.now))


def test_pods_wait_for_their_certificates() -> None:
    fixture = Vault()
    step = keep(fixture, Observed())
    assert (step.progress, step.reason) == (Progress.WAITING, "IssuingCertificates")
    assert step.message == "Issuing certificates: there is no certificate authority yet."
    assert all(isinstance(action, WriteSecret) for action in step.actions)


def test_certificates_that_are_not_due_only_requeue_the_resource() -> None:
    fixture = Vault()
    fixture.settle()
    assert keep(fixture, Observed()) == PASS
    fixture.now = fixture.leaf(PEER).ends - 30 * timedelta(days=1) - timedelta(minutes=10)
    assert keep(fixture, Observed()) == Step(requeue=600.0)


def test_foreign_secret_is_reported_and_not_changed() -> None:
    fixture = Vault()
    metadata = {"name": AUTHORITY, "namespace": "default"}
    fixture.found[AUTHORITY] = {"kind": "Secret", "metadata": metadata, "data": {}}
    step = keep(fixture, Observed())
    assert (step.progress, step.reason, step.actions) == (Progress.BLOCKED, "ForeignObject", ())


def test_no_certificates_are_issued_without_a_request() -> None:
    given: Obj = {"tls": {"mode": "secret", "peer": {"secretName": "a"}, "client": {"secretName": "b"}}}
    for spec in ({}, given):
        assert provisioning.ensure_secrets(assess(cluster(**spec), Observed())) == PASS


def test_cert_manager_certificates_are_applied_without_waiting() -> None:
    resource = cluster(tls={"mode": "certManager", "issuer": {"name": "ours"}})
    step = provisioning.ensure_secrets(assess(resource, Observed()))
    assert step.progress is Progress.DONE
    assert [action.obj["kind"] for action in step.actions if isinstance(action, Apply)] == ["Certificate"] * 3


def started(digests: list[str], template: str | None) -> Observed:
    pods = [
        Instance(n, f"demo-{n}", pod_obj={"metadata": {"annotations": {SECRETS: digest}}})
        for n, digest in enumerate(digests)
    ]
    annotations = {"annotations": {SECRETS: template}}
    made: Obj | None = {"spec": {"template": {"metadata": annotations}}} if template is not None else None
    return Observed(stateful_set=made, instances=(*pods, Instance(7, "demo-7")))


@pytest.mark.parametrize(
    ("digests", "template", "signs"),
    [
        (["new", "new", "new"], "new", True),
        (["new", "old", "new"], "new", False),
        (["new", "new", "new"], "old", False),
        (["new", "new", "new"], None, False),
        (["old", "old", "old"], "old", False),
        ([], "new", True),
    ],
)
def test_new_authority_signs_once_every_pod_and_the_template_trust_it(
    digests: list[str], template: str | None, signs: bool
) -> None:
    fixture = Vault()
    fixture.settle()
    old = fixture.judged().mounts.digest
    fixture.now = fixture.trusted(PEER)[0].begins + timedelta(days=1300)
    fixture.settle()
    names = {"old": old, "new": fixture.judged().mounts.digest}
    fixture.now += 25 * HOUR
    step = keep(fixture, started([names[d] for d in digests], None if template is None else names[template]))
    assert (step.reason == "IssuingCertificates") is signs


def test_missing_secret_blocks_changes_with_a_warning() -> None:
    found = Observed(secrets=Secrets(SecretProblem(Reason("SecretMissing"), "spec.auth: there is no Secret root.")))
    step = provisioning.require_secrets(assess(cluster(), found))
    assert (step.progress, step.reason, step.warning, step.requeue) == (
        Progress.WAITING,
        "SecretMissing",
        True,
        SECRETS_RETRY_SECONDS,
    )
    assert step.message == "spec.auth: there is no Secret root. Nothing was changed."


def test_certificate_that_has_ended_blocks_changes_but_not_the_repairs_before_them() -> None:
    ends = datetime(2026, 1, 1, 12, tzinfo=UTC)
    found = Observed(secrets=Secrets(validity={"peers": Validity(ends - 900 * HOUR, ends)}))
    running, new = cluster(), cluster(recorded=None)
    assert require_valid_certificates(assess(running, found, ends - timedelta(minutes=20))) == Step(requeue=1200.0)
    step = require_valid_certificates(assess(running, found, ends))
    assert (step.progress, step.reason, step.warning) == (Progress.WAITING, "CertificateExpired", True)
    assert "Secret peers: the certificate, or its authority, ended at 2026-01-01 12:00 UTC." in step.message
    assert provisioning.require_secrets(assess(running, found, ends)) == replace(step, progress=Progress.PROGRESSING)
    assert provisioning.require_secrets(assess(new, found, ends)) == step


# Volumes.


def world(
    *sizes: str, template: str = "8Gi", has: str | None = None, phase: str = "Bound", spec: Obj | None = None
) -> Observed:
    """Return members whose claims request `sizes`; `has` is their capacity, if it differs."""
    resource = cluster(len(sizes), **(spec or {}))
    found = seen(resource, *[VOTER] * len(sizes))
    instances = []
    for instance, size in zip(found.instances, sizes, strict=True):
        volume = copy.deepcopy(instance.volume)
        assert volume is not None
        volume["spec"] = {"resources": {"requests": {"storage": size}}}
        volume["status"] = {"phase": phase, "capacity": {"storage": has or size}}
        instances.append(replace(instance, volume=volume))
    stateful_set = copy.deepcopy(found.stateful_set)
    assert stateful_set is not None
    (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
    claim["spec"]["resources"]["requests"]["storage"] = template
    return replace(found, instances=tuple(instances), stateful_set=stateful_set)


def grow(found: Observed, size: str = "20Gi", now: datetime = NOW, **spec: Any) -> Step:
    return DATABASE.grow_volumes(assess(cluster(len(found.instances), storage={"size": size}, **spec), found, now))


def test_claim_of_each_small_volume_is_expanded() -> None:
    step = grow(world("8Gi", "20Gi", "8Gi"))
    assert (step.progress, step.reason) == (Progress.PROGRESSING, "GrowingVolumes")
    patches = [action for action in step.actions if isinstance(action, Patch)]
    assert [(patch.kind, patch.obj["metadata"]["name"]) for patch in patches] == [
        (PERSISTENT_VOLUME_CLAIM, "data-demo-0"),
        (PERSISTENT_VOLUME_CLAIM, "data-demo-2"),
    ]
    assert patches[0].change["spec"] == {"resources": {"requests": {"storage": "20Gi"}}}
    assert patches[0].change["metadata"] == {"annotations": {DATABASE.refusal: None}}, (
        "the recorded refusal is outdated"
    )


def test_stateful_set_is_recreated_without_its_pods_after_the_expansion() -> None:
    step = grow(world("20Gi", "20Gi", "20Gi"))
    (action,) = step.actions
    assert isinstance(action, Delete)
    assert (action.kind, action.orphan, step.progress) == (STATEFUL_SET, True, Progress.WAITING)


def test_expansion_waits_until_the_storage_provides_the_capacity() -> None:
    step = grow(world("20Gi", template="20Gi", has="8Gi"))
    assert (step.reason, step.actions) == ("GrowingVolumes", ())
    assert step.message == "Waiting for the storage to expand data-demo-0 to 20Gi."
    assert grow(world("20Gi", "20480Mi", template="20Gi")) == PASS


def test_stateful_set_is_recreated_only_while_members_are_known() -> None:
    found = world("20Gi", "20Gi", "20Gi")
    assert grow(replace(found, members=None)).actions == ()
    beginning = cluster(recorded=None, storage={"size": "20Gi"})
    assert DATABASE.grow_volumes(assess(beginning, found)).actions == (), (
        "the seed must not be bootstrapped a second time"
    )


def refused(found: Observed, when: datetime, size: str = "20Gi") -> Observed:
    """Return a world in which the executor has recorded a refusal of the expansion."""
    step = grow(found, size, when)
    instances = []
    for instance in found.instances:
        volume = copy.deepcopy(instance.volume)
        assert volume is not None
        for action in step.actions:
            if isinstance(action, Patch) and action.obj["metadata"]["name"] == volume["metadata"]["name"]:
                assert action.noted is not None
                key, beginning = action.noted
                volume["metadata"]["annotations"] = {key: f"{beginning}: its class does not allow it"}
        instances.append(replace(instance, volume=volume))
    return replace(found, instances=tuple(instances))


def test_volumes_that_cannot_grow_are_reported_and_block_nothing() -> None:
    step = grow(refused(world("8Gi", "8Gi", "8Gi"), NOW))
    assert (step.progress, step.reason, step.warning, step.actions) == (
        Progress.PROGRESSING,
        "VolumesCannotGrow",
        True,
        (),
    )
    assert step.message.startswith("PersistentVolumeClaim data-demo-0 cannot grow to 20Gi: its class does not allow")


def test_refused_expansion_is_retried_after_an_hour_or_with_another_size() -> None:
    found = refused(world("8Gi"), NOW)
    assert grow(found).actions == ()
    assert len(grow(found, now=NOW + HOUR).actions) == 1
    assert len(grow(found, "30Gi").actions) == 1
    assert grow(found, "8Gi") == PASS, "no expansion is needed for the current size"


@pytest.mark.parametrize("spec", [{}, extension_cases.FULL], ids=["plain", "with other containers"])
def test_quota_does_not_rise_before_the_volumes_have_grown(spec: Obj) -> None:
    small, large = (cluster(3, storage={"size": size}, **spec) for size in ("8Gi", "20Gi"))
    assert small.spec.quota < large.spec.quota
    before = world("8Gi", "8Gi", "8Gi", spec=spec)
    assert provisioning.quota(assess(large, before)) == small.spec.quota
    assert provisioning.quota(assess(large, world("20Gi", "20Gi", "20Gi", has="8Gi", spec=spec))) == small.spec.quota
    assert provisioning.quota(assess(large, world("20Gi", "20Gi", "20Gi", spec=spec))) == large.spec.quota
    assert provisioning.quota(assess(small, before)) == small.spec.quota
    assert provisioning.quota(assess(large, Observed())) == large.spec.quota


def test_lower_quota_applies_at_once() -> None:
    less = cluster(3, storage={"size": "20Gi"}, quotaBackendBytes=1 << 30)
    assert provisioning.quota(assess(less, world("8Gi", "8Gi", "8Gi"))) == 1 << 30


def test_unbound_volume_is_not_expanded() -> None:
    assert grow(world("8Gi", template="20Gi", phase="Pending")) == PASS


def test_volumes_never_shrink() -> None:
    assert grow(world("20Gi", "20Gi", template="20Gi"), "8Gi") == PASS


def test_in_memory_cluster_has_no_volume_to_expand() -> None:
    resource = cluster(storage={"medium": "Memory", "size": "1Gi"})
    assert DATABASE.grow_volumes(assess(resource, seen(resource, VOTER, VOTER, VOTER))) == PASS
    assert DATABASE.grow_volumes(assess(cluster(), Observed())) == PASS
    assert DATABASE.grow_volumes(assess(cluster(), seen(cluster(), VOTER, VOTER, ABSENT))) == PASS


def test_template_is_not_changed_before_pods_can_mount_the_bundle_of_a_new_authority() -> None:
    fixture = Vault()
    fixture.settle()
    found = Observed(secrets=fixture.judged())
    assert provisioning.require_secrets(assess(fixture.resource, found, fixture.now)) == PASS
    bundles = {name: secret for name, secret in fixture.found.items() if name != PEER}
    lacking = Observed(secrets=judge(fixture.resource, bundles | {PEER: None}))
    step = provisioning.require_secrets(assess(fixture.resource, lacking, fixture.now))
    assert (step.progress, step.reason) == (Progress.WAITING, "IssuingCertificates")
