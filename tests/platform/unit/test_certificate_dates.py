"""Dates of certificates, in the plans of all operators: what is reported, what stops, and what continues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from operators.etcd.security.secrets import Secrets as EtcdSecrets
from operators.memcached.plan import Planner
from operators.memcached.security.certificates import ServedCertificate
from operators.memcached.security.secrets import Secrets as MemcachedSecrets
from shared.kubernetes.secrets import encoded
from shared.pki import ca
from shared.pki.copies import CopiedCertificate, TrustedCertificate
from shared.pki.validity import Validity
from shared.runtime.plan import PASS, Apply, Plan
from shared.status.verdict import Progress
from shared.steps.certificates import report_withheld_certificates
from simulator.memcached.fake_servers import certificate
from tests.etcd.unit import world as etcd
from tests.memcached.unit import world as memcached
from tests.redis.unit import world as redis

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
SERVERS = tuple(memcached.pod(number) for number in (1, 2, 3))


@dataclass(frozen=True)
class Operator:
    """A complete resource of an operator.

    Attributes:
        plan: plans it with a certificate of this validity, at a time.
        now: present time.
    """

    name: str
    plan: Callable[[Validity, datetime], Plan]
    now: datetime

    def __str__(self) -> str:
        return self.name


def _etcd(validity: Validity, now: datetime, *members: etcd.At, **spec: Any) -> Plan:
    resource = etcd.cluster(**spec)
    observed = etcd.seen(resource, *(members or [etcd.VOTER] * 3))
    observed = replace(observed, secrets=EtcdSecrets(validity={"given": validity}))
    return etcd.PLANNER.plan(resource, observed, now)


def _redis(validity: Validity, now: datetime, *nodes: redis.At) -> Plan:
    resource, observed = redis.world(*(nodes or redis.formed()))
    observed = replace(observed, secrets=replace(observed.secrets, validity={"given": validity}))
    return redis.PLANNER.plan(resource, observed, now)


def _memcached(validity: Validity, now: datetime) -> Plan:
    resource, observed = memcached.resource(phase="Running"), memcached.observed_pods(*SERVERS)
    observed = replace(observed, secrets=MemcachedSecrets(validity={"given": validity}))
    return Planner(memcached.SETTINGS).plan(resource, observed, now)


OPERATORS = pytest.mark.parametrize(
    "operator",
    [
        Operator("etcd", _etcd, etcd.NOW),
        Operator("redis", _redis, redis.NOW),
        Operator("memcached", _memcached, memcached.NOW),
    ],
    ids=str,
)


@OPERATORS
def test_valid_certificate_is_not_mentioned(operator: Operator) -> None:
    made = operator.plan(Validity(operator.now - 30 * DAY, operator.now + 60 * DAY), operator.now)
    assert (made.verdict.reason, made.verdict.done) == ("Ready", True)


@OPERATORS
def test_resource_whose_certificate_has_ended_is_not_ready(operator: Operator) -> None:
    made = operator.plan(Validity(operator.now - 30 * DAY, operator.now), operator.now)
    assert (made.verdict.reason, made.verdict.progress) == ("CertificateExpired", Progress.WAITING)
    assert f"Secret given: the certificate, or its authority, ended at {operator.now:%Y-%m-%d %H:%M} UTC." in (
        made.verdict.message
    )
    assert made.verdict.warning


@OPERATORS
def test_certificate_that_is_not_valid_yet_is_reported(operator: Operator) -> None:
    made = operator.plan(Validity(operator.now + HOUR, operator.now + 30 * DAY), operator.now)
    assert made.verdict.reason == "CertificateNotYetValid"


@OPERATORS
def test_certificate_that_ends_soon_is_a_note_that_does_not_change(operator: Operator) -> None:
    validity = Validity(operator.now - 80 * DAY, operator.now + 2 * DAY)
    verdicts = [operator.plan(validity, now).verdict for now in (operator.now, operator.now + HOUR)]
    assert verdicts[0] == verdicts[1], "neither the condition nor the event is repeated"
    assert (verdicts[0].reason, verdicts[0].done, verdicts[0].warning) == ("CertificateExpiring", True, True)
    ends = f"Secret given at {validity.ends:%Y-%m-%d %H:%M} UTC"
    assert verdicts[0].message.endswith(f"were not renewed: {ends}. Renew them before that.")
    assert verdicts[0].message[0].isdigit() or "ready" in verdicts[0].message, "after the summary"


@OPERATORS
def test_resource_is_reconciled_at_the_moment_when_a_certificate_ends(operator: Operator) -> None:
    made = operator.plan(Validity(operator.now - 30 * DAY, operator.now + timedelta(seconds=7)), operator.now)
    assert made.requeue == 7.0


ENDED = Validity(memcached.NOW - 30 * DAY, memcached.NOW)


def test_etcd_replaces_a_lost_member_although_its_certificate_has_ended_and_rolls_no_pod() -> None:
    lost = etcd.At(up=False, disk="another")
    assert any(
        act.startswith("RemoveMember") or "remove" in act.lower()
        for act in etcd.acts(_etcd(ENDED, etcd.NOW, etcd.VOTER, lost, etcd.VOTER).actions)
    )
    outdated = replace(etcd.VOTER, old=True)
    assert etcd.acts(_etcd(ENDED, etcd.NOW, etcd.VOTER, outdated, etcd.VOTER).actions) == []


def test_reason_of_a_repair_names_the_certificate_that_has_ended() -> None:
    """Nodes reject each other, and the operator: the cause is in the message."""
    unreachable = [replace(node, up=False) for node in redis.formed()]
    made = _redis(ENDED, redis.NOW, *unreachable)
    assert made.verdict.reason != "CertificateExpired"
    assert "Secret given: the certificate, or its authority, ended at" in made.verdict.message


def test_memcached_recreates_a_deleted_workload_although_its_certificate_has_ended() -> None:
    resource = memcached.resource(phase="Running")
    secrets = MemcachedSecrets(validity={"given": ENDED})
    made = memcached.plan(resource, replace(memcached.EMPTY, secrets=secrets))
    assert [str(action.kind) for action in made.actions if isinstance(action, Apply)] == [
        "NetworkPolicy",
        "Service",
        "StatefulSet",
    ]
    observed = replace(memcached.observed_pods(*SERVERS), secrets=secrets)
    assert [str(action.kind) for action in memcached.plan(resource, observed).actions if isinstance(action, Apply)] == [
        "NetworkPolicy",
        "Service",
    ]


# Whether clients are served.


def _available(made: Plan) -> tuple[bool | None, str]:
    assert made.health
    assert made.health.available
    return made.health.available.holds, made.health.available.message


def _etcd_with(**validity: Validity) -> Plan:
    resource = etcd.cluster(tls={"mode": "self"})
    named = {name.replace("_", "-"): period for name, period in validity.items()}
    return etcd.PLANNER.plan(
        resource, replace(etcd.seen(resource, *[etcd.VOTER] * 3), secrets=EtcdSecrets(validity=named)), etcd.NOW
    )


def _redis_with(**validity: Validity) -> Plan:
    resource, (_, observed) = redis.cluster(*redis.formed(), tls={"mode": "self"}), redis.world(*redis.formed())
    named = {name.replace("_", "-"): period for name, period in validity.items()}
    return redis.PLANNER.plan(resource, replace(observed, secrets=replace(observed.secrets, validity=named)), redis.NOW)


def _memcached_with(served: ServedCertificate | None = None, *, recorded: bool = True, **validity: Validity) -> Plan:
    named = {name.replace("_", "-"): period for name, period in validity.items()}
    mounted = SimpleNamespace(validity=named.get("cache-server-tls"))
    known = cast("TrustedCertificate", mounted) if named else None
    secrets = MemcachedSecrets(pair=certificate(), validity=named, mounts="cache-server-tls", served=known)
    status = {"certificate": secrets.fingerprint if recorded else "former"}
    resource = memcached.resource(phase="Running", tls={"mode": "self"}, status=status)
    reports = {pod.name: served for pod in SERVERS} if served else {}
    observed = replace(memcached.observed_pods(*SERVERS), secrets=secrets, served_certificates=reports)
    return memcached.plan(resource, observed)


@pytest.mark.parametrize(
    ("made", "secret"),
    [
        (_etcd_with(demo_server_tls=ENDED), "demo-server-tls"),
        (_redis_with(demo_server_tls=ENDED), "demo-server-tls"),
        (_memcached_with(cache_server_tls=ENDED), "cache-server-tls"),
        (_memcached_with(ServedCertificate("former", ends=memcached.NOW), recorded=False), "cache-server-tls"),
    ],
    ids=["etcd", "redis", "memcached", "memcached, not reloaded yet"],
)
def test_servers_whose_certificate_has_ended_are_not_available(made: Plan, secret: str) -> None:
    """Clients reject it, although the kubelet and the operator reach the servers."""
    assert _available(made) == (
        False,
        "The certificate of the servers, or its authority, ended at "
        f"{memcached.NOW:%Y-%m-%d %H:%M} UTC: clients that verify it cannot connect. Renew Secret {secret}.",
    )


@pytest.mark.parametrize(
    "made",
    [
        _etcd_with(demo_peer_tls=ENDED, demo_client_tls=ENDED),
        _redis_with(demo_client_tls=ENDED),
        _memcached_with(ServedCertificate("former", ends=memcached.NOW + DAY), recorded=False, cache_server_tls=ENDED),
        _memcached_with(recorded=False, cache_server_tls=ENDED),
    ],
    ids=["etcd", "redis", "memcached", "memcached, unknown"],
)
def test_certificate_that_clients_do_not_see_is_no_outage(made: Plan) -> None:
    assert _available(made)[0] is True


# A certificate that clients reject replaces no valid one.


@pytest.mark.parametrize(
    ("original", "reason", "state"),
    [
        (Validity(etcd.NOW - 30 * DAY, etcd.NOW), "CertificateExpired", "ended at"),
        (Validity(etcd.NOW + DAY, etcd.NOW + 30 * DAY), "CertificateNotYetValid", "is valid from"),
    ],
    ids=["ended", "not valid yet"],
)
def test_certificate_that_is_not_copied_is_reported(original: Validity, reason: str, state: str) -> None:
    given, copy = (
        TrustedCertificate.of({"data": encoded(dict(issued(period)))})
        for period in (original, Validity(etcd.NOW - DAY, etcd.NOW + 60 * DAY))
    )
    copied = CopiedCertificate("given", "mounted", given, copy)
    step = report_withheld_certificates((copied,), etcd.NOW)
    assert (step.progress, step.reason, step.warning) == (Progress.PROGRESSING, reason, True)
    assert step.message.startswith(f"spec.tls: Secret given: the certificate, or its authority, {state} ")
    assert f"former certificate, which is valid until {etcd.NOW + 60 * DAY:%Y-%m-%d}" in step.message
    assert step.requeue
    assert report_withheld_certificates((replace(copied, original=copy),), etcd.NOW) == PASS
    assert report_withheld_certificates((replace(copied, copy=given),), etcd.NOW) == PASS


def issued(period: Validity) -> Mapping[str, str]:
    signer = ca.authority("team-ca", begins=etcd.NOW - 90 * DAY, ends=etcd.NOW + 900 * DAY)
    pair = ca.issue(signer, "x", begins=period.begins, ends=period.ends, hosts=["x"], client=True)
    return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": signer.certificate}
