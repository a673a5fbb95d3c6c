"""Wires the rooms of the memcached operator and runs it: `python -m operators.memcached --help`.

With `exporter` as the first argument it is the metrics sidecar, and imports nothing of what an operator needs: it runs
beside every server.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.argv[1:2] == ["exporter"]:
    from operators.memcached.exporter import program

    sys.exit(program.main(sys.argv[2:]))
else:
    from functools import partial

    import operators
    from operators.memcached.api import resource
    from operators.memcached.client import server
    from operators.memcached.observe import Observed, observer
    from operators.memcached.plan import Planner
    from operators.memcached.resource_metrics import states
    from operators.memcached.security import certificates
    from operators.memcached.settings import Settings
    from shared.cli.main import main
    from shared.kubernetes.kinds import AUTOSCALER, DEPLOYMENT, DISRUPTION_BUDGET, POD, SERVICE, STATEFUL_SET
    from shared.runtime import process
    from shared.runtime.controller import Controller
    from shared.runtime.options import Options


def controller(
    options: Options, connect: certificates.Connect = server.connect
) -> Controller[resource.Memcached, Observed]:
    """The operator's rooms, put together.

    Args:
        connect: to a running server.
    """
    settings = Settings(
        options.operator_name,
        options.image_repository,
        options.agent_image,
        create_timeout=options.create_timeout,
        upgrade_timeout=options.upgrade_timeout,
    )
    return Controller(
        operator=options.operator_name,
        kind=resource.API.kind,
        owns=(DEPLOYMENT, STATEFUL_SET, SERVICE, POD, DISRUPTION_BUDGET, AUTOSCALER),
        parse=resource.Memcached.parse,
        observe=observer(connect),
        plan=Planner(settings).plan,
        call=partial(certificates.refresh, connect),
        states=states,
        certificate_ends=lambda seen: seen.secrets.expires.values(),
    )


OPERATOR = process.Operator(
    name="memcached-operator",
    image_repository="memcached",
    crds=(resource.API,),
    controllers=lambda options: (controller(options),),
    admissions=(resource.ADMISSION,),
)

if __name__ == "__main__":
    main(OPERATOR, package=operators)
