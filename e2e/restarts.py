"""Restarts of all pods in a small address pool, and attacks that once lost data, on the local cluster.

    python -m e2e.restarts --restarts 50 --minutes 40

Two tenants have a RedisCluster each. Clients of both write when all pods of both are killed at once. Then the second
cluster gets the former addresses of the first, where its replicas look for their primaries, and the first those of the
second (C8 of the second review). Everything that was acknowledged is checked; a primary that is killed may lose what it
had not replicated. This is repeated with several versions, with passwords and without. Before that, the attacks:

- C1: a foreign claim has the name of a volume that a cluster needs, and the cluster is deleted with its data.
- N3: persistence is switched off while the pods stay (OnDelete), and the server of a primary is killed.
- N5: all pods restart during a scale-in.
- J1: spec.finalizers is emptied, and the resource is deleted: the pods keep their Secrets.

Nothing remains in the cluster.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from e2e.progress import Progress
from e2e.scenarios.redis.clients import Load
from e2e.scenarios.redis.cluster import VOLUMES, Cluster
from e2e.scenarios.redis.consistency import Death, lost, violations
from e2e.scenarios.redis.session import Access
from e2e.scenarios.redis.versions import REDIS_7, REDIS_8, VALKEY_8, VALKEY_9, Spec
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, Refused, local_environment, new_namespace, until
from e2e.scenarios.support.resource import crowded
from operators.redis.objects.names import CONTAINER
from shared.kubernetes.ownership import INSTANCE
from tools.local.environment import forget_clusters
from tools.local.errors import ClusterError

PODS = 6

PAIRS: tuple[tuple[Spec, Spec], ...] = (
    (REDIS_7, REDIS_8),
    (REDIS_8, VALKEY_9),
    (VALKEY_8, REDIS_7),
    (VALKEY_9, VALKEY_8),
)
"""Versions of the two clusters: of the one whose former addresses the other gets first, and of that other one."""

LOAD_SECONDS = 2.0
"""Time for which clients write before a restart, after their old keys."""

READY_SECONDS = 240.0

ATTACK_KEYS = 1000


@dataclass
class Tally:
    """Counts and findings so far.

    Attributes:
        rounds: restarts of all pods of both clusters of a pair.
        swapped: pods that got an address that a pod of the other cluster had.
        operations: operations of clients that were judged.
        lost: acknowledged writes that are missing, within the budget of a killed primary.
        violations: reads that no budget explains.
        failures: attacks and restarts that failed.
    """

    rounds: int = 0
    swapped: int = 0
    operations: int = 0
    lost: int = 0
    violations: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.rounds} restarts of two clusters, {self.swapped} pods at a former address of the other tenant, "
            f"{self.operations} operations judged, {self.lost} writes lost within the budget, "
            f"{len(self.violations)} violations, {len(self.failures)} failures"
        )


def swap_addresses(first: Cluster, second: Cluster, tally: Tally) -> None:
    """Restart all pods of two clusters under load, so that each gets the former addresses of the other, and judge.

    Clients without a password would take one cluster for the other: the clients end right before the pods do.
    """
    both = (first, second)
    pods = [list(each.pods().values()) for each in both]
    before = [set(each.addresses()) for each in both]
    nodes = [{name: entry["nodeId"] for name, entry in each.nodes.items()} for each in both]
    with first.replication() as of_first, second.replication() as of_second, ExitStack() as clients:
        one, two = (clients.enter_context(each.load(patience=READY_SECONDS)) for each in both)
        time.sleep(LOAD_SECONDS)
        if not first.access.password:
            clients.close()
        of_first.crash(*nodes[0])
        of_second.crash(*nodes[1])
        with crowded(first.kubectl, 0), crowded(second.kubectl, 0):
            for each in both:
                each.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
            until("all pods are deleted", lambda: not any(each.kubectl.items("pods") for each in both))
            runtime.hand_out_from(pods[0])
            second.kubectl("delete", "resourcequota", "few")
            until("the second cluster has addresses", lambda: len(second.addresses()) == PODS, seconds=90)
            runtime.hand_out_from(pods[1])
        for each in both:
            each.await_ready(PODS, seconds=READY_SECONDS)
    after = [set(each.addresses()) for each in both]
    tally.swapped += len(before[0] & after[1]) + len(before[1] & after[0])
    tally.rounds += 1
    for each, ids in zip(both, nodes, strict=True):
        assert {name: entry["nodeId"] for name, entry in each.nodes.items()} == ids, f"{each.name} has other nodes"
    for cluster, load, monitor in ((first, one, of_first), (second, two, of_second)):
        judge(cluster, load, monitor.deaths(), tally)


def judge(cluster: Cluster, load: Load, deaths: Sequence[Death], tally: Tally) -> None:
    """Judge everything that clients of a cluster did; no key is of the other tenant."""
    finals = load.finals()
    found = violations([*load.history, *finals], deaths)
    tally.operations += len(load.history) + len(finals)
    tally.lost += len(lost(load.history, finals))
    tally.violations += [f"{cluster.kubectl.namespace}: {text}" for text in found]
    assert load.written, "no write was acknowledged"


@contextmanager
def pair(environment: dict[str, str], versions: tuple[Spec, Spec], *, auth: bool) -> Iterator[tuple[Cluster, Cluster]]:
    """Create a cluster in each of two namespaces, and delete both afterwards.

    Args:
        auth: whether clients need a password, another one for each cluster.
    """
    with ExitStack() as stack:
        both: list[Cluster] = []
        for name, version in zip(("first", "second"), versions, strict=True):
            kubectl, spec = stack.enter_context(new_namespace(environment)), dict(version)
            access = Access(secrets.token_hex(8) if auth else "")
            if auth:
                content = {"stringData": {"password": access.password}}
                kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}, **content})
                spec["auth"] = {"secretName": "password"}
            both.append(Cluster.create(kubectl, name, access, replicas=PODS, **spec))
        for each in both:
            each.await_ready(PODS, seconds=READY_SECONDS)
        yield both[0], both[1]


# Attacks.


def foreign_claim_is_not_used(kubectl: Kubectl) -> None:
    """C1: a claim of another tenant with the name of a volume is not used, and outlasts the cluster."""
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}
    head: dict[str, Any] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}
    for number in (0, 7):
        kubectl.apply({**head, "metadata": {"name": f"data-demo-{number}", "labels": {"app": "postgres"}}})

    def metadata(number: int) -> dict[str, Any]:
        found = kubectl.get("persistentvolumeclaim", f"data-demo-{number}")["metadata"]
        return {name: found.get(name) for name in ("uid", "labels", "ownerReferences", "deletionTimestamp")}

    before = [metadata(number) for number in (0, 7)]
    cluster = Cluster.create(kubectl, replicas=PODS, storage={**VOLUMES, "retain": False}, **REDIS_8)
    message = cluster.await_reason("ForeignData")
    assert "data-demo-0" in message, message
    assert not cluster.pods(), "no pod may start on a foreign volume"
    cluster.kubectl("delete", "persistentvolumeclaim", "data-demo-0")
    cluster.await_ready(PODS, seconds=READY_SECONDS)
    cluster.fill(ATTACK_KEYS)
    cluster.change(replicas=8)
    message = cluster.await_reason("ForeignData")
    assert "data-demo-7" in message, message
    assert cluster.keys() == ATTACK_KEYS
    assert "demo-7" not in cluster.pods()
    kubectl("delete", "rediscluster", "demo")
    until("the pods are deleted", lambda: not kubectl.items("pods"), seconds=120)
    until("the cluster's own claims are deleted", lambda: len(kubectl.items("persistentvolumeclaims")) == 1, seconds=60)
    assert metadata(7) == before[1], "the foreign claim was changed"


def persistence_is_kept_while_the_pods_stay(kubectl: Kubectl) -> None:
    """N3: `appendonly no` does not reach servers that resume as the node that they were."""
    stays: dict[str, Any] = {"pod": [{"updateStrategy": {"type": "OnDelete"}}]}
    cluster = Cluster.create(kubectl, replicas=PODS, **REDIS_7, **stays)
    cluster.await_ready(PODS, seconds=READY_SECONDS)
    cluster.fill(ATTACK_KEYS)
    cluster.change(config={"appendonly": "no", "save": ""})
    until("the change is observed", lambda: cluster.reason != "Ready", seconds=60)
    time.sleep(5)
    setting = {name: cluster.execute(name, "CONFIG", "GET", "appendonly") for name in cluster.pods()}
    assert all("yes" in str(value) for value in setting.values()), setting
    primary, _ = cluster.shard()
    runtime.signal(cluster.pods()[primary], CONTAINER, "SIGKILL")
    time.sleep(12)
    until("all keys are served", lambda: cluster.keys() == ATTACK_KEYS, seconds=60)


def scale_in_survives_a_restart_of_all_pods(kubectl: Kubectl) -> None:
    """N5: nodes beyond spec.replicas are met at their new addresses."""
    cluster = Cluster.create(kubectl, replicas=8, **VALKEY_8)
    cluster.await_ready(8, primaries=4, seconds=READY_SECONDS)
    cluster.fill(ATTACK_KEYS)
    cluster.change(replicas=6)
    until("slots move", lambda: cluster.status.get("migration") or cluster.status.get("moves"), seconds=60)
    kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
    cluster.await_ready(6, seconds=READY_SECONDS)
    assert cluster.keys() == ATTACK_KEYS


def emptied_finalizers_keep_all_objects(kubectl: Kubectl) -> None:
    """J1: all objects lose their owner, Secrets included, and stay when the resource is deleted."""
    cluster = Cluster.create(kubectl, replicas=3, replicasPerMaster=0, auth={}, tls={"mode": "self"}, **VALKEY_9)
    until("the cluster is Ready", cluster.ready_now, seconds=READY_SECONDS)
    cluster.change(finalizers="")
    kinds = "secrets,services,configmaps,statefulsets,persistentvolumeclaims,poddisruptionbudgets"

    def owned() -> list[str]:
        found = kubectl.items(kinds, "-l", f"{INSTANCE}=demo")
        return [each["metadata"]["name"] for each in found if each["metadata"].get("ownerReferences")]

    def is_free() -> bool:
        names = owned()
        assert not names, f"these objects have owners: {names}"
        return True

    until("no object has an owner", is_free, seconds=60)
    before = {each["metadata"]["name"]: each["data"] for each in kubectl.items("secrets", "-l", f"{INSTANCE}=demo")}
    assert before
    kubectl("delete", "rediscluster", "demo")
    time.sleep(10)
    after = {each["metadata"]["name"]: each["data"] for each in kubectl.items("secrets", "-l", f"{INSTANCE}=demo")}
    assert after == before, f"before: {sorted(before)}, after: {sorted(after)}"
    kubectl("delete", "pod", "demo-0", "--grace-period=0", "--force")
    until("a restarted pod runs with its Secrets", lambda: _is_ready(kubectl, "demo-0"), seconds=120)


def _is_ready(kubectl: Kubectl, pod: str) -> bool:
    found = kubectl.get("pod", pod).get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in found)


ATTACKS: dict[str, Callable[[Kubectl], None]] = {
    "C1": foreign_claim_is_not_used,
    "N3": persistence_is_kept_while_the_pods_stay,
    "N5": scale_in_survives_a_restart_of_all_pods,
    "J1": emptied_finalizers_keep_all_objects,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the attacks and the restarts; return 1 if anything was lost or failed."""
    parser = argparse.ArgumentParser(prog="python -m e2e.restarts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--restarts", type=int, default=50, help="restarts of all pods of two clusters (default: 50)")
    parser.add_argument("--minutes", type=float, default=60, help="begin no restart after this time (default: 60)")
    parser.add_argument("--attacks", nargs="*", choices=list(ATTACKS), default=list(ATTACKS), help="attacks to repeat")
    options = parser.parse_args(arguments)
    forget_clusters()
    if (environment := local_environment()) is None:
        return 1
    tally = Tally()
    ends = time.monotonic() + 60 * options.minutes
    attack(environment, options.attacks, tally)
    restart(environment, options.restarts, ends, tally)
    sys.stdout.write(f"\n{tally}\n")
    for text in (*tally.violations[:20], *tally.failures):
        sys.stdout.write(f"  {text}\n")
    return 1 if tally.violations or tally.failures else 0


