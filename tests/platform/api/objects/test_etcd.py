"""The objects of an EtcdCluster on a real API server: valid, idempotent, and restricted by Pod Security."""

from __future__ import annotations

from typing import Any

import pytest

from operators.etcd.objects import names, stateful_set
from shared.kubernetes.errors import Conflict
from shared.kubernetes.kinds import DISRUPTION_BUDGET, NETWORK_POLICY, SECRET, SERVICE, STATEFUL_SET, Obj
from tests.etcd.unit.objects.test_golden import CASES
from tests.etcd.unit.objects.test_golden import GOLDEN as DIRECTORY
from tests.etcd.unit.security.secret_fixtures import PEER, ClusterSecrets
from tests.etcd.unit.world import cluster
from tests.platform.api.support.golden import Golden, assert_claim_templates_are_kept
from tests.platform.api.support.world import World

GOLDEN = Golden(DIRECTORY, "etcd-operator", (SERVICE, DISRUPTION_BUDGET, NETWORK_POLICY, STATEFUL_SET))


@pytest.mark.parametrize("case", CASES)
def test_second_apply_is_a_no_op(restricted: World, case: str) -> None:
    GOLDEN.assert_second_apply_is_a_no_op(restricted, case)


@pytest.mark.parametrize("case", CASES)
def test_restricted_namespace_admits_member_pods(restricted: World, case: str) -> None:
    GOLDEN.start(restricted, case)


def test_immutable_claim_templates_are_kept(restricted: World) -> None:
    def desired(size: str, existing: Obj | None) -> Obj:
        resource = cluster(storage={"size": size})
        resource.obj["metadata"]["namespace"] = restricted.namespace
        resource.obj["metadata"]["name"] = "growing"
        pod = GOLDEN.template(restricted, "plain")
        pod["metadata"]["labels"] |= {"app.kubernetes.io/instance": "growing"}
        return stateful_set.stateful_set(resource, names.owner(resource, GOLDEN.operator), pod, 3, existing)

    assert_claim_templates_are_kept(restricted.actor(GOLDEN.operator), desired)


def test_secret_is_replaced_only_in_the_observed_version(restricted: World) -> None:
    resource, operator = cluster(tls={"mode": "self"}), restricted.actor(GOLDEN.operator)
    resource.obj["metadata"]["namespace"] = restricted.namespace
    secrets = ClusterSecrets(resource)
    secrets.settle()

    def body(**metadata: Any) -> Obj:
        found = secrets.found[PEER]
        assert found is not None
        bare = {key: found["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
        return {**found, "metadata": bare | metadata}

    made = operator.apply(SECRET, body(resourceVersion="1"))
    with pytest.raises(Conflict):
        operator.apply(SECRET, body(resourceVersion="1"))
    seen = {key: made["metadata"][key] for key in ("uid", "resourceVersion")}
    secrets.found[PEER] = None
    secrets.settle()
    replaced = operator.apply(SECRET, body(**seen))
    assert replaced["data"] != made["data"]
    with pytest.raises(Conflict):
        operator.apply(SECRET, body(**seen))
