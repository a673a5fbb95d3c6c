"""Pod template of members: changes that restart them, and changes that do not."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Member
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects import pod as template
from operators.etcd.objects.bootstrap import Closed, Joining, New, Start
from operators.etcd.objects.pod import Mount, MountedSecrets
from shared.kubernetes.kinds import Obj
from shared.kubernetes.quantity import parse_quantity
from tests.etcd.unit.objects.test_golden import GOLDEN
from tests.etcd.unit.world import SETTINGS, cluster

JOINING = Joining(1, (Member(1, "demo-0", ("http://demo-0.demo.default.svc:2380",)),))


def pod(resource: EtcdCluster, begins: Start | None = None, secrets: MountedSecrets | None = None) -> Obj:
    own = names.owner(resource, SETTINGS.operator)
    image = resource.image_reference(SETTINGS.image_repository)
    return template.pod(resource, own, image, begins or Closed(), secrets or MountedSecrets())


def annotation(made: Obj) -> str:
    return str(made["metadata"]["annotations"][template.TEMPLATE])


@pytest.mark.parametrize("begins", [New(), JOINING])
def test_bootstrap_mode_does_not_change_the_template_digest(begins: Start) -> None:
    closed, other = pod(cluster()), pod(cluster(), begins)
    assert closed != other
    assert annotation(closed) == annotation(other) == template.digest(closed) == template.digest(other)


def leaves(part: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in a part of a template."""
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in items:
        if isinstance(value, dict | list) and value:
            yield from leaves(value, *path, key)
        else:
            yield (*path, key)


def full_template() -> Obj:
    *_, stateful_set = yaml.safe_load_all((GOLDEN / "everything" / "objects.yaml").read_text())
    found: Obj = stateful_set["spec"]["template"]
    return found


@pytest.mark.parametrize("path", list(leaves(full_template())), ids=lambda path: ".".join(map(str, path)))
def test_every_other_field_changes_the_template_digest(path: tuple[Any, ...]) -> None:
    before, after = full_template(), copy.deepcopy(full_template())
    *parents, last = path
    part = after
    for key in parents:
        part = part[key]
    part[last] = "another"
    excluded = path[-1] in (names.SERVES, template.TEMPLATE, bootstrap.INITIAL_CLUSTER, bootstrap.INITIAL_STATE)
    assert (template.digest(before) == template.digest(after)) is excluded


def test_fields_that_do_not_concern_members_do_not_change_the_pod() -> None:
    before = pod(cluster())
    for change in (
        {"metrics": {"enabled": False}},
        {"podDisruptionBudget": {"maxUnavailable": 1}},
        {"defragmentation": {"schedule": "0 3 * * *"}},
        {"auth": {"rootSecretName": "root"}},
        {"backup": {"schedule": "0 3 * * *", "destination": {"volume": {"claimName": "backups"}}}},
    ):
        assert pod(cluster(**change)) == before
        assert not template.restarts(cluster().obj, cluster(**change).obj)
    assert pod(cluster(5)) == before, "scaling up restarts no member"


@pytest.mark.parametrize(
    ("change", "restarting"),
    [
        ({"version": "3.6.1"}, True),
        ({"tls": {"mode": "self"}}, True),
        ({"affinity": {"nodeAffinity": {}}}, True),
        ({"quotaBackendBytes": 10**9}, True),
        ({"storage": {"size": "9Gi"}}, True),
        ({"size": 5}, False),
    ],
)
def test_change_of_the_spec_restarts_members(change: Obj, restarting: bool) -> None:
    assert template.restarts(cluster().obj, cluster(**change).obj) is restarting
    assert template.restarts(cluster(**change).obj, cluster().obj) is restarting


def test_probe_alone_restarts_no_member() -> None:
    """The probe allows for the largest database of the quota; a new one waits for the next restart."""
    smaller, larger = (cluster(quotaBackendBytes=2 * 10**9, storage={"size": size}).obj for size in ("8Gi", "9Gi"))
    assert not template.restarts(smaller, larger)


def test_pod_of_a_learner_is_not_labelled_for_clients() -> None:
    assert pod(cluster())["metadata"]["labels"][names.SERVES] == names.CLIENTS
    assert names.SERVES not in pod(cluster(), JOINING)["metadata"]["labels"]


def test_new_authority_changes_the_digest_and_is_mounted_under_its_own_key() -> None:
    secure = cluster(tls={"mode": "self"})
    mounts = {d: Mount("tls", f"ca-{d}.crt") for d in ("a", "b")}
    one, other = (pod(secure, secrets=MountedSecrets(d, mount, mount)) for d, mount in mounts.items())
    assert annotation(one) != annotation(other)
    for volume in one["spec"]["volumes"]:
        assert {"key": "ca-a.crt", "path": "ca.crt"} in volume["secret"]["items"]


def test_labels_and_annotations_of_the_spec_are_added_to_the_pod() -> None:
    made = pod(cluster(labels={"team": "shop"}, annotations={"a": "b"}))
    assert made["metadata"]["labels"]["team"] == "shop"
    assert made["metadata"]["annotations"]["a"] == "b"


@pytest.mark.parametrize(
    ("version", "ready", "alive"),
    [
        ("3.4.13", "/health", None),
        ("3.4.20", "/health?exclude=NOSPACE", None),
        ("3.4.29", "/health?exclude=NOSPACE", "/health?serializable=true&exclude=NOSPACE&exclude=CORRUPT"),
        ("3.5.2", "/health?exclude=NOSPACE", None),
        ("3.7.3", "/health?exclude=NOSPACE", "/health?serializable=true&exclude=NOSPACE&exclude=CORRUPT"),
    ],
)
def test_liveness_probe_ignores_problems_that_a_restart_does_not_resolve(
    version: str, ready: str, alive: str | None
) -> None:
    """A lost quorum, an exhausted quota or corruption of another member must not restart a member."""
    (container,) = pod(cluster(version=version))["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == ready
    for probe in ("startupProbe", "livenessProbe"):
        check = container[probe]
        assert check.get("httpGet", {}).get("path") == alive
        assert ("tcpSocket" in check) is (alive is None)


def test_grace_period_grows_with_the_election_timeout() -> None:
    def grace(**spec: Any) -> int:
        return int(pod(cluster(**spec))["spec"]["terminationGracePeriodSeconds"])

    assert grace() == 32
    assert grace(heartbeatInterval=5000, electionTimeout=50000) == 130


def test_in_memory_volume_has_the_size_of_the_spec() -> None:
    (volume,) = pod(cluster(storage={"medium": "Memory", "size": "512Mi"}))["spec"]["volumes"]
    assert volume == {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "512Mi"}}


@pytest.mark.parametrize(("quota", "seconds"), [("64Mi", 180), ("2Gi", 280), ("16Gi", 1780)])
def test_liveness_probe_allows_for_the_defragmentation_of_a_full_database(quota: str, seconds: int) -> None:
    """The server answers no health check in that time, and a restart would lose the work so far."""
    size = int(parse_quantity(quota))
    (container,) = pod(cluster(storage={"size": "40Gi"}, quotaBackendBytes=size))["spec"]["containers"]
    probe = container["livenessProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == seconds
