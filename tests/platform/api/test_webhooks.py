"""Webhooks and their certificates, as kubectl users observe them, and certificate rotation without failed calls."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from shared.kubernetes.client import Kube
from shared.kubernetes.credentials import load_configuration
from shared.kubernetes.errors import Invalid, KubeError, Unavailable
from shared.kubernetes.kinds import SECRET, Kind, Obj
from shared.kubernetes.transport import HttpTransport
from shared.pki import certs
from shared.pki.serving import SelfSignedCertificates
from shared.pki.stores import SharedSecret
from shared.pki.trust_bundle import MUTATING, VALIDATING, Clients
from shared.pki.trust_watch import TrustWatch
from shared.runtime.process import WEBHOOK_LINGER_SECONDS
from shared.status import conditions
from tests.harness import Actor
from tests.platform.api.conftest import install
from tests.platform.api.support.live import LiveServer
from tests.platform.api.support.replicas import Replica, wait
from tests.platform.api.support.running import NAME, Operator
from tests.platform.api.support.webhooks import BAD, SENTENCE, configurations, remove_rules
from tests.platform.api.support.world import MEMCACHED, World
from tools.local.controlplane import ControlPlane
from tools.local.machine.network import free_ports

log = logging.getLogger(__name__)

pytestmark = pytest.mark.nightly

AUTOSCALED = {"size": 1, "autoscaling": {"minReplicas": 2, "maxReplicas": 4}}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run a separate API server whose CRD lacks the validation rules."""
    with ControlPlane.alone(tmp_path_factory.mktemp("webhooks")) as plane:
        install(plane)
        world = World(plane)
        remove_rules(world)
        world.close()
        yield plane


@contextmanager
def registered_webhooks(world: World, port: int, *, failure_policy: str = "Fail") -> Iterator[None]:
    """Register webhooks at a port while the context is open."""
    for kind, body in zip((MUTATING, VALIDATING), _configurations(world, port, failure_policy), strict=True):
        world.user_client.apply(kind, body)
    try:
        yield
    finally:
        for kind in (MUTATING, VALIDATING):
            world.user_client.delete(kind, None, world.namespace)


def _configurations(world: World, port: int, failure_policy: str) -> list[Obj]:
    return configurations(world.namespace, port, world.namespace, failure_policy=failure_policy)


def flags(world: World, port: int) -> list[str]:
    return [
        f"--webhook-bind-address=127.0.0.1:{port}",
        f"--certificates=self:{world.namespace}/certificates",
        "--certificate-hosts=127.0.0.1",
        f"--webhook-configurations={world.namespace}",
    ]


@pytest.fixture
def webhooks(plane: ControlPlane, world: World) -> Iterator[Operator]:
    """Run the operator with required webhooks for the namespace of the test."""
    (port,) = free_ports(1)
    with registered_webhooks(world, port):
        operator = Operator(plane.kubeconfig, world.namespace, flags=flags(world, port))
        operator.start()
        yield operator
        operator.stop()


def kubectl(plane: ControlPlane, world: World, *arguments: str, stdin: str) -> tuple[int, str]:
    """Return the exit code and the complete output."""
    program = Path(sys.executable).parent / "kubectl"
    command: list[str | Path] = [
        program,
        f"--kubeconfig={plane.kubeconfig}",
        f"--namespace={world.namespace}",
        *arguments,
    ]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def manifest(**spec: object) -> str:
    lines = [f"  {key}: {value}" for key, value in {"size": 1, **spec}.items()]
    head = ["apiVersion: cache.example.com/v1alpha1", "kind: Memcached", "metadata: {name: cache}", "spec:"]
    return "\n".join([*head, *lines])


def trusted(user_client: Actor, name: str, kind: Kind = VALIDATING) -> str:
    """Return the CA bundle that the API server trusts; empty without one."""
    (webhook,) = user_client.get(kind, None, name)["webhooks"]
    return base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode()


# Behaviour for users.


