"""What to do next about a Memcached: the chain reads as the whole story; each step is in the room of its subject."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from functools import partial

from operators.memcached import status
from operators.memcached.api.resource import Memcached, validate
from operators.memcached.assessment import Assessment
from operators.memcached.observe import Observed
from operators.memcached.reasons import REFRESHING_CERTIFICATES
from operators.memcached.steps import availability
from operators.memcached.steps.availability import report_failing_server, wait_for_servers
from operators.memcached.steps.certificate_refresh import refresh_certificates
from operators.memcached.steps.provisioning import (
    ensure_autoscaler,
    ensure_disruption_budget,
    ensure_servers,
    ensure_service,
    require_exporter_image,
    require_secrets,
)
from operators.memcached.steps.workload_switch import delete_former_workload
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import StepOf
from shared.runtime.settings import Settings
from shared.status.verdict import Verdict
from shared.steps import planner
from shared.steps.planner import pause, reject_invalid_spec


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(planner.Planner[Memcached, Observed, Assessment, Settings]):
    """Plans with what the operator's options give."""

    def _steps(self) -> tuple[StepOf[Memcached, Assessment], ...]:
        settings = self.settings
        return (
            partial(pause, "paused"),  # maintenance: report only
            partial(reject_invalid_spec, validate),  # the same rules as at admission
            partial(require_exporter_image, settings),  # metrics need an image
            require_secrets,  # what servers cannot start without; running servers stay as they are
            partial(ensure_service, settings),  # a name before the servers that bear it
            partial(ensure_servers, settings),  # the Deployment or StatefulSet as the spec asks
            partial(ensure_disruption_budget, settings),  # how many servers a drain may take at once
            partial(ensure_autoscaler, settings),  # chooses the size, where the spec lets it
            report_failing_server,  # a server that cannot start, in Kubernetes' own words
            wait_for_servers,  # all there, all current, all ready
            delete_former_workload,  # after a change of workload: the old one goes when the new one serves
            refresh_certificates,  # every server serves the Secret's certificate, without losing its items
        )

    served_reasons = frozenset({REFRESHING_CERTIFICATES})
    _assess = staticmethod(Assessment)
    _phase = staticmethod(availability.phase)
    _summary = staticmethod(availability.summary)
    _serves_all = staticmethod(availability.serves_all)

    def _status(self, resource: Memcached, facts: Assessment, _now: datetime, phase: str, _verdict: Verdict) -> Obj:
        return status.report(self.settings, resource, facts, phase)
