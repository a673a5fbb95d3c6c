"""A cluster whose pods were all deleted serves again, and is backed up, regardless of what is wrong with its spec."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from operators.etcd.api import backup as backup_api
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Member
from operators.etcd.objects import bootstrap
from operators.etcd.objects.names import CLIENTS, CLUSTER_UID, COMPONENT, KEPT
from operators.etcd.state.observed import Observed
from shared.kubernetes import ownership
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, SECRET, SERVICE, Obj
from simulator.etcd.raft import User
from tests.etcd.simulation.database import FakeEtcd
from tests.etcd.unit import world
from tests.etcd.unit.report.test_health import OUT_OF_REACH
from tests.etcd.unit.steps.test_member_pods import labels_of_pods
from tests.etcd.unit.world import VOTER, At, seen
from tests.harness.scenario import (
    ScenarioStep,
    at_once,
    create,
    delete,
    later,
    limit_turns,
    operator_down,
    unobserved,
)
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import (
    AUTH,
    BACKUP,
    ETCD,
    MIDDLE,
    NAME,
    NEW,
    TLS,
    backups_complete,
    cluster,
    cut_off,
    given_password,
    lost,
    member,
    snapshot_stored,
    to_etcd,
    unpullable,
)
from tests.support.pod_loss import delete_now

STORE = snapshot_stored("a.db")
"""The destination of the schedule."""


@dataclass(frozen=True)
class Obstacle:
    """Something wrong with the desired state.

    Attributes:
        reason: reason of the Ready condition, before and after the cluster heals.
        steps: cause of the obstacle.
        given: the cluster before.
        remedy: change after which the cluster matches its spec.
    """

    reason: str
    steps: tuple[ScenarioStep, ...]
    given: tuple[ScenarioStep, ...] = (STORE, cluster(3, **BACKUP))
    remedy: tuple[ScenarioStep, ...] = (cluster(3, **BACKUP),)


def _foreign_volume(number: int) -> ScenarioStep:
    """Create a volume of a former cluster of the same name."""
    labels = {
        ownership.MANAGED_BY: "etcd-operator",
        ownership.INSTANCE: NAME,
        ownership.NAME: "etcd",
        ownership.COMPONENT: COMPONENT,
        CLUSTER_UID: "another",
    }
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

    def act(stage: object) -> None:
        claim: Obj = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"data-{member(number)}", "namespace": "default", "labels": labels},
            "spec": spec,
        }
        stage.user_client.create(PERSISTENT_VOLUME_CLAIM, claim)  # type: ignore[attr-defined]

    return ScenarioStep(f"a foreign volume {number} appears", act)


CHANGED_BY_HAND = User("theirs", ("root",))
NO_FOREIGN_VOLUME = delete(PERSISTENT_VOLUME_CLAIM, f"data-{member(9)}")
REFUSED = "3.5.25"
"""A version to which the operator does not downgrade."""

MISMATCH: Obj = {"image": "registry.example/etcd:v3.6.16"}

OBSTACLES = {
    "paused": Obstacle("Paused", (cluster(3, paused=True, **BACKUP),)),
    "paused with a larger size": Obstacle("Paused", (cluster(5, paused=True, **BACKUP),)),
    "paused with a smaller size": Obstacle("Paused", (cluster(1, paused=True, **BACKUP),)),
    "paused with another version": Obstacle("Paused", (cluster(3, NEW, paused=True, **BACKUP),)),
    "invalid spec": Obstacle("InvalidSpec", (cluster(3, "3.6.11", **MISMATCH, **BACKUP),)),
    "invalid spec of another size": Obstacle("InvalidSpec", (cluster(1, "3.6.11", **MISMATCH, **BACKUP),)),
    "refused version": Obstacle("UpgradeRefused", (cluster(3, REFUSED, **BACKUP),)),
    "refused version of another size": Obstacle("UpgradeRefused", (cluster(5, REFUSED, **BACKUP),)),
    "foreign volume elsewhere": Obstacle("VolumeInTheWay", (_foreign_volume(9),), remedy=(NO_FOREIGN_VOLUME,)),
    "missing Secret": Obstacle(
        "SecretMissing",
        (unobserved(delete(SECRET, "root")),),
        given=(STORE, given_password(), cluster(3, **AUTH, **BACKUP)),
        remedy=(unobserved(given_password()),),
    ),
    "Service of another owner": Obstacle(
        "ForeignObject",
        at_once(delete(SERVICE, NAME), create(SERVICE, NAME, spec={"clusterIP": "None"})),
        remedy=(delete(SERVICE, NAME),),
    ),
}


def _etcd(run: ScenarioRun) -> Obj:
    [state] = run.world.database.state()
    found: Obj = state
    return found


def _is_served(run: ScenarioRun) -> bool:
    state = _etcd(run)
    return bool(state["leads"] and all(each["runs"] and not each["learner"] for each in state["members"]))


def _ready(run: ScenarioRun) -> Obj:
    [found] = run.stage.find()
    return condition(found, "Ready")


async def _hindered(obstacle: Obstacle) -> ScenarioRun:
    run = ScenarioRun(World(ETCD))
    await run.run_steps(obstacle.given)
    assert _ready(run)["reason"] == "Ready", _ready(run)["message"]
    await run.run_steps(obstacle.steps)
    assert _ready(run)["reason"] == obstacle.reason, _ready(run)["message"]
    assert _is_served(run)
    return run


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "absent"),
    [pytest.param(name, False, id=name) for name in OBSTACLES]
    + [pytest.param(name, True, id=f"{name}, operator down", marks=pytest.mark.weekly) for name in OBSTACLES],
)
async def test_deleted_pods_are_healed_and_backed_up_although_the_spec_cannot_be_applied(
    name: str, absent: bool
) -> None:
    obstacle = OBSTACLES[name]
    run = await _hindered(obstacle)
    deleted = at_once(*(delete_now(POD, member(number)) for number in range(3)))
    await run.run_steps((*(operator_down(*deleted) if absent else deleted), unobserved(later(30))))
    assert _is_served(run), _ready(run)
    assert _ready(run)["reason"] == obstacle.reason, _ready(run)["message"]
    before = len(run.stage.find(backup_api.API.kind))
    await run.run_steps((unobserved(later(3600)), backups_complete(), unobserved(later(3600))))
    assert len(run.stage.find(backup_api.API.kind)) > before, "snapshots are taken on schedule"
    await run.run_steps((backups_complete(), *obstacle.remedy))
    assert _ready(run)["reason"] == "Ready", _ready(run)["message"]
    assert _is_served(run)


@pytest.mark.parametrize("name", [name for name in OBSTACLES if name != "missing Secret"])
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.nightly)])
async def test_lost_member_is_replaced_although_the_spec_cannot_be_applied(name: str, number: int) -> None:
    obstacle = OBSTACLES[name]
    run = await _hindered(obstacle)
    before = _etcd(run)
    await run.run_steps((*lost(number), unobserved(later(60))))
    assert _is_served(run), _ready(run)
    after = _etcd(run)
    assert [each["name"] for each in after["members"]] == [member(number) for number in range(3)]
    assert after["version"] == before["version"]
    assert _ready(run)["reason"] == obstacle.reason, _ready(run)["message"]
    await run.run_steps(obstacle.remedy)
    assert _ready(run)["reason"] == "Ready", _ready(run)["message"]


@pytest.mark.nightly
@pytest.mark.parametrize("turns", [1, 2, 3, 4, 6, 8, 10, 14])
async def test_replacement_continues_if_the_cluster_is_paused_in_between(turns: int) -> None:
    run = ScenarioRun(World(ETCD))
    losses = lost(2)
    begun = limit_turns(losses[-1], turns)
    await run.run_steps((cluster(3), *losses[:-1], begun, cluster(3, paused=True)))
    await run.run_steps((unobserved(later(60)),))
    assert [each["name"] for each in _etcd(run)["members"]] == [member(number) for number in range(3)]
    assert _is_served(run)
    assert (_ready(run)["reason"], _ready(run)["status"]) == ("Paused", "True"), _ready(run)["message"]


@pytest.mark.nightly
@pytest.mark.parametrize("turns", [2, 4, 6, 8, 12])
async def test_scale_down_stops_when_the_cluster_is_paused(turns: int) -> None:
    run = ScenarioRun(World(ETCD))
    await run.run_steps((cluster(5), limit_turns(cluster(1), turns), cluster(1, paused=True)))
    left = len(_etcd(run)["members"])
    await run.run_steps((unobserved(later(60)), unobserved(later(60))))
    assert len(_etcd(run)["members"]) == left
    assert _is_served(run)


async def test_certificates_are_issued_while_changes_are_paused() -> None:
    run = ScenarioRun(World(ETCD))
    await run.run_steps((cluster(3, **TLS), cluster(3, paused=True, **TLS)))
    before = {secret["metadata"]["name"] for secret in run.stage.find(SECRET)}
    deletions = [unobserved(delete(SECRET, f"{NAME}-{name}-tls")) for name in ("server", "peer", "client")]
    pods = at_once(*(delete_now(POD, member(number)) for number in range(3)))
    await run.run_steps((*deletions, *pods, unobserved(later(30))))
    assert {secret["metadata"]["name"] for secret in run.stage.find(SECRET)} == before
    assert _ready(run)["reason"] == "Paused", _ready(run)["message"]
    assert _is_served(run)


def _password(run: ScenarioRun) -> str:
    etcd = run.world.database
    assert isinstance(etcd, FakeEtcd)
    return etcd.cluster().users["root"].password if etcd.cluster().auth else ""


@pytest.mark.parametrize("version", ["3.5.21", MIDDLE])
async def test_removed_authentication_is_disabled_and_members_are_replaced_afterwards(version: str) -> None:
    run = ScenarioRun(World(ETCD))
    await run.run_steps((given_password(), cluster(3, version, **AUTH), cluster(3, version), unobserved(later(60))))
    assert (_ready(run)["reason"], _password(run)) == ("Ready", ""), _ready(run)["message"]
    await run.run_steps((unobserved(delete(SECRET, "root")), *lost(1), unobserved(later(60))))
    assert _is_served(run), _ready(run)["message"]
    assert _ready(run)["reason"] == "Ready", _ready(run)["message"]


async def test_authentication_removed_with_its_secret_is_disabled() -> None:
    run = ScenarioRun(World(ETCD))
    await run.run_steps((given_password(), cluster(3, **AUTH), *operator_down(delete(SECRET, "root"), cluster(3))))
    assert (_ready(run)["reason"], _password(run)) == ("Ready", ""), _ready(run)["message"]


async def test_removed_authentication_is_kept_while_changes_are_paused() -> None:
    run = ScenarioRun(World(ETCD))
    await run.run_steps((given_password(), cluster(3, **AUTH), cluster(3, paused=True), *lost(1)))
    await run.run_steps((unobserved(later(60)),))
    assert (_ready(run)["reason"], _password(run)) == ("Paused", "one"), _ready(run)["message"]
    assert _is_served(run)


async def test_lost_member_is_replaced_without_the_secret_of_root() -> None:
    run = ScenarioRun(World(ETCD))
    await run.run_steps((given_password(), cluster(3, **AUTH), unobserved(delete(SECRET, "root")), *lost(1)))
    await run.run_steps((unobserved(later(60)),))
    assert [each["name"] for each in _etcd(run)["members"]] == [member(number) for number in range(3)]
    assert _is_served(run), _ready(run)["message"]
    assert _ready(run)["reason"] == "SecretMissing"
    await run.run_steps((unobserved(given_password("two")), unobserved(later(60))))
    assert (_ready(run)["reason"], _password(run)) == ("Ready", "two"), "the new Secret is applied"


async def test_unknown_password_is_never_circumvented() -> None:
    run = ScenarioRun(World(ETCD))
    await run.run_steps((given_password(), cluster(3, **AUTH)))
    changed = to_etcd("a user changes the password", lambda etcd: etcd.cluster().users.update(root=CHANGED_BY_HAND))
    await run.run_steps((changed, cluster(3), unobserved(later(60))))
    assert (_ready(run)["reason"], _password(run)) == ("Denied", "theirs")


async def test_paused_cluster_is_not_rolled_and_a_failed_change_of_it_is_kept() -> None:
    run = ScenarioRun(World(ETCD))
    await run.run_steps((cluster(3), unpullable(f"v{NEW}"), cluster(3, NEW, paused=True), unobserved(later(60))))
    images = {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in run.stage.find(POD)}
    assert images == {f"v{MIDDLE}"}


async def test_full_quota_is_relieved_while_changes_are_paused() -> None:
    run = ScenarioRun(World(ETCD))
    await run.run_steps((cluster(3), cluster(3, paused=True)))
    await run.run_steps((to_etcd("the quota is exhausted", lambda etcd: etcd.fill()), unobserved(later(60))))
    assert _etcd(run)["alarms"] == [], _ready(run)["message"]
    assert _ready(run)["reason"] == "Paused"


async def test_operator_that_is_cut_off_takes_snapshots_on_schedule() -> None:
    run = ScenarioRun(World(ETCD))
    await run.run_steps((cluster(3, **BACKUP), cut_off(), unobserved(later(3600))))
    assert run.stage.find(backup_api.API.kind)


FORMER = At(member=False, up=False, ready=True, runs=True)
"""A pod on a volume that a recovery kept."""
UNKNOWN = Member(0xFF, "theirs", ("http://elsewhere:2380",))


def _recreated(resource: EtcdCluster, *at: At, known: bool = True, **more: Any) -> Observed:
    """Return a world in which a recovery keeps volume 1, so that the pods were created without the label of clients."""
    found = seen(resource, *at, leader=2 if known else None, known=known, **more)
    claim = found.instances[1].volume
    assert claim is not None
    claim["metadata"]["annotations"] = {KEPT: "abcdefabcdef"}
    for each in found.instances:
        assert each.pod_obj is not None
        each.pod_obj["metadata"]["labels"] = {}
    return found


@pytest.mark.parametrize("hindrance", ["unknown member", "denied", "members do not answer", "denied without a list"])
def test_recreated_pods_of_voters_receive_clients_again_while_other_repairs_wait(hindrance: str) -> None:
    """E1: while a recovery keeps volumes, new pods have no label. Restarts emptied the Service one by one."""
    resource = world.cluster(3, recorded=(0, 2), auth={"rootSecretName": "root"} if "denied" in hindrance else None)
    is_known = hindrance in ("unknown member", "denied")
    voter = VOTER if is_known else OUT_OF_REACH
    found = _recreated(resource, voter, FORMER, voter, known=is_known)
    found = replace(found, denied="authentication failed" if "denied" in hindrance else "")
    if hindrance == "unknown member":
        assert found.members is not None
        found = replace(found, members=(*found.members, UNKNOWN))
    labels = {name: label for name, label in labels_of_pods(resource, found).items() if label}
    assert labels == {"demo-0": CLIENTS, "demo-2": CLIENTS}


def test_pods_that_may_not_receive_clients_yet_get_none_before_the_other_steps() -> None:
    """The main chain stops before `admit_clients`; the own chain does not replace the steps before."""
    given: Obj = {"auth": {"rootSecretName": "root"}}
    cases: dict[str, tuple[EtcdCluster, Obj]] = {
        "not recorded": (world.cluster(1, recorded=None), {}),
        "without the requested authentication": (world.cluster(3, **given), {"auth_enabled": False}),
        "unknown whether authentication is enabled": (world.cluster(3, **given), {"auth_enabled": None}),
    }
    for name, (resource, more) in cases.items():
        found = _recreated(resource, VOTER, FORMER, VOTER, **more)
        found = replace(found, members=(*(found.members or ()), UNKNOWN))
        assert CLIENTS not in labels_of_pods(resource, found).values(), name
    resource = world.cluster(3)
    found = _recreated(resource, VOTER, FORMER, At(start=bootstrap.Joining(2, ())))
    found = replace(found, members=(*(found.members or ()), UNKNOWN))
    assert labels_of_pods(resource, found).get("demo-2") is None, "it could join again with an empty volume"
    found = _recreated(resource, OUT_OF_REACH, FORMER, replace(OUT_OF_REACH, disk="another"), known=False)
    labels = labels_of_pods(resource, found)
    assert (labels.get("demo-0"), labels.get("demo-1"), labels.get("demo-2")) == (CLIENTS, None, None), labels
