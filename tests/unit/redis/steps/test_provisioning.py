"""What is kept around nodes: configuration, Secrets, budget, room; and whose data is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.client.responses import NodeReport
from operators.redis.instance import Instance
from operators.redis.objects.names import CLUSTER_UID, CONFIG_MARK
from operators.redis.objects.redis_conf import CONFIG_KEY, WITHDRAWN
from operators.redis.observe import ConfigTemplate, Observed
from operators.redis.steps import configuration, provisioning
from operators.redis.steps.configuration import TEMPLATE_KEY
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import content_of
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import PASS, Apply, Delete, Patch, WriteSecret
from shared.status.reasons import Reason
from shared.status.verdict import Progress
from tests.unit.redis.security.rotation import GIVEN, OWN, Lab, certificate, wished
from tests.unit.redis.world import NOW, SETTINGS, UID

TEMPLATED: Any = {"pod": [{"configmap": "mine"}]}


# Whose data.


def found(kind: str, name: str, uid: str | None) -> Obj:
    labels = {} if uid is None else {CLUSTER_UID: uid}
    return {"kind": kind, "metadata": {"name": name, "namespace": "default", "uid": "x", "labels": labels}}


@pytest.mark.parametrize("uid", ["another", None])
def test_what_another_cluster_of_this_name_left_behind_is_neither_taken_nor_deleted(uid: str | None) -> None:
    for seen in (
        Observed(stateful_set=found("StatefulSet", "demo", uid)),
        Observed(instances=(Instance(0, "demo-0", volume=found("PersistentVolumeClaim", "data-demo-0", uid)),)),
    ):
        step = provisioning.refuse_foreign_data(wished(), seen, NOW)
        assert (step.progress, step.reason) == (Progress.BLOCKED, "ForeignData")
        assert f"{CLUSTER_UID}={UID} --overwrite" in step.message
        assert "Nothing was changed." in step.message


def test_what_is_ours_or_was_handed_over_is_taken() -> None:
    volume = found("PersistentVolumeClaim", "data-demo-0", UID)
    seen = Observed(stateful_set=found("StatefulSet", "demo", UID), instances=(Instance(0, "demo-0", volume=volume),))
    assert provisioning.refuse_foreign_data(wished(), seen, NOW) == PASS
    assert provisioning.refuse_foreign_data(wished(), Observed(), NOW) == PASS


# Configuration.


def kept(resource: RedisCluster, seen: Observed) -> Obj:
    (action,) = configuration.ensure_config_map(SETTINGS, resource, seen, NOW).actions
    assert isinstance(action, Apply)
    return action.obj


def test_a_template_that_was_and_is_gone_goes_on_as_it_was() -> None:
    resource = wished(**TEMPLATED)
    missing = ConfigTemplate(problem=SecretProblem(Reason("ConfigMapMissing"), "There is no ConfigMap mine."))
    step = configuration.require_config(resource, Observed(config=missing), NOW)
    assert (step.progress, step.reason) == (Progress.WAITING, "ConfigMapMissing"), "there is nothing to go on with"
    first = kept(resource, Observed(config=ConfigTemplate("hz 42\n")))
    assert first["data"][TEMPLATE_KEY] == "hz 42\n"
    seen = Observed(config=missing, config_map=first)
    step = configuration.require_config(resource, seen, NOW)
    assert (step.progress, step.message) == (
        Progress.PROGRESSING,
        "There is no ConfigMap mine. Nodes keep what it last was.",
    )
    assert kept(resource, seen) == first
    assert configuration.config_digest(resource, seen) == configuration.config_digest(
        resource, Observed(config=ConfigTemplate("hz 42\n"), config_map=first)
    )


def test_a_template_that_does_not_serve_is_told_and_not_taken_over() -> None:
    resource = wished(**TEMPLATED)
    first = kept(resource, Observed(config=ConfigTemplate("hz 42\n")))
    seen = Observed(config=ConfigTemplate('hz "43\n'), config_map=first)
    assert configuration.require_config(resource, seen, NOW).reason == "ConfigMapInvalid"
    assert "hz 42\n" in kept(resource, seen)["data"][CONFIG_KEY]


def test_how_often_something_was_taken_away_stays_written_down() -> None:
    before = kept(wished(config={"hz": "20"}), Observed())
    assert WITHDRAWN not in before["metadata"]["annotations"]
    after = kept(wished(), Observed(config_map=before))
    assert after["metadata"]["annotations"][WITHDRAWN] == "1"
    assert kept(wished(), Observed(config_map=after)) == after
    digest = configuration.config_digest(wished(), Observed(config_map=before))
    assert configuration.config_digest(wished(), Observed(config_map=after)) == digest, "one roll, and not two"


def running(resource: RedisCluster, mark: str, version: str = "8.0.2") -> Observed:
    """Nodes that heard of what a mark stands for, and the ConfigMap as it was for a resource."""
    places = []
    for number in range(6):
        about = {"name": f"demo-{number}", "annotations": {CONFIG_MARK: mark}}
        said = NodeReport(f"{number}", version=version)
        places.append(Instance(number, f"demo-{number}", pod_obj={"metadata": about, "status": {}}, report=said))
    return Observed(instances=tuple(places), config_map=kept(resource, Observed()))


def test_what_servers_refuse_never_comes_into_the_file_from_which_others_start() -> None:
    before, wrong = begun(), begun(config={"maxmemory-policy": "nonsense"})
    seen = running(before, configuration.configured(before, Observed()))
    assert kept(wrong, seen) == seen.config_map
    assert configuration.config_mark(wrong, seen) == configuration.config_mark(before, seen)
    told = replace(seen, instances=running(before, configuration.configured(wrong, Observed())).instances)
    assert "maxmemory-policy nonsense" in kept(wrong, told)["data"][CONFIG_KEY]
    assert configuration.config_mark(wrong, told) == configuration.configured(wrong, Observed())


def test_while_settings_have_yet_to_be_taken_nobody_is_rolled_for_what_came_with_them() -> None:
    before, after = begun(), begun(config={"hz": "20", "tcp-backlog": "100"})
    seen = running(before, configuration.configured(before, Observed()))
    assert configuration.config_digest(after, seen) == configuration.config_digest(before, seen)
    told = replace(seen, instances=running(before, configuration.configured(after, Observed())).instances)
    assert configuration.config_digest(after, told) != configuration.config_digest(before, seen)


def test_where_no_server_could_be_told_the_file_is_what_they_start_from() -> None:
    before, after = begun(), begun(config={"hz": "20"}, version="8.2.0")
    seen = running(before, configuration.configured(before, Observed()))
    assert "hz 20" in kept(after, seen)["data"][CONFIG_KEY], "they are of another series, which may not know it"
    silent = replace(seen, instances=tuple(replace(place, report=None) for place in seen.instances))
    assert "hz 20" in kept(begun(config={"hz": "20"}), silent)["data"][CONFIG_KEY]


# Secrets.


def test_what_nodes_mount_is_there_before_they_are() -> None:
    lab = Lab()
    step = provisioning.ensure_secrets(SETTINGS, lab.resource, lab.seen(), NOW)
    assert (step.progress, step.reason) == (Progress.WAITING, "PreparingUsers")
    (write,) = step.actions
    assert isinstance(write, WriteSecret)
    assert write.token, "the exporter's password is made as it is written"
    lab.do(write)
    assert provisioning.ensure_secrets(SETTINGS, lab.resource, lab.seen(), NOW) == PASS, "its password is nobody's yet"
    lab.give("one")
    (write,) = provisioning.ensure_secrets(SETTINGS, lab.resource, lab.seen(), NOW).actions
    assert isinstance(write, WriteSecret)
    lab.do(write)
    assert provisioning.ensure_secrets(SETTINGS, lab.resource, lab.seen(), NOW) == PASS


def test_the_exporters_password_stays_whatever_else_becomes_of_the_secret() -> None:
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
    (write,) = provisioning.ensure_secrets(SETTINGS, lab.resource, lab.seen(), NOW).actions
    assert isinstance(write, WriteSecret)
    lab.do(write)
    passwords = lab.judged().passwords
    assert passwords is not None
    assert (passwords.current, passwords.exporter) == ("one", before)


def test_somebody_elses_secret_in_the_way_is_told_and_left_alone() -> None:
    lab = Lab()
    lab.give("one")
    lab.put("demo-users", {"mine": "x"})
    step = provisioning.ensure_secrets(SETTINGS, lab.resource, lab.seen(), NOW)
    assert (step.progress, step.reason, step.actions) == (Progress.BLOCKED, "NotOurs", ())


def test_certificates_come_in_order_the_authority_what_it_signs_and_what_is_mounted() -> None:
    lab, told = Lab(resource=wished(tls={"mode": "self"})), []
    lab.found = dict.fromkeys(lab.found)
    for _ in range(10):
        step = provisioning.ensure_secrets(SETTINGS, lab.resource, lab.seen(), NOW)
        if not step.actions:
            break
        told.append(step.message)
        for action in step.actions:
            lab.do(action)
    assert told == [
        "The users that nodes start with are made.",
        "The users that nodes start with are made.",
        "Issuing certificates: there is no certificate authority yet.",
        "Issuing certificates: demo-server-tls: no usable certificate; demo-client-tls: no usable certificate.",
        "What nodes mount is written: there is none yet.",
    ]
    assert lab.judged().mounted == lab.judged().original


def test_cert_manager_is_asked_and_nobody_waits_for_it_there() -> None:
    lab = Lab(resource=wished(tls={"mode": "certManager", "issuer": {"name": "ours"}}))
    for _ in range(2):
        for action in provisioning.ensure_secrets(SETTINGS, lab.resource, lab.seen(), NOW).actions:
            if isinstance(action, WriteSecret):
                lab.do(action)
    step = provisioning.ensure_secrets(SETTINGS, lab.resource, lab.seen(), NOW)
    assert step.progress is Progress.DONE
    assert [action.obj["kind"] for action in step.actions if isinstance(action, Apply)] == ["Certificate"] * 2


def test_without_what_nodes_start_with_nothing_begins_and_what_runs_goes_on() -> None:
    lab = Lab()
    step = provisioning.require_secrets(lab.resource, lab.seen(), NOW)
    assert (step.progress, step.reason) == (Progress.WAITING, "SecretMissing")
    lab = Lab(resource=wished(tls={"mode": "secret", "secretName": OWN}))
    lab.put(OWN, certificate("a", "old"))
    lab.begin()
    assert provisioning.require_secrets(lab.resource, lab.seen(), NOW) == PASS
    lab.found[OWN] = None
    step = provisioning.require_secrets(lab.resource, lab.seen(), NOW)
    assert (step.progress, step.warning) == (Progress.PROGRESSING, True)
    lab.found["demo-nodes-tls"] = None
    assert provisioning.require_secrets(lab.resource, lab.seen(), NOW).progress is Progress.WAITING


# Budget.


def budget(spec: Obj, **labels: str) -> Obj:
    own = {
        "app.kubernetes.io/name": "redis",
        "app.kubernetes.io/instance": "demo",
        "app.kubernetes.io/managed-by": SETTINGS.operator,
    }
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "demo", "uid": "b", "labels": own | labels},
        "spec": spec,
    }


def test_a_budget_that_says_the_other_thing_is_made_anew() -> None:
    seen = Observed(disruption_budget=budget({"minAvailable": 1}))
    (action,) = provisioning.ensure_disruption_budget(SETTINGS, wished(), seen, NOW).actions
    assert isinstance(action, Delete)
    seen = Observed(disruption_budget=budget({"maxUnavailable": 2}))
    (action,) = provisioning.ensure_disruption_budget(SETTINGS, wished(), seen, NOW).actions
    assert isinstance(action, Apply)


def test_somebody_elses_budget_is_left_alone() -> None:
    seen = Observed(disruption_budget=budget({"minAvailable": 1}, **{"app.kubernetes.io/managed-by": "them"}))
    step = provisioning.ensure_disruption_budget(SETTINGS, wished(), seen, NOW)
    assert (step.reason, step.actions) == ("NotOurs", ())


# Room.


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


def begun(**spec: Any) -> RedisCluster:
    resource = wished(**spec)
    return RedisCluster({**resource.obj, "status": {"formed": True}}, resource.spec)


def test_volumes_grow_and_then_the_stateful_set_is_made_anew_around_its_pods() -> None:
    resource = begun(storage={"size": "2Gi"})
    (action,) = provisioning.grow_volumes(resource, volumes("1Gi", "1Gi"), NOW).actions
    assert isinstance(action, Patch)
    assert action.change["spec"] == {"resources": {"requests": {"storage": "2Gi"}}}
    (action,) = provisioning.grow_volumes(resource, volumes("2Gi", "1Gi"), NOW).actions
    assert isinstance(action, Delete)
    assert action.orphan
    assert provisioning.grow_volumes(resource, volumes("2Gi", "2Gi"), NOW) == PASS


def test_the_stateful_set_stays_while_the_cluster_is_formed_and_where_there_are_no_volumes() -> None:
    assert provisioning.grow_volumes(wished(storage={"size": "2Gi"}), volumes("2Gi", "1Gi"), NOW).actions == ()
    assert provisioning.grow_volumes(begun(), volumes("1Gi", "1Gi"), NOW) == PASS
    assert provisioning.grow_volumes(begun(storage={}), replace(volumes("1Gi", "1Gi"), stateful_set=None), NOW) == PASS


def test_passwords_and_certificates_are_ready_for_a_cluster_of_which_everything_is_asked() -> None:
    lab = Lab(resource=wished(tls={"mode": "self"}, auth={"secretName": GIVEN}))
    lab.give("one")
    lab.begin()
    assert all(node.takes("one") and node.holds == lab.judged().original for node in lab.nodes)
