"""Facts about a Memcached that several steps need, computed once per reconcile. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from operators.memcached.api.resource import Memcached
from operators.memcached.client.errors import TimedOut
from operators.memcached.facts.pause import Filling, Pause, pause
from operators.memcached.objects.names import server_host, server_name
from operators.memcached.objects.pod import CONTAINER, mounted_users, speaks_ascii
from operators.memcached.state.observed import Observed, Workload
from shared.kubernetes.addresses import host_port
from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.kubernetes.pods import Pod, running_since
from shared.pki.stores import fingerprint
from shared.runtime.settings import Settings
from shared.status.phases import CREATING, DEGRADED, FAILED, RUNNING, SCALING, UPDATING
from shared.status.reasons import Reason
from shared.steps.view import View

HUNG_SECONDS = 15.0
"""Time for which a server has not responded after which it is reported as hung, as by a sidecar."""


@dataclass(frozen=True)
class Assessment(Observed, View[Memcached, Settings]):
    """The observed servers, and the facts that follow from them and from the spec."""

    @cached_property
    def summary(self) -> str:
        """Number of ready servers, as the start of a message, without a period."""
        return f"{len(self.workload.ready)} of {self.resource.spec.size} servers are ready"

    @cached_property
    def all_ready(self) -> bool:
        """Whether exactly `spec.size` servers run, all of them ready and none outdated."""
        workload = self.workload
        return len(workload.current) == len(workload.ready) == self.resource.spec.size and workload.outdated <= 0

    @property
    def pod_objs(self) -> tuple[Obj, ...]:
        """Pods of the servers, also those of a former workload."""
        return self.workload.joined(self.former).pod_objs

    @property
    def mounted(self) -> frozenset[str]:
        """Secrets that servers mount, or that the next ones will, also those of a former workload."""
        return self.workload.mounted | (self.former.mounted if self.former else frozenset())

    @cached_property
    def settled(self) -> bool:
        """Whether the servers match the spec."""
        # Edits by other clients, such as an annotation, also raise the workload's generation: the servers stay current.
        # After an edit by this operator, of what the spec or a Secret requires, they are not.
        is_current = self.resource.phase == RUNNING and not self.resource.changed and self.workload.starts_alike
        return (self.workload.rolled_out or is_current) and self.all_ready

    @cached_property
    def pause(self) -> Pause:
        """Return the pause of a rolling update after each server: the longest one, if none in progress may continue."""
        limit, workload = self.resource.spec.update_strategy.pause_seconds, self.workload
        if workload.outdated <= 0:  # by the last status: a changed pause must not hide the update in progress
            return Pause(limit)
        ages = {name: max(0.0, (self.now - since).total_seconds()) for name, since in workload.ready_since.items()}
        traffic = self.traffic
        servers = [Filling(pod.name, ages.get(pod.name, 0.0), traffic.get(pod.name)) for pod in workload.ready]
        return pause(limit, workload.pause, servers)

    @cached_property
    def serving_workload(self) -> Workload:
        """Workload that clients use: during a change of `spec.workload` the former one, until the new one is ready."""
        former = self.former
        return self.workload if former is None or self.all_ready else former

    @cached_property
    def servers(self) -> tuple[str, ...]:
        """Addresses of the servers, for clients.

        With a StatefulSet, a server that was ready once stays listed while it is not ready: the hash ring that clients
        build from the list must not change while a server is replaced.
        """
        workload = self.serving_workload
        if workload.kind == STATEFUL_SET:
            return tuple(self._listed.values())
        return tuple(sorted(host_port(address, port) for address, port in workload.ports.items()))

    @cached_property
    def _listed(self) -> Mapping[str, str]:
        """Address of each server of the StatefulSet that is or was ready, by pod, with the port on which it listens."""
        resource, workload = self.resource, self.serving_workload
        listed = {address.rpartition(":")[0]: address for address in resource.listed_servers}
        ports = {pod.name: workload.ports.get(pod.address) for pod in workload.ready}
        found = {}
        for number in range(resource.spec.size):
            name, host = server_name(resource, number), server_host(resource, number)
            if port := ports.get(name):
                found[name] = host_port(host, port)
            elif host in listed:
                found[name] = listed[host]
        return found

    @cached_property
    def client_port(self) -> int:
        """Port for clients of the Service: after a change of the spec the former one, while a server listens on it."""
        desired = self.resource.spec.container_port
        return next(iter(sorted(set(self.serving_workload.ports.values()) - {desired})), desired)

    @cached_property
    def unready_servers(self) -> tuple[str, ...]:
        """Names of listed servers that are not ready, by number."""
        if self.serving_workload.kind != STATEFUL_SET:
            return ()
        ready = {pod.name for pod in self.serving_workload.ready}
        return tuple(name for name in self._listed if name not in ready)

    @cached_property
    def hung_servers(self) -> tuple[str, ...]:
        """Names of ready servers that accepted the operator's connection, and did not respond."""
        found = self.unresponsive.items()
        return tuple(name for name, error in found if isinstance(error, TimedOut) and error.is_accepted)

    @property
    def proven_hangs(self) -> tuple[str, ...]:
        """Names of servers that hang for some time; none if all do: then the operator may be the cause."""
        hung = self.hung_servers
        is_proof = len(hung) == 1 or len(hung) < len(self.workload.joined(self.former).ready)
        return tuple(name for name in hung if is_proof and self.outages.get(name, 0.0) >= HUNG_SECONDS)

    @cached_property
    def servers_with_old_certificate(self) -> tuple[Pod, ...]:
        """Ready servers that were inspected and do not serve the certificate in the Secret, as far as is known."""
        served, current = self.served_certificates, self.secrets.fingerprint
        is_recorded = current == self.resource.certificate  # an inspection that failed has then another purpose
        return tuple(
            pod
            for pod in self.workload.ready
            if pod.name in served
            and served[pod.name].fingerprint != current
            and not (is_recorded and served[pod.name].error)
        )

    @cached_property
    def served_fingerprint(self) -> str:
        """Fingerprint of the certificate that all servers serve, or last served; empty without TLS."""
        secrets, is_complete = self.secrets, not self.workload.speaking(tls=False)
        if not (self.resource.spec.encrypts or secrets.pair):
            return ""
        is_current = self.all_ready and is_complete and not self.servers_with_old_certificate and secrets.pair
        return secrets.fingerprint if is_current else self.resource.certificate

    @cached_property
    def served_until(self) -> datetime | None:
        """Time at which the first certificate that servers serve ends; None without TLS, or if it is unknown."""
        secrets, served = self.secrets, self.served_certificates
        is_recorded = secrets.fingerprint == self.resource.certificate
        recorded = secrets.served.validity.ends if secrets.served and is_recorded else None
        reports = (served.get(pod.name) for pod in self.workload.ready)
        return min((end for each in reports if (end := each.ends if each else recorded)), default=None)

    @cached_property
    def successor_loads_from(self) -> datetime | None:
        """Time from which a server that loads its files trusts the CA that does not sign yet.

        None if there is no such CA, or if no server verifies clients.
        """
        secrets = self.secrets
        return secrets.trusted_from if secrets.successor and self.resource.spec.needs_client_certificate else None

    @cached_property
    def servers_without_successor(self) -> tuple[Pod, ...]:
        """Return ready servers that may not trust the CA yet that does not sign yet, or cannot be inspected."""
        since, served = self.successor_loads_from, self.served_certificates
        if since is None:
            return ()
        unable = {pod["metadata"]["name"]: pod for pod in self.pod_objs if not speaks_ascii(pod)}

        def has_loaded(pod: Pod) -> bool:
            if pod.name in unable:  # when it started
                started = running_since(unable[pod.name], CONTAINER)
                return started is not None and started >= since
            report = served.get(pod.name)
            return report is not None and not report.error and report.age <= (self.now - since).total_seconds()

        return tuple(pod for pod in self.workload.ready if not has_loaded(pod))

    @cached_property
    def informed(self) -> str:
        """Return the fingerprint of the CA that does not sign yet, if every server trusts it; else an empty string."""
        successor = self.secrets.successor
        if successor is None:
            return ""
        if self.resource.spec.needs_client_certificate and not (
            self.successor_loads_from is not None
            and self.all_ready
            and self.former is None
            and not self.servers_without_successor
        ):
            return ""
        return fingerprint(successor)

    @cached_property
    def servers_with_old_users(self) -> tuple[Pod, ...]:
        """Ready servers that were inspected and do not accept all users in the Secret."""
        accepted = self.accepted_users
        return tuple(pod for pod in self.workload.ready if pod.name in accepted and not accepted[pod.name].all)

    @cached_property
    def servers_with_unproven_users(self) -> tuple[Pod, ...]:
        """Ready servers that accept all users in the Secret, and may accept others."""
        accepted = self.accepted_users
        ready = self.workload.ready
        return tuple(pod for pod in ready if pod.name in accepted and accepted[pod.name].all > accepted[pod.name].only)

    @cached_property
    def accepts_users(self) -> bool:
        """Whether all servers accept the users in the Secret, by the last inspection or by the record of an earlier.

        A server without authentication does not: a password that a client sends becomes an item for everyone.
        """
        if self.workload.obj is None:
            return True  # those that are created will
        is_inspected = bool(self.accepted_users) and self.settled
        is_recorded = self.loaded_users == self.secrets.users_digest
        is_required = not self.workload.differing(mounted_users, required=True)  # also after a restart
        return is_required and (is_recorded or is_inspected) and not self.servers_with_old_users

    @cached_property
    def loaded_users(self) -> str:
        """Digest of the users file that all servers have loaded, or had last; empty without authentication."""
        if self.resource.spec.auth is None:
            return ""
        secrets = self.secrets
        is_current = self.settled and not (self.servers_with_old_users or self.servers_with_unproven_users)
        return secrets.users_digest if is_current and secrets.users else self.resource.users_digest

    @cached_property
    def operation(self) -> Reason:
        """Reason of the operation in progress: Creating, Scaling, Updating, or Degraded.

        An operation keeps its reason until it completes. Without an operation, missing servers mean Degraded.
        """
        resource, workload, before = self.resource, self.workload, self.resource.phase
        if before in ("", CREATING):
            return CREATING
        if self.former is not None or workload.outdated > 0 or before == UPDATING:
            return UPDATING
        if before == SCALING:
            return SCALING
        if before == FAILED:  # the user resolved the cause of the failure
            return UPDATING if workload.ready else CREATING
        if resource.changed:
            return UPDATING if len(workload.current) == resource.spec.size else SCALING
        return DEGRADED
