"""In-memory Secrets of an EtcdCluster."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects import names
from operators.etcd.security import certificates, secrets
from shared.kubernetes.secrets import content_of
from shared.pki import certs
from shared.pki.certs import Certificate
from shared.pki.rotation import DATABASES, RotationPolicy
from shared.pki.stores import certificates_in
from shared.runtime.plan import WriteSecret
from shared.steps.certificates import Issuing
from tests.etcd.unit.world import SETTINGS, cluster
from tests.platform.unit.drawer import Drawer

BEGINS = datetime.fromisoformat("2026-01-01T12:00:00Z")
LIFE = timedelta(days=90)
PEER, SERVER, CLIENT, AUTHORITY = "demo-peer-tls", "demo-server-tls", "demo-client-tls", "demo-ca"


@dataclass
class ClusterSecrets(Drawer):
    """Secrets of an EtcdCluster, with a clock.

    Attributes:
        informed: digest that every pod was created for, as the operator observes it.
    """

    resource: EtcdCluster = field(default_factory=lambda: cluster(tls={"mode": "self"}))
    now: datetime = BEGINS
    informed: str = ""
    policy: RotationPolicy = DATABASES

    def __post_init__(self) -> None:
        self.found = dict.fromkeys(secrets.names(self.resource))

    @property
    def issuing(self) -> Issuing:
        own = names.owner(self.resource, SETTINGS.operator)
        needed = certificates.leaves(self.resource)
        return Issuing(own, names.COMPONENT, needed, self.found, self.informed, self.now, self.policy)

    def next(self) -> tuple[str, tuple[WriteSecret, ...]]:
        return self.issuing.next()

    def step(self) -> str:
        """Make one write and return its reason, or an empty string if nothing is due."""
        reason, writes = self.next()
        if writes:
            self.write(writes[0])
        return reason if writes else ""

    def settle(self) -> list[str]:
        """Write until nothing is due and return the reasons in order."""
        reasons: list[str] = []
        while reason := self.step():
            reasons.append(reason)
            assert len(reasons) < 20, reasons
        return reasons

    def judged(self) -> secrets.Secrets:
        return secrets.judge(self.resource, self.found)

    def text(self, name: str, key: str) -> str:
        return content_of(self.found[name])[key]

    def leaf(self, name: str) -> Certificate:
        return certs.read(self.text(name, "tls.crt"))[0]

    def trusted(self, name: str) -> tuple[Certificate, ...]:
        return certificates_in(self.found[name])


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
