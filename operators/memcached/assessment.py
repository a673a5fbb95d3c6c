"""Facts that several steps need of a Memcached, computed once a round. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from operators.memcached.api.resource import Memcached
from operators.memcached.observe import Observed, Workload
from shared.kubernetes.pods import Pod
from shared.status.phases import CREATING, DEGRADED, FAILED, RUNNING, SCALING, UPDATING
from shared.status.reasons import Reason


@dataclass(frozen=True)
class Assessment:
    """What follows from a resource and what was observed of it.

    Attributes:
        resource: the Memcached.
        observed: what exists of it.
    """

    resource: Memcached
    observed: Observed

    @cached_property
    def summary(self) -> str:
        return f"{len(self.observed.workload.ready)} of {self.resource.spec.size} servers are ready"

    @cached_property
    def all_ready(self) -> bool:
        """Whether every server that the spec asks for is ready, and none is left over or outdated."""
        workload = self.observed.workload
        return len(workload.current) == len(workload.ready) == self.resource.spec.size and workload.outdated <= 0

    @cached_property
    def settled(self) -> bool:
        """Whether the servers are what the spec asks for."""
        # Others' edits raise the workload's generation too (an annotation does): the servers stay current.
        rolled_out = self.observed.workload.rolled_out
        return (rolled_out or (self.resource.phase == RUNNING and not self.resource.changed)) and self.all_ready

    @cached_property
    def serving_workload(self) -> Workload:
        """The workload for clients: during a switch the former one, until the new one is ready."""
        former = self.observed.former
        return self.observed.workload if former is None or self.all_ready else former

    @cached_property
    def servers_with_old_certificate(self) -> tuple[Pod, ...]:
        """Ready servers that were asked for their certificate and do not serve the Secret's."""
        served_certificates, fingerprint = self.observed.served_certificates, self.observed.secrets.fingerprint
        return tuple(
            pod
            for pod in self.observed.workload.ready
            if pod.name in served_certificates and served_certificates[pod.name].fingerprint != fingerprint
        )

    @cached_property
    def operation(self) -> Reason:
        """What a resource whose servers are not as the spec asks is doing.

        A movement keeps its name until it is over; servers missing without one are a loss.
        """
        resource, workload, before = self.resource, self.observed.workload, self.resource.phase
        if before in ("", CREATING):
            return CREATING
        if self.observed.former is not None or workload.outdated > 0 or before == UPDATING:
            return UPDATING
        if before == SCALING:
            return SCALING
        if before == FAILED:  # a person repaired what blocked it
            return UPDATING if workload.ready else CREATING
        if resource.changed:
            return UPDATING if len(workload.current) == resource.spec.size else SCALING
        return DEGRADED
