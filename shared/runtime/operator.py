"""The registry entry of an operator: what its operators/<name>/operator.py declares."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shared.api.crd import Resource
from shared.api.spec import Admission
from shared.runtime.controller import Controller
from shared.runtime.options import Flag, Options
from shared.status.reasons import Catalogue


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind that an operator serves.

    Attributes:
        resource: its description, from which the CRD and the reference page are generated.
        controller: makes its controller from the options.
        admission: its defaults and its review at admission; None for none.
    """

    resource: Resource
    controller: Callable[[Options], Controller[Any, Any]]
    admission: Admission | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator, as the rest of the tree knows it.

    What only the build needs (values, dashboard, alerts, images) is named as `module:attribute` and imported by `load`,
    so that the operator's process never imports it.

    Attributes:
        name: the name of its folder, such as `memcached`.
        summary: what samples/<name>/small.yaml creates, such as "a cache of two memcached servers".
        image_repository: the default image repository of its operand.
        kinds: the kinds that it serves, the main one first.
        flags: its own flags, beside those that all operators have.
        reasons: reasons of its conditions and events, in addition to those of `shared.status.reasons`.
        values: the model of its chart's values (charts.values.operator.OperatorValues).
        dashboard: its dashboard (dashboards.model.OperatorPage).
        alerts: its rules (dashboards.rules.model.RuleSet).
        images: makes the operand images that the local cluster builds; empty where it pulls them.
    """

    name: str
    kinds: tuple[ServedKind, ...]
    image_repository: str
    summary: str = ""
    flags: tuple[Flag[Any], ...] = ()
    reasons: Catalogue = field(default_factory=lambda: Catalogue(""))
    values: str = ""
    dashboard: str = ""
    alerts: str = ""
    images: str = ""

    @property
    def process_name(self) -> str:
        """Its default name in the cluster, such as `memcached-operator`: that of its chart, too."""
        return f"{self.name}-operator"

    @property
    def main(self) -> Resource:
        """The resource of its main kind."""
        return self.kinds[0].resource

    @property
    def resources(self) -> tuple[Resource, ...]:
        return tuple(kind.resource for kind in self.kinds)

    @property
    def admissions(self) -> tuple[Admission, ...]:
        return tuple(kind.admission for kind in self.kinds if kind.admission is not None)

    def controllers(self, options: Options) -> tuple[Controller[Any, Any], ...]:
        return tuple(kind.controller(options) for kind in self.kinds)


def load(reference: str) -> Any:
    """Import what an `Operator` names as `module:attribute`."""
    return pkgutil.resolve_name(reference)
