"""Sabotaged operators, each with one defect: the guard of the simulated servers must catch every one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from operators.memcached import observe, plan
from operators.memcached.api.resource import Memcached
from operators.memcached.facts.assessment import Assessment
from operators.memcached.facts.pause import Pause
from operators.memcached.objects import deployment, names
from operators.memcached.security.connection import Access
from operators.memcached.security.users import AcceptedUsers
from operators.memcached.state import observed
from operators.memcached.steps import provisioning
from shared.kubernetes import ownership, secret_provenance
from shared.kubernetes.kinds import DISRUPTION_BUDGET, SECRET, SERVICE, Kind, Obj
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY, NAME, Owner
from shared.pki.copies import CopiedCertificate
from shared.runtime.plan import PASS, Delete, Step
from shared.steps.database import Database
from simulator.harness import NAMESPACE
from simulator.memcached.fake_servers import certificate, tls_secret
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import (
    Scenario,
    ScenarioStep,
    Stage,
    Unsafe,
    create,
    delete,
    edit,
    later,
    lose,
    pod_problem,
    unobserved,
)
from tests.harness.scenario import apply as apply_paced
from tests.harness.scenario_runner import ScenarioRun, World
from tests.memcached.simulation.guard import OPERATOR
from tests.support.memcached.scenarios import (
    AUTH,
    BUDGET,
    DEPLOYED,
    MEMCACHED,
    NAMED,
    TLS,
    Servers,
    apply,
    given_certificate,
    given_users,
    renewed_certificate,
    users,
)

Patch = Callable[[pytest.MonkeyPatch], None]

METRICS: Obj = {"metrics": {}}


def changes_foreign_objects(patch: pytest.MonkeyPatch) -> None:
    """Change an object of the right name, of any owner."""
    patch.setattr(ownership, "require_owned", lambda *_: None)


def deletes_by_labels(patch: pytest.MonkeyPatch) -> None:
    """Delete an object with the operator's labels, which a copied manifest has too."""
    patch.setattr(Owner, "may_delete", Owner.owns)


def uses_any_secret(patch: pytest.MonkeyPatch) -> None:
    """Use the content of a Secret of the right name, of any author."""
    patch.setattr(secret_provenance, "is_proven", lambda *_: True)


def sends_passwords_to_any_certificate_of_the_authority(patch: pytest.MonkeyPatch) -> None:
    """Send passwords to a server whose certificate has none of the names."""
    patch.setattr(Access, "_is_named", lambda *_: True)


def copies_any_certificate(patch: pytest.MonkeyPatch) -> None:
    """Copy a certificate that has ended over one that is valid."""
    patch.setattr(CopiedCertificate, "withheld", lambda *_: None)


def mounts_the_users_of_others(patch: pytest.MonkeyPatch) -> None:
    """Mount the Secret that users change, instead of a copy of its valid content."""
    patch.setattr(provisioning, "next_mounts", lambda seen: names.originals(seen.resource))


def takes_users_for_loaded(patch: pytest.MonkeyPatch) -> None:
    """Record the users file without an attestation."""

    async def accepted(*_: object) -> AcceptedUsers:
        return AcceptedUsers(all=True, only=True)

    patch.setattr(observe, "inspect_users", accepted)


def takes_the_certificate_for_loaded(patch: pytest.MonkeyPatch) -> None:
    """Record the certificate in the Secret, regardless of what servers serve."""
    patch.setattr(Assessment, "servers_with_old_certificate", ())


def takes_the_tag_for_the_version(patch: pytest.MonkeyPatch) -> None:
    """Record the version that the image promises."""

    async def promised(*_: object) -> str:
        return "1.6.38"

    patch.setattr(observe, "inspect_version", promised)


def replaces_all_servers_at_once(patch: pytest.MonkeyPatch) -> None:
    """Roll a Deployment without regard for what serves."""
    build = deployment.deployment

    def hasty(*arguments: Any) -> Obj:
        made = build(*arguments)
        made["spec"]["strategy"]["rollingUpdate"] = {"maxSurge": 0, "maxUnavailable": "100%"}
        return made

    patch.setattr(deployment, "deployment", hasty)


def skips_the_pause(patch: pytest.MonkeyPatch) -> None:
    """Replace the next server as soon as the last one is ready, and empty."""
    patch.setattr(Assessment, "pause", Pause(0))


def deletes_the_former_workload_first(patch: pytest.MonkeyPatch) -> None:
    """Delete the former workload before the new servers are ready."""

    def hasty(seen: Assessment) -> Step:
        former = seen.former
        return PASS if former is None or former.obj is None else Step.do(Delete(former.kind, former.obj))

    patch.setattr(plan, "wait_for_servers", hasty)


def ignores_the_pause_of_a_resource(patch: pytest.MonkeyPatch) -> None:
    """Keep the objects of a paused resource."""
    patch.setattr(plan, "pause", lambda _: lambda _: PASS)


