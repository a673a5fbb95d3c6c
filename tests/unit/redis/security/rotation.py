"""Nodes as far as users and certificates go: what their files say, what their servers have heard, what kubelets bring.

The operator is the real steps over real Secrets; it may die after each action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from operators.redis.api.resource import RedisCluster
from operators.redis.client.commands import Configure, SetPasswords
from operators.redis.client.errors import Refused
from operators.redis.client.responses import Node as Line
from operators.redis.client.responses import NodeReport, digest
from operators.redis.instance import Instance
from operators.redis.objects import names, pod
from operators.redis.objects.names import CERTIFICATE_MARK, USERS_MARK
from operators.redis.objects.redis_conf import TLS
from operators.redis.observe import Observed
from operators.redis.security import secrets
from operators.redis.security.certificates import MountedCertificates
from operators.redis.security.users import Passwords
from operators.redis.steps import credentials, provisioning
from operators.redis.steps.rollout_markers import made_with
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod
from shared.pki import ca, certs
from shared.pki.certs import Pair
from shared.runtime.plan import Action, Patch, Step, WriteSecret
from tests.unit.drawer import Drawer
from tests.unit.redis.world import NOW, SETTINGS, UID

EVER = datetime.max.replace(tzinfo=NOW.tzinfo)
OVERLAP = timedelta(seconds=SETTINGS.password_overlap)
GIVEN, OWN = "given", "certificate"
"""The user's Secrets: with the password, and with the certificate."""


def wished(**spec: Any) -> RedisCluster:
    """A RedisCluster of which nothing is there yet."""
    metadata = {"name": "demo", "namespace": "default", "uid": UID, "generation": 1}
    return RedisCluster.parse({"metadata": metadata, "spec": {"replicas": 6, "version": "8.0.2"} | spec})


@dataclass(frozen=True)
class Files:
    """What a pod mounts."""

    users: Passwords
    mounted: MountedCertificates | None


@dataclass
class Node:
    """A pod, and the server in it.

    Attributes:
        files: as the kubelet last brought them.
        digests: of the passwords that the server takes; none if it asks for none.
        gives: the password that it gives to others.
        holds: its certificate, and whom it trusts.
    """

    name: str
    files: Files
    annotations: dict[str, str]
    digests: tuple[str, ...] = ()
    gives: str = ""
    holds: MountedCertificates | None = None
    restarts: int = 0

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> None:
        self.digests, self.gives = self.files.users.digests, self.files.users.current
        self.holds = self.files.mounted

    def takes(self, password: str) -> bool:
        """As a server does that asks nobody: it takes every password."""
        return not self.digests or bool({*Passwords(password).digests} & {*self.digests})

    def place(self, number: int) -> Instance:
        running = {"name": "redis", "state": {"running": {}}, "restartCount": self.restarts}
        status: Obj = {"podIP": f"10.0.0.{number + 1}", "containerStatuses": [running]}
        status["conditions"] = [{"type": "Ready", "status": "True"}]
        about = {"name": self.name, "namespace": "default", "uid": "u", "annotations": dict(self.annotations)}
        obj = {"kind": "Pod", "metadata": about, "status": status}
        me = Line(f"{number:040x}", flags=frozenset({"myself", "master"}))
        said = NodeReport(me.id, nodes=(me,), gives=digest(self.gives), takes=self.digests)
        return Instance(number, self.name, Pod.of(obj), obj, report=said)


