"""Owned objects of the nodes: configuration, Secrets, disruption budget and volumes; foreign objects are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.database import DATABASE
from operators.redis.objects import names
from operators.redis.objects.config_map import TEMPLATE_KEY
from operators.redis.objects.names import CLUSTER_UID
from operators.redis.objects.redis_conf import CONFIG_KEY, WITHDRAWN
from operators.redis.state.instance import Instance
from operators.redis.state.observed import ConfigTemplate, Observed
from operators.redis.steps import configuration, provisioning
from shared.kubernetes import ownership
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import content_of
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import PASS, Apply, Delete, Patch, WriteSecret
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from tests.harness.messages import commands
from tests.redis.unit.security.rotation import GIVEN, OWN, Lab, certificate, wished
from tests.redis.unit.world import SETTINGS, UID, assess, edited, stored

TEMPLATED: Any = {"pod": [{"configmap": "mine"}]}


# Foreign data.


def found(kind: str, name: str, uid: str | None) -> Obj:
    labels = {} if uid is None else {CLUSTER_UID: uid, ownership.INSTANCE: "demo", ownership.NAME: "redis"}
    return {"kind": kind, "metadata": {"name": name, "namespace": "default", "uid": "x", "labels": labels}}


@pytest.mark.parametrize("uid", ["another", None])
def test_data_of_an_earlier_cluster_is_neither_adopted_nor_deleted(uid: str | None) -> None:
    for seen in (
        Observed(stateful_set=found("StatefulSet", "demo", uid)),
        Observed(instances=(Instance(0, "demo-0", volume=found("PersistentVolumeClaim", "data-demo-0", uid)),)),
    ):
        step = provisioning.refuse_foreign_data(assess(wished(), seen))
        assert (step.progress, step.reason, step.actions) == (Progress.BLOCKED, "ForeignData", ())
        adopts = uid is not None and seen.stateful_set is None
        adopt = "`kubectl patch rediscluster demo -n default --type merge -p '"
        way = f"to another: {adopt}" if adopts else f"{CLUSTER_UID}={UID} --overwrite`"
        assert way in step.message
        assert "Nothing was changed." in step.message


def test_command_hands_over_what_the_message_names() -> None:
    """In the namespace of the resource, and no other object with these labels."""
    volumes = [found("PersistentVolumeClaim", f"data-demo-{number}", "another") for number in range(2)]
    instances = tuple(Instance(number, f"demo-{number}", volume=volume) for number, volume in enumerate(volumes))
    seen = Observed(stateful_set=found("StatefulSet", "demo", "another"), instances=instances)
    step = provisioning.refuse_foreign_data(assess(wished(), seen))
    named = "PersistentVolumeClaim data-demo-0, PersistentVolumeClaim data-demo-1, StatefulSet demo belongs to another"
    assert step.message.startswith(named)
    [words] = commands(step.message)
    objects = ["persistentvolumeclaim/data-demo-0", "persistentvolumeclaim/data-demo-1", "statefulset/demo"]
    assert words[:7] == ["kubectl", "label", *objects, "-n", "default"]
    assert {f"{CLUSTER_UID}={UID}", "--overwrite"} <= {*words[7:]}


def test_objects_with_the_uid_of_the_resource_are_adopted() -> None:
    volume = found("PersistentVolumeClaim", "data-demo-0", UID)
    seen = Observed(stateful_set=found("StatefulSet", "demo", UID), instances=(Instance(0, "demo-0", volume=volume),))
    restored = provisioning.refuse_foreign_data(assess(wished(), seen))
    assert (restored.progress, [action.obj for action in restored.actions if isinstance(action, Patch)]) == (
        Progress.DONE,
        [volume],
    )
    volume["metadata"]["labels"] |= names.owner(wished(), SETTINGS.operator).labels(names.COMPONENT)
    assert provisioning.refuse_foreign_data(assess(wished(), seen)) == PASS
    assert provisioning.refuse_foreign_data(assess(wished(), Observed())) == PASS


# Configuration.


def config_map_of(resource: RedisCluster, seen: Observed) -> Obj:
    (action,) = configuration.ensure_config_map(assess(resource, seen)).actions
    assert isinstance(action, Apply)
    return action.obj


def test_deleted_template_keeps_its_last_content() -> None:
    resource = wished(**TEMPLATED)
    missing = ConfigTemplate(problem=SecretProblem(Reason("ConfigMapMissing"), "There is no ConfigMap mine."))
    step = configuration.require_config(assess(resource, Observed(config=missing)))
    assert (step.progress, step.reason) == (Progress.WAITING, "ConfigMapMissing"), "there is no earlier content to keep"
    first = stored(config_map_of(resource, Observed(config=ConfigTemplate("hz 42\n"))))
    assert first["data"][TEMPLATE_KEY] == "hz 42\n"
    seen = Observed(config=missing, config_map=first)
    step = configuration.require_config(assess(resource, seen))
    assert (step.progress, step.message) == (
        Progress.PROGRESSING,
        "There is no ConfigMap mine. Nodes keep its last valid version.",
    )
    assert stored(config_map_of(resource, seen)) == first
    assert (
        configuration.config_marks(assess(resource, seen))[0]
        == configuration.config_marks(assess(resource, Observed(config=ConfigTemplate("hz 42\n"), config_map=first)))[0]
    )


def test_invalid_template_is_reported_and_not_applied() -> None:
    resource = wished(**TEMPLATED)
    first = stored(config_map_of(resource, Observed(config=ConfigTemplate("hz 42\n"))))
    seen = Observed(config=ConfigTemplate('hz "43\n'), config_map=first)
    assert configuration.require_config(assess(resource, seen)).reason == "ConfigMapInvalid"
    assert "hz 42\n" in config_map_of(resource, seen)["data"][CONFIG_KEY]


def test_last_content_of_a_template_that_another_client_edited_is_not_applied() -> None:
    resource = wished(**TEMPLATED)
    first = stored(config_map_of(resource, Observed(config=ConfigTemplate("hz 42\n"))))
    seen = Observed(config=ConfigTemplate('hz "43\n'), config_map=edited(first, **{TEMPLATE_KEY: "appendonly no\n"}))
    assert "\nappendonly yes\n" in config_map_of(resource, seen)["data"][CONFIG_KEY]


def test_number_of_withdrawn_settings_is_recorded() -> None:
    before = stored(config_map_of(wished(config={"hz": "20"}), Observed()))
    assert WITHDRAWN not in before["metadata"]["annotations"]
    after = stored(config_map_of(wished(), Observed(config_map=before)))
    assert after["metadata"]["annotations"][WITHDRAWN] == "1"
    assert stored(config_map_of(wished(), Observed(config_map=after))) == after
    digest = configuration.config_marks(assess(wished(), Observed(config_map=before)))[0]
    assert configuration.config_marks(assess(wished(), Observed(config_map=after)))[0] == digest, (
        "one rolling update, not two"
    )


# Secrets.


def test_mounted_secrets_exist_before_the_pods() -> None:
    lab = Lab()
    step = provisioning.ensure_secrets(assess(lab.resource, lab.seen()))
    assert (step.progress, step.reason) == (Progress.WAITING, "PreparingUsers")
    (write,) = step.actions
    assert isinstance(write, WriteSecret)
    assert write.token, "the password of the exporter is generated when the Secret is written"
    lab.do(write)
    (write,) = provisioning.ensure_secrets(assess(lab.resource, lab.seen())).actions
    assert isinstance(write, WriteSecret)
    assert write.token == "replicationPassword"
    lab.do(write)
    assert provisioning.ensure_secrets(assess(lab.resource, lab.seen())) == PASS, "the password is not set yet"
    lab.give("one")
    (write,) = provisioning.ensure_secrets(assess(lab.resource, lab.seen())).actions
    assert isinstance(write, WriteSecret)
    lab.do(write)
    assert provisioning.ensure_secrets(assess(lab.resource, lab.seen())) == PASS


def test_exporter_password_survives_the_loss_of_the_other_content() -> None:
    lab = Lab()
    lab.give("one")
    lab.begin()
    before = content_of(lab.found["demo-users"])["exporterPassword"]
    lab.put("demo-users", {"exporterPassword": before})
    users = lab.found["demo-users"]
    assert users is not None
    users["metadata"]["labels"] = {
        "app.kubernetes.io/name": "redis",
        "app.kubernetes.io/instance": "demo",
        "app.kubernetes.io/managed-by": SETTINGS.operator,
    }
    for _ in range(2):
        (write,) = provisioning.ensure_secrets(assess(lab.resource, lab.seen())).actions
        assert isinstance(write, WriteSecret)
        lab.do(write)
    passwords = lab.judged().passwords
    assert passwords is not None
    assert (passwords.current, passwords.exporter) == ("one", before)


def test_foreign_secret_of_the_same_name_is_reported_and_not_changed() -> None:
    lab = Lab()
    lab.give("one")
    lab.put("demo-users", {"mine": "x"})
    step = provisioning.ensure_secrets(assess(lab.resource, lab.seen()))
    assert (step.progress, step.reason, step.actions) == (Progress.BLOCKED, "ForeignObject", ())


def test_certificates_are_issued_in_order_from_authority_to_mounted_secret() -> None:
    lab, messages = Lab(resource=wished(tls={"mode": "self"})), []
    lab.found = dict.fromkeys(lab.found)
    for _ in range(10):
        step = provisioning.ensure_secrets(assess(lab.resource, lab.seen()))
        if not step.actions:
            break
        messages.append(step.message)
        for action in step.actions:
            lab.do(action)
    assert messages == [
        *["Creating the Secret with the users of the nodes."] * 3,
        "Issuing certificates: there is no certificate authority yet.",
        "Issuing certificates: demo-server-tls: no usable certificate; demo-client-tls: no usable certificate.",
        "Updating the certificates that servers mount: first certificate.",
    ]
    assert lab.judged().mounted == lab.judged().original


def test_certificates_are_requested_from_cert_manager_without_waiting() -> None:
    lab = Lab(resource=wished(tls={"mode": "certManager", "issuer": {"name": "ours"}}))
    for _ in range(3):
        for action in provisioning.ensure_secrets(assess(lab.resource, lab.seen())).actions:
            if isinstance(action, WriteSecret):
                lab.do(action)
    step = provisioning.ensure_secrets(assess(lab.resource, lab.seen()))
    assert step.progress is Progress.DONE
    assert [action.obj["kind"] for action in step.actions if isinstance(action, Apply)] == ["Certificate"] * 2


def test_certificates_without_an_issuer_stop_no_repair() -> None:
    """The spec is invalid; it may have bypassed admission."""
    lab = Lab(resource=wished(tls={"mode": "certManager"}))
    formed = RedisCluster.parse(lab.resource.obj | {"status": {"formed": True}})
    for _ in range(3):  # the Secret with the users
        for action in DATABASE.renew_secrets(assess(formed, lab.seen())).actions:
            lab.do(action)
    assert DATABASE.renew_secrets(assess(formed, lab.seen())) == PASS


def test_missing_secret_blocks_new_clusters_but_not_running_ones() -> None:
    lab = Lab()
    step = provisioning.require_secrets(assess(lab.resource, lab.seen()))
    assert (step.progress, step.reason) == (Progress.WAITING, "SecretMissing")
    lab = Lab(resource=wished(tls={"mode": "secret", "secretName": OWN}))
    lab.put(OWN, certificate("a", "old"))
    lab.begin()
    assert provisioning.require_secrets(assess(lab.resource, lab.seen())) == PASS
    lab.found[OWN] = None
    step = provisioning.require_secrets(assess(lab.resource, lab.seen()))
    assert (step.progress, step.warning) == (Progress.PROGRESSING, True)
    lab.found["demo-nodes-tls"] = None
    assert provisioning.require_secrets(assess(lab.resource, lab.seen())).progress is Progress.WAITING


def test_certificate_that_has_ended_is_not_given_to_nodes_that_have_a_valid_one() -> None:
    lab = Lab(resource=wished(tls={"mode": "secret", "secretName": OWN}))
    lab.put(OWN, certificate("a", "old"))
    lab.begin()
    mounted = lab.judged().mounted
    lab.put(OWN, certificate("b", "old", 0))
    lab.settle()
    assert lab.judged().mounted == mounted
    step = provisioning.require_secrets(assess(lab.resource, lab.seen()))
    assert (step.progress, step.reason, step.warning) == (Progress.PROGRESSING, "CertificateExpired", True)
    assert step.message.endswith("keep the former certificate, which is valid until 2027-02-05 12:00 UTC. Renew it.")


# Budget.


def budget(spec: Obj, **labels: str) -> Obj:
    own = {
        "app.kubernetes.io/name": "redis",
        "app.kubernetes.io/instance": "demo",
        "app.kubernetes.io/managed-by": SETTINGS.operator,
    }
    owners = [names.owner(wished(), SETTINGS.operator).reference()]
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "demo", "uid": "b", "labels": own | labels, "ownerReferences": [] if labels else owners},
        "spec": spec,
    }


MEMORY: Obj = {"config": {"appendonly": "no", "save": ""}, "storage": {}}
ALONE: Obj = {"replicas": 3, "replicasPerMaster": 0}


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        (ALONE | {"storage": {}}, (1, "AlwaysAllow")),
        (ALONE | MEMORY, (0, "IfHealthyBudget")),
        (ALONE, (0, "IfHealthyBudget")),
        (ALONE | MEMORY | {"podDisruptionBudget": {"maxUnavailable": 1}}, (1, "IfHealthyBudget")),
    ],
    ids=["on disks", "in memory", "no volume", "requested"],
)
def test_disruption_budget_permits_no_eviction_of_an_only_copy_in_memory(spec: Obj, limits: tuple[int, str]) -> None:
    (action,) = DATABASE.ensure_disruption_budget(assess(wished(**spec), Observed())).actions
    assert isinstance(action, Apply)
    made = action.obj["spec"]
    assert (made["maxUnavailable"], made["unhealthyPodEvictionPolicy"]) == limits


@pytest.mark.parametrize("switched_on", [False, True])
def test_disruption_budget_follows_the_files_that_servers_use(switched_on: bool) -> None:
    """Running servers have no log yet, or no longer."""
    before, spec = (MEMORY, {"storage": {}}) if switched_on else ({"storage": {}}, MEMORY)
    [applied] = configuration.ensure_config_map(assess(wished(**ALONE, **before), Observed())).actions
    assert isinstance(applied, Apply)
    seen = Observed(config_map=stored(applied.obj))
    (action,) = DATABASE.ensure_disruption_budget(assess(wished(**ALONE, **spec), seen)).actions
    assert isinstance(action, Apply)
    assert action.obj["spec"]["maxUnavailable"] == 0


def test_disruption_budget_with_the_other_field_is_recreated() -> None:
    seen = Observed(disruption_budget=budget({"minAvailable": 1}))
    (action,) = DATABASE.ensure_disruption_budget(assess(wished(), seen)).actions
    assert isinstance(action, Delete)
    seen = Observed(disruption_budget=budget({"maxUnavailable": 2}))
    (action,) = DATABASE.ensure_disruption_budget(assess(wished(), seen)).actions
    assert isinstance(action, Apply)


def test_foreign_disruption_budget_is_not_changed() -> None:
    seen = Observed(disruption_budget=budget({"minAvailable": 1}, **{"app.kubernetes.io/managed-by": "them"}))
    (action,) = DATABASE.ensure_disruption_budget(assess(wished(), seen)).actions
    assert isinstance(action, Apply)
    with pytest.raises(ownership.ForeignObject):
        ownership.require_owned(action.obj, seen.disruption_budget or {})


# Volumes.


def volumes(size: str, template: str) -> Observed:
    claim = found("PersistentVolumeClaim", "data-demo-0", UID)
    claim |= {
        "spec": {"resources": {"requests": {"storage": size}}},
        "status": {"phase": "Bound", "capacity": {"storage": size}},
    }
    stateful_set = found("StatefulSet", "demo", UID)
    templates = [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": template}}}}]
    stateful_set["spec"] = {"volumeClaimTemplates": templates, "template": {"metadata": {}}}
    return Observed(stateful_set=stateful_set, instances=(Instance(0, "demo-0", volume=claim),))


def formed(**spec: Any) -> RedisCluster:
    resource = wished(**spec)
    return RedisCluster({**resource.obj, "status": {"formed": True}}, resource.spec)


def test_volumes_grow_before_the_stateful_set_is_recreated_around_its_pods() -> None:
    resource = formed(storage={"size": "2Gi"})
    (action,) = DATABASE.grow_volumes(assess(resource, volumes("1Gi", "1Gi"))).actions
    assert isinstance(action, Patch)
    assert action.change["spec"] == {"resources": {"requests": {"storage": "2Gi"}}}
    (action,) = DATABASE.grow_volumes(assess(resource, volumes("2Gi", "1Gi"))).actions
    assert isinstance(action, Delete)
    assert action.orphan
    assert DATABASE.grow_volumes(assess(resource, volumes("2Gi", "2Gi"))) == PASS


def test_stateful_set_is_kept_during_bootstrap_and_without_volumes() -> None:
    assert DATABASE.grow_volumes(assess(wished(storage={"size": "2Gi"}), volumes("2Gi", "1Gi"))).actions == ()
    assert DATABASE.grow_volumes(assess(formed(), volumes("1Gi", "1Gi"))) == PASS
    assert DATABASE.grow_volumes(assess(formed(storage={}), replace(volumes("1Gi", "1Gi"), stateful_set=None))) == PASS


def test_cluster_with_password_and_tls_has_both_when_it_starts() -> None:
    lab = Lab(resource=wished(tls={"mode": "self"}, auth={"secretName": GIVEN}))
    lab.give("one")
    lab.begin()
    assert all(node.takes("one") and node.holds == lab.judged().original for node in lab.nodes)


def policy(name: str, **labels: str) -> Obj:
    resource = wished()
    made = DATABASE.access(assess(resource, Observed()), names.owner(resource, SETTINGS.operator)).policy(())
    made["metadata"] |= {"name": name, "uid": f"uid-{name}", "labels": made["metadata"]["labels"] | labels}
    return made


DISABLED: Obj = {"network": {"enabled": False}}


def actions_of(seen: Observed, **spec: Any) -> list[tuple[type, str]]:
    """Return the actions for the NetworkPolicies, each with the name of its object."""
    made = DATABASE.ensure_network_policy(assess(wished(**spec), seen)).actions
    return [(type(each), each.obj["metadata"]["name"]) for each in made if isinstance(each, Apply | Delete)]


def test_network_policy_exists_unless_the_spec_disables_it() -> None:
    present = policy("demo-network")
    assert actions_of(Observed()) == [(Apply, "demo-network")]
    assert actions_of(Observed(network_policy=present), **DISABLED) == [(Delete, "demo-network")]
    assert actions_of(Observed(), **DISABLED) == []


def test_network_policy_of_the_user_is_not_deleted() -> None:
    found = policy("demo-network", **{"app.kubernetes.io/managed-by": "them"})
    del found["metadata"]["ownerReferences"]
    assert actions_of(Observed(network_policy=found), **DISABLED) == []
