"""What an EtcdCluster owns, as a real API server takes it: once, unchanged by a second apply, and restricted."""

from __future__ import annotations

from typing import Any

import pytest

from operators.etcd.objects import names, stateful_set
from shared.kubernetes.errors import Conflict
from shared.kubernetes.kinds import DISRUPTION_BUDGET, SECRET, SERVICE, STATEFUL_SET, Obj
from tests.api.support.golden import Golden, keeps_its_volumes
from tests.api.support.world import World
from tests.unit.etcd.objects.test_golden import CASES
from tests.unit.etcd.objects.test_golden import GOLDEN as DIRECTORY
from tests.unit.etcd.security.secret_fixtures import PEER, Vault
from tests.unit.etcd.world import cluster

GOLDEN = Golden(DIRECTORY, "etcd-operator", (SERVICE, DISRUPTION_BUDGET, STATEFUL_SET))


@pytest.mark.parametrize("case", CASES)
def test_a_second_apply_changes_nothing_and_is_not_made(restricted: World, case: str) -> None:
    GOLDEN.is_applied_once(restricted, case)


@pytest.mark.parametrize("case", CASES)
def test_members_run_where_only_restricted_pods_may(restricted: World, case: str) -> None:
    GOLDEN.start(restricted, case)


def test_what_a_stateful_set_cannot_change_is_not_asked_of_it(restricted: World) -> None:
    def wanted(size: str, existing: Obj | None) -> Obj:
        resource = cluster(storage={"size": size})
        resource.obj["metadata"]["namespace"] = restricted.namespace
        resource.obj["metadata"]["name"] = "growing"
        pod = GOLDEN.template(restricted, "plain")
        pod["metadata"]["labels"] |= {"app.kubernetes.io/instance": "growing"}
        return stateful_set.stateful_set(resource, names.owner(resource, GOLDEN.operator), pod, 3, existing)

    keeps_its_volumes(restricted.actor(GOLDEN.operator), wanted)


def test_secrets_are_taken_and_replaced_only_as_they_were_seen(restricted: World) -> None:
    resource, operator = cluster(tls={"mode": "self"}), restricted.actor(GOLDEN.operator)
    resource.obj["metadata"]["namespace"] = restricted.namespace
    vault = Vault(resource)
    vault.settle()

    def body(**metadata: Any) -> Obj:
        found = vault.found[PEER]
        assert found is not None
        bare = {key: found["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
        return {**found, "metadata": bare | metadata}

    made = operator.apply(SECRET, body(resourceVersion="1"))
    with pytest.raises(Conflict):
        operator.apply(SECRET, body(resourceVersion="1"))
    seen = {key: made["metadata"][key] for key in ("uid", "resourceVersion")}
    vault.found[PEER] = None
    vault.settle()
    replaced = operator.apply(SECRET, body(**seen))
    assert replaced["data"] != made["data"]
    with pytest.raises(Conflict):
        operator.apply(SECRET, body(**seen))
