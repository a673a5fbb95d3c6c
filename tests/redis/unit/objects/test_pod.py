"""Pod template: changes that restart pods, mounts, and secrets."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

import pytest

from operators.redis.objects import names
from operators.redis.objects import pod as template
from operators.redis.objects.names import CERTIFICATE_MARK, CONFIG_MARK, SERVES, USERS_MARK
from operators.redis.objects.pod import TEMPLATE
from operators.redis.security.secrets import Secrets
from operators.redis.security.users import Passwords
from operators.redis.state.observed import Observed
from operators.redis.steps import configuration
from operators.redis.steps.rollout_markers import made_with
from shared.kubernetes.kinds import Obj
from tests.redis.unit.security.rotation import GIVEN, Lab, wished
from tests.redis.unit.world import assess


def pod(secrets: Secrets | None = None, **spec: Any) -> Obj:
    resource = wished(**spec)
    own, digest = names.owner(resource, "op"), configuration.config_marks(assess(resource, Observed()))[0]
    return template.pod(resource, own, resource.image_reference("redis"), made_with(secrets or Secrets()), digest)


def container(built: Obj, name: str = "redis") -> Obj:
    found: Obj = next(each for each in built["spec"]["containers"] if each["name"] == name)
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
        {"labels": {"team": "cache"}},
    ],
)
def test_setting_that_needs_a_restart_changes_the_template(spec: Obj) -> None:
    assert rolls(pod(), pod(**spec))
    assert template.restarts(wished().obj, wished(**spec).obj)


@pytest.mark.parametrize(
    "spec",
    [
        {"config": {"hz": "20"}},
        {"auth": {"secretName": GIVEN}},
        {"replicas": 9},
        {"podDisruptionBudget": {"maxUnavailable": 2}},
    ],
)
def test_setting_that_needs_no_restart_keeps_the_template(spec: Obj) -> None:
    assert not rolls(pod(), pod(**spec))
    assert not template.restarts(wished().obj, wished(**spec).obj)


def test_removed_directive_restarts_nodes() -> None:
    """Running servers keep its value: what it was before is unknown."""
    with_one, another = wished(config={"hz": "20"}).obj, wished(config={"hz": "30"}).obj
    assert template.restarts(with_one, wished().obj)
    assert not template.restarts(with_one, another)


def test_default_exporter_of_another_release_restarts_no_node() -> None:
    default = wished(metrics={"enabled": True})
    of_spec = wished(metrics={"enabled": True, "image": "exporter:1"})
    assert template.restarts(default.obj, of_spec.obj)
    assert template.restarts(of_spec.obj, wished(metrics={"enabled": True, "image": "exporter:2"}).obj)


def test_annotations_of_runtime_changes_do_not_change_the_template() -> None:
    before, after = pod(Secrets(users_mark="a")), pod(Secrets(users_mark="b"))
    assert before["metadata"]["annotations"][USERS_MARK] == "a"
    assert not rolls(before, after)
    built = pod()
    digest = template.digest(built)
    for mark in (USERS_MARK, CERTIFICATE_MARK, CONFIG_MARK, TEMPLATE):
        built["metadata"]["annotations"][mark] = "another"
    built["metadata"]["labels"][SERVES] = "clients"
    assert template.digest(built) == digest
    changed = copy.deepcopy(built)
    changed["metadata"]["annotations"]["else"] = "x"
    assert template.digest(changed) != digest


def test_pod_has_no_password_and_mounts_only_the_users_file() -> None:
    lab = Lab()
    lab.give("hunter2")
    lab.begin()
    built = pod(lab.judged(), auth={"secretName": GIVEN}, metrics={"enabled": True})
    assert "hunter2" not in json.dumps(built)
    assert Passwords("hunter2").digests[0] not in json.dumps(built)
    (users,) = (volume["secret"] for volume in built["spec"]["volumes"] if volume["name"] == "users")
    assert [item["key"] for item in users["items"]] == ["users.conf"]
    assert GIVEN not in json.dumps(built), "no pod mounts the user's own Secret"


def test_exporter_logs_in_as_a_read_only_user() -> None:
    built = container(pod(metrics={"enabled": True}), "exporter")
    found = {each["name"]: each.get("value") for each in built["env"]}
    assert found["REDIS_USER"] == "exporter"
    assert found["REDIS_ADDR"] == "redis://localhost:6379"
    assert found["REDIS_EXPORTER_CONFIG_COMMAND"] == "-"
    assert found["REDIS_EXPORTER_CONNECTION_TIMEOUT"] == "2s", "less than the scrape timeout of Prometheus"
    secure = container(pod(metrics={"enabled": True}, tls={"mode": "self"}), "exporter")
    assert {"name": "REDIS_ADDR", "value": "rediss://localhost:6379"} in secure["env"]
    assert len(pod()["spec"]["containers"]) == 1


def test_node_announces_its_address_and_since_7_0_its_host_name() -> None:
    assert container(pod())["args"][2:] == [
        "--cluster-announce-ip",
        "$(POD_IP)",
        "--cluster-announce-hostname",
        "$(POD_NAME).demo.default.svc",
    ]
    assert container(pod(version="6.2.14"))["args"][2:] == ["--cluster-announce-ip", "$(POD_IP)"]


def test_entrypoint_of_the_image_starts_the_server_and_loads_its_modules() -> None:
    built = container(pod())
    assert "command" not in built, "a command would replace the ENTRYPOINT, which loads the modules of Redis 8"
    assert built["args"][:2] == ["redis-server", "/etc/redis/config/redis.conf"]
    valkey = container(pod(repository="valkey/valkey", version="8.1.1"))
    assert valkey["args"][0] == "valkey-server"


def test_command_of_the_spec_replaces_the_entrypoint() -> None:
    built = container(pod(command=["/usr/bin/redis-server"]))
    assert built["command"] == ["/usr/bin/redis-server"]
    assert built["args"][0] == "/etc/redis/config/redis.conf"


def test_settings_that_load_bundled_modules_do_not_load_them_twice() -> None:
    """A server that is to load a module twice does not start."""
    built = container(pod(config={"loadmodule": "/usr/local/lib/redis/modules/rejson.so"}))
    assert built["command"] == ["redis-server"]
    assert built["args"][0] == "/etc/redis/config/redis.conf"
    assert "command" not in container(pod(config={"loadmodule": "/data/other.so"}))


VOLATILE: Obj = {"config": {"appendonly": "no", "save": ""}}
"""Settings without persistence."""


def test_node_without_persistence_never_reads_the_identity_of_the_process_before_it() -> None:
    """A primary that resumes with its id and without its keys makes its replicas drop their keys."""
    built = container(pod(**VOLATILE))
    given = dict(zip(built["args"][:-1], built["args"][1:], strict=True))
    assert given["--cluster-config-file"] == "nodes-$(PLATFORM_POD_UID)-$(PLATFORM_LAST_RUN).conf"
    assert given["--dbfilename"] == "dump-$(PLATFORM_POD_UID)-$(PLATFORM_LAST_RUN).rdb"
    assert given["--appendonly"] == "no", "the volume may have the log of a former node"
    assert (given["--repl-diskless-sync"], given["--repl-diskless-sync-delay"]) == ("yes", str(2**31 - 1)), (
        "replicas of the former node, which connect to its address, keep their keys"
    )
    assert "--repl-diskless-sync-max-replicas" not in given, "an option of later versions"
    several = container(pod(config={**VOLATILE["config"], "repl-diskless-sync-max-replicas": "1"}))
    assert several["args"][-2:] == ["--repl-diskless-sync-max-replicas", "0"]
    paths = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in built["env"] if "valueFrom" in each}
    assert paths["PLATFORM_POD_UID"] == "metadata.uid", "a volume may outlive the pod"
    assert paths["PLATFORM_LAST_RUN"] == "metadata.annotations['redis.middleware.hc.cn/last-run']"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"config": {"appendonly": "no"}},
        {"config": {"appendonly": "no", "save": "3600 1"}},
        {"config": {"save": ""}},
        {**VOLATILE, "replicas": 3, "replicasPerMaster": 0},
    ],
)
def test_node_with_persistence_or_without_replicas_keeps_its_identity(spec: Obj) -> None:
    """A cache without replicas loses its keys with each restart anyway, and serves its slots again at once."""
    assert "--cluster-config-file" not in container(pod(**spec))["args"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"min-replicas-to-write": "1"}),
        (
            {"min-replicas-to-write": "0", "min-replicas-max-lag": "0"},
            {"min-replicas-to-write": "1", "min-replicas-max-lag": "10"},
        ),
        ({"min-slaves-to-write": "2", "min-replicas-max-lag": "30"}, {}),
    ],
)
def test_node_with_snapshots_only_accepts_no_write_until_a_replica_is_in_sync(config: Obj, expected: Obj) -> None:
    """The snapshot may be older than the data of the replicas, which it keeps waiting."""
    args = container(pod(config={"appendonly": "no", **config}))["args"]
    given = dict(pairwise(args))
    assert given["--repl-diskless-sync-delay"] == str(2**31 - 1)
    assert {name: given.get(f"--{name}") for name in ("min-replicas-to-write", "min-replicas-max-lag")} == {
        name: expected.get(name) for name in ("min-replicas-to-write", "min-replicas-max-lag")
    }
    alone = container(pod(replicas=3, replicasPerMaster=0, config={"appendonly": "no", **config}))["args"]
    assert not [each for each in (*alone, *container(pod())["args"]) if "diskless" in each or "min-replicas" in each]


@pytest.mark.parametrize(("seconds", "delay"), [(None, 5), (300, 5), (6, 5), (3, 2), (1, 0)])
def test_sigterm_waits_for_the_handover_of_a_primary(seconds: int | None, delay: int) -> None:
    """And PID 1 without a handler ignores it. Kubernetes refuses a delay that is not shorter than the grace period."""
    spec: Any = {} if seconds is None else {"terminationGracePeriodSeconds": seconds}
    expected = {"preStop": {"sleep": {"seconds": delay}}} if delay else None
    assert container(pod(**spec)).get("lifecycle") == expected


SHARED: Obj = {"pod": [{"volumes": {"type": "nfs", "persistentVolumeClaimName": "all"}}]}


@pytest.mark.parametrize(
    ("spec", "kind"),
    [({}, {"emptyDir": {}}), ({"storage": {}}, None), (SHARED, {"persistentVolumeClaim": {"claimName": "all"}})],
)
def test_data_volume_follows_the_spec(spec: Obj, kind: Obj | None) -> None:
    built = pod(**spec)
    found = [volume for volume in built["spec"]["volumes"] if volume["name"] == "data"]
    assert found == ([] if kind is None else [{"name": "data", **kind}])


def test_each_pod_has_its_own_directory_on_a_shared_volume() -> None:
    built = pod(pod=[{"volumes": {"type": "hostPath"}}])
    (mount,) = (each for each in container(built)["volumeMounts"] if each["name"] == "data")
    assert mount["subPathExpr"] == "default/demo-u-1/$(POD_NAME)"


def test_init_container_mounts_only_the_data() -> None:
    (built,) = pod(pod=[{"initImage": "example.com/prepare:1"}])["spec"]["initContainers"]
    assert built["image"] == "example.com/prepare:1"
    assert [each["mountPath"] for each in built["volumeMounts"]] == ["/data"]
