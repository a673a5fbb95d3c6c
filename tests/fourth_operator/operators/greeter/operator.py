"""The registry entry of the greeter operator."""

from __future__ import annotations

from operators.greeter import controller
from operators.greeter.reasons import REASONS
from shared.runtime.operator import Operator

OPERATOR = Operator(
    name="greeter",
    summary="two web servers that show a greeting",
    smallest="size: 2",
    image_repository="nginxinc/nginx-unprivileged",
    kinds=(controller.SERVED,),
    reasons=REASONS,
    values="operators.greeter.manifests.values:VALUES",
    dashboard="operators.greeter.manifests.dashboard:PAGE",
    alerts="operators.greeter.manifests.alerts:RULES",
)
