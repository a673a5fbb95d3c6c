"""Wires the rooms of the memcached operator and runs it: `python -m operators.memcached --help`."""

from __future__ import annotations

from operators.memcached import api
from operators.memcached.observe import Observed, observe
from operators.memcached.plan import Planner
from shared import process
from shared.kube import DEPLOYMENT, POD, SERVICE
from shared.options import Options
from shared.reconciler import Controller


def controller(options: Options) -> Controller[api.Memcached, Observed]:
    planner = Planner(options.operator_name, options.image_repository)
    return Controller(
        name=options.operator_name,
        kind=api.API.kind,
        owns=(DEPLOYMENT, SERVICE, POD),
        parse=api.Memcached.parse,
        observe=observe,
        plan=planner.plan,
    )


if __name__ == "__main__":
    process.main(
        process.Operator(
            name="memcached-operator", image_repository="memcached", crds=(api.API,), controller=controller
        )
    )
