"""The plan of a RedisCluster: the steps in order; each step is in the module of its subject.

Nothing that is wrong with the spec stops the steps that heal (`_heal`): addresses, membership, failover, credentials.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from operators.redis.api.admission import exposure, validate
from operators.redis.api.resource import RedisCluster
from operators.redis.database import DATABASE, HIBERNATION
from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import SPREADING
from operators.redis.report import health, status
from operators.redis.running_cluster import as_it_runs, keep_replicas
from operators.redis.security import secrets
from operators.redis.settings import Settings
from operators.redis.state.observed import Observed
from operators.redis.steps import availability
from operators.redis.steps.adoption import adopt_volumes
from operators.redis.steps.availability import BUSY_SECONDS, POLL_SECONDS, await_nodes, report_refused_writes
from operators.redis.steps.bootstrap import create_cluster
from operators.redis.steps.configuration import ensure_config_map, require_config
from operators.redis.steps.connection_secret import ensure_user_secrets
from operators.redis.steps.credentials import renew_certificates, require_authentication, rotate_password
from operators.redis.steps.data_loss_recovery import recover_lost_slots
from operators.redis.steps.deleted_pods import stop_servers
from operators.redis.steps.fresh_identity import prepare_restarts
from operators.redis.steps.handover import hand_over_deleted
from operators.redis.steps.hibernation import hold
from operators.redis.steps.joining import join_nodes, refuse_full_nodes
from operators.redis.steps.live_config import (
    apply_config,
    label_serving_pods,
    record_persistence,
    report_refused_config,
)
from operators.redis.steps.lost_authority import restart_distrusting
from operators.redis.steps.membership_repair import forget_removed_nodes, record_nodes, update_addresses
from operators.redis.steps.open_slots import release_slots, reopen_slots, repair_open_slots
from operators.redis.steps.placement import improve_placement
from operators.redis.steps.preconditions import (
    await_agreement,
    await_redis,
    refuse_unknown_nodes,
    refuse_unknown_owners,
)
from operators.redis.steps.provisioning import (
    ensure_stateful_set,
    provide_password,
    refuse_foreign_data,
    require_secrets,
)
from operators.redis.steps.readoption import take_back_slots
from operators.redis.steps.rebalance import move_slots
from operators.redis.steps.replication import pair_empty_nodes, pair_replicas
from operators.redis.steps.replication_link import connect_replicas
from operators.redis.steps.role_conflict import repair_role_conflict
from operators.redis.steps.rolling_update import (
    refuse_new_version,
    refuse_version,
    restart_broken,
    roll_outdated,
)
from operators.redis.steps.scale_down import delete_released_volumes
from operators.redis.steps.scaling import hand_over, recreate_surplus_replica
from operators.redis.steps.spec_users import report_refused_users
from operators.redis.steps.successors import replace_primaries
from operators.redis.steps.unowned_slots import assign_unowned_slots
from shared.runtime.plan import StepOf
from shared.status.phases import UPGRADING
from shared.status.reasons import RESIZING
from shared.steps import planner
from shared.steps.database import report_ending_certificates, report_terminating_claims, require_valid_certificates
from shared.steps.hibernation import keep_stopped
from shared.steps.planner import enforce_policy, pause, reject_invalid_spec


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(planner.Planner[RedisCluster, Observed, Assessment, Settings]):
    """The planner of the redis operator, with its settings."""

    def _steps(self) -> tuple[StepOf[Assessment], ...]:
        return (
            pause("pause", repairs=True),  # nodes are still repaired
            reject_invalid_spec(validate),  # the same rules as at admission
            enforce_policy(exposure),  # of the platform
            refuse_new_version,  # create nothing with an unsupported engine version
            adopt_volumes,  # volumes of a deleted resource of this name, as the spec requests
            refuse_foreign_data,  # neither use nor delete the data of another owner
            DATABASE.refuse_smaller_volumes,  # volumes cannot shrink
            DATABASE.claim_name,  # before any Secret: another resource may have it
            DATABASE.refuse_unproven_secrets,  # content that the operator did not write
            DATABASE.keep_secret_owners,  # labels and owner references, which follow from the spec
            provide_password,  # a generated one, if the spec names no Secret
            DATABASE.create_secrets,  # users and certificates before pods
            require_secrets,  # nodes cannot start without them; running nodes are not changed
            require_config,  # the redis.conf that the spec names
            DATABASE.ensure_services,  # names before pods
            ensure_config_map,  # read by nodes when they start
            DATABASE.ensure_disruption_budget,  # limits simultaneous evictions
            DATABASE.ensure_network_policy,  # access to the ports, before pods exist
            ensure_stateful_set,  # keeps instances that cannot be removed yet
            DATABASE.expand_volumes,  # claims only: a node with a full volume may wait for space
            DATABASE.modify_volumes,  # claims only: VolumeAttributesClass
            restart_broken,  # replace pods that a faulty change broke
        )

    def _heal(self) -> tuple[tuple[StepOf[Assessment], ...], ...]:
        return (
            (DATABASE.admit_operator,),  # to pods that it may have to repair
            (hand_over_deleted,),  # primaries whose pods are being deleted, while their servers still run
            (stop_servers,),  # of deleted pods that got no SIGTERM: an update waits for them
            (connect_replicas,),  # to their primaries: a replica elsewhere is no copy, and may copy foreign data
            (DATABASE.ensure_connection,),  # a copy for clients, on which no node depends
            (ensure_user_secrets,),  # the same for each user of the spec
            (record_persistence,),  # on volume claims: before redis.conf and servers drop a file
            (apply_config,),  # settings that the engine can change live, also if a person changed them
            (
                DATABASE.proven(DATABASE.renew_secrets),  # users and certificates, once created
                require_authentication,  # nodes accept a password of the operator
                rotate_password,  # without a restart: both passwords are valid in between
                renew_certificates,  # without a restart
            ),
            (refuse_unknown_nodes,),  # no changes while a member belongs to no pod; only some repairs depend on it
            (refuse_full_nodes,),  # nor while a node that should join has keys
            (label_serving_pods,),  # add synced members to the client Service
            (
                keep_stopped,  # nodes of a hibernating cluster are not missing
                restart_distrusting,  # nodes whose certificate authority was deleted or replaced
                await_redis,  # change nothing while no node is reachable
                refuse_unknown_owners,  # the cluster may be merging with another one
                record_nodes,  # which node is on which volume, before anything depends on it
                update_addresses,  # CLUSTER MEET at current addresses, before any CLUSTER FORGET
                reopen_slots,  # marks that a failover lost: clients need them to find moved keys
                replace_primaries,  # by their best replicas, if they lost data, or resumed with an old snapshot
                take_back_slots,  # nodes that lost their nodes.conf; before their former ids are forgotten
                forget_removed_nodes,  # CLUSTER FORGET nodes that never return and hold no data
                prepare_restarts,  # a node without persistence never resumes as an empty primary
                join_nodes,  # empty nodes only
                repair_role_conflict,  # a replica that takes itself for a primary
                assign_unowned_slots,  # each node takes another one for the owner
                recover_lost_slots,  # a primary and all its replicas lost: a user decides
                release_slots,  # marks that no recorded migration set: an importing node ignores claims of others
                await_agreement,  # later steps need one cluster view
                repair_open_slots,  # finish interrupted migrations
                pair_empty_nodes,  # a replica for each primary
            ),
        )

    def _change(self) -> tuple[StepOf[Assessment], ...]:
        return (
            require_valid_certificates,  # a restarted node could not connect to the others
            create_cluster,  # once, from empty nodes only
            improve_placement,  # over hosts and zones, while everything is in sync
            pair_replicas,  # an equal number for each primary
            refuse_version,  # the engine could not read the data
            DATABASE.resize,  # CPU, without a restart
            roll_outdated,  # replicas first; a primary after its failover
            hand_over,  # fail over primaries on instances that are removed
            recreate_surplus_replica,  # more primaries needed than nodes are empty
            move_slots,  # the minimum number of moves
            delete_released_volumes,  # volumes of removed instances
            DATABASE.grow_volumes,  # if the storage class allows it
            DATABASE.mark_volumes,  # which node's data a volume has: the record outlives the resource
            report_terminating_claims,  # pods with the only copy of data must not stop; stops nothing
            report_refused_config,  # nor do these settings
            report_refused_users,  # nor do users: rules that servers refuse, or a missing Secret
            report_refused_writes,  # a full volume: stops nothing
            await_nodes,  # every node is a member, synced and ready
            report_ending_certificates,  # of a complete cluster
        )

    update_phase = UPGRADING
    serving_reasons = frozenset({SPREADING, RESIZING})
    poll_seconds = POLL_SECONDS
    busy_seconds = BUSY_SECONDS
    hibernation = HIBERNATION
    _view = staticmethod(lambda *given: keep_replicas(hold(Assessment.of(*given))))
    _as_it_runs = staticmethod(as_it_runs)
    _phase = staticmethod(availability.phase)
    _summary = staticmethod(availability.summary)
    _serves_all = staticmethod(availability.complete)
    _status = staticmethod(status.report)
    _health = staticmethod(health.assess)
    _work = staticmethod(status.work)
    _own_secrets = staticmethod(DATABASE.own_secrets)

    @staticmethod
    def _secret_versions(seen: Assessment, /) -> Mapping[str, str | None]:
        return secrets.provided_versions(seen.resource, seen.secrets)
