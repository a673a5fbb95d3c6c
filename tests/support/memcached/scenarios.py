"""Scenarios of a Memcached for the crash harness: in memory, and on an API server (`tests/platform/api/crash`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from operators.memcached.security.certificates import REFRESH_INTERVAL_SECONDS
from shared.cli.options import parse_options
from shared.kubernetes.kinds import (
    AUTOSCALER,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Kind,
    Obj,
)
from shared.steps.passwords import ROTATE
from simulator.memcached.database import SimulatedMemcached
from simulator.memcached.fake_servers import certificate, secret, tls_secret
from simulator.memcached.seed import build
from tests.harness.scenario import (
    Scenario,
    ScenarioStep,
    Stage,
    Subject,
    at_once,
    create,
    delete,
    edit,
    limit_turns,
    lose,
    operator_down,
    pod_problem,
    unobserved,
)
from tests.harness.scenario import apply as apply_resource
from tests.memcached.simulation.guard import Guard, false_claims
from tests.memcached.unit.world import UNPAUSED
from tests.support.issuing import issued
from tests.support.memcached.released import RELEASED_STATUS, released_deployment

OPTIONS = parse_options("memcached-operator", "memcached", ["--agent-image", "example.com/memcached-operator:1"], {})


@dataclass
class Servers(SimulatedMemcached):
    """A database of the crash harness."""

    guard: Guard = field(default_factory=Guard)

    def judge(self, _: Sequence[tuple[Kind, Obj]]) -> None:
        """Require that no status claims what is not true."""
        for claim in false_claims(self):
            self.guard.fail(claim)


MEMCACHED = Subject(
    "memcached",
    lambda servers: dataclasses.replace(build(OPTIONS, servers), issue=issued),
    database=Servers,
    patience=REFRESH_INTERVAL_SECONDS,
)

NAMED: Obj = {"size": 1, "workload": "StatefulSet"}
DEPLOYED: Obj = {"size": 1, "workload": "Deployment"}
AUTH: Obj = {"auth": {"secretName": "cache-users"}}
OTHER_AUTH: Obj = {"auth": {"secretName": "other-users"}}
TLS: Obj = {"tls": {"secretName": "cache-tls"}}
ISSUED: Obj = {"tls": {"mode": "self", "clientAuth": "required"}}
BUDGET: Obj = {"podDisruptionBudget": {"maxUnavailable": 1}}
REQUESTS: Obj = {"requests": {"cpu": "100m"}}
AUTOSCALING: Obj = {"autoscaling": {"maxReplicas": 5}, "resources": REQUESTS}
NEW_PASSWORD: Obj = {"metadata": {"annotations": {ROTATE: "1"}}}
INVALID: Obj = {"memoryMB": 8, "maxItemSizeMB": 8}


def apply(**spec: Any) -> ScenarioStep:
    """Apply a resource whose servers are replaced without a pause; simulation/test_pause.py is about the pause."""
    return apply_resource(**UNPAUSED | spec)


def users(password: str) -> Obj:
    data: Obj = secret("", users=f"app:{password}\n")["data"]
    return data


def given_users(password: str = "one") -> ScenarioStep:
    return create(SECRET, "cache-users", data=users(password))


def given_certificate() -> ScenarioStep:
    return create(SECRET, "cache-tls", data=tls_secret(certificate())["data"])


def renewed_certificate() -> ScenarioStep:
    """Renew the certificate in the Secret and in the servers' files."""
    new = certificate("renewed")

    def act(stage: Stage) -> None:
        stage.database.files = new
        stage.user_client.merge(SECRET, stage.namespace, "cache-tls", {"data": tls_secret(new)["data"]})

    return unobserved(ScenarioStep("the certificate is renewed", act))


def named_servers_fail() -> ScenarioStep:
    """Let the servers of a StatefulSet never become ready."""

    def act(stage: Stage) -> None:
        stage.workloads.pod_problem = lambda pod: "CrashLoopBackOff" if pod["metadata"]["name"] == "cache-0" else ""

    return ScenarioStep("pods of the StatefulSet fail", act)


