"""Every edit of a single field is applied, or a refusal or a condition explains why not.

For each leaf of each CRD, values are drawn from its schema: set, changed, removed, back to the first value, an invalid
value and back. An accepted edit must show in an owned object, in the database or in a condition; its reversal must
restore what was there. A few leaves are drawn in the short suite; all of them in `make test-long`.

`LEAF_SEED=NUMBER` repeats a run, and with `LEAF_SHRINK=1` Hypothesis shrinks a failing edit.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from e2e.cluster.controlplane import ControlPlane
from operators import installed
from operators.etcd.api import backup as etcd_backup
from operators.etcd.api import resource as etcd
from operators.etcd.api.arguments import ACCEPTED as ETCD_ARGUMENT
from operators.etcd.api.arguments import absent
from operators.etcd.api.versions import Version
from operators.memcached.api import resource as memcached
from operators.memcached.api.reserved_flags import VALUED
from operators.redis.api import resource as redis
from shared.api.crd import Resource
from shared.api.spec import InvalidSpec
from shared.kubernetes import accessors
from shared.kubernetes.errors import KubeError, Refused
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.status.conditions import READY
from shared.status.reasons import COMMON, PAUSED, Severity
from tests.api.crash import test_etcd, test_redis
from tests.api.support.leaf_edits import (
    REMOVED,
    Leaf,
    at,
    contexts,
    edited,
    invalid,
    leaves_of,
    positions,
    values,
    versions,
)
from tests.api.support.scenario_runner import MEMCACHED_CAST, Cast, Run
from tests.api.support.world import World, masked
from tests.support.etcd import backup_cases
from tests.support.etcd import cases as etcd_cases
from tests.support.etcd.backup_cases import S3
from tests.support.memcached import cases as memcached_cases
from tests.support.redis import cases as redis_cases
from tests.support.schema import spec_schema

RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or random.SystemRandom().randbytes(8).hex()
"""Equal in all workers, which must select the same leaves."""

SEED = int(os.environ.get("LEAF_SEED") or zlib.crc32(RUN.encode()))
EVIDENCE_SECONDS = 20.0
PHASES = (Phase.generate, Phase.shrink) if os.environ.get("LEAF_SHRINK") else (Phase.generate,)
"""Shrinking repeats a failing edit many times, which takes minutes."""

DEFAULTED = ("fieldRef.apiVersion",)
"""Fields that Kubernetes sets if they are missing: a removal is no change."""

SHORT = ("Memcached",)
"""Kinds of which some leaves are edited in the short suite; an edit of another kind lasts up to a minute."""

GROWS = "volumes grow and never shrink, so that an edit cannot be reverted; tests/unit: test_volumes.py"
CALLS = "determines when the operator calls the database, and no object; tests/unit: test_maintenance.py"

MEMCACHED_ARGUMENT = "|".join(
    f"--{name}={VALUED[short, name]}" for short, name in (("n", "slab-min-size"), ("b", "listen-backlog"))
)
ETCD_SERIES = Version.parse(etcd_cases.VERSION).series
ETCD_ARGUMENTS = st.from_regex(
    ETCD_ARGUMENT.removeprefix("^").removesuffix("$"), fullmatch=True, alphabet=st.characters(codec="ascii")
).filter(lambda text: len(text) <= 256 and not re.match(absent(ETCD_SERIES), text))

CATALOGUES = (COMMON, *(operator.reasons for operator in installed()))
EXPLAINING = {reason for found in CATALOGUES for reason in found if reason.severity is Severity.ACTION} | {PAUSED}
"""Reasons that explain why a field is not applied; others only describe progress."""


@dataclass
class Subject:
    """A kind whose leaves are edited, and the run in which that happens.

    Attributes:
        base: spec without optional fields.
        parse: parses a resource.
        also: further valid specs, for leaves that no accepted case has.
        accepted: values for leaves whose schema does not show what the rules of the spec accept, given the present one.
        runs_pods: whether the pods of its objects run. Without them, the objects follow the spec nevertheless, and no
            rolling update takes time.
        unseen: leaves without an effect that this test can observe, with the reason.
    """

    api: Resource
    cast: Cast
    base: Obj
    cases: Any
    parse: Callable[[Obj], Any]
    also: tuple[Obj, ...] = ()
    accepted: dict[str, Callable[[str], st.SearchStrategy[str]]] = field(default_factory=dict)
    runs_pods: bool = True
    unseen: dict[str, str] = field(default_factory=dict)

    @cached_property
    def leaves(self) -> list[Leaf]:
        return list(leaves_of(spec_schema(self.api)))

    def contexts(self, leaf: Leaf) -> list[Obj]:
        specs = [case.whole_spec for case in self.cases.ACCEPTED] + [self.base | spec for spec in self.also]
        return contexts(leaf, specs, self.base)

    def values(self, leaf: Leaf, before: Any) -> st.SearchStrategy[Any]:
        """Return other values for a leaf."""
        accepted = self.accepted.get(leaf.path)
        return accepted(before).filter(lambda value: value != before) if accepted else values(leaf, before)


SUBJECTS = {
    "Memcached": Subject(
        memcached.API,
        MEMCACHED_CAST,
        {"size": 1},
        memcached_cases,
        memcached.Memcached.parse,
        accepted={"version": versions, "extraArgs[]": lambda _: st.from_regex(MEMCACHED_ARGUMENT, fullmatch=True)},
        also=({"metrics": {"image": "exporter:1"}}, {"env": [{"name": "A", "value": "1"}]}, {"paused": False}),
    ),
    "EtcdCluster": Subject(
        etcd.API,
        test_etcd.CAST,
        {"size": 1, "version": etcd_cases.VERSION},
        etcd_cases,
        etcd.EtcdCluster.parse,
        accepted={"version": versions, "extraArgs[]": lambda _: ETCD_ARGUMENTS},
        also=(
            {"env": [{"name": "A", "value": "1"}]},
            {"restore": {"from": {"volume": {"claimName": "snapshots", "path": "a"}}}},
            {"restore": {"from": {"s3": S3 | {"endpoint": "http://s:9", "region": "a", "prefix": "b"}}}},
        ),
        unseen={"storage.size": GROWS, "defragmentation.schedule": CALLS, "defragmentation.threshold": CALLS},
    ),
    "RedisCluster": Subject(
        redis.API,
        test_redis.CAST,
        {"replicas": 3, "replicasPerMaster": 0, "version": redis_cases.VERSION},
        redis_cases,
        redis.RedisCluster.parse,
        accepted={"version": versions},
        also=(
            {"updateStrategy": {"type": "RollingUpdate", "waitForReplicas": False}},
            {"env": [{"name": "A", "value": "1"}]},
        ),
        runs_pods=False,
        unseen={"storage.size": GROWS},
    ),
}


class Bench:
    """A running operator, and the resource whose fields are edited."""

    def __init__(self, subject: Subject, run: Run) -> None:
        self.subject, self.run, self.world = subject, run, run.world
        self.number, self.name = 0, ""
        self.accepted: dict[str, Obj] = {}

    @property
    def is_usable(self) -> bool:
        """Whether the present resource is there, and nothing blocks it."""
        return bool(self.name) and self.reason not in EXPLAINING

    @property
    def reason(self) -> str:
        """Reason of the Ready condition."""
        return str(accessors.condition(self.resource, READY).get("reason", ""))

    @property
    def resource(self) -> Obj:
        return self.world.get(self.subject.api.kind, self.name)

    def begin(self, spec: Obj) -> bool:
        """Create a new resource with a spec; return whether the API server accepts it."""
        if self.name:
            self.world.remove(self.subject.api.kind, self.name)
        self.number += 1
        self.name = f"leaf-{self.number}"
        if not self.apply(spec):
            self.name = ""
        return bool(self.name)

    def apply(self, spec: Obj) -> bool:
        """Apply a spec; return whether the API server accepts it."""
        kind = self.subject.api.kind
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": self.world.metadata(self.name)}
        try:
            self.world.user_client.apply(kind, body | {"spec": spec}, force=True)
        except Refused:
            return False
        return True

    def meaning(self) -> Any:
        """Return the spec as the operator reads it: without the difference between a default and its absence."""
        try:
            return self.subject.parse(self.resource).spec
        except InvalidSpec as error:
            return str(error)

    def evidence(self) -> Any:
        """Return the owned objects, the state of the database, and a condition that is no mere progress."""
        others = (self.subject.api.kind, POD, PERSISTENT_VOLUME_CLAIM)
        kinds = [kind for kind in self.subject.cast.kinds if kind not in others]
        ready = accessors.condition(self.resource, READY)
        reason = (ready["reason"], ready["message"]) if ready.get("reason") in EXPLAINING else ""
        return json.dumps([[self._owned(kind) for kind in kinds], reason], sort_keys=True)

    def _owned(self, kind: Any) -> list[Any]:
        label = "app.kubernetes.io/instance"
        found = [obj for obj in self.world.listed(kind) if accessors.label(obj, label) == self.name]
        return [masked({key: part for key, part in obj.items() if key != "status"}) for obj in found]

    def until(self, check: Callable[[Any], bool], seconds: float = EVIDENCE_SECONDS) -> Any:
        """Return the evidence as soon as the status is current and the check passes, or the last one."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if self.subject.runs_pods:
                    self.run._move()
                found, is_current = self.evidence(), accessors.is_current(self.resource)
            except KubeError:
                found, is_current = None, False
            if (is_current and check(found)) or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def at_rest(self) -> Any:
        """Return the evidence after it has been the same for a moment."""
        since, before = time.monotonic(), None

        def is_stable(found: Any) -> bool:
            nonlocal since, before
            if found != before:
                since, before = time.monotonic(), found
            return time.monotonic() - since > 1.0

        return self.until(is_stable)


