"""Violations: actions of the operator that harm users of a Memcached, and claims of its status that are not true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from operators.memcached.api.resource import API
from operators.memcached.client import users_file
from operators.memcached.security.secrets import fingerprint
from shared.kubernetes import accessors
from shared.kubernetes.kinds import DEPLOYMENT, POD, SECRET, STATEFUL_SET, Kind, Obj
from shared.kubernetes.ownership import MANAGED_BY, controller_of
from shared.kubernetes.secrets import CERTIFICATE_KEY, content_of
from shared.pki import certs
from shared.status import conditions
from simulator.api_server.requests import TargetedRequest, value_at
from simulator.memcached.database import Invariants, SimulatedMemcached
from simulator.memcached.fake_servers import der
from tests.harness.scenario import Unsafe

OPERATOR = "memcached-operator"
WORKLOADS = (DEPLOYMENT, STATEFUL_SET)
OWN_USERS, CERTIFICATES = "-auth", ("-ca", "-server-tls", "-client-tls", "-server-mounted", "-users-mounted")
"""Ends of names of the operator's Secrets: the generated users, and those that it keeps in a pause."""


@dataclass
class Guard(Invariants):
    """Invariants of every simulated Memcached.

    Attributes:
        violations: violations so far, in order.
        required_share: share of their items that clients find at least; 0 until a scenario has filled the servers.
        written: content of Secrets that the operator has written.
        names: names of all servers so far.
        listening: port on which the server at an address listens.
        listened: ports on which servers have listened, by the name of the pod and by its address.
    """

    violations: list[str] = field(default_factory=list)
    required_share: float = 0.0
    written: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    listening: dict[str, int] = field(default_factory=dict)
    listened: dict[str, set[str]] = field(default_factory=dict)

    def fail(self, violation: str) -> None:
        """Record a violation and raise Unsafe; the record remains if a caller catches the exception."""
        self.violations.append(violation)
        raise Unsafe(violation)

    # Actions of the operator.

    def check_write(self, servers: SimulatedMemcached, target: TargetedRequest, live: Obj | None) -> None:
        body = target.request.body or {}
        if target.kind == API.kind:
            if target.subresource == "status" and live is not None:
                self._status(servers, body.get("status") or {}, live)
            return
        action = f"the operator writes {target.kind} {target.name}"
        if live is not None and target.kind != POD:
            self._belongs(servers, target, live, action)
        if target.stops_pod:
            self.fail(f"{action}: servers are stopped by their workload only")
        if target.verb == "DELETE" and target.kind in WORKLOADS:
            self._replaced(servers, target.kind, target.name)
        data = {key: text for key, text in (body.get("data") or {}).items() if text}  # null removes a key
        content = content_of({"data": data}) if target.kind == SECRET else {}
        if content:
            self.written.update(content.values())
            self._certificate(servers, content, content_of(live), action)
            self._password(servers, content, content_of(live), action)
        is_kept = target.kind == SECRET and (not content or target.name.endswith(CERTIFICATES))
        if not is_kept and any(value_at(found, "spec.paused") for found in _resources(servers)):
            self.fail(f"{action} of a paused resource")

    def _belongs(self, servers: SimulatedMemcached, target: TargetedRequest, live: Obj, action: str) -> None:
        """Require that the operator changes only objects of a resource, or without a controller and with its label."""
        owners, controller = {each["metadata"]["uid"] for each in _resources(servers)}, controller_of(live)
        is_own = controller is not None and controller["uid"] in owners
        has_label = (live["metadata"].get("labels") or {}).get(MANAGED_BY) == OPERATOR
        if not is_own and (controller is not None or not has_label or target.verb == "DELETE"):
            self.fail(f"{action}, which is foreign")

    def _replaced(self, servers: SimulatedMemcached, former: Kind, name: str) -> None:
        """Require that the workload that replaces another one has all its servers."""
        for kind in WORKLOADS:
            for workload in _named(servers, kind, name) if kind != former else ():
                ready, desired = len(ready_servers(servers, kind)), workload["spec"]["replicas"]
                if ready < desired:
                    self.fail(f"the operator deletes {former} {name}: {ready} of {desired} new servers are ready")

    def _certificate(
        self, servers: SimulatedMemcached, new: Mapping[str, str], live: Mapping[str, str], action: str
    ) -> None:
        """Require that no certificate that is not valid now replaces one that is."""
        if not (live.get(CERTIFICATE_KEY) and new.get(CERTIFICATE_KEY)):
            return
        (now, before) = (certs.read(each[CERTIFICATE_KEY])[0] for each in (new, live))
        moment = servers.clock()
        if before.begins <= moment < before.ends and not now.begins <= moment < now.ends:
            self.fail(f"{action}: a valid certificate is replaced by one that is not valid now")

    def _password(
        self, servers: SimulatedMemcached, new: Mapping[str, str], live: Mapping[str, str], action: str
    ) -> None:
        """Require that clients get a password only if every server requires one: others store it as an item."""
        if new.get("password") in (None, live.get("password")):
            return
        for pod in ready_servers(servers):
            if not any(volume["name"] == "auth" for volume in pod["spec"].get("volumes", ())):
                self.fail(f"{action}: clients send a password to {pod['metadata']['name']}, which requires none")

    def _status(self, servers: SimulatedMemcached, status: Obj, live: Obj) -> None:
        """Require that what servers have loaded is recorded only if they have, and addresses only if they had them."""
        for address in status.get("servers") or ():
            host, _, port = address.rpartition(":")
            if port not in self.listened.get(host.partition(".cache.")[0], {port}):
                self.fail(f"the status lists {address}, where no server has listened")
        before = live.get("status") or {}
        running = {uid: address for address, uid in servers.uids.items() if uid in servers.filled}
        staying = (pod for pod in ready_servers(servers) if not accessors.is_terminating(pod))
        ready = {pod["metadata"]["uid"]: pod for pod in staying}
        for uid, address in ((uid, address) for uid, address in running.items() if uid in ready):
            name = ready[uid]["metadata"]["name"]
            if status.get("users") not in (None, before.get("users")):
                mounted = servers.secrets.get(address, {}).get("auth", {}).get("users", "")
                if servers.loaded_users.get(address, mounted) not in _users(servers, ready[uid]):
                    self.fail(f"the status records the users file, which {name} has not loaded")
            certificate = status.get("certificate")
            is_new = certificate not in (None, before.get("certificate")) and address in servers.mounted
            if is_new and fingerprint(der(servers.served[address])) != certificate:
                self.fail(f"the status records a certificate that {name} does not serve")
            version = (status.get("serverImages") or {}).get(f"sha256:{servers.images[uid]}")
            if version not in (None, servers.versions[address]):
                self.fail(f"the status records that {name} runs {version}, not {servers.versions[address]}")

    def password_sent(self, address: str) -> None:
        """Require that no other program than a server receives a password."""
        self.fail(f"a password is sent to {address}, where another program responds")

    # Servers.

    def started(self, servers: SimulatedMemcached, pod: Obj) -> None:
        """Require that a server starts only when clients have filled the one that was replaced before.

        A users file that it has must be valid: from another one it locks users out.
        """
        self.names.add(pod["metadata"]["name"])
        address = pod["status"]["podIP"]
        files = servers.secrets[address].get("auth")
        if files is not None and (wrong := users_file.problem(files.get("users", ""))):
            self.fail(f"{pod['metadata']['name']} starts with an invalid users file: {wrong}")
        for host in (pod["metadata"]["name"], address):
            self.listened.setdefault(host, set()).add(str(self.listening[address]))
        if servers.clients.least_found < self.required_share:
            found = servers.clients.found
            self.fail(f"{pod['metadata']['name']} is replaced while clients find {found:.0%} of their items")

    def ended(self, servers: SimulatedMemcached) -> None:
        """Require that of a workload at most one server is missing; one that is added has not been there yet."""
        for kind in WORKLOADS:
            for _, workload in servers.objects(kind):
                up = servers.filled.intersection(_pods_of(servers, kind))
                size = workload["spec"]["replicas"]
                if kind == STATEFUL_SET:
                    size = sum(f"{workload['metadata']['name']}-{number}" in self.names for number in range(size))
                if len(up) < size - 1:
                    self.fail(f"{len(up)} of {size} servers of the {kind} are left")

    def loaded(self, pod: Obj, users: str) -> None:
        """Require that a users file that the operator is to generate is its own."""
        volumes = {each["name"]: each.get("secret") or {} for each in pod["spec"].get("volumes", ())}
        name = volumes.get("auth", {}).get("secretName", "")
        if name.endswith(OWN_USERS) and users not in self.written:
            self.fail(f"{pod['metadata']['name']} loads the users of Secret {name}, which the operator did not write")


