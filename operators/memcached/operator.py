"""Registry entry and controller of the memcached operator."""

from __future__ import annotations

from operators.memcached.api import resource
from operators.memcached.api.catalogue import MEMCACHED, weaknesses_of
from operators.memcached.client import attestation, server
from operators.memcached.observe import observer
from operators.memcached.plan import Planner
from operators.memcached.reasons import REASONS
from operators.memcached.report.metrics import states
from operators.memcached.security import certificates, connection, users
from operators.memcached.state.observed import Observed
from shared.kubernetes.kinds import (
    AUTOSCALER,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    POD,
    SERVICE,
    STATEFUL_SET,
)
from shared.runtime.controller import Controller
from shared.runtime.operator import Operator, ServedKind
from shared.runtime.options import Options
from shared.runtime.settings import Settings


def controller(
    options: Options, connect: connection.Connect = server.connect, attest: users.Attest = attestation.fetch
) -> Controller[resource.Memcached, Observed]:
    """Return the controller of Memcached resources.

    Args:
        connect: opens a connection to a running server.
        attest: queries the sidecar of a running server.
    """
    return Controller(
        operator=options.operator_name,
        kind=resource.API.kind,
        owns=(DEPLOYMENT, STATEFUL_SET, SERVICE, POD, DISRUPTION_BUDGET, AUTOSCALER, NETWORK_POLICY),
        parse=resource.Memcached.parse,
        workloads=(DEPLOYMENT, STATEFUL_SET),
        minimal=resource.MINIMAL,
        policy=options.policy,
        observe=observer(connect, attest),
        plan=Planner(Settings.of(options)).plan,
        call=lambda call, _: certificates.refresh_certificates(connect, call),
        states=states,
        weaknesses=weaknesses_of,
        makes_secrets=True,
        validity=lambda observed: observed.secrets.validity,
    )


OPERATOR = Operator(
    name="memcached",
    summary="a cache of three memcached servers",
    smallest="size: 3",
    image_repository=MEMCACHED.image,
    catalogues=(MEMCACHED,),
    kinds=(ServedKind(resource.API, controller, resource.ADMISSION),),
    reasons=REASONS,
    values="operators.memcached.manifests.values:MemcachedOperatorValues",
    dashboard="operators.memcached.manifests.dashboard:PAGE",
    alerts="operators.memcached.manifests.alerts:RULES",
    images="operators.memcached.manifests.images:images",
)
