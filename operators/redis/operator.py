"""Registry entry of the redis operator, and its controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from operators.redis.api import admission, resource
from operators.redis.api.catalogue import REDIS, VALKEY, weaknesses_of
from operators.redis.client import connection
from operators.redis.client.commands import execute
from operators.redis.client.server import Connect
from operators.redis.objects.pod import restarts
from operators.redis.observe import observer
from operators.redis.plan import Planner
from operators.redis.reasons import REASONS
from operators.redis.report.metrics import states
from operators.redis.settings import FLAGS, NEW_VERSIONS, Settings
from operators.redis.state.observed import Observed
from shared.api.spec import Admission
from shared.kubernetes.kinds import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
)
from shared.runtime.controller import Controller
from shared.runtime.operator import Operator, ServedKind
from shared.runtime.options import Options
from shared.runtime.steady_clock import elapsed


def clusters(
    options: Options, connect: Connect = connection.connect, clock: Callable[[], float] = elapsed
) -> Controller[resource.RedisCluster, Observed]:
    """Return the controller of RedisClusters.

    Args:
        connect: opens a connection to a node.
        clock: monotonic time in seconds.
    """
    resource_of = partial(resource.RedisCluster.parse, versions=options.option(NEW_VERSIONS))
    return Controller(
        operator=options.operator_name,
        kind=resource.API.kind,
        owns=(STATEFUL_SET, SERVICE, POD, PERSISTENT_VOLUME_CLAIM, CONFIG_MAP, DISRUPTION_BUDGET, NETWORK_POLICY),
        parse=resource_of,
        workloads=(STATEFUL_SET,),
        minimal=resource.MINIMAL,
        policy=options.policy,
        observe=observer(connect, clock),
        plan=Planner(Settings.read(options)).plan,
        call=partial(execute, connect),
        states=states,
        weaknesses=weaknesses_of,
        reads=(SECRET, CONFIG_MAP),
        makes_secrets=True,
        validity=lambda seen: seen.secrets.validity,
    )


def admitted(options: Options) -> Admission:
    """Return the admission of RedisClusters with the default versions of the options."""
    return replace(ADMISSION, default=partial(resource.default, versions=options.option(NEW_VERSIONS)))


ADMISSION = replace(admission.ADMISSION, restarts=restarts)


OPERATOR = Operator(
    name="redis",
    summary="a Redis cluster of three primaries and three replicas",
    image_repository=REDIS.image,
    catalogues=(REDIS, VALKEY),
    kinds=(ServedKind(resource.API, clusters, ADMISSION, configured=admitted),),
    flags=FLAGS,
    reasons=REASONS,
    values="operators.redis.manifests.values:RedisOperatorValues",
    dashboard="operators.redis.manifests.dashboard:PAGE",
    alerts="operators.redis.manifests.alerts:RULES",
    smallest="replicas: 6",
    local_versions={"redis": "8.0.2", "valkey": "8.1.1"},
    images="operators.redis.manifests.images:images",
)
