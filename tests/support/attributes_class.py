"""VolumeAttributesClasses of the simulated storage, for scenarios of several databases."""

from __future__ import annotations

from simulator.api_server.kinds import ATTRIBUTES_CLASS
from simulator.kubelet.claims import INFEASIBLE
from tests.harness.scenario import ScenarioStep, Stage


def attributes_class(name: str, *, is_feasible: bool = True) -> ScenarioStep:
    """Create a class; the driver of the storage applies it only if it is feasible."""

    def act(stage: Stage) -> None:
        made = {
            "metadata": {"name": name},
            "driverName": "example.com",
            "parameters": {} if is_feasible else INFEASIBLE,
        }
        stage.user_client.create(ATTRIBUTES_CLASS, made)

    return ScenarioStep(f"the {'' if is_feasible else 'infeasible '}class {name} is created", act)
