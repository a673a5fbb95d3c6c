"""Models of the values of each chart."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

import operators
from charts.values.base import Values
from charts.values.operator import Global, OperatorValues, Seconds
from shared.cli.options import seconds
from shared.runtime.operator import Operator, load
from shared.runtime.options import Flag


class Part(BaseModel):
    """An operator in the umbrella chart. The schema of the operator's chart checks all other values."""

    model_config = ConfigDict(extra="allow")

    enabled: bool = Field(
        True,
        description="Install the operator. Disabling it later removes the operator; its CRDs and resources stay.",
    )


class PlatformBase(Values):
    """Values of charts/platform."""

    global_: Global = Field(Global(), alias="global", description="Values that all charts of a release share.")


def _part(name: str) -> Any:
    return Part, Field(Part(), description=f"The {name} operator. Accepts all values of ../{name}-operator.")


def with_flags(operator: Operator) -> type[OperatorValues]:
    """Return the model of an operator's values, extended with a value for each of the operator's own flags."""
    model: type[OperatorValues] = load(operator.values)
    values: dict[str, Any] = {flag.key: _value(flag) for flag in operator.flags}
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **values) if values else model


def _value(flag: Flag[Any]) -> Any:
    description = f"{flag.help[0].upper()}{flag.help[1:]}."
    if flag.parse is seconds:
        return Seconds, Field(int(flag.default), description=description)
    return str, Field(flag.default, description=description)


OPERATORS = {operator.process_name: operator for operator in operators.installed() if operator.values}
"""Operators that have a chart, by the chart's directory."""

CHARTS: dict[str, type[Values]] = {
    **{chart: with_flags(operator) for chart, operator in OPERATORS.items()},
    "platform": create_model(
        "Platform",
        __base__=PlatformBase,
        __doc__=PlatformBase.__doc__,
        **{operator.name: _part(operator.name) for operator in OPERATORS.values()},
    ),
}
"""Models of all charts that have values, by the chart's directory."""
