"""The controller of Greeter resources."""

from __future__ import annotations

from operators.greeter.api.resource import ADMISSION, API, Greeter
from operators.greeter.objects.config_map import APPLICATION
from operators.greeter.observe import Observed, observe
from operators.greeter.plan import Planner
from operators.greeter.report.metrics import states
from shared.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, POD, SERVICE
from shared.runtime.controller import Controller
from shared.runtime.operator import ServedKind
from shared.runtime.options import Options
from shared.runtime.settings import Settings


def controller(options: Options) -> Controller[Greeter, Observed]:
    """Return the controller of Greeter resources."""
    return Controller(
        operator=options.operator_name,
        kind=API.kind,
        owns=(CONFIG_MAP, SERVICE, DEPLOYMENT, POD),
        parse=Greeter.parse,
        observe=observe,
        plan=Planner(Settings.of(options)).plan,
        application=APPLICATION,
        states=states,
    )


SERVED = ServedKind(API, controller, ADMISSION)
