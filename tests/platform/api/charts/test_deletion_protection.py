"""The API server rejects the deletion of a protected resource while no operator runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.platform.api.charts.cluster import IGNORE_WEBHOOK, Cluster, etcd, redis
from tests.support.charts import NAMES, Obj
from tools.local.errors import ClusterError

pytestmark = pytest.mark.nightly

RESOURCES = {"etcdcluster": etcd, "rediscluster": redis}
SIZES: dict[str, Obj] = {"etcdcluster": {"size": 3, "version": "3.6.16"}, "rediscluster": {"replicas": 6}}


UNPROTECTED = f"--patch={json.dumps({'spec': {'deletionProtection': False}})}"


@pytest.fixture
def installed(cluster: Cluster, charts: Path) -> Iterator[Cluster]:
    cluster.install(charts / "platform", dict.fromkeys(NAMES, IGNORE_WEBHOOK))
    yield cluster
    for kind in RESOURCES:
        for found in cluster.list(kind):
            cluster.kubectl("patch", kind, found["metadata"]["name"], "--type=merge", UNPROTECTED)


def create(cluster: Cluster, kind: str, name: str, **spec: object) -> None:
    cluster.apply(RESOURCES[kind](name, **SIZES[kind], **spec))


def refusal(cluster: Cluster, *arguments: str) -> str:
    """Return the error of a command; the API server takes a second to load a new policy."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        try:
            cluster.kubectl(*arguments, "--dry-run=server")
        except ClusterError as error:
            return error.what
        time.sleep(0.2)
    raise AssertionError(f"{' '.join(arguments)} is accepted")


@pytest.mark.parametrize("kind", RESOURCES)
def test_deletion_of_a_protected_resource_is_refused_with_a_sentence(installed: Cluster, kind: str) -> None:
    create(installed, kind, "orders", deletionProtection=True)
    words = "orders is protected from deletion. To delete it, set spec.deletionProtection to false first."
    assert words in refusal(installed, "delete", kind, "orders")
    assert words in refusal(installed, "delete", kind, "--all")
    with pytest.raises(ClusterError, match="is protected from deletion"):
        installed.kubectl("delete", kind, "orders")
    assert "deletionTimestamp" not in installed.get(kind, "orders")["metadata"]


@pytest.mark.parametrize("kind", RESOURCES)
def test_other_resources_are_deleted(installed: Cluster, kind: str) -> None:
    create(installed, kind, "protected", deletionProtection=True)
    create(installed, kind, "orders")
    assert "protected from deletion" in refusal(installed, "delete", kind, "protected"), "the policy is loaded"
    installed.kubectl("delete", kind, "orders")
    installed.kubectl("patch", kind, "protected", "--type=merge", UNPROTECTED)
    installed.kubectl("delete", kind, "protected")
    assert installed.list(kind) == []