@pytest.mark.commit
def test_invalid_resource_is_rejected_with_an_explanation(
    plane: ControlPlane, world: World, webhooks: Operator
) -> None:
    for command in ("create", "apply"):
        code, output = kubectl(plane, world, command, "-f-", stdin=manifest(**BAD))
        assert code == 1
        assert output.strip() == f'The Memcached "cache" is invalid: spec.maxItemSizeMB: {SENTENCE}'
    with pytest.raises(Invalid, match="denied the request") as refusal:
        world.create(**BAD)
    assert SENTENCE in str(refusal.value), "the message contains the sentence as well as the details"
    world.create()
    with pytest.raises(Invalid, match="more than half"):
        world.change(**BAD)


def test_defaults_are_set_and_warnings_reach_kubectl(plane: ControlPlane, world: World, webhooks: Operator) -> None:
    code, output = kubectl(plane, world, "apply", "-f-", stdin=manifest(**AUTOSCALED))
    assert code == 0, output
    assert "Warning: spec.autoscaling: " in output
    assert world.get(MEMCACHED)["spec"]["size"] == 2


def test_dry_run_shows_what_a_change_does(plane: ControlPlane, world: World, webhooks: Operator) -> None:
    larger = manifest(size=3)
    world.create()
    code, output = kubectl(plane, world, "apply", "--dry-run=server", "-f-", stdin=larger)
    assert code == 0, output
    assert "Warning: dry run: adds 2 pods (1 → 3)." in output
    assert "Warning: dry run: kubectl platform plan -f FILE shows each step of this change." in output
    assert world.get(MEMCACHED)["spec"]["size"] == 1
    assert "dry run" not in kubectl(plane, world, "apply", "-f-", stdin=larger)[1]


def test_resource_that_violates_a_newer_rule_can_be_labelled_and_deleted(
    plane: ControlPlane, world: World, kube: Callable[..., str]
) -> None:
    world.create(**BAD)
    world.edit(MEMCACHED, {"metadata": {"finalizers": ["example.com/hold"]}})
    (port,) = free_ports(1)
    with registered_webhooks(world, port):
        kube("label", "memcached/cache", "with=no-webhook")
        operator = Operator(plane.kubeconfig, world.namespace, flags=flags(world, port))
        operator.start()
        try:
            kube("label", "memcached/cache", "--overwrite", "with=webhooks")
            with pytest.raises(Invalid, match="more than half"):
                world.change(size=2)
            world.delete(MEMCACHED)
        finally:
            operator.stop()
        world.edit(MEMCACHED, {"metadata": {"finalizers": None}})
        assert world.find(MEMCACHED) is None, "an unavailable webhook does not block the deletion"


def test_reconcile_reports_what_an_unavailable_webhook_let_pass(plane: ControlPlane, world: World) -> None:
    (port,) = free_ports(1)
    operator = Operator(plane.kubeconfig, world.namespace)
    operator.start()
    try:
        with registered_webhooks(world, port, failure_policy="Ignore"):
            world.eventually(lambda: _configurations_are_active(world, "Ignore"))
            world.create(**BAD)
            world.eventually(lambda: world.reason() == "InvalidSpec")
            assert world.condition(of=conditions.STALLED)["status"] == "True"
            assert f"spec.maxItemSizeMB: {SENTENCE}" in world.condition()["message"]
    finally:
        operator.stop()


def test_unavailable_required_webhook_blocks_writes(world: World) -> None:
    (port,) = free_ports(1)
    with registered_webhooks(world, port):
        world.eventually(lambda: _configurations_are_active(world, "Fail"))
        for spec in ({}, BAD):
            with pytest.raises(Unavailable, match="failed calling webhook"):
                world.create("other", **spec)
        assert world.find(MEMCACHED, "other") is None


def _configurations_are_active(world: World, failure_policy: str) -> bool:
    """Whether the API server uses the configurations, as its behaviour without a running webhook shows."""
    try:
        world.create("probe")
    except Unavailable:
        return failure_policy == "Fail"
    world.remove(MEMCACHED, "probe")
    return failure_policy == "Ignore"


