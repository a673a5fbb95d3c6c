"""Edits of single fields of many resources at once: one resource for each leaf, on a real API server.

All resources take each step together: created, edited, reverted, without the field, reverted, invalid. After each step
the operator comes to rest, and only then the resources are compared with what they were. An edited resource is also
compared with a new one of the same spec in another namespace: what was accepted and what exists may not depend on the
former spec.
"""

from __future__ import annotations

import itertools
import json
import logging
import operator
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from operators import installed
from shared.api.crd import Resource
from shared.api.spec import InvalidSpec
from shared.kubernetes import accessors
from shared.kubernetes.errors import Refused
from shared.kubernetes.kinds import CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, POD, SECRET, Kind, Obj
from shared.pki.certs import Pair
from shared.status.conditions import READY, RECONCILING
from shared.status.reasons import COMMON, PAUSED, Severity
from simulator.memcached.fake_servers import certificate, secret, signer
from tests.platform.api.support.leaf_edits import (
    REMOVED,
    STAYING,
    Leaf,
    Position,
    at,
    contexts,
    edited,
    invalid,
    leaves_of,
    positions,
    values,
)
from tests.platform.api.support.scenario_runner import Cast, Run
from tests.platform.api.support.world import masked
from tests.support.schema import spec_schema

log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
"""Seconds without a write of the operator after which it is at rest."""

EVIDENCE_SECONDS = 20.0
"""Seconds of rest in which an edit must show: longer than the operator's interval between two queries of a database."""

PODS_SECONDS = 45.0
"""Seconds within which the pods of a resource start or restart, and members join."""

REST_SECONDS = 600.0
"""Seconds within which the operator comes to rest after a step of all resources."""

MAX_PODS = 6
"""Pods of a resource whose pods run."""

MAX_SPECS = 4
"""Specs that are tried for a leaf until nothing prevents the operator from carrying out one."""

ATTEMPTS = 8
"""Values that are drawn for a leaf until the API server accepts one."""

VARYING = re.compile(
    r"\btest-[0-9]+\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{8,}\b"
    r'|(?<="imagePullPolicy": )"[A-Za-z]+"'
    r'|((?<=[pP]ort": )|(?<="--cluster-port", "))2[0-9]{4}\b'
)
"""Names of namespaces, UIDs, what follows from them (digests, bus ports), and what is set only for a new object."""

KEPT = (SECRET, PERSISTENT_VOLUME_CLAIM)
"""Kinds of objects that may be left of a former spec: the operator may not delete Secrets, and keeps volumes."""

DEFAULTED = ("fieldRef.apiVersion",)
"""Fields that Kubernetes sets if they are missing: a removal is no change."""

CATALOGUES = (COMMON, *(each.reasons for each in installed()))
EXPLAINING = {reason for found in CATALOGUES for reason in found if reason.severity is Severity.ACTION} | {PAUSED}
"""Reasons that explain why a field is not applied; others only describe progress."""

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass
class Subject:
    """A kind whose leaves are edited, and the run in which that happens.

    Attributes:
        base: spec without optional fields.
        parse: parses a resource.
        also: further valid specs, for leaves that no accepted case has.
        accepted: values for leaves whose schema does not show what the rules of the spec accept, given the present one.
        specs: the only fields next to which a leaf can have other values, by its path.
        history: annotations that record former changes, such as restarts; a reversal does not restore them.
        size: field with the number of pods.
        with_pods: leaves that show only while the pods of the resource run, by the beginning of their paths. The others
            are edited without pods, which is faster.
        state: returns the state of the database of a resource.
        provoked: acts that make a leaf show, by its path: they run each time before the evidence is taken.
        immutable: leaves whose values the API server does not allow to change.
        unseen: leaves without an effect that this test can observe, with the reason.
        lasting: leaves after whose edit a resource rightly differs from a new one of the same spec, with the reason.
    """

    api: Resource
    cast: Cast
    base: Obj
    cases: Any
    parse: Callable[[Obj], Any]
    also: tuple[Obj, ...] = ()
    accepted: dict[str, Callable[[Any], st.SearchStrategy[Any]]] = field(default_factory=dict)
    specs: dict[str, Obj] = field(default_factory=dict)
    history: tuple[str, ...] = ()
    size: str = "size"
    with_pods: tuple[str, ...] = ()
    state: Callable[[Run, str], Any] = lambda *_: None
    provoked: dict[str, Callable[[Run, str], None]] = field(default_factory=dict)
    immutable: tuple[str, ...] = ()
    unseen: dict[str, str] = field(default_factory=dict)
    lasting: dict[str, str] = field(default_factory=dict)

    @cached_property
    def leaves(self) -> list[Leaf]:
        return list(leaves_of(spec_schema(self.api)))

    def contexts(self, leaf: Leaf) -> list[Obj]:
        if leaf.path in self.specs:
            return [self.base | self.specs[leaf.path]]
        specs = [case.whole_spec for case in self.cases.ACCEPTED] + [self.base | spec for spec in self.also]
        return contexts(leaf, specs, self.base)

    def values(self, leaf: Leaf, before: Any) -> st.SearchStrategy[Any]:
        """Return other values for a leaf."""
        accepted = self.accepted.get(leaf.path)
        return accepted(before).filter(lambda value: value != before) if accepted else values(leaf, before)


