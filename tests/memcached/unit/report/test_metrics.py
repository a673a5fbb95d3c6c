"""Metrics of the state of a Memcached."""

from __future__ import annotations

from typing import Any

from operators.memcached.report.metrics import STATES, states
from operators.memcached.security.secrets import parse_secrets
from shared.kubernetes.kinds import Obj
from shared.pki.validity import Validity
from shared.status.resource_metrics import DESIRED, PAUSED, READY, State
from shared.status.resource_metrics import STATES as COMMON
from simulator.memcached.fake_servers import BEGINS, ENDS, certificate, tls_secret
from tests.memcached.unit.world import resource


def reported(status: Obj, **spec: Any) -> dict[State, float | None]:
    return {state: value for state, value, _ in states({"spec": spec, "status": status})}


def test_desired_and_ready_servers_are_reported() -> None:
    assert reported({"readyReplicas": 2}, size=3) == {DESIRED: 3, READY: 2, PAUSED: False}
    assert reported({}, size=3, paused=True) == {DESIRED: 3, READY: 0, PAUSED: True}


def test_desired_servers_respect_the_minimum_of_autoscaling() -> None:
    assert reported({}, size=1, autoscaling={"minReplicas": 2, "maxReplicas": 4})[DESIRED] == 2


def test_every_state_is_listed() -> None:
    assert set(reported({}, size=1)) - set(COMMON) == set(STATES)


def test_certificate_expiry_is_reported_even_after_it() -> None:
    reported = resource(tls={"secretName": "cache-tls"})
    assert parse_secrets(reported, {"cache-tls": tls_secret(certificate())}).validity == {
        "cache-tls": Validity(BEGINS, ENDS)
    }
    reported = resource(tls={"secretName": "cache-tls", "clientAuth": "required"})
    ended = parse_secrets(reported, {"cache-tls": tls_secret(certificate(ended=True))})
    assert list(ended.validity) == ["cache-tls"]
    assert BEGINS < ended.validity["cache-tls"].ends < ENDS
    assert parse_secrets(reported, {"cache-tls": None}).validity == {}
    assert parse_secrets(resource(), {}).validity == {}
