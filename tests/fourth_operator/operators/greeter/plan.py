"""What to do next about a Greeter, and what to report. Pure."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from functools import partial

from operators.greeter.api.resource import Greeter
from operators.greeter.objects import config_map
from operators.greeter.observe import Observed
from operators.greeter.steps.serving import keep_servers, keep_service, wait_until_available
from operators.greeter.steps.text import keep_config_map, pause, reject_invalid_spec, wait_until_written
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Plan, StepOf, follow
from shared.status.verdict import Progress

_PHASES = {Progress.DONE: "Running", Progress.PAUSED: "Paused", Progress.BLOCKED: "Failed"}


@dataclasses.dataclass(frozen=True, slots=True)
class Planner:
    """Plans with what the operator's options give.

    Attributes:
        operator: the operator's name, which its objects bear.
        image_repository: of the servers' image.
    """

    operator: str
    image_repository: str

    def plan(self, resource: Greeter, observed: Observed, now: datetime) -> Plan:
        """Follow the steps; return what they want done, and the status that tells it."""
        actions, verdict, requeue = follow(self._steps(), resource, observed, now)
        if verdict.done:
            message = f"{observed.ready_replicas} of {resource.spec.replicas} servers are ready."
            verdict = dataclasses.replace(verdict, message=message)
        phase = _PHASES.get(verdict.progress, "Creating")
        status: Obj = {"phase": phase, "readyReplicas": observed.ready_replicas}
        if observed.config_map is not None:
            status["configMap"] = config_map.name(resource)
        return Plan(actions, verdict, status, requeue)

    def _steps(self) -> tuple[StepOf[Greeter, Observed], ...]:
        return (
            pause,  # spec.paused: report only
            reject_invalid_spec,  # the same rules as admission
            partial(keep_config_map, self.operator),
            partial(keep_service, self.operator),
            partial(keep_servers, self.operator, self.image_repository),
            wait_until_written,
            wait_until_available,
        )