def drawing(number: int) -> Draw:
    """Return a function that draws a value from a strategy; the same number draws the same values."""
    numbers = random.Random(number)

    def draw(strategy: st.SearchStrategy[Any]) -> Any:
        found: list[Any] = []

        @seed(numbers.getrandbits(32))
        @settings(
            max_examples=3,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def take(value: Any) -> None:
            found.append(value)

        take()
        return found[-1]  # the first one is always the simplest

    return draw


@dataclass
class Trial:
    """The edits of one leaf.

    Attributes:
        specs: specs that have the leaf, to be tried in this order.
        first: the spec between the edits.
        meaning: the first spec as the operator reads it.
        is_changed: whether the present edit changes the meaning.
        origin: evidence between the edits.
        shown: result of each edit: applied, explained or refused.
        failure: why the operator is wrong; empty if it is not.
    """

    leaf: Leaf
    number: int
    specs: list[Obj]
    draw: Draw
    name: str = ""
    first: Obj = field(default_factory=dict)
    position: Position = ()
    meaning: Any = None
    is_changed: bool = False
    origin: Any = None
    shown: list[str] = field(default_factory=list)
    failure: str = ""

    @property
    def was_accepted(self) -> bool:
        """Whether an edit was accepted and showed."""
        return bool({"applied", "explained"} & set(self.shown))


class Evidence(NamedTuple):
    """The observable effects of a spec.

    Attributes:
        objects: owned objects.
        state: state of its database.
        explanation: reason and message of the Ready condition, if they explain why a field is not applied. While the
            database is repaired, it is only the part of the message that names a field.
    """

    objects: tuple[str, ...]
    state: Any
    explanation: tuple[str, ...]


class Batch:
    """One resource for each leaf, in a namespace with a running operator.

    Args:
        start: starts an operator in another namespace, for new resources with which edited ones are compared; None to
            compare none.
    """

    def __init__(
        self,
        subject: Subject,
        run: Run,
        leaves: Iterable[Leaf],
        *,
        seed: int = 0,
        draw: Draw | None = None,
        runs_pods: bool = False,
        start: Callable[[], Run] | None = None,
    ) -> None:
        self.subject, self.run, self.runs_pods, self._start_run = subject, run, runs_pods, start
        self.trials = [self._trial(number, leaf, seed, draw) for number, leaf in enumerate(leaves)]
        self._masked: dict[tuple[str, str], str] = {}
        pair = run.operator.fleet.files = certificate(hosts=(f"*.{run.world.namespace}.svc",))
        for kind, obj in named_objects(pair):
            run.world.user_client.create(kind, obj | {"metadata": run.world.metadata(obj["metadata"]["name"])})

    def _trial(self, number: int, leaf: Leaf, seed: int, draw: Draw | None) -> Trial:
        own = draw or drawing(hash_of(f"{seed} {leaf}"))
        specs = own(st.permutations(self.subject.contexts(leaf)))
        if self.runs_pods:
            specs = [spec for spec in specs if spec.get(self.subject.size, 0) <= MAX_PODS]
        return Trial(leaf, number, specs[:MAX_SPECS], own)

    def play(self) -> None:
        """Make all edits of all leaves; the trials hold the results."""
        waiting = self.trials
        while waiting:
            self._begin(waiting)
            self._edit(waiting, self._other_values)
            # Other values may be refused because of other fields: the next spec has other ones.
            waiting = [trial for trial in waiting if trial.specs and not trial.failure and not trial.was_accepted]
        self._edit(self.trials, lambda trial: iter(() if trial.leaf.path.endswith(DEFAULTED) else (REMOVED,)))
        self._edit(self.trials, lambda trial: iter((invalid(trial.leaf),)))
        for trial in self.trials:
            if not trial.failure and not trial.was_accepted and not trial.leaf.path.startswith(self.subject.immutable):
                trial.failure = f"every value is refused: {trial.first}"
            log.info("%s: %s %s", trial.leaf, " ".join(trial.shown), trial.failure)

    def _begin(self, waiting: list[Trial]) -> None:
        """Create the resources; one that the operator cannot reconcile is replaced by one with the next spec."""
        begun = waiting
        while waiting:
            started = [trial for trial in waiting if self._start(trial)]
            seen = self._rest(lambda _: True)
            for trial in started:
                trial.origin = seen[trial.name]
            waiting = [trial for trial in started if trial.specs and trial.origin.explanation]
        for trial in begun:
            if not trial.name:
                trial.failure = "the API server refuses every spec"
                continue
            trial.position = trial.draw(st.sampled_from(list(positions(trial.first, trial.leaf.path))))

    def _start(self, trial: Trial) -> bool:
        """Create a resource with the next spec that the API server accepts; return whether there is one."""
        kind, before = self.subject.api.kind, trial.name
        while trial.specs:
            spec = trial.specs.pop(0)
            name = f"leaf-{trial.number}-{len(trial.specs)}"
            created = self._apply(name, spec)
            if created is not None:
                trial.name, trial.first, trial.meaning = name, spec, self._meaning(created)
                if before:
                    self.run.world.remove(kind, before)
                return True
        return False

    def _other_values(self, trial: Trial) -> Iterator[Any]:
        before = at(trial.first, trial.position)
        strategy = self.subject.values(trial.leaf, before)
        for _ in range(ATTEMPTS):
            yield trial.draw(strategy)

    def _edit(self, trials: list[Trial], values: Callable[[Trial], Iterator[Any]]) -> None:
        """Edit each resource with the first of the values that the API server accepts, and revert that."""
        specs: dict[str, tuple[Trial, Obj]] = {}
        for trial in [each for each in trials if not each.failure]:
            for value in values(trial):
                spec = edited(trial.first, trial.position, value)
                after = self._apply(trial.name, spec)
                if after is not None:
                    specs[trial.name] = trial, spec
                    trial.is_changed = self._meaning(after) != trial.meaning
                    break
                trial.shown.append("refused")
        seen = self._rest(
            lambda seen: all(
                seen[name] != each.origin or is_blamed(each.leaf, each.origin)
                for name, (each, _) in specs.items()
                if each.is_changed
            )
        )
        for name, (trial, spec) in specs.items():
            if trial.is_changed:
                self._judge(trial, spec, seen[name])
        lasting = self.subject.lasting
        compared = {name: each for name, each in specs.items() if each[0].leaf.path not in lasting}
        self._compare({name: each for name, each in compared.items() if _is_comparable(*each)}, seen)
        self._revert(specs)

    def _judge(self, trial: Trial, spec: Obj, seen: Evidence) -> None:
        if seen == trial.origin and is_blamed(trial.leaf, seen):
            trial.shown.append("explained")
        elif seen == trial.origin:
            trial.failure = f"shows nowhere: {trial.first} → {spec}"
        else:
            trial.shown.append("explained" if seen.explanation != trial.origin.explanation else "applied")

    def _compare(self, specs: dict[str, tuple[Trial, Obj]], seen: dict[str, Evidence]) -> None:
        """Create new resources of the same specs in another namespace; each must be as the edited one."""
        if self._start_run is None or not specs:
            return
        run = self._start_run()
        try:
            new = Batch(self.subject, run, (), runs_pods=self.runs_pods)
            for name, (trial, spec) in specs.items():
                if new._apply(name, spec) is None:
                    trial.failure = f"is refused for a new resource, but was accepted as an edit: {spec}"
                else:
                    new.trials.append(trial)
            for name, evidence in new._rest(lambda _: True).items():
                trial, spec = specs[name]
                if differ := left_behind(seen[name], evidence):
                    trial.failure = f"is not as a new resource: {differ} (spec: {trial.first} → {spec})"
        finally:
            run.close()

    def _revert(self, specs: dict[str, tuple[Trial, Obj]]) -> None:
        """Apply the former specs again; if that is refused, the edited one is the next former one."""
        one_way, waiting = [], {}
        for name, (trial, spec) in specs.items():
            if trial.failure:
                continue
            if self._apply(name, trial.first) is None:
                trial.shown.append("refused back")
                trial.first = spec
                one_way.append(trial)
            else:
                waiting[name] = trial
        seen = self._rest(lambda seen: all(seen[name] == trial.origin for name, trial in waiting.items()))
        for trial in one_way:
            trial.origin = seen[trial.name]
        for name, trial in waiting.items():
            if seen[name] != trial.origin:
                trial.failure = f"is not as before: {difference(trial.origin, seen[name])} (spec: {trial.first})"

    def _apply(self, name: str, spec: Obj) -> Obj | None:
        """Apply a spec; return the resource, or None if the API server refuses it."""
        kind = self.subject.api.kind
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": self.run.world.metadata(name)}
        try:
            return self.run.world.user_client.apply(kind, body | {"spec": spec}, force=True)
        except Refused:
            return None

    def _meaning(self, resource: Obj) -> Any:
        """Return the spec as the operator reads it: without the difference between a default and its absence."""
        try:
            return self.subject.parse(resource).spec
        except InvalidSpec as error:
            return str(error)

    def _rest(self, is_met: Callable[[dict[str, Evidence]], bool]) -> dict[str, Evidence]:
        """Return what there is after the operator has come to rest and the condition is met, or after a while."""
        provoked = [(act, trial) for trial in self.trials if (act := self.subject.provoked.get(trial.leaf.path))]
        if provoked:
            self._settle(lambda _: True)
        for act, trial in provoked:
            act(self.run, trial.name)
        return self._settle(is_met)

    def _settle(self, is_met: Callable[[dict[str, Evidence]], bool]) -> dict[str, Evidence]:
        """Wait until the operator has written nothing for a while, then for the condition, for a limited time."""
        began = since = time.monotonic()
        wrote, rested = -1, None
        while True:
            moves = self.run._move() if self.runs_pods else 0
            now = sum(sent.status < 400 for sent in self.run.wrote)  # what is refused is retried for ever
            if moves or now != wrote:
                since, wrote = time.monotonic(), now
            if time.monotonic() - since > QUIET_SECONDS:
                seen = self._observe(patient=time.monotonic() - began < PODS_SECONDS)
                if seen is not None:
                    rested = rested or time.monotonic()
                    if is_met(seen) or time.monotonic() - rested > EVIDENCE_SECONDS:
                        log.info("at rest after %.1f s, met: %s", time.monotonic() - began, is_met(seen))
                        return seen
            last = [f"{sent.method} {sent.path}" for sent in self.run.wrote[-3:]]
            assert time.monotonic() - began < REST_SECONDS, f"the operator does not come to rest: {last}"
            time.sleep(0.2)

    def _observe(self, *, patient: bool) -> dict[str, Evidence] | None:
        """Return what there is of each resource by its name; None if the operator has not seen all of them.

        Args:
            patient: whether to wait for resources whose pods run and which the operator still reconciles.
        """
        world, cast = self.run.world, self.subject.cast
        resources = world.listed(self.subject.api.kind)
        if not all(map(accessors.is_current, resources)):
            return None
        if self.runs_pods and patient and any(map(_is_in_progress, resources)):
            return None
        owned = defaultdict(list)
        for kind in dict.fromkeys((*cast.kinds, CONFIG_MAP, SECRET)):
            if kind != self.subject.api.kind and (kind != POD or not self.runs_pods):
                for obj in world.listed(kind):
                    if _is_left(obj):
                        continue
                    owned[accessors.label(obj, "app.kubernetes.io/instance")].append(self._text(kind, obj))
        found = {}
        for resource in resources:
            name = resource["metadata"]["name"]
            found[name] = Evidence(
                tuple(sorted(owned[name])), self.subject.state(self.run, name), explanation(resource)
            )
        return found

    def _text(self, kind: Kind, obj: Obj) -> str:
        metadata = obj["metadata"]
        key = metadata["uid"], metadata["resourceVersion"]
        if key not in self._masked:
            parts = {
                name: part
                for name, part in obj.items()
                if name not in ("status", *(("data",) if kind == SECRET else ()))
            }
            if _is_connection(obj):  # random passwords and addresses of pods aside
                parts["keys"] = sorted(obj.get("data") or {})
            self._masked[key] = f"{kind} {json.dumps(without(masked(parts), self.subject.history), sort_keys=True)}"
        return self._masked[key]


def _is_left(obj: Obj) -> bool:
    """Whether an object may stay after its field was reverted, because the operator may delete no Secret.

    Such as an emptied connection Secret, and generated passwords.
    """
    instance = accessors.label(obj, "app.kubernetes.io/instance")
    generated = obj["metadata"]["name"] in tuple(
        f"{instance}-{name}" for name in ("auth", "operator-auth", "client-password")
    )
    return generated or (_is_connection(obj) and not obj.get("data"))


def _is_connection(obj: Obj) -> bool:
    return str(obj.get("type")).startswith("servicebinding.io/")


def explanation(resource: Obj) -> tuple[str, ...]:
    """Return the part of the Ready condition that explains why a field is not applied; empty if there is none."""
    ready = accessors.condition(resource, READY)
    if ready.get("reason") in EXPLAINING:
        return ready["reason"], ready["message"]
    named = re.search(r"\bspec\..*", str(ready.get("message")), re.DOTALL)
    return (named[0],) if named else ()


def without(value: Any, names: tuple[str, ...]) -> Any:
    """Return an object without the fields of these names, at any depth."""
    if isinstance(value, list):
        return [without(item, names) for item in value]
    if isinstance(value, dict):
        return {key: without(part, names) for key, part in value.items() if key not in names}
    return value


def _is_in_progress(resource: Obj) -> bool:
    reason = accessors.condition(resource, READY).get("reason")
    return accessors.is_true(resource, RECONCILING) and reason not in EXPLAINING


def named_objects(pair: Pair) -> Iterator[tuple[Kind, Obj]]:
    """Yield the objects that specs name; of the names that are drawn, some exist and others are missing.

    Args:
        pair: certificate of the servers.
    """
    everything = {"tls_crt": pair.certificate, "tls_key": pair.key, "ca_crt": signer("ca").certificate}
    everything |= {"users": "app:secret\n", "password": "one", "accessKeyID": "a", "secretAccessKey": "b"}
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    for suffix in ("", "-1", "1"):
        for name in ("a", "b", "users", "cache-tls", "root", "s3-keys"):
            yield SECRET, secret(name + suffix, **everything)
        for name in ("snapshots", "shared"):
            yield PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": name + suffix}, "spec": claim}
        yield CONFIG_MAP, {"metadata": {"name": f"redis-conf{suffix}"}, "data": {"redis.conf": f"hz 2{suffix[-1:]}\n"}}


def hash_of(text: str) -> int:
    return random.Random(text).getrandbits(32)


def is_blamed(leaf: Leaf, seen: Evidence) -> bool:
    """Whether a condition names the part of the spec that has the leaf as not applied."""
    part = re.split(r"[.\[]", leaf.path)[0]
    return any(f"spec.{part}" in text for text in seen.explanation)


def difference(before: Evidence, after: Evidence) -> str:
    """Describe the first difference between two lists of evidence."""
    for former, latter in itertools.zip_longest(_lines(before), _lines(after), fillvalue=""):
        if former != latter:
            same = len(list(itertools.takewhile(bool, map(operator.eq, former, latter))))
            part = slice(max(0, same - 60), same + 140)
            return f"{former[:60]}: …{former[part]}… → …{latter[part]}…"
    return "nothing"


def _is_comparable(trial: Trial, spec: Obj) -> bool:
    """Whether a new resource of the spec is as the edited one."""
    is_removed = not any(positions(spec, trial.leaf.path))
    return not trial.failure and not (is_removed and trial.leaf.path in STAYING)


def left_behind(edited: Evidence, new: Evidence) -> str:
    """Describe the first difference between an edited resource and a new one of the same spec; "" without any."""
    if bool(edited.explanation) != bool(new.explanation):
        return f"edited: {edited.explanation or 'carried out'}, new: {new.explanation or 'carried out'}"
    if edited.explanation:  # what cannot be carried out changes nothing, so the objects of the former spec stay
        return ""
    former, latter = ({_named(text): VARYING.sub("…", text) for text in each.objects} for each in (edited, new))
    for name in former.keys() - latter.keys():
        if not name.startswith(tuple(f"{kind} " for kind in KEPT)):
            return f"{name} is left of the former spec"
    for name, text in latter.items():
        if former.get(name) != text:
            same = len(list(itertools.takewhile(bool, map(operator.eq, former.get(name, ""), text))))
            part = slice(max(0, same - 60), same + 140)
            return f"{name}: …{former.get(name, 'missing')[part]}…, new: …{text[part]}…"
    return ""


def _named(text: str) -> str:
    """Return the kind and the name of an object."""
    kind, _, content = text.partition(" ")
    return f"{kind} {json.loads(content)['metadata']['name']}"


def _lines(evidence: Evidence) -> list[str]:
    return [*evidence.objects, str(evidence.state), " ".join(evidence.explanation)]