def writes_the_connection_of_a_paused_resource(patch: pytest.MonkeyPatch) -> None:
    """Keep the Secret for clients of a paused resource."""
    keep = Database.ensure_connection

    def unpaused(database: Database[Assessment], seen: Assessment) -> Step:
        spec = {**seen.resource.obj["spec"], "paused": False}
        return keep(database, dataclasses.replace(seen, resource=Memcached.parse({**seen.resource.obj, "spec": spec})))

    patch.setattr(Database, "ensure_connection", unpaused)


def publishes_what_the_spec_requires(patch: pytest.MonkeyPatch) -> None:
    """Publish the password before the servers require one."""
    patch.setattr(Assessment, "accepts_users", True)


def lists_the_port_of_the_spec(patch: pytest.MonkeyPatch) -> None:
    """List all servers with the port of the spec, before they listen on it."""
    patch.setattr(observed, "server_port", lambda _: 11311)


def impostor(stage: Stage) -> None:
    """Let another program respond at the address of a server, with a certificate of the same authority."""
    address = next(iter(stage.database.uids))
    stage.database.impostors[address] = certificate("impostor", hosts=("impostor",))


def ended_certificate(stage: Stage) -> None:
    stage.user_client.merge(SECRET, stage.namespace, "cache-tls", {"data": tls_secret(certificate(ended=True))["data"]})


def keeps_former_users(stage: Stage) -> None:
    """Let servers never load another users file."""
    stage.database.loaded_users = dict.fromkeys(stage.database.uids, "app:one\n")


def other_program(stage: Stage) -> None:
    stage.database.programs["memcached:1.6.38"] = "1.6.18"


def clients(stage: Stage) -> None:
    stage.database.clients.keys = 60


def full(stage: Stage) -> None:
    assert stage.database.clients.found > 0.9
    stage.database.clients.least_found = 1.0
    stage.database.guard.required_share = 0.5  # of three servers, at most one is empty


def does(act: Callable[[Stage], object]) -> ScenarioStep:
    return ScenarioStep(act.__name__, act)


