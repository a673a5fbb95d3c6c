"""Actions of the operator, of Kubernetes and of users while etcd's own judge watches a cluster."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.scenarios.etcd.clients import PORT
from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.etcd.judge import KINDS, Clients, Verdict
from e2e.scenarios.etcd.versions import NEWEST_35, NEWEST_36, NEWEST_37
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import SYSTEM, Kubectl, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.resource import conditions, uids

MEMBERS = 3

BEFORE_SECONDS, AFTER_SECONDS = 2.0, 2.0
"""Time of requests before and after an action."""

ENTRIES = 1_000_000
"""spec.snapshotCount: the judge needs the whole log, from the first entry on."""

LARGE_VALUES = 150
"""Values of 1 MiB for a file of more than 100 MiB, which smaller ones must have to be defragmented on schedule."""

Act = Callable[[EtcdCluster], None]
"""Function that performs an action and waits until the cluster is Ready again."""


@dataclass(frozen=True)
class Action:
    """Something that happens to a cluster while the judge's clients use it.

    Attributes:
        name: name in tests and tables.
        act: performs it.
        spec: fields of the cluster's spec.
        large: number of values of 1 MiB that are written before.
    """

    name: str
    act: Act
    spec: Mapping[str, Any] = field(default_factory=dict)
    large: int = 0

    def judged(self, kubectl: Kubectl, directory: Path, kind: str = KINDS[0]) -> Verdict:
        """Create a cluster, perform the action under load, and return the verdict.

        Args:
            kubectl: kubectl in a namespace without a cluster.
            directory: directory of the report, which a failure leaves.
            kind: kind of the requests.

        Raises:
            AssertionError: the cluster did not become Ready in time, or the clients could not end.
        """
        spec = {"snapshotCount": ENTRIES, "size": MEMBERS, **self.spec}
        cluster = EtcdCluster.create(kubectl, **spec)
        cluster.await_ready(MEMBERS)
        clients = Clients(directory, lambda: _addresses(cluster), kind, self.large)
        if "tls" in self.spec:
            clients.server_name = f"{cluster.name}-client.{kubectl.namespace}.svc"
            clients.credentials = lambda: _secret(kubectl, f"{cluster.name}-client-tls")
        with clients.running():
            time.sleep(BEFORE_SECONDS)
            self.act(cluster)
            time.sleep(AFTER_SECONDS)
        logs = {name: runtime.volume(kubectl, f"data-{name}") / "data" / "member" / "wal" for name in cluster.pods()}
        return clients.verdict(logs)


def delete_leader(cluster: EtcdCluster) -> None:
    leader = cluster.leader
    before = uids(cluster.kubectl)

    def is_ready_again() -> bool:
        pods = cluster.pods().values()
        ready = {pod["metadata"]["uid"] for pod in pods if conditions(pod).get("Ready") == "True"}
        return len(ready) == MEMBERS and len(ready - before) == 1

    cluster.kubectl("delete", "pod", leader, "--grace-period=0", "--force", "--wait=false")
    until("another pod of the leader is ready", is_ready_again)
    cluster.await_ready(MEMBERS)


def roll(cluster: EtcdCluster) -> None:
    with _restarts(cluster), cluster.planned(snapshotCount=2 * ENTRIES):
        cluster.await_ready(MEMBERS)


def roll_with_killed_operator(cluster: EtcdCluster) -> None:
    operator = Operator(cluster.kubectl.within(SYSTEM), "etcd")
    with _restarts(cluster):
        cluster.change(snapshotCount=2 * ENTRIES)
        for _ in range(3):
            time.sleep(4)
            operator.kill()
        cluster.await_ready(MEMBERS)
    operator.await_rollout()


def scale_out_and_in(cluster: EtcdCluster) -> None:
    for size in (MEMBERS + 2, MEMBERS):
        with cluster.planned(size=size):
            cluster.await_ready(size)


def lose_volume_of_leader(cluster: EtcdCluster) -> None:
    leader = cluster.leader
    before = cluster.members[leader]["id"]
    cluster.lose(leader)
    until(
        "a new member has replaced the former leader",
        lambda: cluster.members.get(leader, {}).get("id") not in (None, before),
        seconds=180,
    )
    cluster.await_ready(MEMBERS)


def upgrade(cluster: EtcdCluster) -> None:
    for version in (NEWEST_36, NEWEST_37):
        with cluster.planned(version=version):
            cluster.await_ready(MEMBERS, seconds=300)
        assert cluster.versions() == {version}


def downgrade(cluster: EtcdCluster) -> None:
    for version in (NEWEST_36, NEWEST_35):
        with cluster.planned(version=version):
            cluster.await_ready(MEMBERS, seconds=300)
        assert cluster.versions() == {version}


def hibernate(cluster: EtcdCluster) -> None:
    """No member runs for a while, so that no request succeeds."""
    with cluster.planned(hibernate=True):
        until("the cluster hibernates", lambda: cluster.status.get("phase") == "Hibernated", seconds=120)
    assert not cluster.pods()
    cluster.change(hibernate=False)
    cluster.await_ready(MEMBERS)


def renew_certificates(cluster: EtcdCluster) -> None:
    """Members load renewed certificates without a restart."""
    pods, before = uids(cluster.kubectl), _served_certificates(cluster)
    secrets = (f"{cluster.name}-{each}-tls" for each in ("server", "peer", "client"))
    cluster.kubectl("delete", "secret", *secrets)
    until("every member serves another certificate", lambda: not before & _served_certificates(cluster), seconds=180)
    cluster.await_ready(MEMBERS)
    assert uids(cluster.kubectl) == pods


def replace_authority(cluster: EtcdCluster) -> None:
    """The first stage of a new authority restarts every member, so that it trusts both."""
    with _restarts(cluster):
        cluster.kubectl("delete", "secret", f"{cluster.name}-ca")
        until("the members restart", lambda: cluster.reason != "Ready", seconds=90)
        until("every member has restarted", lambda: cluster.await_ready(MEMBERS, seconds=5), seconds=240)


def defragment(cluster: EtcdCluster) -> None:
    def sizes() -> set[bool]:
        """Return whether files are large, as far as the members report it."""
        return {member.get("dbSize", 0) > LARGE_VALUES << 19 for member in cluster.members.values()}

    until("the status has the size of large files", lambda: sizes() == {True}, seconds=120)
    cluster.change(defragmentation={"schedule": "* * * * *"})
    until("every file is small", lambda: sizes() == {False}, seconds=240)
    cluster.await_ready(MEMBERS)


SELF = {"mode": "self"}

LEADER_DELETED = Action("leader deleted", delete_leader)

ACTIONS = (
    LEADER_DELETED,
    Action("rolling restart", roll),
    Action("rolling restart, operator killed three times", roll_with_killed_operator),
    Action("scaled from 3 to 5 to 3", scale_out_and_in),
    Action("volume of the leader lost", lose_volume_of_leader),
    # 3.7 cannot replay log entries of 3.5: a low snapshotCount makes 3.6 take a snapshot in between. The entries stay
    # in the files of the log, of which etcd keeps five with 64 MiB each.
    Action("upgraded from 3.5 to 3.6 to 3.7", upgrade, {"version": NEWEST_35, "snapshotCount": 100}),
    Action("downgraded from 3.7 to 3.6 to 3.5", downgrade, {"version": NEWEST_37, "snapshotCount": 100}),
    Action("hibernated and awake again", hibernate),
    Action("TLS, leader deleted", delete_leader, {"tls": SELF}),
    Action("TLS, rolling restart", roll, {"tls": SELF}),
    Action("TLS, certificates renewed", renew_certificates, {"tls": SELF}),
    Action("TLS, authority replaced", replace_authority, {"tls": SELF}),
    Action("defragmented", defragment, {"storage": {"size": "3Gi"}}, LARGE_VALUES),
)
"""Every action that is judged."""


@contextmanager
def _restarts(cluster: EtcdCluster) -> Iterator[None]:
    """Check that every pod is replaced within the block."""
    before = uids(cluster.kubectl)
    yield
    kept = before & uids(cluster.kubectl)
    assert not kept, f"{len(kept)} members did not restart"


def _addresses(cluster: EtcdCluster) -> dict[str, str]:
    pods = cluster.pods().items()
    return {name: f"{pod['status']['podIP']}:{PORT}" for name, pod in pods if pod["status"].get("podIP")}


def _secret(kubectl: Kubectl, name: str) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in kubectl.get("secret", name)["data"].items()}


def _served_certificates(cluster: EtcdCluster) -> set[str]:
    hosts = [address.partition(":")[0] for address in _addresses(cluster).values()]
    return {ssl.get_server_certificate((host, PORT), timeout=5) for host in hosts}
