"""Plan of a Memcached: its steps in order. Each step is in the module of its subject in `steps`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from functools import partial

from operators.memcached.api.resource import Memcached, exposure, validate
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects.names import owner
from operators.memcached.objects.pod import COMPONENT
from operators.memcached.reasons import REFRESHING_CERTIFICATES, RELOADING_USERS
from operators.memcached.report import health, status
from operators.memcached.security.secrets import made_secrets, spare_secrets
from operators.memcached.state.observed import Observed
from operators.memcached.steps import availability
from operators.memcached.steps.attestation_key import keep_attestation_key
from operators.memcached.steps.availability import report_failing_server, wait_for_servers
from operators.memcached.steps.certificate_refresh import refresh_certificates
from operators.memcached.steps.connection_secret import claim_name, connection, ensure_connection
from operators.memcached.steps.generated_users import provide_users
from operators.memcached.steps.issuing import create_certificates, renew_certificates
from operators.memcached.steps.mounted_certificate import copy_certificate, renew_copy, report_withheld_certificate
from operators.memcached.steps.provisioning import (
    ensure_autoscaler,
    ensure_disruption_budget,
    ensure_network_policy,
    ensure_servers,
    ensure_service,
    report_certificate_without_name,
    report_ending_certificates,
    require_exporter_image,
    require_secrets,
    require_valid_certificates,
    resize_servers,
)
from operators.memcached.steps.users_reload import await_users
from operators.memcached.steps.workload_switch import delete_former_workload
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import StepOf
from shared.runtime.settings import Settings
from shared.status.reasons import RESIZING
from shared.status.verdict import Verdict
from shared.steps import planner
from shared.steps.own_secrets import (
    OwnSecrets,
    empty_spare_secrets,
    keep_secret_owners,
    refuse_unproven_secrets,
    refuse_unproven_writes,
)
from shared.steps.planner import enforce_policy, pause, reject_invalid_spec


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(planner.Planner[Memcached, Observed, Assessment, Settings]):
    """Planner of Memcacheds, with the settings from the operator's options."""

    def _steps(self) -> tuple[StepOf[Memcached, Assessment], ...]:
        settings = self.settings
        return (
            partial(pause, "paused"),  # maintenance: only certificates are kept
            partial(reject_invalid_spec, validate),  # the same rules as admission
            partial(enforce_policy, settings.policy, exposure),  # of the platform
            partial(require_exporter_image, settings),  # spec.metrics needs an image
            partial(claim_name, settings),  # before any Secret: another resource may have it
            partial(refuse_unproven_secrets, self._own_secrets),  # content that the operator did not write
            partial(keep_secret_owners, self._own_secrets),  # labels and owner references, which follow from the spec
            partial(create_certificates, settings),  # that the operator issues or requests, before servers
            partial(provide_users, settings),  # a generated users file, if the spec names no Secret
            require_secrets,
            partial(keep_attestation_key, settings),  # by which sidecars prove what servers have loaded
            partial(ensure_network_policy, settings),  # access to the ports, before servers exist
            partial(ensure_service, settings),  # before the servers that have its DNS names
            partial(copy_certificate, settings),  # of another issuer, which servers mount
            require_valid_certificates,  # new servers would help no client
            partial(ensure_servers, settings),  # Deployment or StatefulSet
            partial(ensure_disruption_budget, settings),
            partial(ensure_autoscaler, settings),
            report_failing_server,
            resize_servers,  # CPU and memory, without a restart
            wait_for_servers,  # all up to date and ready
            delete_former_workload,  # after a change of spec.workload
            partial(await_users, settings),  # servers reload a changed users file without a restart
            partial(empty_spare_secrets, self._own_secrets),  # which no server mounts any longer
            report_withheld_certificate,  # one that has ended is not copied
            report_certificate_without_name,  # of servers that have passwords
            report_ending_certificates,  # of servers that match the spec
        )

    def _heal(self) -> tuple[tuple[StepOf[Memcached, Assessment], ...], ...]:
        renew = partial(renew_certificates, self.settings)
        return (
            (partial(ensure_connection, self.settings),),  # a copy for clients, on which no server depends
            (partial(refuse_unproven_writes, self._own_secrets, renew),),  # certificates of running servers
            (partial(refuse_unproven_writes, self._own_secrets, partial(renew_copy, self.settings)),),  # its copy
            (refresh_certificates,),  # without a restart
        )

    serving_reasons = frozenset({RELOADING_USERS, REFRESHING_CERTIFICATES, RESIZING})
    _assess = staticmethod(Assessment)
    _phase = staticmethod(availability.phase)
    _summary = staticmethod(availability.summary)
    _serves_all = staticmethod(availability.serves_all)
    _pauses = staticmethod(availability.pauses)
    _health = staticmethod(health.assess)
    _work = staticmethod(status.work)

    @staticmethod
    def _secret_versions(_resource: Memcached, facts: Assessment, _now: datetime, /) -> Mapping[str, str | None]:
        return facts.observed.secrets.versions

    def _own_secrets(self, resource: Memcached, facts: Assessment, /) -> OwnSecrets:
        seen = facts.observed
        return OwnSecrets(
            own=owner(resource, self.settings.operator),
            component=COMPONENT,
            resource=resource.obj,
            names=made_secrets(resource),
            found=seen.secrets.found,
            unproven=seen.secrets.unproven,
            connection=connection(resource, facts),
            published=seen.connection,
            spare=spare_secrets(resource) if self.settings.write_secrets else frozenset(),
        )

    def _status(self, resource: Memcached, facts: Assessment, _now: datetime, phase: str, _verdict: Verdict) -> Obj:
        return status.report(self.settings, resource, facts, phase)
