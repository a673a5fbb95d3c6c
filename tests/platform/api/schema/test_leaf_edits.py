"""Every edit of a single field is applied, or a refusal or a condition explains why not.

For each leaf of each CRD, values are drawn from its schema: set, changed, removed, back to the first value, an invalid
value and back. An accepted edit must show in an owned object, in the database or in a condition, and leave the objects
that a new resource of the same spec has; its reversal must restore what was there. Some leaves are edited for each
commit, some of each kind each night, and all leaves each week.

`TEST_SEED=NUMBER` repeats a run, `LEAF_ONLY=PREFIX,PREFIX` selects leaves, and with `LEAF_SHRINK=1` Hypothesis shrinks
the edits of the first leaf that fails.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from operators.etcd.api import backup as etcd_backup
from operators.etcd.steps import scaling
from shared.kubernetes.errors import NotFound, Refused, Unavailable
from shared.kubernetes.kinds import CRD, Kind
from shared.steps.certificates import CERTIFICATE
from tests.platform.api.support.leaf_batch import Batch, Draw, Subject, Trial
from tests.platform.api.support.leaf_edits import REMOVED, Leaf, at, edited, invalid, leaves_of, positions
from tests.platform.api.support.leaf_subjects import SUBJECTS
from tests.platform.api.support.live import CachedServer
from tests.platform.api.support.scenario_runner import Run
from tests.platform.api.support.world import World
from tests.support import seeds
from tests.support.etcd import backup_cases
from tests.support.etcd.backup_cases import S3
from tests.support.schema import spec_schema
from tools.local.controlplane import ControlPlane

ONLY = tuple(os.environ.get("LEAF_ONLY", "").split(","))
SAMPLE = 8
"""Leaves of each kind that are edited each night; those of Memcached for each commit."""


@pytest.fixture(autouse=True)
def skip_connection_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the time for which an etcd member must be connected before the next one is added."""
    monkeypatch.setattr(scaling, "CONNECTED_SECONDS", 0.0)


def is_served(world: World, kind: Kind) -> bool:
    """Whether the API server serves a kind. A new CRD first returns 404, then 429."""
    try:
        world.listed(kind)
    except (NotFound, Unavailable):
        return False
    return True


@pytest.fixture(scope="module", autouse=True)
def cert_manager(plane: ControlPlane) -> Iterator[None]:
    """Serve cert-manager's Certificates."""
    world = World(plane)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": CERTIFICATE.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": CERTIFICATE.name, "plural": CERTIFICATE.plural}
    spec = {"group": CERTIFICATE.group, "names": names, "scope": "Namespaced", "versions": [version]}
    name = f"{CERTIFICATE.plural}.{CERTIFICATE.group}"
    world.user_client.create(CRD, {"metadata": {"name": name}, "spec": spec})
    world.eventually(lambda: is_served(world, CERTIFICATE))
    yield
    world.user_client.delete(CRD, None, name)
    world.close()


def backup_leaves() -> list[Leaf]:
    return list(leaves_of(spec_schema(etcd_backup.API)))


@pytest.mark.parametrize("leaf", backup_leaves(), ids=str)
def test_edit_of_a_leaf_of_a_backup_is_refused(world: World, leaf: Leaf) -> None:
    """The spec of an EtcdBackup cannot be changed, so that nothing of an edit is left to apply."""
    others = [S3 | {"endpoint": "http://s:9", "region": "a", "prefix": "b"}]
    specs = [case.whole_spec for case in backup_cases.ACCEPTED]
    specs += [backup_cases.BASE | {"destination": {"s3": other}} for other in others]
    spec = next(each for each in specs if any(positions(each, leaf.path)))
    position = next(positions(spec, leaf.path))
    kind = etcd_backup.API.kind
    body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": world.metadata("leaf")}
    world.user_client.apply(kind, body | {"spec": spec}, force=True)
    for value in (f"{at(spec, position)}1", REMOVED, invalid(leaf)):
        with pytest.raises(Refused):
            world.user_client.apply(kind, body | {"spec": edited(spec, position, value)}, force=True)


def test_every_leaf_has_a_context_or_a_reason() -> None:
    missing = [
        f"{name}: {leaf}" for name, subject in SUBJECTS.items() for leaf in subject.leaves if not subject.contexts(leaf)
    ]
    assert missing == []


def play(plane: ControlPlane, subject: Subject, leaves: Sequence[Leaf], draw: Draw | None = None) -> list[Trial]:
    """Edit leaves; those that show without pods first."""
    played = []
    for runs_pods in (False, True):
        group = [leaf for leaf in leaves if leaf.path.startswith(subject.with_pods) == runs_pods]
        if not group:
            continue
        start = partial(Run, plane, cast=subject.cast, live=CachedServer)
        run = start()
        try:
            batch = Batch(subject, run, group, seed=seeds.seed(), draw=draw, runs_pods=runs_pods, start=start)
            batch.play()
            played += batch.trials
        finally:
            run.close()
    return played


def require(plane: ControlPlane, subject: Subject, leaves: Sequence[Leaf]) -> None:
    """Require that every edit of the leaves is applied or explained."""
    trials = play(plane, subject, [leaf for leaf in leaves if leaf.path not in subject.unseen])
    failed = [trial for trial in trials if trial.failure]
    if failed and os.environ.get("LEAF_SHRINK"):
        shrink(plane, subject, failed[0].leaf)
    passed = f"{len(trials) - len(failed)} of {len(trials)} leaves; {seeds.VARIABLE}={seeds.seed()}"
    assert not failed, "\n".join([passed, *(f"{trial.leaf}: {trial.failure}" for trial in failed)])


def shrink(plane: ControlPlane, subject: Subject, leaf: Leaf) -> None:
    """Raise the failure of a leaf with the simplest edit that fails."""

    @seed(seeds.seed())
    @settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        (trial,) = play(plane, subject, [leaf], data.draw)
        assert not trial.failure, trial.failure

    check()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "Memcached" else pytest.mark.nightly) for kind in SUBJECTS]
)
def test_edits_of_some_leaves_are_applied_or_explained(plane: ControlPlane, kind: str) -> None:
    subject = SUBJECTS[kind]
    shown = [leaf for leaf in subject.leaves if not leaf.path.startswith(subject.with_pods)]
    require(plane, subject, random.Random(seeds.seed()).sample(shown, SAMPLE))


@pytest.mark.nightly
def test_objects_get_the_owners_that_those_of_a_new_resource_have(plane: ControlPlane) -> None:
    subject = SUBJECTS["RedisCluster"]
    require(plane, subject, [leaf for leaf in subject.leaves if leaf.path == "finalizers"])


@pytest.mark.weekly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", SUBJECTS)
def test_edits_of_all_leaves_are_applied_or_explained(plane: ControlPlane, kind: str) -> None:
    subject = SUBJECTS[kind]
    require(plane, subject, [leaf for leaf in subject.leaves if leaf.path.startswith(ONLY)])
