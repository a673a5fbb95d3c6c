"""Registry entry of the etcd operator, and the composition of its controllers."""

from __future__ import annotations

from dataclasses import replace

from operators.etcd.alarm_probe import alarm_probe
from operators.etcd.api import backup, resource
from operators.etcd.api.catalogue import ETCD, weaknesses_of
from operators.etcd.backup import observe as backup_observe
from operators.etcd.backup import plan as backup_plan
from operators.etcd.client import gateway
from operators.etcd.client.commands import execute
from operators.etcd.client.server import Connect
from operators.etcd.objects import names
from operators.etcd.objects.pod import restarts
from operators.etcd.observe import observer
from operators.etcd.plan import Planner
from operators.etcd.reasons import REASONS
from operators.etcd.report.metrics import backup_states, cluster_states
from operators.etcd.state.observed import Observed
from shared.kubernetes.kinds import (
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE,
    STATEFUL_SET,
)
from shared.runtime.controller import Controller
from shared.runtime.operator import Operator, ServedKind
from shared.runtime.options import Options
from shared.runtime.settings import Settings


def clusters(options: Options, connect: Connect = gateway.connect) -> Controller[resource.EtcdCluster, Observed]:
    """Return the controller of EtcdClusters.

    Args:
        connect: opens a connection to a member.
    """
    return Controller(
        operator=options.operator_name,
        kind=resource.API.kind,
        owns=(STATEFUL_SET, SERVICE, POD, PERSISTENT_VOLUME_CLAIM, DISRUPTION_BUDGET, NETWORK_POLICY, backup.API.kind),
        parse=resource.EtcdCluster.parse,
        workloads=(STATEFUL_SET,),
        minimal=resource.MINIMAL,
        policy=options.policy,
        observe=observer(connect),
        plan=Planner(Settings.of(options)).plan,
        call=lambda call, _: execute(connect, call),
        application="etcd",
        states=cluster_states,
        weaknesses=weaknesses_of,
        makes_secrets=True,
        validity=lambda seen: seen.secrets.validity,
        probe=alarm_probe(connect),
    )


def backups(
    options: Options, connect: Connect = gateway.connect
) -> Controller[backup.EtcdBackup, backup_observe.Observed]:
    """Return the controller of EtcdBackups.

    Args:
        connect: opens a connection to a member.
    """
    return Controller(
        operator=options.operator_name,
        kind=backup.API.kind,
        owns=(POD,),
        parse=backup.EtcdBackup.parse,
        observe=backup_observe.observer(connect, options.policy),
        plan=backup_plan.Planner(Settings.of(options)).plan,
        application=names.BACKUP,
        states=backup_states,
    )


OPERATOR = Operator(
    name="etcd",
    summary="an etcd cluster of three members",
    image_repository=ETCD.image,
    catalogues=(ETCD,),
    kinds=(
        ServedKind(resource.API, clusters, replace(resource.ADMISSION, restarts=restarts)),
        ServedKind(backup.API, backups, backup.ADMISSION),
    ),
    reasons=REASONS,
    values="operators.etcd.manifests.values:EtcdOperatorValues",
    dashboard="operators.etcd.manifests.dashboard:PAGE",
    alerts="operators.etcd.manifests.alerts:RULES",
    images="operators.etcd.manifests.images:images",
    smallest="size: 3",
)