@dataclass
class Lab(Drawer):
    """A cluster of three nodes, its Secrets, and its operator.

    Attributes:
        template: the annotations that pods to come are made with.
        was: passwords that once were what nodes give, and until when clients may count on them.
    """

    resource: RedisCluster = field(default_factory=lambda: wished(auth={"secretName": GIVEN}))
    now: datetime = NOW
    nodes: list[Node] = field(default_factory=list)
    template: dict[str, str] = field(default_factory=dict)
    was: dict[str, datetime] = field(default_factory=dict)

    def begin(self) -> Lab:
        self.found = dict.fromkeys(secrets.names(self.resource)) | self.found
        self.settle()
        self.apply()
        self.nodes = [Node(f"demo-{number}", self.files(), dict(self.template)) for number in range(3)]
        return self

    # What there is.

    def judged(self) -> secrets.Secrets:
        return secrets.judge(self.resource, dict.fromkeys(secrets.names(self.resource)) | self.found)

    def files(self) -> Files:
        judged = self.judged()
        assert judged.passwords is not None
        return Files(judged.passwords, judged.mounted)

    def seen(self) -> Observed:
        made = {"metadata": {"annotations": dict(self.template)}} if self.template else {"metadata": {}}
        stateful_set = {"metadata": {"name": "demo"}, "spec": {"template": made}}
        places = tuple(node.place(number) for number, node in enumerate(self.nodes))
        return Observed(stateful_set=stateful_set if self.nodes else None, instances=places, secrets=self.judged())

    # What the operator does.

    def steps(self) -> tuple[Callable[[Observed], Step], ...]:
        return (
            lambda seen: provisioning.ensure_secrets(SETTINGS, self.resource, seen, self.now),
            lambda seen: credentials.rotate_password(SETTINGS, self.resource, seen, self.now),
            lambda seen: credentials.renew_certificates(self.resource, seen, self.now),
        )

    def wanted(self) -> list[Action]:
        seen = self.seen()
        return [action for step in self.steps() for action in step(seen).actions]

    def step(self, most: int = 1) -> bool:
        """So many actions, and then the operator dies; whether anything was done."""
        done = False
        for action in self.wanted()[:most]:
            try:
                self.do(action)
            except Refused:
                return done
            done = True
        return done

    def settle(self) -> None:
        """As often as there is something to do; kubelets keep up."""
        for _ in range(60):
            self.apply()
            if not self.step(100):
                if not any(" at " in node.annotations.get(CERTIFICATE_MARK, "") for node in self.nodes):
                    return
                self.wait(credentials.MOUNTING)
        raise AssertionError("it never comes to an end")

    def do(self, action: Action) -> None:
        match action:
            case WriteSecret():
                self.write(action)
            case SetPasswords():
                self._node(action.at.name).digests = action.digests
            case Configure():
                self._configure(self._node(action.at.name), dict(action.settings))
            case Patch():
                node = self._node(action.obj["metadata"]["name"])
                node.annotations |= action.change["metadata"]["annotations"]
                self.bring(node)  # a kubelet that notices a change of a pod looks what else changed
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
        if (file := settings.get("tls-ca-cert-file")) is not None:
            if node.files.mounted is None or file != f"{TLS}/{node.files.mounted.file}":
                raise Refused("Unable to update TLS configuration.")
            node.holds = node.files.mounted

    # What else happens.

    def apply(self) -> None:
        """The StatefulSet follows."""
        judged, own = self.judged(), names.owner(self.resource, SETTINGS.operator)
        made = pod.pod(self.resource, own, "image", made_with(judged), "")["metadata"]["annotations"]
        self.template = {name: made[name] for name in (USERS_MARK, CERTIFICATE_MARK) if name in made}

    def bring(self, node: Node) -> None:
        node.files = self.files()

    def restart(self, number: int) -> None:
        self.nodes[number].restarts += 1
        self.nodes[number].read()

    def replace(self, number: int) -> None:
        """Its pod is made anew."""
        self.nodes[number] = Node(f"demo-{number}", self.files(), dict(self.template))

    def wait(self, time: timedelta) -> None:
        self.now += time

    def give(self, password: str, previous: str = "") -> None:
        self.put(GIVEN, {"password": password} | ({"previousPassword": previous} if previous else {}))

    # What must be so at any time.

    def check(self) -> None:
        judged = self.judged()
        for node in self.nodes:
            known = (judged.access.password, *judged.access.former)
            assert any(map(node.takes, known)), f"{node.name} does not let the operator in"
            for password, until in self.was.items():
                assert until <= self.now or node.takes(password), f"{node.name} sends a client away"
            for other in self.nodes:
                assert node.takes(other.gives), f"{other.name} cannot replicate {node.name}"
                self._check_certificates(node, other, judged)

    def _check_certificates(self, node: Node, other: Node, judged: secrets.Secrets) -> None:
        if node.holds is None or other.holds is None:
            return
        assert vouched(other.holds.pair, node.holds), f"{node.name} does not trust {other.name}"
        assert judged.access.pair is not None
        assert vouched(judged.access.pair, node.holds), f"{node.name} does not trust the operator"
        assert node.holds.certificate.issuer in {each.subject for each in certs.read(judged.access.authority)}


def vouched(pair: Pair, by: MountedCertificates) -> bool:
    return certs.read(pair.certificate)[0].issuer in {each.subject for each in by.trusted}


@cache
def signer(name: str) -> Pair:
    return ca.authority(name, begins=NOW - timedelta(days=1), ends=NOW + timedelta(days=1000))


@cache
def issued(name: str, by: str) -> Pair:
    hosts = ("*.demo.default.svc", "demo-client.default.svc")
    ends = NOW + timedelta(days=400)
    return ca.issue(signer(by), name, begins=NOW - timedelta(days=1), ends=ends, hosts=hosts, client=True)


def certificate(name: str, by: str) -> dict[str, str]:
    """Return a Secret's content: a dictionary of the caller's own, which it may change."""
    pair = issued(name, by)
    return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": signer(by).certificate}