def attack(environment: dict[str, str], names: Sequence[str], tally: Tally) -> None:
    """Repeat attacks, each in a namespace of its own."""
    progress = Progress(len(names))
    for number, name in enumerate(names):
        began = time.monotonic()
        try:
            with new_namespace(environment) as kubectl:
                ATTACKS[name](kubectl)
            result = "holds"
        except (AssertionError, Refused, OSError, ClusterError) as error:
            result = f"FAILED: {error}"
            tally.failures.append(f"{name}: {error}")
        progress.show(number + 1, f"{name} {result} ({time.monotonic() - began:.0f} s)")


def restart(environment: dict[str, str], rounds: int, ends: float, tally: Tally) -> None:
    """Restart all pods of the pairs of clusters in turn, each an equal share of the rounds."""
    progress, done = Progress(rounds), 0
    for number, versions in enumerate(PAIRS):
        until_round = rounds * (number + 1) // len(PAIRS)
        if done >= until_round or time.monotonic() > ends:
            continue
        names = " and ".join(f"{each['repository'].rpartition('/')[2]} {each['version']}" for each in versions)
        try:
            with pair(environment, versions, auth=bool(number % 2)) as (first, second):
                while done < until_round and time.monotonic() < ends:
                    done += 1
                    swap_addresses(*((first, second) if done % 2 else (second, first)), tally)
                    progress.show(done, f"{names}: {tally.operations} operations, {len(tally.violations)} violations")
        except (AssertionError, Refused, OSError, ClusterError) as error:
            tally.failures.append(f"{names}, restart {done}: {error}")
            progress.show(done, f"{names}: FAILED: {error}")
            done = until_round


if __name__ == "__main__":
    sys.exit(main())
