"""What to do next about a RedisCluster: the chain reads as the whole story; each step is in the room of its subject."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from functools import partial

from operators.redis import status
from operators.redis.api.admission import validate
from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.observe import Observed
from operators.redis.settings import Settings
from operators.redis.steps import availability
from operators.redis.steps.availability import BUSY_SECONDS, POLL_SECONDS, await_nodes
from operators.redis.steps.bootstrap import create_cluster
from operators.redis.steps.configuration import ensure_config_map, require_config
from operators.redis.steps.credentials import renew_certificates, require_authentication, rotate_password
from operators.redis.steps.data_loss_recovery import recover_lost_slots
from operators.redis.steps.failover import replace_failed
from operators.redis.steps.joining import join_nodes
from operators.redis.steps.live_config import apply_config, label_serving_pods
from operators.redis.steps.membership_repair import forget_removed_nodes, record_nodes, update_addresses
from operators.redis.steps.open_slots import repair_open_slots
from operators.redis.steps.preconditions import await_agreement, await_redis, refuse_unknown_nodes
from operators.redis.steps.provisioning import (
    ensure_disruption_budget,
    ensure_secrets,
    ensure_services,
    ensure_stateful_set,
    grow_volumes,
    refuse_foreign_data,
    require_secrets,
)
from operators.redis.steps.rebalance import move_slots
from operators.redis.steps.replication import pair_replicas
from operators.redis.steps.rolling_update import (
    refuse_new_version,
    refuse_version,
    restart_broken,
    roll_outdated,
)
from operators.redis.steps.scale_down import delete_released_volumes
from operators.redis.steps.scaling import hand_over, recreate_surplus_replica
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import StepOf
from shared.status.phases import UPGRADING
from shared.status.verdict import Verdict
from shared.steps import planner
from shared.steps.planner import pause, reject_invalid_spec


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(planner.Planner[RedisCluster, Observed, Assessment, Settings]):
    """Plans with what the operator's options give."""

    def _steps(self) -> tuple[StepOf[RedisCluster, Assessment], ...]:
        settings = self.settings
        return (
            partial(pause, "pause"),  # maintenance: report only
            partial(reject_invalid_spec, validate),  # the same rules as at admission
            refuse_new_version,  # of an engine that is too old nothing is made
            refuse_foreign_data,  # another cluster's data is neither taken nor deleted
            partial(ensure_secrets, settings),  # users and certificates before pods
            require_secrets,  # what nodes cannot start without; those that run stay as they are
            require_config,  # the redis.conf that the spec names
            partial(ensure_services, settings),  # names before pods
            partial(ensure_config_map, settings),  # what nodes read at their start
            partial(ensure_disruption_budget, settings),  # how many a drain may take at once
            partial(ensure_stateful_set, settings),  # places for all that the spec asks for, and for who cannot go yet
            restart_broken,  # what a change broke altogether, the next one mends
            require_authentication,  # one of the operator's passwords is taken
            await_redis,  # an operator that is cut off touches nothing
            partial(rotate_password, settings),  # passwords change without a restart: both are valid meanwhile
            renew_certificates,  # and so do certificates
            apply_config,  # and settings, where the engine takes them
            create_cluster,  # once ever, of nodes that hold nothing
            refuse_unknown_nodes,  # members that are of no pod of ours are not ours to judge
            record_nodes,  # which node is on which disk, before anything rests on it
            update_addresses,  # by node id, at present addresses; before anything is forgotten
            replace_failed,  # a master whose data is gone: the replica that has most takes its place
            forget_removed_nodes,  # who never comes back, and holds nothing that counts
            join_nodes,  # new nodes that hold nothing
            recover_lost_slots,  # a master and all its replicas lost: waits, and a person decides
            await_agreement,  # from here on only while all agree who is who
            repair_open_slots,  # slots that were left on their way arrive
            label_serving_pods,  # to members in step
            pair_replicas,  # each master its replicas, on other hosts
            refuse_version,  # a version that the data would not survive
            roll_outdated,  # replicas first, a master after a replica took its place; held if none is in step
            hand_over,  # a master at a place that goes: a replica that stays takes over
            recreate_surplus_replica,  # more masters than empty nodes: a replica too many begins anew
            move_slots,  # the fewest that must
            delete_released_volumes,  # of places that were let go
            grow_volumes,  # where the class allows
            await_nodes,  # all there, in step, ready, and none left over
        )

    update_phase = UPGRADING
    poll_seconds = POLL_SECONDS
    busy_seconds = BUSY_SECONDS
    _assess = staticmethod(Assessment.of)
    _phase = staticmethod(availability.phase)
    _summary = staticmethod(availability.summary)
    _serves_all = staticmethod(availability.complete)

    def _status(self, resource: RedisCluster, seen: Assessment, now: datetime, phase: str, verdict: Verdict) -> Obj:
        return status.report(self.settings, resource, seen, now, phase, verdict)
