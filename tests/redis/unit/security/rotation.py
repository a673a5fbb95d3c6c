"""Simulated nodes for rotation tests: mounted files, state of the servers, and kubelets.

The operator runs its real steps on real Secrets, and may crash after each action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from operators.redis.api.resource import RedisCluster
from operators.redis.client.commands import Configure, SetPasswords
from operators.redis.client.errors import Refused
from operators.redis.client.responses import Node as Line
from operators.redis.client.responses import NodeReport, digest
from operators.redis.objects import names, pod
from operators.redis.objects.names import CERTIFICATE_MARK, USERS_MARK
from operators.redis.objects.redis_conf import TLS
from operators.redis.security import secrets
from operators.redis.security.certificates import MountedCertificates
from operators.redis.security.users import USER, Passwords
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from operators.redis.steps import credentials, provisioning
from operators.redis.steps.rollout_markers import made_with
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from shared.pki import ca, certs
from shared.pki.certs import Pair
from shared.runtime.plan import Action, Apply, Patch, Step, WriteSecret
from shared.status.verdict import Progress
from tests.platform.unit.drawer import Drawer
from tests.redis.unit.world import NOW, SETTINGS, UID, assess

EVER = datetime.max.replace(tzinfo=NOW.tzinfo)
OVERLAP = timedelta(seconds=SETTINGS.password_overlap)
GIVEN, OWN = "given", "certificate"
"""Secrets of the user: with the password, and with the certificate."""


def wished(**spec: Any) -> RedisCluster:
    """Return a RedisCluster without any owned object."""
    metadata = {"name": "demo", "namespace": "default", "uid": UID, "generation": 1}
    return RedisCluster.parse({"metadata": metadata, "spec": {"replicas": 6, "version": "8.0.2"} | spec})


@dataclass(frozen=True)
class Files:
    """Files that a pod mounts."""

    users: Passwords
    mounted: MountedCertificates | None


@dataclass
class Node:
    """A pod, and the server in it.

    Attributes:
        files: files that the kubelet mounted last.
        digests: digests of the passwords that the server accepts; empty if it requires none.
        admits: digests of the passwords of the replicas' user.
        gives: password that the server uses for its primary.
        gives_as: user as which it authenticates there.
        holds: certificate of the server, and authorities that it trusts.
    """

    name: str
    files: Files
    annotations: dict[str, str]
    digests: tuple[str, ...] = ()
    admits: tuple[str, ...] = ()
    gives: str = ""
    gives_as: str = ""
    holds: MountedCertificates | None = None
    restarts: int = 0

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> None:
        users = self.files.users
        self.digests, self.admits, (self.gives_as, self.gives) = users.digests, users.admitted, users.link
        self.holds = self.files.mounted

    def takes(self, password: str) -> bool:
        """Whether the server accepts a password; one without passwords accepts any."""
        return not self.digests or bool({*Passwords(password).digests} & {*self.digests})

    def admits_replica(self, other: Node) -> bool:
        """Whether the server accepts another one as a replica, which sends no AUTH without a password."""
        if not other.gives:
            return not self.digests
        return self.takes(other.gives) if other.gives_as == USER else digest(other.gives) in self.admits

    def instance(self, number: int) -> Instance:
        running = {"name": "redis", "state": {"running": {}}, "restartCount": self.restarts}
        status: Obj = {"podIP": f"10.0.0.{number + 1}", "containerStatuses": [running]}
        status["conditions"] = [{"type": "Ready", "status": "True"}]
        about = {"name": self.name, "namespace": "default", "uid": "u", "annotations": dict(self.annotations)}
        obj = {"kind": "Pod", "metadata": about, "status": status}
        me = Line(f"{number:040x}", flags=frozenset({"myself", "master"}))
        report = NodeReport(me.id, nodes=(me,), gives=digest(self.gives), takes=self.digests)
        report = replace(report, gives_as=self.gives_as, admits=self.admits)
        return Instance(number, self.name, Pod.of(obj), obj, report=report)


@dataclass
class Lab(Drawer):
    """A cluster of three nodes, its Secrets, and its operator.

    Attributes:
        template: annotations of new pods.
        was: former passwords of the nodes, with the time until which clients may use them.
    """

    resource: RedisCluster = field(default_factory=lambda: wished(auth={"secretName": GIVEN}))
    now: datetime = NOW
    nodes: list[Node] = field(default_factory=list)
    template: dict[str, str] = field(default_factory=dict)
    was: dict[str, datetime] = field(default_factory=dict)

    def begin(self, *, settles: bool = True) -> Lab:
        self.found = dict.fromkeys(secrets.names(self.resource)) | self.found
        if settles:
            self.settle()
        self.apply()
        self.nodes = [Node(f"demo-{number}", self.files(), dict(self.template)) for number in range(3)]
        return self

    # State.

    def judged(self) -> secrets.Secrets:
        return secrets.judge(self.resource, dict.fromkeys(secrets.names(self.resource)) | self.found)

    def files(self) -> Files:
        judged = self.judged()
        assert judged.passwords is not None
        return Files(judged.passwords, judged.mounted)

    def seen(self) -> Observed:
        built = {"metadata": {"annotations": dict(self.template)}} if self.template else {"metadata": {}}
        stateful_set = {"metadata": {"name": "demo"}, "spec": {"template": built}}
        instances = tuple(node.instance(number) for number, node in enumerate(self.nodes))
        return Observed(stateful_set=stateful_set if self.nodes else None, instances=instances, secrets=self.judged())

    # Operator.

    def steps(self) -> tuple[Callable[[Observed], Step], ...]:
        return (
            lambda seen: provisioning.ensure_secrets(assess(self.resource, seen, self.now)),
            lambda seen: credentials.rotate_password(assess(self.resource, seen, self.now)),
            lambda seen: credentials.renew_certificates(assess(self.resource, seen, self.now)),
        )

    def pending_actions(self) -> list[Action]:
        seen = self.seen()
        actions = list[Action]()
        for step in self.steps():  # a chain, which stops where something is to be done first
            found = step(seen)
            actions += found.actions
            if found.progress is not Progress.DONE:
                break
        # Without Certificates of cert-manager; settings are changed one by one.
        return [part for action in actions if not isinstance(action, Apply) for part in _parts(action)]

    def step(self, most: int = 1) -> bool:
        """Carry out at most this many actions; return whether any was done."""
        done = False
        for action in self.pending_actions()[:most]:
            try:
                self.do(action)
            except Refused:
                return done
            done = True
        return done

    def settle(self) -> None:
        """Reconcile until no action is left; kubelets keep up."""
        for _ in range(60):
            self.apply()
            if not self.step(100):
                if not any(" at " in node.annotations.get(CERTIFICATE_MARK, "") for node in self.nodes):
                    return
                self.wait(credentials.MOUNTING)
        raise AssertionError("the rotation does not end")

    def do(self, action: Action) -> None:
        match action:
            case WriteSecret():
                self.write(action)
            case SetPasswords():
                node = self._node(action.at.name)
                node.digests, node.admits = action.digests, action.admitted or node.admits
            case Configure():
                self._configure(self._node(action.at.name), dict(action.settings))
            case Patch():
                node = self._node(action.obj["metadata"]["name"])
                node.annotations |= action.change["metadata"]["annotations"]
                self.bring(node)  # a changed annotation makes the kubelet refresh the mounted files
            case _:
                raise AssertionError(action)
        passwords = self.judged().passwords
        if passwords is not None and passwords.current not in self.was:
            self.was |= {password: self.now + OVERLAP for password, until in self.was.items() if until == EVER}
            self.was[passwords.current] = EVER

    def _node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    @staticmethod
    def _configure(node: Node, settings: dict[str, str]) -> None:
        node.gives = settings.get("masterauth", node.gives)
        node.gives_as = settings.get("masteruser", node.gives_as)
        if (file := settings.get("tls-ca-cert-file")) is not None:
            if node.files.mounted is None or file != f"{TLS}/{node.files.mounted.file}":
                raise Refused("Unable to update TLS configuration.")
            node.holds = node.files.mounted

    # Events.

    def apply(self) -> None:
        """Update the template of the StatefulSet."""
        judged, own = self.judged(), names.owner(self.resource, SETTINGS.operator)
        built = pod.pod(self.resource, own, "image", made_with(judged), "")["metadata"]["annotations"]
        self.template = {name: built[name] for name in (USERS_MARK, CERTIFICATE_MARK) if name in built}

    def bring(self, node: Node) -> None:
        node.files = self.files()

    def restart(self, number: int) -> None:
        self.nodes[number].restarts += 1
        self.nodes[number].read()

    def replace(self, number: int) -> None:
        """Recreate a pod."""
        self.nodes[number] = Node(f"demo-{number}", self.files(), dict(self.template))

    def wait(self, time: timedelta) -> None:
        self.now += time

    def give(self, password: str, previous: str = "") -> None:
        self.put(GIVEN, {"password": password} | ({"previousPassword": previous} if previous else {}))

    # Invariants.

    def check(self) -> None:
        judged = self.judged()
        for node in self.nodes:
            known = (judged.access.password, *judged.access.former)
            assert any(map(node.takes, known)), f"{node.name} rejects the operator"
            for password, until in self.was.items():
                assert until <= self.now or node.takes(password), f"{node.name} rejects a client"
            for other in self.nodes:
                assert node.admits_replica(other), f"{other.name} cannot replicate {node.name}"
                self._check_certificates(node, other, judged)

    def _check_certificates(self, node: Node, other: Node, judged: secrets.Secrets) -> None:
        if node.holds is None or other.holds is None:
            return
        assert is_trusted(other.holds.pair, node.holds), f"{node.name} does not trust {other.name}"
        assert judged.access.pair is not None
        assert is_trusted(judged.access.pair, node.holds), f"{node.name} does not trust the operator"
        assert node.holds.certificate.issuer in {each.subject for each in certs.read(judged.access.authority or "")}


def _parts(action: Action) -> list[Action]:
    if not isinstance(action, Configure):
        return [action]
    return [replace(action, settings={name: value}) for name, value in action.settings.items()]


def is_trusted(pair: Pair, by: MountedCertificates) -> bool:
    return certs.read(pair.certificate)[0].issuer in {each.subject for each in by.trusted}


@cache
def signer(name: str) -> Pair:
    return ca.authority(name, begins=NOW - timedelta(days=1), ends=NOW + timedelta(days=1000))


@cache
def issued(name: str, by: str, days: int = 400) -> Pair:
    hosts = ("*.demo.default.svc", "demo-client.default.svc")
    ends = NOW + timedelta(days=days)
    return ca.issue(signer(by), name, begins=NOW - timedelta(days=1), ends=ends, hosts=hosts, client=True)


def certificate(name: str, by: str, *days: int) -> dict[str, str]:
    """Return a Secret's content: a dictionary of the caller's own, which it may change.

    Args:
        days: remaining validity of the certificate, if it is not the usual one.
    """
    pair = issued(name, by, *days)
    return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": signer(by).certificate}
