"""Steps that scenarios of several operators have in common: consents, and Secrets of tls.mode self that are lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, SECRET, Obj
from shared.kubernetes.secrets import content_of, encoded
from shared.pki import ca
from shared.pki.rotation import CertificateOrder, Made
from shared.pki.stores import fingerprint, parsed
from shared.status import conditions
from simulator.harness import NAMESPACE
from tests.harness.scenario import Scenario, ScenarioStep, Stage, Subject
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.issuing import authority


async def begun(subject: Subject, *steps: ScenarioStep) -> ScenarioRun:
    """Return a run in a new world in which these steps were carried out."""
    play = ScenarioRun(World(subject))
    await run(play, steps)
    return play


_worlds: dict[tuple[Subject, ScenarioStep], World] = {}


async def begun_once(subject: Subject, step: ScenarioStep) -> ScenarioRun:
    """Return a run as `begun` does, with another process of the operator; the world before it is built once."""
    if (subject, step) not in _worlds:
        play = await begun(subject, step)
        play.end()
        _worlds[subject, step] = play.world
    play = ScenarioRun(_worlds[subject, step].fork())
    play.begin()
    await play.settle()
    return play


async def played(subject: Subject, scenario: Scenario) -> ScenarioRun:
    """Return a run of a scenario in one world, in which another process of the operator begins after the setup."""
    play = ScenarioRun(World(subject))
    await play.run_steps(scenario.given)
    play.end()
    await play.run_steps(scenario.steps)
    return play


async def run(play: ScenarioRun, steps: Iterable[ScenarioStep]) -> None:
    """Carry out steps; after each that settles, all objects are observed once more."""
    for step in steps:
        await play.step(step)
        if step.turns is None:
            play.resync()
            await play.settle()


def crossed(rows: Iterable[str], columns: Sequence[str]) -> list[Any]:
    """Return all pairs as parameters of a test. Each commit tests each row once, with the columns in turn."""
    return [
        pytest.param(row, column, marks=() if number % len(columns) == index else pytest.mark.nightly)
        for number, row in enumerate(rows)
        for index, column in enumerate(columns)
    ]


def ready(play: ScenarioRun) -> Obj:
    """Return the condition Ready of the only resource."""
    [found] = play.stage.find()
    return accessors.condition(found, conditions.READY)


def pods(play: ScenarioRun) -> set[str]:
    """Return the UIDs of all pods."""
    return {pod["metadata"]["uid"] for pod in play.stage.find(POD)}


async def issued_with_new_keys(order: CertificateOrder) -> Made:
    """Issue as `issuing.issued`, but each authority has a key of its own."""
    return ca.fulfil(order)


def deleted(*secrets: str) -> ScenarioStep:
    """Delete Secrets together, as a pruning sync does."""

    def act(stage: Stage) -> None:
        for name in secrets:
            stage.user_client.delete(SECRET, stage.namespace, name)

    return ScenarioStep(f"{', '.join(secrets)} are pruned", act)


def replaced_by_hand(secret: str) -> ScenarioStep:
    """Let a person write another authority into the Secret of the operator's own."""

    def act(stage: Stage) -> None:
        pair = authority("second", "by-hand")
        data = encoded({"ca.crt": pair.certificate, "ca.key": pair.key})
        stage.user_client.merge(SECRET, stage.namespace, secret, {"data": data})

    return ScenarioStep("a person replaces the authority", act)


def signer_of(play: ScenarioRun, secret: str) -> str:
    """Return the fingerprint of the authority in a Secret."""
    return fingerprint(parsed(content_of(play.stage.user_client.get(SECRET, NAMESPACE, secret))["ca.crt"])[0])