def test_terminating_replica_answers_webhooks_for_a_while(plane: ControlPlane, world: World) -> None:
    """Services route requests to a terminating pod for a while."""
    (port,) = free_ports(1)
    with registered_webhooks(world, port), Replica.running(plane.kubeconfig, *flags(world, port)) as replica:
        wait(lambda: _created(world))
        replica.signal(signal.SIGTERM)
        terminated_at = time.monotonic()
        for number in itertools.count():
            world.create(f"late-{number}")
            time.sleep(0.1)
            if time.monotonic() > terminated_at + WEBHOOK_LINGER_SECONDS - 0.5:
                break
        assert replica.end() == 0
        with pytest.raises(Unavailable):
            world.create("too-late")


# Certificates.


@pytest.mark.commit
def test_operator_owns_only_the_ca_bundle_and_restores_it(world: World, webhooks: Operator) -> None:
    bundle = trusted(world.user_client, world.namespace)
    for kind in (MUTATING, VALIDATING):
        found = world.user_client.get(kind, None, world.namespace)
        (own_entry,) = (entry for entry in found["metadata"]["managedFields"] if entry["manager"] == NAME)
        (owned,) = own_entry["fieldsV1"]["f:webhooks"].values()
        assert owned == {".": {}, "f:name": {}, "f:clientConfig": {"f:caBundle": {}}}
        found["webhooks"][0]["clientConfig"].pop("caBundle")
        world.user_client.update(kind, found)
        assert trusted(world.user_client, world.namespace, kind) == ""
    webhooks.restart()
    assert {trusted(world.user_client, world.namespace, kind) for kind in (MUTATING, VALIDATING)} == {bundle}
    world.eventually(lambda: _created(world))


def _created(world: World) -> bool:
    try:
        world.create()
    except Unavailable:  # the API server has not observed the new bundle yet
        return False
    return True


def test_certificates_rotate_under_load_without_failed_calls(plane: ControlPlane, world: World) -> None:
    """Run two replicas through a rotation of the serving certificate, then of the CA after its Secret is deleted."""
    ports = free_ports(2)
    calls: Counter[str] = Counter()
    seen: dict[int, set[str]] = {port: set() for port in ports}
    bundles: set[str] = set()
    over = threading.Event()

    def create(number: int) -> None:
        """Create and delete resources continuously."""
        user_client = LiveServer(plane, world.namespace).actor(f"person-{number}")
        body = {"apiVersion": MEMCACHED.api_version, "kind": MEMCACHED.name, "spec": AUTOSCALED}
        while not over.is_set():
            calls["created"] += 1
            metadata = {"name": f"load-{number}", "namespace": world.namespace}
            try:
                assert user_client.create(MEMCACHED, {**body, "metadata": metadata})["spec"]["size"] == 2
                user_client.delete(MEMCACHED, world.namespace, f"load-{number}")
            except KubeError as error:
                calls[f"failed: {error}"] += 1
            time.sleep(0.02)

    def connect(port: int) -> None:
        """Connect repeatedly, each time with the current caBundle."""
        user_client = LiveServer(plane, world.namespace).actor("watcher")
        while not over.is_set():
            bundle = trusted(user_client, world.namespace)
            bundles.add(bundle)
            calls["connected"] += 1
            try:
                seen[port].add(_served(port, bundle))
            except OSError as error:
                calls[f"failed: {error}"] += 1
            time.sleep(0.02)

    with ExitStack() as stack:
        stack.enter_context(registered_webhooks(world, ports[0]))
        lease = ["--leader-elect", f"--leader-elect-namespace={world.namespace}", "--watch-namespace=default"]
        for port in ports:
            more = [*flags(world, port), *lease, "--certificate-lifetime=20"]
            stack.enter_context(Replica.running(plane.kubeconfig, *more))
        wait(lambda: _created(world))
        threads = [threading.Thread(target=create, args=(number,)) for number in range(2)]
        threads += [threading.Thread(target=connect, args=(port,)) for port in ports]
        for thread in threads:
            thread.start()
        try:
            wait(lambda: all(len(served) == 2 for served in seen.values()), 60)
            world.user_client.delete(SECRET, world.namespace, "certificates")
            wait(lambda: all(_signers(served) == 2 for served in seen.values()), 60)
        finally:
            over.set()
            for thread in threads:
                thread.join(10)
    assert [call for call in calls if call.startswith("failed")] == []
    assert calls["created"] > 100
    assert calls["connected"] > 100
    assert len({certs.read(bundle)[0].subject for bundle in bundles}) == 2


