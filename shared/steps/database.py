"""Steps that are the same for all databases, over one table of what differs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from shared.api.podspec import PodDisruptionBudget
from shared.api.spec import CustomResource
from shared.kubernetes.accessors import annotation, is_terminating
from shared.kubernetes.kinds import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, SERVICE, Obj
from shared.kubernetes.objects import service_port
from shared.kubernetes.ownership import Owner
from shared.pki.validity import Validity
from shared.runtime.plan import PASS, Apply, Patch, Step, StepOf, WriteSecret
from shared.runtime.settings import Settings
from shared.status.health import listed
from shared.status.reasons import VOLUMES_TERMINATING
from shared.steps import certificates, claims, connection, network_policy, provisioning
from shared.steps.connection import Connection, ConnectionSecret
from shared.steps.instance import Instance
from shared.steps.network_policy import Access
from shared.steps.own_secrets import OwnSecrets
from shared.steps.provisioning import Volumes
from shared.steps.resize import resizable, resize_pods


class Secrets(Protocol):
    """The Secrets of a database, as far as all databases have them."""

    @property
    def found(self) -> Mapping[str, Obj | None]: ...

    @property
    def unproven(self) -> tuple[Obj, ...]: ...

    @property
    def validity(self) -> Mapping[str, Validity]: ...


class Served(Protocol):
    """A view of a database with clients (`shared.steps.view`)."""

    @property
    def resource(self) -> CustomResource[Any]: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def now(self) -> datetime: ...

    @property
    def secrets(self) -> Secrets: ...

    @property
    def disruption_budget(self) -> Obj | None: ...

    @property
    def network_policy(self) -> Obj | None: ...

    @property
    def connection(self) -> ConnectionSecret | None: ...


class Stored(Served, Protocol):
    """A view of a database whose servers have volumes."""

    @property
    def stateful_set(self) -> Obj | None: ...

    @property
    def instances(self) -> tuple[Instance, ...]: ...

    @property
    def hibernation(self) -> Mapping[str, int]: ...


class Storage(Protocol):
    """The volumes that a spec requests."""

    @property
    def size(self) -> int | str: ...

    @property
    def volume_attributes_class_name(self) -> str | None: ...


HIBERNATION = "platform.ydzs.io/hibernation"  # annotation of a StatefulSet, which must not be recreated meanwhile

Seen = TypeVar("Seen", bound=Served)
SeenStored = TypeVar("SeenStored", bound=Stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database(Generic[Seen]):
    """A table of the differences between databases with clients, and the steps that they share.

    Attributes:
        component: component label of its objects.
        owner: returns a resource as the owner of its objects, which the operator of a name manages.
        ports: returns the ports of the servers by name; the first one is that of clients.
        before_ready: returns whether a server has a DNS name before it is ready.
        serving: labels of the servers that accept clients, in addition to those of all, for a Service with one address
            for clients; without any, clients need to know each server, and there is no such Service.
        budget: returns the limit of evictions; None for none.
        counted: labels of the pods that the limit counts, in addition to those of all servers.
        evicts_unready: returns whether servers that are not ready may be evicted beyond the limit.
        limits: returns what the budget has instead, by the observed data of the servers.
        access: returns the ports of the servers, and the peers that may connect to them.
        connects: returns what clients need to connect.
        secrets: returns the names of the Secrets that the operator makes, without the connection Secret.
        lasting: returns those that outlive the resource although its other objects do not.
        spare: returns those that the spec no longer needs, by name, and their keys that the operator wrote.
        of_users: returns what clients need to connect as each further user, and its Secret.
        publishes: returns whether the connection Secret may change now.
    """

    component: str
    owner: Callable[[Any, str], Owner]
    ports: Callable[[Seen], Mapping[str, int]]
    budget: Callable[[Any], PodDisruptionBudget | None]
    access: Callable[[Seen, Owner], Access]
    connects: Callable[[Seen], Connection]
    secrets: Callable[[Any], Collection[str]]
    before_ready: Callable[[Seen], bool] = lambda _: True
    serving: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    evicts_unready: Callable[[Any], bool] = lambda _: True
    limits: Callable[[Seen], Obj] = lambda _: {}
    lasting: Callable[[Seen], frozenset[str]] = lambda _: frozenset()
    spare: Callable[[Seen], Mapping[str, Collection[str]]] = lambda _: {}
    of_users: Callable[[Seen], Sequence[tuple[Connection, ConnectionSecret]]] = lambda _: ()
    publishes: Callable[[Seen], bool] = lambda _: True

    def own(self, seen: Seen) -> Owner:
        """Return the resource as the owner of its objects."""
        return self.owner(seen.resource, seen.settings.operator)

    def own_secrets(self, seen: Seen) -> OwnSecrets:
        """Return the Secrets that the operator makes."""
        return OwnSecrets(
            own=self.own(seen),
            component=self.component,
            resource=seen.resource.obj,
            names=self.secrets(seen.resource),
            found=seen.secrets.found,
            unproven=seen.secrets.unproven,
            connection=self.connects(seen),
            published=seen.connection,
            of_users=self.of_users(seen),
            lasting=self.lasting(seen),
            spare=self.spare(seen),
        )

    def refuse_unproven_secrets(self, seen: Seen) -> Step:
        """Use no content of unknown origin (`OwnSecrets.refuse`)."""
        return self.own_secrets(seen).refuse()

    def keep_secret_owners(self, seen: Seen) -> Step:
        """Keep the labels and owners of the Secrets (`OwnSecrets.keep_owners`)."""
        return self.own_secrets(seen).keep_owners()

    def empty_spare_secrets(self, seen: Seen) -> Step:
        """Keep no secret content that nothing uses (`OwnSecrets.empty_spare`)."""
        return self.own_secrets(seen).empty_spare()

    def proven(self, step: StepOf[Seen]) -> StepOf[Seen]:
        """Return a step that repairs; if it would write to a Secret of unknown origin, what to do about that instead.

        The step finds such a Secret missing. The executor would refuse to create it, after a request.
        """

        def repair_proven(seen: Seen) -> Step:
            repair = step(seen)
            written = {action.obj["metadata"]["name"] for action in repair.actions if isinstance(action, WriteSecret)}
            if not written:  # as in nearly every pass
                return repair
            own = self.own_secrets(seen)
            return repair if written.isdisjoint(each["metadata"]["name"] for each in own.unproven) else own.refuse()

        return repair_proven

    def claim_name(self, seen: Seen) -> Step:
        """Create the Service with the name of the resource before anything that clients of another one may find."""
        own = self.own(seen)
        return connection.claim_name(own, self.headless_service(seen, own), seen.connection)

    def ensure_services(self, seen: Seen) -> Step:
        """Keep the Service with the DNS names of the servers, and the one with one address for clients."""
        own = self.own(seen)
        made = [self.headless_service(seen, own), *([self._client_service(seen, own)] if self.serving else ())]
        return Step.do(*(Apply(SERVICE, service) for service in made))

    def headless_service(self, seen: Seen, own: Owner) -> Obj:
        """Return the headless Service, which has the name of the resource."""
        spec: Obj = {"clusterIP": "None"} | ({"publishNotReadyAddresses": True} if self.before_ready(seen) else {})
        spec |= {
            "selector": own.selector(self.component),
            "ports": [service_port(*port) for port in self.ports(seen).items()],
        }
        return own.object(SERVICE, own.name, component=self.component, spec=spec)

    def _client_service(self, seen: Seen, own: Owner) -> Obj:
        port = next(iter(self.ports(seen).items()))
        spec = {"selector": {**own.selector(self.component), **self.serving}, "ports": [service_port(*port)]}
        return own.object(SERVICE, f"{own.name}-client", component=self.component, spec=spec)

    def ensure_connection(self, seen: Seen) -> Step:
        """Keep the connection Secret, if the operator may write Secrets that servers do not need."""
        if not seen.settings.write_secrets or not self.publishes(seen):
            return PASS
        own, connects, is_requested = self.own(seen), self.connects(seen), seen.resource.spec.connection_secret
        return connection.keep_connection(own, self.component, connects, seen.connection, is_requested=is_requested)

    def ensure_disruption_budget(self, seen: Seen) -> Step:
        """Keep the PodDisruptionBudget of the spec, or its default; delete one that the spec disables."""
        own = self.own(seen)
        desired = self.disruption_budget(seen.resource, own)
        if desired is not None:
            desired["spec"] |= self.limits(seen)
        return provisioning.keep_disruption_budget(own, desired, seen.disruption_budget)

    def disruption_budget(self, resource: CustomResource[Any], own: Owner) -> Obj | None:
        """Return the PodDisruptionBudget of the servers; None without one.

        A pod that is not ready serves no client and may be evicted, but not if data that must last is deleted with it.
        """
        limit = self.budget(resource)
        if limit is None:
            return None
        spec = limit.disruption_budget({**own.selector(self.component), **self.counted})
        spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow" if self.evicts_unready(resource) else "IfHealthyBudget"
        return own.object(DISRUPTION_BUDGET, own.name, component=self.component, spec=spec)

    def ensure_network_policy(self, seen: Seen) -> Step:
        """Keep the NetworkPolicy of the servers, or delete it if the spec disables it."""
        access = self.access(seen, self.own(seen))
        return network_policy.keep_network_policy(access, seen.settings.operator_peers, seen.network_policy)

    def admit_operator(self, seen: Seen) -> Step:
        """Admit the operator to running servers although the spec cannot be applied: it could not repair otherwise."""
        access = self.access(seen, self.own(seen))
        return network_policy.admit_operator(access, seen.settings.operator_peers, seen.network_policy)


def require_valid_certificates(seen: Served) -> Step:
    """Change nothing while a certificate is outside its validity: a restarted server could not connect to others."""
    return certificates.require_valid_certificates(seen.secrets.validity, seen.now)


def report_ending_certificates(seen: Served) -> Step:
    """Report certificates that end soon."""
    return certificates.report_ending_certificates(seen.secrets.validity, seen.now)


def report_terminating_claims(seen: Stored) -> Step:
    """Report claims that are being deleted, and that only their pods keep (kubernetes.io/pvc-protection)."""
    used = [each.volume for each in seen.instances if each.volume and each.pod and not each.pod.leaving]
    names = tuple(claim["metadata"]["name"] for claim in used if is_terminating(claim))
    message = (
        f"PersistentVolumeClaim {listed(names)}: being deleted. Each ends with its pod, and the data with it: no pod "
        "with the only copy stops. Set the reclaim policy of the volumes to Retain. If other servers have the data, "
        "delete these pods one by one."
    )
    return Step.progressing(VOLUMES_TERMINATING, message, warning=True, poll=claims.RETRY_SECONDS) if names else PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDatabase(Database[SeenStored]):
    """A table of the differences between databases whose servers have volumes, and the steps that they share.

    Attributes:
        container: container of the server.
        template: annotation with the digest of the template of a pod.
        amounts: returns the amounts of CPU and memory of a container.
        is_created: returns whether the database has data that must be kept.
        is_at_rest: returns whether the StatefulSet may be recreated for a new template of its claims.
        storage: returns what the spec requests of each volume; None without volumes.
        issue: keeps the Secrets that servers mount.
        record: returns the annotations of the claim of an instance, with the identity of its data; empty without any.
        refusal: annotation of claims with the size, time and message of the last refusal to expand the volume.
        modification: annotation of claims with the last attempt to set a VolumeAttributesClass.
    """

    container: str
    template: str
    amounts: Callable[[SeenStored], Obj]
    is_created: Callable[[SeenStored], bool]
    is_at_rest: Callable[[SeenStored], bool]
    storage: Callable[[Any], Storage | None]
    issue: StepOf[SeenStored]
    record: Callable[[SeenStored, Any], Obj]
    refusal: str
    modification: str

    def create_secrets(self, seen: SeenStored) -> Step:
        """Create the Secrets that servers mount, before the first pods; afterwards `renew_secrets` keeps them."""
        return PASS if self.is_created(seen) else self.issue(seen)

    def renew_secrets(self, seen: SeenStored) -> Step:
        """Keep the Secrets of a created database: certificates expire although its spec cannot be applied."""
        return self.issue(seen) if self.is_created(seen) else PASS

    def resize(self, seen: SeenStored) -> Step:
        """Set the CPU and memory of running servers, as far as they can change without a restart."""
        pods = resizable(seen.instances, seen.stateful_set, self.template)
        return resize_pods(pods, self.amounts(seen), self.container, seen.now)

    def expand_volumes(self, seen: SeenStored) -> Step:
        """Expand volumes before anything waits for a server: one with a full volume cannot write, and may not start."""
        volumes = self._volumes(seen)
        return PASS if volumes is None else volumes.expand()

    def refuse_smaller_volumes(self, seen: SeenStored) -> Step:
        """Apply nothing of a spec whose volumes are smaller than the present ones."""
        volumes = self._volumes(seen)
        return PASS if volumes is None else volumes.refuse_smaller()

    def modify_volumes(self, seen: SeenStored) -> Step:
        """Set the VolumeAttributesClass of the volumes, without a restart."""
        volumes = self._volumes(seen)
        return PASS if volumes is None else volumes.modify()

    def grow_volumes(self, seen: SeenStored) -> Step:
        """Expand volumes to the size of the spec; they never shrink."""
        volumes = self._volumes(seen)
        if volumes is None or seen.stateful_set is None or annotation(seen.stateful_set, HIBERNATION):
            return PASS
        return volumes.grow(may_recreate=self.is_at_rest(seen))

    def _volumes(self, seen: SeenStored) -> Volumes | None:
        storage = self.storage(seen.resource)
        if storage is None:
            return None
        return Volumes(
            claims=[each.volume for each in seen.instances if each.volume],
            stateful_set=seen.stateful_set,
            size=storage.size,
            attributes_class=storage.volume_attributes_class_name,
            now=seen.now,
            refusal=self.refusal,
            attempts=self.modification,
        )

    def mark_volumes(self, seen: SeenStored) -> Step:
        """Record on each volume claim whose data it has."""
        present = [(each, each.volume) for each in seen.instances if each.volume and not is_terminating(each.volume)]
        records = ((claim, self.record(seen, each)) for each, claim in present)
        return Step.do(
            *(
                Patch(PERSISTENT_VOLUME_CLAIM, claim, {"metadata": {"annotations": record}})
                for claim, record in records
                if record
            )
        )