def released(**spec: Any) -> ScenarioStep:
    """Create a resource with its Deployment and its status as release 0.1.0 left them."""

    def act(stage: Stage) -> None:
        apply(**spec).act(stage)
        (resource,) = stage.find()
        made = released_deployment(resource)
        made["metadata"]["namespace"] = stage.namespace
        stage.workloads.server.actor("memcached-operator").apply(DEPLOYMENT, made)
        status = {"status": RELEASED_STATUS}
        stage.user_client.merge(stage.kind, stage.namespace, "cache", status, subresource="status")

    return ScenarioStep("release 0.1.0 creates cache", act)


# Scenarios that do not depend on servers have none: replacing servers causes many similar writes.
SCENARIOS = (
    Scenario("create", (apply(size=2),)),
    Scenario("create a Deployment", (apply(**DEPLOYED),)),
    Scenario("create with all optional objects", (apply(size=1, metrics={}, **BUDGET, **AUTOSCALING),)),
    Scenario("scale", (apply(size=2), apply(size=1)), given=(apply(size=1),)),
    Scenario("scale a Deployment", (apply(**DEPLOYED | {"size": 2}), apply(**DEPLOYED)), given=(apply(**DEPLOYED),)),
    Scenario("scale to zero and back", (apply(size=0), apply(size=1)), given=(apply(size=1),)),
    Scenario("change the image", (apply(size=2, version="1.6.18"),), given=(apply(size=2),)),
    Scenario("change the image of a Deployment", (apply(**DEPLOYED, version="1.6.18"),), given=(apply(**DEPLOYED),)),
    Scenario(
        "change again during an update",
        (limit_turns(apply(size=1, memoryMB=128), 3), apply(size=2, memoryMB=256)),
        given=(apply(size=1),),
        exact_counts=False,
    ),
    Scenario("switch the workload", (apply(**NAMED), apply(**DEPLOYED)), given=(apply(**DEPLOYED),)),
    Scenario(
        "switch the workload and back immediately",
        (limit_turns(apply(**NAMED), 3), apply(**DEPLOYED)),
        given=(apply(**DEPLOYED),),
        exact_counts=False,
    ),
    # An operator that starts sees the change; one that misses it while it runs keeps the former workload.
    Scenario(
        "no longer set the workload after a switch",
        (*operator_down(apply(**NAMED)), apply(size=1)),
        given=(apply(**DEPLOYED),),
    ),
    Scenario(
        "no longer set the workload during a switch",
        (named_servers_fail(), *operator_down(apply(**NAMED)), apply(size=1)),
        given=(apply(**DEPLOYED),),
    ),
    Scenario(
        "upgrade from release 0.1.0",
        (*operator_down(released(size=2, memoryMB=32, version="1.6.38")), delete(DEPLOYMENT)),
    ),
    Scenario("change the port", (apply(size=2, containerPort=11311),), given=(apply(size=2),)),
    # An operator that starts sees the change; one that misses it while it runs makes no Secrets for it.
    Scenario(
        "authentication on and off",
        (*operator_down(apply(size=2, **AUTH)), apply(size=2)),
        given=(given_users(), apply(size=2)),
    ),
    Scenario("metrics on and off", (apply(size=0, metrics={}), apply(size=0)), given=(apply(size=0),)),
    Scenario(
        "auth before its Secret exists",
        (apply(size=0, **AUTH), given_users(), unobserved(edit(SECRET, {"data": users("two")}, "cache-users"))),
        given=(apply(size=0),),
    ),
    Scenario(
        "users changed, and their Secret recreated",
        (
            unobserved(edit(SECRET, {"data": users("two")}, "cache-users")),
            *at_once(delete(SECRET, "cache-users"), given_users("two")),
            edit(None, {"metadata": {"labels": {"a": "b"}}}),
        ),
        given=(given_users(), apply(size=1, **AUTH)),
    ),
    Scenario(
        "another Secret in a spec that is applied later",
        (
            create(SECRET, "other-users", data=users("other")),
            apply(size=1, **OTHER_AUTH, paused=True),
            unobserved(edit(SECRET, {"data": users("two")}, "cache-users")),
            edit(None, {"metadata": {"labels": {"a": "b"}}}),
            apply(size=1, **OTHER_AUTH),
        ),
        given=(given_users(), apply(size=1, **AUTH)),
    ),
    Scenario(
        "a server lost while the users file is empty",
        (
            unobserved(edit(SECRET, {"data": {"users": ""}}, "cache-users")),
            lose(POD),
            unobserved(edit(SECRET, {"data": users("two")}, "cache-users")),
        ),
        given=(given_users(), apply(size=1, **AUTH)),
    ),
    Scenario(
        "generated password: rotated, its Secret deleted",
        (apply(size=1, auth={}), edit(None, NEW_PASSWORD), unobserved(delete(SECRET, "cache-auth"))),
        given=(apply(size=1),),
    ),
    Scenario(
        "TLS on, then a renewed certificate",
        (apply(size=1, **TLS), renewed_certificate()),
        given=(given_certificate(), apply(size=1)),
    ),
    Scenario("create with TLS in mode self", (apply(size=1, **ISSUED),)),
    Scenario(
        "Secrets of TLS in mode self deleted",
        tuple(unobserved(delete(SECRET, f"cache-{name}")) for name in ("server-tls", "client-tls", "ca")),
        given=(apply(size=1, **ISSUED),),
    ),
    Scenario("warm restart on", (apply(size=0, warmRestart=True),), given=(apply(size=0),)),
    Scenario("disruption budget on and off", (apply(size=1, **BUDGET), apply(size=1)), given=(apply(size=1),)),
    Scenario(
        "autoscaling on and off",
        (apply(size=1, **AUTOSCALING), edit(None, {"spec": {"size": 2}}), apply(size=2, resources=REQUESTS)),
        given=(apply(size=1, resources=REQUESTS),),
    ),
    Scenario(
        "edits while paused",
        (apply(size=1, paused=True), delete(SERVICE), edit(STATEFUL_SET, {"spec": {"replicas": 3}}), apply(size=1)),
        given=(apply(size=1),),
    ),
    Scenario("invalid, then repaired", (apply(size=2, **INVALID), apply(size=1)), given=(apply(size=1),)),
    Scenario("left invalid", (apply(size=2, **INVALID),), given=(apply(size=1),), ends="InvalidSpec"),
    Scenario("owned objects deleted", (delete(SERVICE), delete(STATEFUL_SET)), given=(apply(size=1),)),
    Scenario(
        "owned objects edited",
        (
            edit(STATEFUL_SET, {"spec": {"replicas": 5}, "metadata": {"labels": {"app.kubernetes.io/part-of": None}}}),
            edit(SERVICE, {"spec": {"selector": {"app.kubernetes.io/instance": "another"}}}),
            edit(STATEFUL_SET, {"metadata": {"ownerReferences": None}}),
        ),
        given=(apply(size=1),),
        exact_counts=False,  # an edit that is observed late has started further servers, which then end
    ),
    Scenario(
        "Deployment deleted and edited",
        (delete(DEPLOYMENT), edit(DEPLOYMENT, {"spec": {"replicas": 3}})),
        given=(apply(**DEPLOYED),),
        exact_counts=False,
    ),
    Scenario(
        "optional objects deleted",
        (delete(DISRUPTION_BUDGET), delete(AUTOSCALER)),
        given=(apply(size=1, **BUDGET, **AUTOSCALING),),
    ),
    Scenario("a server lost", (lose(POD),), given=(apply(size=2),)),
    Scenario(
        "servers fail, then recover",
        (pod_problem("CrashLoopBackOff"), apply(size=2), pod_problem("")),
        given=(apply(size=1),),
    ),
    Scenario("deleted", (delete(),), given=(apply(size=1, **BUDGET),), ends=""),
    Scenario(
        "deleted and recreated",
        (delete(), apply(size=1)),
        given=(apply(**DEPLOYED),),
        # An operator that missed the deletion restores the connection Secret, which is not watched, once more.
        inexact=frozenset({"Secret cache-connection"}),
    ),
    Scenario("replaced immediately", at_once(delete(), apply(size=1)), given=(apply(**DEPLOYED | {"size": 2}),)),
    Scenario("orphaned and adopted", (delete(propagationPolicy="Orphan"), apply(size=1)), given=(apply(**DEPLOYED),)),
    Scenario(
        "changes without an operator",
        operator_down(apply(size=1, version="1.6.18"), delete(SERVICE), lose(POD), delete(), apply(size=1)),
        given=(apply(size=2),),
    ),
    Scenario(
        "foreign Service of the same name",
        (apply(size=1), unobserved(delete(SERVICE))),
        given=(create(SERVICE, "cache", spec={"ports": [{"port": 80}]}),),
    ),
)
