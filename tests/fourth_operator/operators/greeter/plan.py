"""The plan of a Greeter: its steps, in order."""

from __future__ import annotations

import dataclasses

from operators.greeter.api.resource import Greeter, validate
from operators.greeter.facts.assessment import Assessment
from operators.greeter.objects import config_map
from operators.greeter.observe import Observed
from operators.greeter.steps import serving, text
from operators.greeter.steps.serving import keep_servers, keep_service, wait_until_available
from operators.greeter.steps.text import keep_config_map, wait_until_written
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import StepOf
from shared.runtime.settings import Settings
from shared.status.verdict import Verdict
from shared.steps import planner
from shared.steps.planner import pause, reject_invalid_spec


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(planner.Planner[Greeter, Observed, Assessment, Settings]):
    """Plans with the settings from the operator's options."""

    def _steps(self) -> tuple[StepOf[Assessment], ...]:
        return (
            pause("paused"),  # maintenance: report only
            reject_invalid_spec(validate),  # the same rules as admission
            keep_config_map,
            keep_service,  # the DNS name exists before the servers
            keep_servers,
            wait_until_written,
            wait_until_available,
        )

    _view = staticmethod(Assessment.of)
    _phase = staticmethod(text.phase)
    _summary = staticmethod(serving.summary)
    _serves_all = staticmethod(serving.all_serve)

    @staticmethod
    def _status(seen: Assessment, phase: str, _verdict: Verdict, /) -> Obj:
        name = {} if seen.config_map is None else {"configMap": config_map.name(seen.resource)}
        return {"phase": phase, "readyReplicas": seen.ready_replicas, **name}
