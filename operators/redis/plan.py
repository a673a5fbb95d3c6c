"""What to do next about a RedisCluster, and what to say of it. Pure.

The chain reads as the whole story; each step is in the room of its subject.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from functools import partial

from operators.redis import status
from operators.redis.api.admission import validate
from operators.redis.api.resource import RedisCluster
from operators.redis.instance import Instance
from operators.redis.objects import names, stateful_set
from operators.redis.objects import pod as template
from operators.redis.objects.names import CONFIG_MARK
from operators.redis.observe import Observed
from operators.redis.settings import Settings
from operators.redis.slots.placement import violations
from operators.redis.steps import rebalance
from operators.redis.steps.bootstrap import form, why_away
from operators.redis.steps.credentials import keep_users, renew_certificates, require_entry
from operators.redis.steps.data_loss_recovery import recover_lost_slots
from operators.redis.steps.live_config import admit_clients, apply_config
from operators.redis.steps.membership_repair import (
    await_agreement,
    await_redis,
    forget_gone,
    meet_again,
    record_nodes,
    refuse_strangers,
    replace_failed,
)
from operators.redis.steps.provisioning import (
    config_digest,
    config_mark,
    grow_volumes,
    keep_config,
    keep_disruption_budget,
    keep_secrets,
    keep_services,
    refuse_foreign_data,
    require_config,
    require_secrets,
)
from operators.redis.steps.rebalance import mend_open_slots, move_slots
from operators.redis.steps.rolling_update import (
    outdated,
    permitted,
    refuse_new_version,
    refuse_version,
    restart_broken,
    roll_outdated,
)
from operators.redis.steps.rollout_markers import made_with
from operators.redis.steps.scale_down import drop_volumes, replicas
from operators.redis.steps.scaling import (
    hand_over,
    join_nodes,
    make_room_for_masters,
    masters,
    pair_replicas,
    staying,
)
from operators.redis.topology.view_conflicts import brief
from shared.kubernetes.kinds import STATEFUL_SET
from shared.runtime.plan import PASS, Apply, Plan, Step, StepOf, follow, refuse
from shared.status.deadlines import Deadline
from shared.status.verdict import Progress

CREATING, SCALING, UPGRADING, RUNNING, FAILED = "Creating", "Scaling", "Upgrading", "Running", "Failed"

POLL = 30.0
"""Seconds after which a cluster that is as wanted is looked at again: nobody tells who is a master, and who in step."""

MAX_LISTED_ITEMS = 5
"""Of what a cluster lacks, how much is told."""

BUSY = 2.0
"""The same for one that is not, where no step wished for anything else."""


@dataclasses.dataclass(frozen=True, slots=True)
class Planner:
    """Plans with what the operator's options give."""

    settings: Settings

    def plan(self, resource: RedisCluster, seen: Observed, now: datetime) -> Plan:
        """The chain's answer, with the status that tells it."""
        actions, verdict, requeue = follow(self._steps(), resource, seen, now)
        phase = _phase(resource, seen, verdict.progress)
        if verdict.done:
            verdict = dataclasses.replace(verdict, message=f"{_count(resource, seen)}.")
        elif verdict.progress is Progress.PAUSED:
            verdict = dataclasses.replace(verdict, ready=not _lacking(resource, seen))
        requeues = [requeue if requeue is not None else BUSY, POLL]
        if verdict.done or verdict.progress in (Progress.PAUSED, Progress.BLOCKED):
            requeues = [requeue if requeue is not None else POLL, POLL]
        if deadline := self._deadline(phase):
            verdict, left = deadline.judge(resource.obj, verdict, now)
            requeues += [left] if left is not None else []
        told = status.report(self.settings, resource, seen, now, phase, verdict)
        return Plan(actions, verdict, told, min(requeues))

    def _steps(self) -> tuple[StepOf[RedisCluster, Observed], ...]:
        settings = self.settings
        return (
            hold_while_paused,  # a person works on it: report, touch nothing
            refuse_contradictions,  # the same rules as at admission, for what came past it
            refuse_new_version,  # of an engine that is too old nothing is made
            refuse_foreign_data,  # another cluster's data is neither taken nor deleted
            partial(keep_secrets, settings),  # users and certificates before pods
            require_secrets,  # what nodes cannot start without; those that run stay as they are
            require_config,  # the redis.conf that the spec names
            partial(keep_services, settings),  # names before pods
            partial(keep_config, settings),  # what nodes read at their start
            partial(keep_disruption_budget, settings),  # how many a drain may take at once
            self.keep_stateful_set,  # places for all that the spec asks for, and for who cannot go yet
            restart_broken,  # what a change broke altogether, the next one mends
            require_entry,  # one of the operator's passwords is taken
            await_redis,  # an operator that is cut off touches nothing
            partial(keep_users, settings),  # passwords change without a restart: both are valid meanwhile
            renew_certificates,  # and so do certificates
            apply_config,  # and settings, where the engine takes them
            form,  # once ever, of nodes that hold nothing
            refuse_strangers,  # members that are of no pod of ours are not ours to judge
            record_nodes,  # which node is on which disk, before anything rests on it
            meet_again,  # by node id, at present addresses; before anything is forgotten
            replace_failed,  # a master whose data is gone: the replica that has most takes its place
            forget_gone,  # who never comes back, and holds nothing that counts
            join_nodes,  # new nodes that hold nothing
            recover_lost_slots,  # a master and all its replicas lost: waits, and a person decides
            await_agreement,  # from here on only while all agree who is who
            mend_open_slots,  # slots that were left on their way arrive
            admit_clients,  # to members in step
            pair_replicas,  # each master its replicas, on other hosts
            refuse_version,  # a version that the data would not survive
            roll_outdated,  # replicas first, a master after a replica took its place; held if none is in step
            hand_over,  # a master at a place that goes: a replica that stays takes over
            make_room_for_masters,  # more masters than empty nodes: a replica too many begins anew
            move_slots,  # the fewest that must
            drop_volumes,  # of places that were let go
            grow_volumes,  # where the class allows
            await_nodes,  # all there, in step, ready, and none left over
        )

    def keep_stateful_set(self, resource: RedisCluster, seen: Observed, now: datetime) -> Step:
        """The StatefulSet has a place for each node that the spec asks for, and for each that cannot go yet.

        While a version is refused it keeps the image that nodes have; so that healing goes on meanwhile.
        """
        own, runs = names.owner(resource, self.settings.operator), permitted(resource, seen)
        image = runs.image_reference(self.settings.image_repository)
        marks = made_with(seen.secrets) | {CONFIG_MARK: config_mark(runs, seen)}
        pod = template.pod(runs, own, image, marks, config_digest(runs, seen))
        made = stateful_set.stateful_set(runs, own, pod, replicas(resource, seen, now), seen.stateful_set)
        # An old wish could take nodes' pods away.
        return Step.do(Apply(STATEFUL_SET, made, unchanged=True))

    def _deadline(self, phase: str) -> Deadline | None:
        return {
            CREATING: Deadline("CreateTimeout", self.settings.create_timeout, "--create-timeout"),
            UPGRADING: Deadline("UpgradeTimeout", self.settings.upgrade_timeout, "--upgrade-timeout"),
        }.get(phase)