def _signers(served: set[str]) -> int:
    return len({certs.read(certificate)[0].issuer for certificate in served})


def _served(port: int, bundle: str) -> str:
    """Return the certificate that a client receives; raise OSError if the bundle does not verify it."""
    trusting = ssl.create_default_context(cadata=bundle)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
        trusting.wrap_socket(raw, server_hostname="127.0.0.1") as connection,
    ):
        return ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True) or b"")


RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: certifier, namespace: {namespace}}}
rules: [{{apiGroups: [""], resources: [secrets], resourceNames: [certificates], verbs: [get, watch, create, patch]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: certifier, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: certifier}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: certifier}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: certifier}}
rules:
  - apiGroups: [admissionregistration.k8s.io]
    resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
    resourceNames: [{namespace}]
    verbs: [get, watch, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: certifier}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: certifier}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: certifier}}]
"""


def test_permissions_on_one_secret_and_two_configurations_suffice(
    plane: ControlPlane, world: World, kube: Callable[..., str]
) -> None:
    kube("apply", "-f-", stdin=RIGHTS.format(namespace=world.namespace))

    async def rotate() -> None:
        transport = HttpTransport(await load_configuration(str(plane.client_kubeconfig("certifier", "certifier"))))
        kube = Kube(transport, manager="certifier")
        store, clients = SharedSecret(kube, world.namespace, "certificates"), Clients(kube, world.namespace)
        hosts, life = frozenset({"127.0.0.1"}), timedelta(seconds=10)
        certificates = SelfSignedCertificates(store, clients, name="ours", hosts=hosts, life=life)
        await certificates.open()
        assert certificates.unready() is None
        first = world.get(SECRET, "certificates")["data"]["tls.crt"]
        await asyncio.sleep(7)  # two thirds of its lifetime
        await certificates.open()
        assert world.get(SECRET, "certificates")["data"]["tls.crt"] != first
        await transport.close()

    async def repair() -> None:
        """Restore what clients trust within 10 s, although the certificate itself is not due."""
        transport = HttpTransport(await load_configuration(str(plane.client_kubeconfig("certifier", "certifier"))))
        kube = Kube(transport, manager="certifier")
        store, clients = SharedSecret(kube, world.namespace, "certificates"), Clients(kube, world.namespace)
        certificates = SelfSignedCertificates(store, clients, name="ours", hosts=frozenset({"127.0.0.1"}))
        await certificates.open()
        names = [(MUTATING, None, world.namespace), (VALIDATING, None, world.namespace)]
        watch = TrustWatch(transport, [*names, (SECRET, world.namespace, "certificates")])
        tasks = [asyncio.create_task(watch.run()), asyncio.create_task(certificates.run(watch.wait))]
        await asyncio.sleep(2)
        bundle = trusted(world.user_client, world.namespace)
        for kind, body in zip((MUTATING, VALIDATING), _configurations(world, 1, "Fail"), strict=True):
            world.user_client.delete(kind, None, world.namespace)
            world.user_client.apply(kind, body)
        await _within(10, lambda: {trusted(world.user_client, world.namespace, kind) for kind, *_ in names} == {bundle})
        world.user_client.delete(SECRET, world.namespace, "certificates")
        await _within(10, lambda: world.find(SECRET, "certificates") is not None)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await transport.close()

    with registered_webhooks(world, free_ports(1)[0]):
        asyncio.run(rotate())
        asyncio.run(repair())


async def _within(seconds: float, holds: Callable[[], bool]) -> None:
    since = time.monotonic()
    while not holds():
        assert time.monotonic() - since < seconds
        await asyncio.sleep(0.05)
    log.info("restored after %.2f s", time.monotonic() - since)
