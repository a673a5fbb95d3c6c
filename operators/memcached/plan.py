"""Plan of a Memcached: its steps in order. Each step is in the module of its subject in `steps`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

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
from shared.steps.own_secrets import OwnSecrets, SecretSteps
from shared.steps.planner import enforce_policy, pause, reject_invalid_spec


def own_secrets(seen: Assessment) -> OwnSecrets:
    """Return the Secrets that the operator makes for a Memcached."""
    return OwnSecrets(
        own=owner(seen.resource, seen.settings.operator),
        component=COMPONENT,
        resource=seen.resource.obj,
        names=made_secrets(seen.resource),
        found=seen.secrets.found,
        unproven=seen.secrets.unproven,
        connection=connection(seen),
        published=seen.connection,
        spare=spare_secrets(seen.resource) if seen.settings.write_secrets else frozenset(),
    )


_SECRETS = SecretSteps(own_secrets)


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(planner.Planner[Memcached, Observed, Assessment, Settings]):
    """Planner of Memcacheds, with the settings from the operator's options."""

    def _steps(self) -> tuple[StepOf[Assessment], ...]:
        return (
            pause("paused"),  # maintenance: only certificates are kept
            reject_invalid_spec(validate),  # the same rules as admission
            enforce_policy(exposure),  # of the platform
            require_exporter_image,  # spec.metrics needs an image
            claim_name,  # before any Secret: another resource may have it
            _SECRETS.refuse_unproven,  # content that the operator did not write
            _SECRETS.keep_owners,  # labels and owner references, which follow from the spec
            create_certificates,  # that the operator issues or requests, before servers
            provide_users,  # a generated users file, if the spec names no Secret
            require_secrets,
            keep_attestation_key,  # by which sidecars prove what servers have loaded
            ensure_network_policy,  # access to the ports, before servers exist
            ensure_service,  # before the servers that have its DNS names
            copy_certificate,  # of another issuer, which servers mount
            require_valid_certificates,  # new servers would help no client
            ensure_servers,  # Deployment or StatefulSet
            ensure_disruption_budget,
            ensure_autoscaler,
            report_failing_server,
            resize_servers,  # CPU and memory, without a restart
            wait_for_servers,  # all up to date and ready
            delete_former_workload,  # after a change of spec.workload
            await_users,  # servers reload a changed users file without a restart
            _SECRETS.empty_spare,  # which no server mounts any longer
            report_withheld_certificate,  # one that has ended is not copied
            report_certificate_without_name,  # of servers that have passwords
            report_ending_certificates,  # of servers that match the spec
        )

    def _heal(self) -> tuple[tuple[StepOf[Assessment], ...], ...]:
        return (
            (ensure_connection,),  # a copy for clients, on which no server depends
            (_SECRETS.proven(renew_certificates),),  # certificates of running servers
            (_SECRETS.proven(renew_copy),),  # its copy
            (refresh_certificates,),  # without a restart
        )

    serving_reasons = frozenset({RELOADING_USERS, REFRESHING_CERTIFICATES, RESIZING})
    _view = staticmethod(Assessment.of)
    _phase = staticmethod(availability.phase)
    _summary = staticmethod(availability.summary)
    _serves_all = staticmethod(availability.serves_all)
    _pauses = staticmethod(availability.pauses)
    _health = staticmethod(health.assess)
    _work = staticmethod(status.work)
    _own_secrets = staticmethod(own_secrets)

    @staticmethod
    def _secret_versions(seen: Assessment, /) -> Mapping[str, str | None]:
        return seen.secrets.versions

    @staticmethod
    def _status(seen: Assessment, phase: str, _verdict: Verdict, /) -> Obj:
        return status.report(seen, phase)
