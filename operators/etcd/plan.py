"""Plan of an EtcdCluster: the steps in order of precedence; each step is in the module of its subject.

Nothing that is wrong with the spec stops the steps that heal (`_heal`): snapshots, certificates, members, free space.
"""

from __future__ import annotations

import dataclasses

from operators.etcd.api.resource import EtcdCluster, exposure, validate
from operators.etcd.database import DATABASE, HIBERNATION
from operators.etcd.facts.assessment import Assessment
from operators.etcd.report import health, status
from operators.etcd.running_cluster import as_it_runs
from operators.etcd.state.observed import Observed
from operators.etcd.steps import availability
from operators.etcd.steps.adoption import adopt_volumes
from operators.etcd.steps.availability import (
    BUSY_SECONDS,
    POLL_SECONDS,
    await_etcd,
    await_members,
    await_planned_restart,
    require_backup_destination,
)
from operators.etcd.steps.backup_schedule import schedule_backups
from operators.etcd.steps.corruption import replace_corrupt_member
from operators.etcd.steps.credentials import (
    ensure_auth,
    ensure_client_user,
    provide_client_password,
    provide_password,
    require_access,
    store_password,
)
from operators.etcd.steps.former_data import delete_former_data, report_kept_volumes
from operators.etcd.steps.guards import refuse_foreign_volumes, refuse_stray_pods, refuse_unknown_members
from operators.etcd.steps.lost_authority import restart_distrusting
from operators.etcd.steps.maintenance import defragment, relieve_full_disk
from operators.etcd.steps.member_pods import admit_clients, close_bootstrap, readmit_clients
from operators.etcd.steps.promotion import promote_learner
from operators.etcd.steps.provisioning import (
    create_stateful_set,
    ensure_stateful_set,
    provided_versions,
    require_secrets,
)
from operators.etcd.steps.quorum_recovery import clear_marks, recover_quorum
from operators.etcd.steps.recording import record_cluster
from operators.etcd.steps.removal import delete_removed_members, replace_lost_member
from operators.etcd.steps.restore import restore_data
from operators.etcd.steps.rolling_update import (
    restart_broken,
    restart_unstarted_learner,
    roll_outdated_pods,
)
from operators.etcd.steps.scaling import grow_by_one, readd_replaced_member, shrink_by_one
from operators.etcd.steps.version_change import change_downgrade, refuse_unsafe_upgrade
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import StepOf
from shared.runtime.settings import Settings
from shared.status.reasons import REPLACING_CERTIFICATES, RESIZING
from shared.status.verdict import Verdict
from shared.steps import planner
from shared.steps.database import report_ending_certificates, report_terminating_claims, require_valid_certificates
from shared.steps.hibernation import hold, keep_stopped
from shared.steps.planner import enforce_policy, pause, reject_invalid_spec


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(planner.Planner[EtcdCluster, Observed, Assessment, Settings]):
    """Plans an EtcdCluster with the settings of the operator."""

    def _steps(self) -> tuple[StepOf[Assessment], ...]:
        return (
            pause("paused", repairs=True),  # members are still repaired
            reject_invalid_spec(validate),  # the same rules as at admission
            enforce_policy(exposure),  # of the platform
            adopt_volumes,  # volumes of a deleted resource of this name, as the spec requests
            refuse_foreign_volumes,  # data of another owner is neither used nor deleted
            DATABASE.refuse_smaller_volumes,  # volumes cannot shrink
            DATABASE.claim_name,  # before any Secret: another resource may have it
            DATABASE.refuse_unproven_secrets,  # content that the operator did not write
            DATABASE.keep_secret_owners,  # labels and owner references, which follow from the spec
            provide_password,  # a generated one, if the spec names no Secret
            provide_client_password,  # of the user for applications
            DATABASE.create_secrets,  # certificates before pods
            require_secrets,  # Secrets that members need to start; running ones are not changed
            DATABASE.ensure_services,  # DNS names before pods: members find each other by them
            DATABASE.ensure_disruption_budget,  # number of evictions at once
            DATABASE.ensure_network_policy,  # access to the ports, before pods exist
            refuse_stray_pods,  # a pod of another owner that may use the seed's volume
            restore_data,  # initial data, before the cluster starts
            create_stateful_set,  # the bootstrap permission of the seed
            DATABASE.expand_volumes,  # claims only: a full member or a recovery may wait for space
            DATABASE.modify_volumes,  # claims only: VolumeAttributesClass
            refuse_unsafe_upgrade,  # a version change that the data would not survive
        )

    def _heal(self) -> tuple[tuple[StepOf[Assessment], ...], ...]:
        return (
            (DATABASE.admit_operator,),  # to pods that it may have to repair
            (DATABASE.ensure_connection,),  # a copy for clients, on which no member depends
            (ensure_client_user,),  # before root's password changes, with which it is set
            (schedule_backups,),  # regardless of any other problem
            (DATABASE.proven(DATABASE.renew_secrets),),  # certificates, before they expire
            (DATABASE.proven(store_password),),  # the operator is never locked out
            (readmit_clients,),  # to recreated pods of voters, also while the next chain stops
            (
                record_cluster,  # cluster id and volumes, before anything depends on them
                clear_marks,  # of a recovery that was withdrawn
                DATABASE.mark_volumes,  # which member's data a volume has: the record outlives the resource
                refuse_stray_pods,  # while no quorum answers: one may use the volume of a member
                ensure_stateful_set,  # a replica per member, and the permission to join
                close_bootstrap,  # a started member must not bootstrap again
                keep_stopped,  # members of a hibernating cluster are not missing
                restart_broken,  # repair a change that broke the whole cluster
                restart_distrusting,  # members whose certificate authority was deleted or replaced
                require_access,  # etcd accepts the operator's credentials
                await_etcd,  # a disconnected operator changes nothing
                await_planned_restart,  # an update that restarts one of two is no lost quorum
                recover_quorum,  # a permanent loss needs a confirmation
                refuse_unknown_members,  # members without a pod of this cluster
                report_kept_volumes,  # data that a recovery did not use
                delete_former_data,  # once a user released it
                delete_removed_members,  # first the pod, then the volume
                relieve_full_disk,  # NOSPACE: compact, defragment, disarm; blocks other changes
                replace_corrupt_member,  # data differs from the majority: removed, then added again
                replace_lost_member,  # volume lost: removed, then added again as a learner
                ensure_auth,  # authentication, before the first client connects
                admit_clients,  # route clients to every voter, and to no other pod
                restart_unstarted_learner,  # a learner's pod with outdated bootstrap flags
                promote_learner,  # or remove it after a timeout
                readd_replaced_member,  # while the spec cannot be applied; otherwise `grow_by_one`
            ),
        )

    def _change(self) -> tuple[StepOf[Assessment], ...]:
        return (
            require_valid_certificates,  # a restarted member could not connect to the others
            change_downgrade,  # enabled in etcd before any member runs an earlier version
            DATABASE.resize,  # CPU and memory, without a restart
            roll_outdated_pods,  # broken pods first, then followers, the leader last
            shrink_by_one,  # hand over, remove the member, then pod and volume
            grow_by_one,  # add a learner, then its pod
            DATABASE.grow_volumes,  # if the storage class allows it
            defragment,  # on schedule
            await_members,  # until every member is a healthy, current voter
            require_backup_destination,  # of the schedule, before a snapshot is due
            report_terminating_claims,  # which end with their pods
            report_ending_certificates,  # of a complete cluster
        )

    serving_reasons = frozenset({REPLACING_CERTIFICATES, RESIZING})
    poll_seconds = POLL_SECONDS
    busy_seconds = BUSY_SECONDS
    hibernation = HIBERNATION
    _view = staticmethod(lambda *given: hold(Assessment.of(*given)))
    _as_it_runs = staticmethod(as_it_runs)
    _phase = staticmethod(availability.phase)
    _summary = staticmethod(availability.summary)
    _serves_all = staticmethod(availability.complete)
    _health = staticmethod(health.assess)
    _work = staticmethod(status.work)
    _secret_versions = staticmethod(provided_versions)
    _own_secrets = staticmethod(DATABASE.own_secrets)

    @staticmethod
    def _status(seen: Assessment, phase: str, _verdict: Verdict, /) -> Obj:
        return status.report(seen, phase)
