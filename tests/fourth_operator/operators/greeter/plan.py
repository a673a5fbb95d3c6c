"""The plan of a Greeter: its steps, in order."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from functools import partial

from operators.greeter.api.resource import Greeter, validate
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
from shared.steps.planner import as_observed, pause, reject_invalid_spec


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(planner.Planner[Greeter, Observed, Observed, Settings]):
    """Plans with the settings from the operator's options."""

    def _steps(self) -> tuple[StepOf[Greeter, Observed], ...]:
        return (
            partial(pause, "paused"),  # maintenance: report only
            partial(reject_invalid_spec, validate),  # the same rules as admission
            partial(keep_config_map, self.settings),
            partial(keep_service, self.settings),  # the DNS name exists before the servers
            partial(keep_servers, self.settings),
            wait_until_written,
            wait_until_available,
        )

    _assess = staticmethod(as_observed)
    _phase = staticmethod(text.phase)
    _summary = staticmethod(serving.summary)
    _serves_all = staticmethod(serving.all_serve)

    def _status(self, resource: Greeter, observed: Observed, _now: datetime, phase: str, _verdict: Verdict) -> Obj:
        name = {} if observed.config_map is None else {"configMap": config_map.name(resource)}
        return {"phase": phase, "readyReplicas": observed.ready_replicas, **name}