@pytest.fixture(scope="module")
def benches(plane: ControlPlane) -> Iterator[Callable[[str], Bench]]:
    """Return the bench of a kind, which is started at its first use."""
    started: dict[str, Bench] = {}

    def bench(name: str) -> Bench:
        if name not in started:
            started[name] = Bench(SUBJECTS[name], Run(plane, cast=SUBJECTS[name].cast))
        return started[name]

    yield bench
    for each in started.values():
        each.run.close()


def started(bench: Bench, leaf: Leaf, specs: Sequence[Obj]) -> tuple[Obj, Any]:
    """Apply the first spec that is carried out, or else the last accepted one; to a new resource if it must be new."""
    accepted = None
    known = bench.accepted.get(leaf.path)  # a repeated edit must not depend on what happened before
    for spec in [known] if known else specs:
        if (bench.is_usable and bench.apply(spec)) or bench.begin(spec):
            accepted = spec, bench.at_rest()
            if bench.reason not in EXPLAINING:
                break
    assert accepted is not None, "the API server refuses every spec"
    bench.accepted[leaf.path] = accepted[0]
    return accepted


def edit(bench: Bench, leaf: Leaf, data: st.DataObject, shown: list[str]) -> None:
    """Edit one leaf in one context, step by step."""
    first, origin = started(bench, leaf, data.draw(st.permutations(bench.subject.contexts(leaf)), "specs"))
    position = data.draw(st.sampled_from(list(positions(first, leaf.path))), "position")
    other = data.draw(bench.subject.values(leaf, at(first, position)), "other value")
    removal = () if leaf.path.endswith(DEFAULTED) else (REMOVED,)
    for value in (other, *removal, invalid(leaf)):
        before = bench.meaning()
        if not bench.apply(edited(first, position, value)):
            shown.append("refused")
        elif bench.meaning() != before:
            found = bench.until(lambda found: found != origin)
            assert found != origin, f"{leaf} = {'removed' if value is REMOVED else value} shows nowhere"
            shown.append("applied")
        assert bench.apply(first) or "refused" in shown, "the former spec is still valid"
        found = bench.until(lambda found: found == origin, 3 * EVIDENCE_SECONDS)
        assert found == origin, f"{leaf}: what was there before is not restored"


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


