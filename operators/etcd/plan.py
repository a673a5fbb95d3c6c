"""What to do next about an EtcdCluster: the chain reads as the whole story; each step is in the room of its subject."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from functools import partial

from operators.etcd import status
from operators.etcd.api.resource import EtcdCluster, validate
from operators.etcd.assessment import Assessment
from operators.etcd.backup.pods import recovery_pod
from operators.etcd.observe import Observed
from operators.etcd.steps import availability
from operators.etcd.steps.availability import BUSY_SECONDS, POLL_SECONDS, await_etcd, await_members
from operators.etcd.steps.backup_schedule import schedule_backups
from operators.etcd.steps.corruption import replace_corrupt_member
from operators.etcd.steps.credentials import ensure_auth, require_access
from operators.etcd.steps.guards import refuse_foreign_volumes, refuse_unknown_members
from operators.etcd.steps.maintenance import defragment, relieve_full_disk
from operators.etcd.steps.member_pods import admit_clients, close_bootstrap
from operators.etcd.steps.promotion import promote_learner
from operators.etcd.steps.provisioning import (
    ensure_disruption_budget,
    ensure_secrets,
    ensure_services,
    ensure_stateful_set,
    grow_volumes,
    require_secrets,
)
from operators.etcd.steps.quorum_recovery import recover_quorum
from operators.etcd.steps.recording import record_cluster
from operators.etcd.steps.removal import delete_removed_members, replace_lost_member
from operators.etcd.steps.restore import restore_data
from operators.etcd.steps.rolling_update import (
    refuse_unsafe_upgrade,
    restart_broken,
    restart_unstarted_learner,
    roll_outdated_pods,
)
from operators.etcd.steps.scaling import grow_by_one, shrink_by_one
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import StepOf
from shared.runtime.settings import Settings
from shared.status.verdict import Verdict
from shared.steps import planner
from shared.steps.planner import pause, reject_invalid_spec


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(planner.Planner[EtcdCluster, Observed, Assessment, Settings]):
    """Plans with what the operator's options give."""

    def _steps(self) -> tuple[StepOf[EtcdCluster, Assessment], ...]:
        settings = self.settings
        return (
            partial(pause, "paused"),  # maintenance: report only
            partial(reject_invalid_spec, validate),  # the same rules as at admission
            refuse_foreign_volumes,  # another cluster's data is neither taken nor deleted
            partial(ensure_secrets, settings),  # certificates before pods, and new ones before the old ones end
            require_secrets,  # what members cannot start without; those that run stay as they are
            partial(ensure_services, settings),  # names before pods: members find each other by them
            partial(ensure_disruption_budget, settings),  # how many a drain may take at once
            partial(restore_data, settings),  # what it is to begin with, before it begins
            record_cluster,  # that it has begun, and where everybody's data is: before anything rests on it
            partial(schedule_backups, settings),  # by the clock, and whatever else is held or stalled
            partial(ensure_stateful_set, settings),  # a replica for each member, and what an empty disk may start
            close_bootstrap,  # a pod that has begun may not do so twice
            restart_broken,  # what a change broke altogether, the next one mends
            require_access,  # the operator's password is taken
            await_etcd,  # an operator that is cut off touches nothing
            partial(recover_quorum, partial(recovery_pod, settings)),  # waits; if lost for good, a person decides
            refuse_unknown_members,  # members that somebody else added are not ours to judge
            delete_removed_members,  # whoever is no member any more: its pod, then its volume
            relieve_full_disk,  # NOSPACE: compact, defragment, disarm; a full cluster takes no other change
            replace_corrupt_member,  # whose data differs from the others'
            replace_lost_member,  # whose volume is gone: removed, and back as a learner
            ensure_auth,  # users are asked for, or not, before the first client comes
            admit_clients,  # to every voter
            restart_unstarted_learner,  # a learner's pod that cannot start as it was made
            partial(promote_learner, patience=settings.create_timeout),  # caught up: a vote; never: out again
            refuse_unsafe_upgrade,  # a version that the data would not survive
            roll_outdated_pods,  # broken first, followers next, the leader last
            shrink_by_one,  # leadership away, the member out, then pod and volume
            grow_by_one,  # a learner first, then its pod
            grow_volumes,  # where the class allows
            defragment,  # by the clock
            await_members,  # every member a healthy, current voter, and as many as wanted
        )

    poll_seconds = POLL_SECONDS
    busy_seconds = BUSY_SECONDS
    _assess = staticmethod(Assessment.of)
    _phase = staticmethod(availability.phase)
    _summary = staticmethod(availability.summary)
    _serves_all = staticmethod(availability.complete)

    def _status(self, resource: EtcdCluster, facts: Assessment, now: datetime, phase: str, _verdict: Verdict) -> Obj:
        return status.report(self.settings, resource, facts, now, phase)
