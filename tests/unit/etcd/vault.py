"""Secrets of an EtcdCluster that live in a dict, and members that read them as etcd and the kubelet do."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from operators.etcd import certificates, resources, secrets
from operators.etcd.api import EtcdCluster
from operators.etcd.issuing import Issuing
from shared import authority, pem
from shared.kube import Obj
from shared.pem import Certificate
from shared.plan import WriteSecret
from tests.unit.etcd.world import SETTINGS, cluster

BEGINS = datetime.fromisoformat("2026-01-01T12:00:00Z")
LIFE = timedelta(days=90)
PEER, SERVER, CLIENT, AUTHORITY = "demo-peer-tls", "demo-server-tls", "demo-client-tls", "demo-ca"


@dataclass
class Vault:
    """The Secrets, and their clock.

    Attributes:
        informed: the digest that every pod was made for, as the operator sees it.
    """

    resource: EtcdCluster = field(default_factory=lambda: cluster(tls={"mode": "self"}))
    now: datetime = BEGINS
    informed: str = ""
    life: timedelta = LIFE
    found: dict[str, Obj | None] = field(default_factory=dict)
    written: int = 0

    def __post_init__(self) -> None:
        self.found = dict.fromkeys(secrets.names(self.resource))

    @property
    def issuing(self) -> Issuing:
        own = resources.owner(self.resource, SETTINGS.operator)
        return Issuing(self.resource, own, self.found, self.informed, self.now, self.life)

    def next(self) -> tuple[str, tuple[WriteSecret, ...]]:
        return self.issuing.next()

    def write(self, write: WriteSecret) -> None:
        """As the executor does: what was ordered is made; it replaces what was seen, or is refused."""
        secret = json.loads(json.dumps(write.obj))
        name = secret["metadata"]["name"]
        assert write.seen == self.found[name], "a write that the API server would refuse"
        if write.order is not None:
            made = authority.fulfil(write.order)
            pair = made.serving or made.authority
            assert pair is not None
            secret["data"] |= {key: encoded(text) for key, text in zip(write.under, pair, strict=True)}
        self.written += 1
        uid = write.seen["metadata"]["uid"] if write.seen else f"uid-{self.written}"
        secret["metadata"] |= {"uid": uid, "resourceVersion": str(self.written)}
        self.found[name] = secret

    def step(self) -> str:
        """One write, and then the operator's life might end; returns why, or nothing where nothing is due."""
        why, writes = self.next()
        if writes:
            self.write(writes[0])
        return why if writes else ""

    def settle(self) -> list[str]:
        """Write until nothing is due; returns why, in order."""
        whys: list[str] = []
        while why := self.step():
            whys.append(why)
            assert len(whys) < 20, whys
        return whys

    def judged(self) -> secrets.Secrets:
        return secrets.judge(self.resource, self.found)

    def text(self, name: str, key: str) -> str:
        return certificates.content_of(self.found[name])[key]

    def leaf(self, name: str) -> Certificate:
        return pem.read(self.text(name, "tls.crt"))[0]

    def trusted(self, name: str) -> tuple[Certificate, ...]:
        return certificates.authorities_in(self.found[name])


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
