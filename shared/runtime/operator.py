"""The registry entry of an operator, declared in operators/<name>/operator.py."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.api.catalogue import Catalogue as VersionCatalogue
from shared.api.crd import Resource
from shared.api.spec import Admission
from shared.runtime.controller import Controller
from shared.runtime.options import Flag, Options
from shared.status.reasons import Catalogue


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind that an operator serves.

    Attributes:
        resource: description of the kind, from which the CRD and the reference page are generated.
        controller: creates the controller from the options.
        admission: defaulting and validation at admission; None for none.
        configured: returns the admission with the options of the process; None if it depends on none.
    """

    resource: Resource
    controller: Callable[[Options], Controller[Any, Any]]
    admission: Admission | None = None
    configured: Callable[[Options], Admission] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator, as seen by the rest of the tree.

    Objects that only the build needs (values, dashboard, alerts, images) are given as `module:attribute` and imported
    by `load`, so that the process of the operator never imports them.

    Attributes:
        name: name of the package, such as `memcached`.
        summary: description of what `smallest` creates, such as "a cache of three memcached servers".
        image_repository: default image repository of the operand.
        kinds: served kinds, the main one first.
        flags: flags of this operator, in addition to the common ones.
        catalogues: versions of each engine that the operator runs, with their advisories.
        reasons: reasons of conditions and events, in addition to those of `shared.status.reasons`.
        values: model of the chart's values (charts.values.operator.OperatorValues).
        dashboard: dashboard page (dashboards.model.OperatorPage).
        alerts: alerting and recording rules (dashboards.rules.model.RuleSet).
        images: builds the operand images for the local cluster; empty if it pulls them.
        smallest: spec of the main kind with the required fields only, as YAML in one line.
        local_versions: for each engine whose default version the local cluster has no image of, the version that a new
            resource gets there instead.
    """

    name: str
    kinds: tuple[ServedKind, ...]
    image_repository: str
    summary: str = ""
    flags: tuple[Flag[Any], ...] = ()
    catalogues: tuple[VersionCatalogue, ...] = ()
    reasons: Catalogue = field(default_factory=lambda: Catalogue(""))
    values: str = ""
    dashboard: str = ""
    alerts: str = ""
    images: str = ""
    smallest: str = ""
    local_versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def process_name(self) -> str:
        """Default name in the cluster, such as `memcached-operator`, which is also the name of the chart."""
        return f"{self.name}-operator"

    @property
    def main(self) -> Resource:
        """Resource of the main kind."""
        return self.kinds[0].resource

    @property
    def resources(self) -> tuple[Resource, ...]:
        return tuple(kind.resource for kind in self.kinds)

    def admissions_with(self, options: Options) -> tuple[Admission, ...]:
        """Return the admissions with the options of the process."""
        found = (kind.configured(options) if kind.configured else kind.admission for kind in self.kinds)
        return tuple(each for each in found if each is not None)

    def controllers(self, options: Options) -> tuple[Controller[Any, Any], ...]:
        return tuple(kind.controller(options) for kind in self.kinds)


def load(reference: str) -> Any:
    """Import an object that an `Operator` names as `module:attribute`."""
    return pkgutil.resolve_name(reference)
