"""The nodes' pod: what rolls it, what it mounts, what stays secret."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from operators.redis.objects import names
from operators.redis.objects import pod as template
from operators.redis.objects.names import CERTIFICATE_MARK, CONFIG_MARK, SERVES, USERS_MARK
from operators.redis.objects.pod import TEMPLATE
from operators.redis.observe import Observed
from operators.redis.security.secrets import Secrets
from operators.redis.security.users import Passwords
from operators.redis.steps import configuration
from operators.redis.steps.rollout_markers import made_with
from shared.kubernetes.kinds import Obj
from tests.unit.redis.security.rotation import GIVEN, Lab, wished


def pod(secrets: Secrets | None = None, **spec: Any) -> Obj:
    resource = wished(**spec)
    own, digest = names.owner(resource, "op"), configuration.config_digest(resource, Observed())
    return template.pod(resource, own, resource.image_reference("redis"), made_with(secrets or Secrets()), digest)


def container(made: Obj, name: str = "redis") -> Obj:
    found: Obj = next(each for each in made["spec"]["containers"] if each["name"] == name)
    return found


def rolls(before: Obj, after: Obj) -> bool:
    return bool(before["metadata"]["annotations"][TEMPLATE] != after["metadata"]["annotations"][TEMPLATE])


@pytest.mark.parametrize(
    "spec",
    [
        {"version": "8.0.3"},
        {"env": [{"name": "TZ", "value": "UTC"}]},
        {"resources": {"limits": {"memory": "1Gi"}}},
        {"config": {"tcp-backlog": "100"}},
        {"metrics": {"enabled": True}},
        {"labels": {"team": "ours"}},
    ],
)
def test_what_only_a_restart_brings_rolls_pods(spec: Obj) -> None:
    assert rolls(pod(), pod(**spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"config": {"hz": "20"}},
        {"auth": {"secretName": GIVEN}},
        {"replicas": 9},
        {"podDisruptionBudget": {"maxUnavailable": 2}},
    ],
)
def test_what_needs_no_restart_rolls_nobody(spec: Obj) -> None:
    assert not rolls(pod(), pod(**spec))


def test_what_servers_are_told_marks_pods_and_rolls_nobody() -> None:
    before, after = pod(Secrets(users_mark="a")), pod(Secrets(users_mark="b"))
    assert before["metadata"]["annotations"][USERS_MARK] == "a"
    assert not rolls(before, after)
    made = pod()
    digest = template.digest(made)
    for mark in (USERS_MARK, CERTIFICATE_MARK, CONFIG_MARK, TEMPLATE):
        made["metadata"]["annotations"][mark] = "another"
    made["metadata"]["labels"][SERVES] = "clients"
    assert template.digest(made) == digest
    changed = copy.deepcopy(made)
    changed["metadata"]["annotations"]["else"] = "x"
    assert template.digest(changed) != digest


def test_no_password_is_in_a_pod_and_of_the_secret_redis_mounts_its_file_alone() -> None:
    lab = Lab()
    lab.give("hunter2")
    lab.begin()
    made = pod(lab.judged(), auth={"secretName": GIVEN}, metrics={"enabled": True})
    assert "hunter2" not in json.dumps(made)
    assert Passwords("hunter2").digests[0] not in json.dumps(made)
    (users,) = (volume["secret"] for volume in made["spec"]["volumes"] if volume["name"] == "users")
    assert [item["key"] for item in users["items"]] == ["users.conf"]
    assert GIVEN not in json.dumps(made), "the user's own is nobody's to mount"


def test_the_exporter_enters_as_one_who_may_only_read() -> None:
    made = container(pod(metrics={"enabled": True}), "exporter")
    found = {each["name"]: each.get("value") for each in made["env"]}
    assert found["REDIS_USER"] == "exporter"
    assert found["REDIS_ADDR"] == "redis://localhost:6379"
    assert found["REDIS_EXPORTER_CONFIG_COMMAND"] == "-"
    secure = container(pod(metrics={"enabled": True}, tls={"mode": "self"}), "exporter")
    assert {"name": "REDIS_ADDR", "value": "rediss://localhost:6379"} in secure["env"]
    assert len(pod()["spec"]["containers"]) == 1


def test_a_node_tells_others_its_address_and_from_7_0_on_its_name() -> None:
    assert container(pod())["args"][1:] == [
        "--cluster-announce-ip",
        "$(POD_IP)",
        "--cluster-announce-hostname",
        "$(POD_NAME).demo.default.svc",
    ]
    assert container(pod(version="6.2.14"))["args"][1:] == ["--cluster-announce-ip", "$(POD_IP)"]


def test_the_engine_names_its_program() -> None:
    assert container(pod())["command"] == ["redis-server"]
    assert container(pod(repository="valkey/valkey", version="8.1.1"))["command"] == ["valkey-server"]


SHARED: Obj = {"pod": [{"volumes": {"type": "nfs", "persistentVolumeClaimName": "all"}}]}


@pytest.mark.parametrize(
    ("spec", "kind"),
    [({}, {"emptyDir": {}}), ({"storage": {}}, None), (SHARED, {"persistentVolumeClaim": {"claimName": "all"}})],
)
def test_data_lie_where_the_spec_says(spec: Obj, kind: Obj | None) -> None:
    made = pod(**spec)
    found = [volume for volume in made["spec"]["volumes"] if volume["name"] == "data"]
    assert found == ([] if kind is None else [{"name": "data", **kind}])


def test_on_a_volume_of_all_each_pod_of_this_very_cluster_has_a_directory() -> None:
    made = pod(pod=[{"volumes": {"type": "hostPath"}}])
    (mount,) = (each for each in container(made)["volumeMounts"] if each["name"] == "data")
    assert mount["subPathExpr"] == "default/demo-u-1/$(POD_NAME)"


def test_what_prepares_a_node_finds_the_data_and_none_of_the_secrets() -> None:
    (made,) = pod(pod=[{"initImage": "example.com/prepare:1"}])["spec"]["initContainers"]
    assert made["image"] == "example.com/prepare:1"
    assert [each["mountPath"] for each in made["volumeMounts"]] == ["/data"]