BUDGET_OF_ANOTHER: Obj = {"spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "other"}}}}
LABELED: Obj = {"labels": {MANAGED_BY: OPERATOR, NAME: "memcached", INSTANCE: "cache"}}
"""Labels of the operator, which any client can choose."""

CHANGED_USERS = unobserved(edit(SECRET, {"data": users("two")}, "cache-users"))
PACED: Obj = NAMED | {"size": 3}
THREE: Obj = DEPLOYED | {"size": 3}
RESYNC = edit(None, {"metadata": {"labels": {"resync": "1"}}})


def labeled(kind: Kind, name: str, **body: Any) -> ScenarioStep:
    """Create an object with the operator's labels as a user."""
    return create(kind, name, metadata={"name": name, "namespace": NAMESPACE, **LABELED}, **body)


MUTATIONS: list[tuple[Patch, Scenario, str]] = [
    (
        changes_foreign_objects,
        Scenario(
            "a PodDisruptionBudget of the same name",
            (apply(size=1, **BUDGET),),
            given=(create(DISRUPTION_BUDGET, "cache", **BUDGET_OF_ANOTHER),),
        ),
        "writes PodDisruptionBudget cache, which is foreign",
    ),
    (
        deletes_by_labels,
        Scenario(
            "a PodDisruptionBudget with the operator's labels",
            (labeled(DISRUPTION_BUDGET, "cache", **BUDGET_OF_ANOTHER),),
            given=(apply(size=1),),
        ),
        "writes PodDisruptionBudget cache, which is foreign",
    ),
    (
        uses_any_secret,
        Scenario(
            "a Secret of the generated users exists",
            (apply(size=1, auth={}),),
            given=(labeled(SECRET, "cache-auth", data=users("known")),),
        ),
        "loads the users of Secret cache-auth, which the operator did not write",
    ),
    (
        sends_passwords_to_any_certificate_of_the_authority,
        Scenario(
            "another program responds at the address of a server",
            (does(impostor), renewed_certificate()),
            given=(given_users(), given_certificate(), apply(size=1, **AUTH, **TLS)),
        ),
        "a password is sent to .*, where another program responds",
    ),
    (
        copies_any_certificate,
        Scenario(
            "the certificate is replaced by one that has ended",
            (unobserved(does(ended_certificate)),),
            given=(given_certificate(), apply(size=1, **TLS)),
        ),
        "a valid certificate is replaced by one that is not valid now",
    ),
    (
        mounts_the_users_of_others,
        Scenario(
            "a server ends while the users file is empty",
            (unobserved(edit(SECRET, {"data": {"users": ""}}, "cache-users")), lose()),
            given=(given_users(), apply(size=1, **AUTH)),
        ),
        "cache-0 starts with an invalid users file",
    ),
    (
        takes_users_for_loaded,
        Scenario(
            "servers do not load changed users",
            (does(keeps_former_users), CHANGED_USERS),
            given=(given_users(), apply(size=1, **AUTH)),
        ),
        "records the users file, which cache-.* has not loaded",
    ),
    (
        takes_the_certificate_for_loaded,
        Scenario(
            "a certificate is renewed",
            (renewed_certificate(),),
            given=(given_certificate(), apply(size=1, **TLS)),
        ),
        "records a certificate that cache-.* does not serve",
    ),
    (
        takes_the_tag_for_the_version,
        Scenario(
            "another program than the tag promises", (apply(size=1, version="1.6.38"),), given=(does(other_program),)
        ),
        "records that cache-.* runs 1.6.38, not 1.6.18",
    ),
    (
        replaces_all_servers_at_once,
        Scenario("roll", (apply(**THREE, memoryMB=128),), given=(apply(**THREE),)),
        "of 3 servers of the Deployment are left",
    ),
    (
        skips_the_pause,
        Scenario(
            "roll while clients use the servers",
            (apply_paced(**PACED, memoryMB=128), *(later(10),) * 3),
            given=(apply_paced(**PACED), does(clients), later(600), RESYNC, does(full)),
        ),
        "is replaced while clients find",
    ),
    (
        deletes_the_former_workload_first,
        Scenario("switch the workload", (apply(**NAMED | {"size": 2}),), given=(apply(**DEPLOYED | {"size": 2}),)),
        "the operator deletes Deployment cache: 0 of 2 new servers are ready",
    ),
    (
        publishes_what_the_spec_requires,
        Scenario("authentication on", (apply(size=2, **AUTH),), given=(given_users(), apply(size=2))),
        "clients send a password to cache-0, which requires none",
    ),
    (
        lists_the_port_of_the_spec,
        Scenario("change the port", (apply(size=2, containerPort=11311),), given=(apply(size=2),)),
        "the status lists cache-0.cache.default.svc:11311, where no server has listened",
    ),
    (
        ignores_the_pause_of_a_resource,
        Scenario(
            "an object of a paused resource is deleted",
            (apply(size=1, paused=True), delete(SERVICE)),
            given=(apply(size=1),),
        ),
        "writes Service cache of a paused resource",
    ),
    (
        writes_the_connection_of_a_paused_resource,
        Scenario(
            "the Secret for clients of a paused resource is deleted",
            (apply(size=1, paused=True), delete(SECRET, "cache-connection"), RESYNC),
            given=(apply(size=1),),
            ends="Paused",
        ),
        "writes Secret cache-connection of a paused resource",
    ),
]


def name_of(value: object) -> str:
    return str(getattr(value, "__name__", ""))


@pytest.mark.parametrize(("sabotage", "scenario", "violation"), MUTATIONS, ids=name_of)
async def test_sabotaged_operator_is_caught(
    monkeypatch: pytest.MonkeyPatch, sabotage: Patch, scenario: Scenario, violation: str
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(Unsafe, match=violation):
        await ReferenceRun.record(dataclasses.replace(MEMCACHED, name=sabotage.__name__), scenario)


def waits_for_no_server(patch: pytest.MonkeyPatch) -> None:
    """Report a resource as ready while its servers are not."""
    for step in ("report_failing_server", "wait_for_servers"):
        patch.setattr(plan, step, lambda *_: PASS)


def takes_any_server_for_available(patch: pytest.MonkeyPatch) -> None:
    """Report a resource as available while a server does not respond."""
    patch.setattr(Assessment, "unready_servers", ())


def hangs(stage: Stage) -> None:
    stage.database.hung = set(list(stage.database.uids)[:1])


CLAIMS: list[tuple[Patch, tuple[ScenarioStep, ...], str]] = [
    (waits_for_no_server, (pod_problem("CrashLoopBackOff"), apply(size=2)), "Ready, although 0 of 2 servers respond"),
    (
        takes_any_server_for_available,
        (apply(**NAMED | {"size": 2}, **METRICS), does(hangs)),
        "Available, although 1 of 2 servers respond",
    ),
]


@pytest.mark.parametrize(("sabotage", "steps", "claim"), CLAIMS, ids=name_of)
async def test_false_claim_of_a_sabotaged_operator_is_caught(
    monkeypatch: pytest.MonkeyPatch, sabotage: Patch, steps: tuple[ScenarioStep, ...], claim: str
) -> None:
    """In any scenario: whenever operator and servers have settled, the status is judged."""
    await ScenarioRun(World(MEMCACHED)).run_steps(steps)
    sabotage(monkeypatch)
    with pytest.raises(Unsafe, match=claim):
        await ScenarioRun(World(MEMCACHED)).run_steps(steps)


@pytest.mark.parametrize("scenario", [scenario for _, scenario, _ in MUTATIONS], ids=str)
async def test_unmodified_operator_causes_no_violation(scenario: Scenario) -> None:
    """The same scenarios cause no violation without the sabotage, with any final state."""
    world = World(MEMCACHED)
    await ScenarioRun(world).run_steps((*scenario.given, *scenario.steps))
    assert isinstance(world.database, Servers)
    assert world.database.violations == []