def hold_while_paused(resource: RedisCluster, _seen: Observed, _now: datetime) -> Step:
    """While spec.pause holds, nothing is changed."""
    if not resource.spec.pause:
        return PASS
    return Step.paused("Paused", "spec.pause is true: nothing is changed until it is false again.")


def refuse_contradictions(resource: RedisCluster, _seen: Observed, _now: datetime) -> Step:
    """A spec that contradicts itself changes nothing; what runs goes on."""
    return refuse(validate(resource))


def await_nodes(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """Every node is there, a member, in step and ready, and none is left over."""
    lacking = _lacking(resource, seen)
    if not lacking:
        return PASS
    failing = any(place.pod and place.pod.trouble and not place.ready for place in staying(resource, seen))
    phase = _phase(resource, seen, Progress.PROGRESSING)
    reason = "NodeFailing" if failing else "Degraded" if phase in (RUNNING, FAILED) else phase
    more = len(lacking) - MAX_LISTED_ITEMS
    message = " ".join(
        [f"{_count(resource, seen)}.", *lacking[:MAX_LISTED_ITEMS], *([f"And {more} more."] if more > 0 else [])]
    )
    return Step.progressing(reason, message, warning=reason in ("NodeFailing", "Degraded"), requeue=BUSY)


def _lacking(resource: RedisCluster, seen: Observed) -> list[str]:
    """What a cluster lacks to be as the spec asks, each in a sentence."""
    if not resource.formed:
        return ["It has yet to begin."]
    view = seen.view
    told = [f"Nobody serves {brief(view.unserved)}."] if view.unserved else []
    refusing = set() if view.unserved else {node.id for node in view.refusing}
    for place in staying(resource, seen):
        if place.said is None:
            told.append(why_away(place))
        elif not status.serves(seen, place) and not _is_idle(resource, seen, place):
            told.append(f"{place.name} is {'not in step' if place.ready else 'not ready'} yet.")
        elif place.id in refusing:  # as a master does for 2 s after its start
            told.append(f"{place.name} takes no commands yet: it says cluster_state:fail.")
        elif outdated(seen, place) and resource.spec.rolls:
            told.append(f"{place.name} still runs as before the change.")
    extra = [
        place.name for place in seen.places if place.number >= resource.spec.replicas and (place.pod or place.volume)
    ]
    return told + ([f"{', '.join(extra)}: let go, and not gone yet."] if extra else [])


def _is_idle(resource: RedisCluster, seen: Observed, place: Instance) -> bool:
    """Whether a master owns no slots because the spec gives it none (AssignReceive)."""
    by_hand = resource.spec.update_strategy.type == "AssignReceive"
    return by_hand and place.ready and place.id in masters(resource, seen)


def _count(resource: RedisCluster, seen: Observed) -> str:
    """How many there are of what is wanted; and who would go along with its master, for want of another host."""
    serving = sum(1 for place in staying(resource, seen) if status.serves(seen, place))
    pairs = {node.id: node.master for node in seen.view.members if node.is_replica}
    hosts = {node_id: place.host for node_id, place in seen.reachable.items()}
    beside = violations(pairs, hosts)
    told = f"{serving} of {resource.spec.replicas} nodes serve, {len(seen.view.masters)} of them masters"
    if not beside:
        return told
    names = ", ".join(seen.name_of(each.replica) for each in beside[:MAX_LISTED_ITEMS])
    return f"{told}; on the same host as their masters, for want of another: {names}"


def _phase(resource: RedisCluster, seen: Observed, progress: Progress) -> str:
    """What it is doing, in the seed's words; a movement keeps its name until it is over."""
    before = resource.phase
    if progress is Progress.DONE:
        return RUNNING
    if progress is Progress.PAUSED:
        return before
    if progress is Progress.BLOCKED or (resource.formed and seen.view.unserved and before != CREATING):
        return FAILED
    if not resource.formed or before == CREATING:
        return CREATING
    if before == UPGRADING or any(outdated(seen, place) for place in seen.places):
        return UPGRADING
    left_over = any(place.number >= resource.spec.replicas and place.pod for place in seen.places)
    resized = resource.changed and len(seen.view.members) != resource.spec.replicas
    moves = rebalance.is_moving(resource, seen)
    return SCALING if before == SCALING or left_over or resized or moves else RUNNING
