"""Wires the rooms of the etcd operator and runs it: `python -m operators.etcd --help`.

With `snapshot`, `fetch` or `seal` as the first argument it is one piece of work in a pod of its own, and imports
nothing of what an operator needs.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.argv[1:2] in (["snapshot"], ["fetch"], ["seal"]):
    from operators.etcd.backup import program

    sys.exit(program.main(sys.argv[1:]))
else:
    from functools import partial

    import operators
    from operators.etcd.api import backup, resource
    from operators.etcd.backup import observe as backup_observe
    from operators.etcd.backup import plan as backup_plan
    from operators.etcd.backup import pods as backup_pods
    from operators.etcd.client import gateway
    from operators.etcd.client.commands import execute
    from operators.etcd.client.server import Connect
    from operators.etcd.observe import Observed
    from operators.etcd.observer import observer
    from operators.etcd.plan import Planner
    from operators.etcd.resource_metrics import backup_states, cluster_states
    from operators.etcd.settings import Settings
    from shared.cli.main import main
    from shared.kubernetes.kinds import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, POD, SERVICE, STATEFUL_SET
    from shared.runtime import process
    from shared.runtime.controller import Controller
    from shared.runtime.options import Options


def settings_of(options: Options) -> Settings:
    """What options give to plans."""
    return Settings(
        options.operator_name,
        options.image_repository,
        options.agent_image,
        create_timeout=options.create_timeout,
        upgrade_timeout=options.upgrade_timeout,
        certificate_lifetime=options.certificate_lifetime,
    )


def clusters(options: Options, connect: Connect = gateway.connect) -> Controller[resource.EtcdCluster, Observed]:
    """The rooms of an EtcdCluster, put together.

    Args:
        connect: to a member's server.
    """
    return Controller(
        operator=options.operator_name,
        kind=resource.API.kind,
        owns=(STATEFUL_SET, SERVICE, POD, PERSISTENT_VOLUME_CLAIM, DISRUPTION_BUDGET, backup.API.kind),
        parse=resource.EtcdCluster.parse,
        observe=observer(connect),
        plan=Planner(settings_of(options)).plan,
        call=partial(execute, connect),
        application="etcd",
        states=cluster_states,
        certificate_ends=lambda seen: seen.secrets.expires.values(),
    )


def backups(
    options: Options, connect: Connect = gateway.connect
) -> Controller[backup.EtcdBackup, backup_observe.Observed]:
    """The rooms of an EtcdBackup, put together.

    Args:
        connect: as `clusters` has it.
    """
    settings = settings_of(options)
    return Controller(
        operator=options.operator_name,
        kind=backup.API.kind,
        owns=(POD,),
        parse=backup.EtcdBackup.parse,
        observe=backup_observe.observer(settings, connect),
        plan=backup_plan.Planner(settings).plan,
        application=backup_pods.APPLICATION,
        states=backup_states,
    )


OPERATOR = process.Operator(
    name="etcd-operator",
    image_repository="etcd",
    crds=(resource.API, backup.API),
    controllers=lambda options: (clusters(options), backups(options)),
    admissions=(resource.ADMISSION, backup.ADMISSION),
)

if __name__ == "__main__":
    main(OPERATOR, package=operators)