def false_claims(servers: SimulatedMemcached) -> Iterator[str]:
    """Yield what the status of a resource that is at rest claims, and is not true.

    The kubelet does not know of a server that hangs without a sidecar, and the operator is not certain at first: then
    Ready or Observed is false, and Available only later (test_hang.py).
    """
    for resource in _resources(servers):
        if not accessors.is_current(resource) or accessors.is_terminating(resource):
            continue
        status, ready = resource["status"], ready_servers(servers)
        hosts = {host for pod in ready for host in (pod["metadata"]["name"], pod["status"]["podIP"])}
        listed = [address.rpartition(":")[0].partition(".cache.")[0] for address in status.get("servers") or ()]
        claims = {conditions.AVAILABLE: (sum(host in hosts for host in listed), len(listed))}  # those that clients use
        workload = value_at(resource, "spec.workload") or status.get("workload")
        if kind := next((kind for kind in WORKLOADS if kind.name == workload), None):
            addresses = {pod["status"]["podIP"] for pod in ready_servers(servers, kind)}
            hung = servers.hung - servers.mute if accessors.is_true(resource, conditions.OBSERVED) else set()
            claims[conditions.READY] = len(addresses - hung), resource["spec"].get("size", 1)
        for claim, (responding, claimed) in claims.items():
            if accessors.is_true(resource, claim) and responding < claimed:
                yield f"{claim}, although {responding} of {claimed} servers respond"