def drawn(count: int) -> list[Any]:
    """Return the leaves as parameters; all but some are marked `long`."""
    cases = [(name, leaf) for name, subject in SUBJECTS.items() for leaf in subject.leaves]
    brief = [each for name in SHORT for each in SUBJECTS[name].leaves if "affinity" not in each.path]
    short = set(map(id, random.Random(SEED).sample(brief, count)))
    return [
        pytest.param(name, leaf, id=f"{name}: {leaf}", marks=() if id(leaf) in short else pytest.mark.long)
        for name, leaf in cases
    ]


def test_every_leaf_has_a_context_or_a_reason() -> None:
    missing = [
        f"{name}: {leaf}" for name, subject in SUBJECTS.items() for leaf in subject.leaves if not subject.contexts(leaf)
    ]
    assert missing == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "leaf"), drawn(4))
def test_edit_of_a_leaf_is_applied_or_explained(benches: Callable[[str], Bench], name: str, leaf: Leaf) -> None:
    bench, shown = benches(name), list[str]()
    if leaf.path in bench.subject.unseen:
        pytest.skip(bench.subject.unseen[leaf.path])

    @seed(SEED)
    @settings(
        max_examples=1,
        deadline=None,
        database=None,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        note(f"LEAF_SEED={SEED}")
        edit(bench, leaf, data, shown)

    check()
    assert shown, f"{leaf} was not edited"
