"""All rules, by the operator whose chart installs them."""

from __future__ import annotations

import operators
from dashboards.rules.model import RuleSet
from shared.runtime.operator import load

RULES: dict[str, RuleSet] = {
    operator.name: load(operator.alerts) for operator in operators.installed() if operator.alerts
}