def ready_servers(servers: SimulatedMemcached, kind: Kind | None = None) -> list[Obj]:
    """Return the ready pods, of a workload of this kind."""
    uids = {uid for each in (WORKLOADS if kind is None else (kind,)) for uid in _pods_of(servers, each)}
    return [
        pod for _, pod in servers.objects(POD) if pod["metadata"]["uid"] in uids and accessors.is_true(pod, "Ready")
    ]


def _pods_of(servers: SimulatedMemcached, kind: Kind) -> Iterator[str]:
    """Yield the UIDs of the pods of a workload of a kind, which has one of that kind."""
    controller = STATEFUL_SET.name if kind == STATEFUL_SET else "ReplicaSet"
    for _, pod in servers.objects(POD):
        if (controller_of(pod) or {}).get("kind") == controller:
            yield pod["metadata"]["uid"]


def _users(servers: SimulatedMemcached, pod: Obj) -> set[str]:
    """Return the users file in the Secret that a pod mounts."""
    volumes = [each.get("secret") or {} for each in pod["spec"].get("volumes", ()) if each["name"] == "auth"]
    found = [secret for each in volumes for secret in _named(servers, SECRET, each.get("secretName", ""))]
    return {content_of(secret).get("users", "") for secret in found}


def _resources(servers: SimulatedMemcached) -> list[Obj]:
    return [obj for _, obj in servers.objects(API.kind)]


def _named(servers: SimulatedMemcached, kind: Kind, name: str) -> list[Obj]:
    return [obj for _, obj in servers.objects(kind) if obj["metadata"]["name"] == name]
