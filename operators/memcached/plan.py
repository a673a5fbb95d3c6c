"""Plan of a Memcached: its steps in order. Each step is in the module of its subject in `steps`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from operators.memcached.api.resource import Memcached, exposure, validate
from operators.memcached.database import DATABASE
from operators.memcached.facts.assessment import Assessment
from operators.memcached.reasons import REFRESHING_CERTIFICATES, RELOADING_USERS
from operators.memcached.report import health, status
from operators.memcached.state.observed import Observed
from operators.memcached.steps import availability
from operators.memcached.steps.attestation_key import keep_attestation_key
from operators.memcached.steps.availability import report_failing_server, report_hung_servers, wait_for_servers
from operators.memcached.steps.certificate_refresh import refresh_certificates
from operators.memcached.steps.generated_users import provide_users
from operators.memcached.steps.issuing import create_certificates, renew_certificates
from operators.memcached.steps.mounted_copies import (
    copy_secrets,
    renew_copies,
    report_mounted_originals,
    report_withheld_certificate,
)
from operators.memcached.steps.provisioning import (
    ensure_autoscaler,
    ensure_servers,
    report_certificate_without_name,
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
from shared.steps.database import report_ending_certificates
from shared.steps.planner import enforce_policy, pause, reject_invalid_spec


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(planner.Planner[Memcached, Observed, Assessment, Settings]):
    """Planner of Memcacheds, with the settings from the operator's options."""

    def _steps(self) -> tuple[StepOf[Assessment], ...]:
        return (
            pause("paused"),  # maintenance: only certificates are kept
            reject_invalid_spec(validate),  # the same rules as admission
            enforce_policy(exposure),  # of the platform
            require_exporter_image,  # spec.metrics needs an image
            DATABASE.claim_name,  # before any Secret: another resource may have it
            DATABASE.refuse_unproven_secrets,  # content that the operator did not write
            DATABASE.keep_secret_owners,  # labels and owner references, which follow from the spec
            create_certificates,  # that the operator issues or requests, before servers
            provide_users,  # a generated users file, if the spec names no Secret
            require_secrets,
            keep_attestation_key,  # by which sidecars prove what servers have loaded
            DATABASE.ensure_network_policy,  # access to the ports, before servers exist
            DATABASE.ensure_services,  # before the servers that have its DNS names
            copy_secrets,  # of others, which servers mount
            require_valid_certificates,  # new servers would help no client
            ensure_servers,  # Deployment or StatefulSet
            DATABASE.ensure_disruption_budget,
            ensure_autoscaler,
            report_failing_server,
            resize_servers,  # CPU and memory, without a restart
            wait_for_servers,  # all up to date and ready
            delete_former_workload,  # after a change of spec.workload
            await_users,  # servers reload a changed users file without a restart
            DATABASE.empty_spare_secrets,  # which no server mounts any longer
            report_mounted_originals,  # a server that starts loads any content
            report_withheld_certificate,  # one that has ended is not copied
            report_certificate_without_name,  # of servers that have passwords
            report_ending_certificates,  # of servers that match the spec
        )

    def _heal(self) -> tuple[tuple[StepOf[Assessment], ...], ...]:
        return (
            (report_hung_servers,),  # although their probes succeed
            (DATABASE.ensure_connection,),  # a copy for clients, on which no server depends
            (DATABASE.proven(renew_certificates),),  # certificates of running servers
            (DATABASE.proven(renew_copies),),  # its copy, and that of users
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
    _own_secrets = staticmethod(DATABASE.own_secrets)

    @staticmethod
    def _secret_versions(seen: Assessment, /) -> Mapping[str, str | None]:
        return seen.secrets.versions

    @staticmethod
    def _status(seen: Assessment, phase: str, _verdict: Verdict, /) -> Obj:
        return status.report(seen, phase)
