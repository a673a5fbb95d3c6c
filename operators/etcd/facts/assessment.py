"""Facts about an EtcdCluster that several steps need, computed once per reconcile. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from operators.etcd.api.catalogue import Hazard
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Endpoint
from operators.etcd.facts.lifecycles import MemberState, RestoreState, member_state, restore_state
from operators.etcd.membership.layout import Layout, layout
from operators.etcd.state.observed import Instance, Observed, endpoints
from shared.runtime.settings import Settings
from shared.steps.view import View

MIN_DEFRAGMENTED_BYTES = 100 * 2**20
"""Database size below which the schedule does not defragment, because there is little to gain.

Source: minDefragBytes of OpenShift's cluster-etcd-operator, pkg/operator/defragcontroller.
"""


@dataclass(frozen=True, kw_only=True)
class Assessment(Observed, View[EtcdCluster, Settings]):
    """Observed state of an EtcdCluster, and the facts that follow from it and the spec.

    Attributes:
        spec_applies: whether the spec can be applied; otherwise `resource` is the cluster as it runs
            (`running_cluster`), which is healed.
    """

    spec_applies: bool = True

    @cached_property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Endpoints for changes: the healthy voters, the leader first."""
        return endpoints(self.resource, self)

    @cached_property
    def layout(self) -> Layout:
        """Desired layout of the StatefulSet."""
        return layout(self.resource, self)

    @cached_property
    def member_states(self) -> Mapping[int, MemberState]:
        """State of each member, by number."""
        return {instance.number: member_state(self.resource, self, instance) for instance in self.instances}

    @cached_property
    def missing_number(self) -> int | None:
        """Lowest number below spec.size without a member or a kept volume; None if there is none."""
        taken = {instance.number for instance in self.instances if instance.member} | set(self.kept_numbers)
        return next((number for number in range(self.resource.spec.size) if number not in taken), None)

    def why_data_ends(self, instance: Instance) -> str:
        """Return why the data of a member is deleted with its pod; empty if it is not."""
        if self.resource.spec.storage.medium == "Memory":
            return "storage.medium is Memory"
        return "its claim is being deleted" if instance.volume_leaving else ""

    @property
    def kept_numbers(self) -> tuple[int, ...]:
        """Numbers whose volume is kept after a recovery, so that no member may use it."""
        return tuple(number for number, state in self.member_states.items() if state is MemberState.KEPT)

    @cached_property
    def replaced_numbers(self) -> tuple[int, ...]:
        """Numbers of recorded members that were removed from etcd and are to be added again.

        They are below the size, so that no scale-down removed them, and have no volume of another cluster, and none
        that is kept after a recovery.
        """
        recorded = {member.name for member in self.resource.recorded_members if member.stays}
        return tuple(
            instance.number
            for instance in self.instances
            if instance.member is None
            and instance.name in recorded
            and instance.number < self.resource.spec.size
            and instance.number not in self.kept_numbers
        )

    @cached_property
    def fragmented_voters(self) -> tuple[Instance, ...]:
        """Healthy voters with so much free space that the schedule defragments them, if their version can do so."""
        schedule = self.resource.spec.defragmentation
        if schedule is None:
            return ()
        return tuple(
            instance
            for instance in self.healthy_voters
            if instance.db_size >= MIN_DEFRAGMENTED_BYTES
            and instance.bug(Hazard.DEFRAGMENTING) is None
            and 100 * instance.db_free >= schedule.threshold * instance.db_size
        )

    @cached_property
    def restore_state(self) -> RestoreState:
        """Progress of the restore."""
        return restore_state(self.resource, self)
