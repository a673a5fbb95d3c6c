"""How dashboards ask: the same labels chosen in the same way everywhere, and nothing counted twice.

A state is told by whichever replica of an operator leads, and for a moment by two: `states` takes one of them, whatever
pod it came from. What servers tell bears the labels of their targets, among them the resource's name, which the charts'
ServiceMonitors take from the Service.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import operators
from dashboards.model import Query, Variable

RESOURCE = 'cluster=~"$cluster",namespace=~"$namespace",name=~"$name"'
"""Labels of resources, as operators tell of them."""

SERVER = (
    'cluster=~"$cluster",namespace=~"$namespace",job=~"$job",instance=~"$instance",app_kubernetes_io_instance=~"$name"'
)
"""Labels of servers, as Prometheus scrapes them."""

SERVED = 'cluster=~"$cluster",namespace=~"$namespace",app_kubernetes_io_instance=~"$name"'
"""The same where job and instance are those of operators."""

OPERATOR = 'cluster=~"$cluster",namespace=~"$namespace",job=~"$job",instance=~"$instance"'
"""Labels of operators' replicas."""

TOLD = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"'
"""The same where the namespace is that of resources."""

ID = "cluster, kind, namespace, name"
"""What tells resources apart."""

OWNER = "cluster, namespace, app_kubernetes_io_instance"
"""The same of what servers tell."""

EACH = f"{OWNER}, pod"
"""The same, each server by itself."""

POD = "{{namespace}}/{{pod}}"
NAME = "{{namespace}}/{{app_kubernetes_io_instance}}"
KIND_NAME = "{{kind}} {{namespace}}/{{name}}"

KINDS = {
    operator.main.kind.name: f"platform-{operator.name}"
    for operator in sorted(operators.installed(), key=lambda operator: operator.main.kind.group)
}
"""The dashboard of each operator's main kind, by its uid; in the order of their API groups."""

ALL = "|".join(KINDS)


def select(metric: str, labels: str, *more: str) -> str:
    """A metric with labels and further conditions on them."""
    return f"{metric}{{{','.join((labels, *more))}}}"


def states(metric: str, kinds: str, *more: str, by: str = "") -> str:
    """What is told of resources, one series each.

    Args:
        kinds: a kind, or some with | between.
        more: further conditions on labels.
        by: further labels to keep.
    """
    of_kinds = f'kind=~"{kinds}"'
    return f"max by ({f'{ID}, {by}' if by else ID}) ({select(metric, RESOURCE, of_kinds, *more)})"


def ready(kinds: str) -> str:
    """The resources that are Ready."""
    return states("platform_resource_condition", kinds, 'type="Ready"', 'status="True"') + " == 1"


def total(expr: str) -> str:
    """A count that is 0 where there is nothing to count."""
    return f"(count({expr}) or vector(0))"


def rate(metric: str, labels: str, *more: str, by: str = OWNER) -> str:
    """How much a counter grows in a second, summed up."""
    return f"sum by ({by}) (rate({select(metric, labels, *more)}[$__rate_interval]))"


class Servers:
    """The metrics of one kind of servers, whose names begin in the same way.

    Args:
        prefix: such as `etcd`.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __call__(self, metric: str, *more: str) -> str:
        """A metric of the chosen servers, with further conditions on labels."""
        return select(f"{self._prefix}_{metric}", SERVER, *more)

    def rate(self, metric: str, *more: str, by: str = EACH) -> str:
        """How much a counter grows in a second."""
        return rate(f"{self._prefix}_{metric}", SERVER, *more, by=by)


def quantile(share: float, metric: str, labels: str, *more: str, by: str) -> str:
    """The value of a histogram that a share of observations does not exceed."""
    buckets = rate(f"{metric}_bucket", labels, *more, by=f"{by}, le")
    return f"histogram_quantile({share:g}, {buckets})"


def beside(expr: str, metric: str) -> str:
    """Only the series of targets that have a metric: names such as process_* belong to many programs."""
    return f"({expr} and on (cluster, job, instance) {metric})"


def dashboard_of(expr: str, kinds: str) -> str:
    """With a label that names each resource's dashboard.

    Args:
        kinds: a kind, or some with | between.
    """
    for kind in kinds.split("|"):
        expr = f'label_replace({expr}, "dashboard", "{KINDS[kind]}", "kind", "{kind}")'
    return expr


def variables(metric: str, *, kinds: str = "") -> tuple[Variable, ...]:
    """What a person chooses, in order; each narrows what the next offers.

    Args:
        metric: one that each target has whose job and instance are offered.
        kinds: kinds of the resources to choose of, with | between; clusters and namespaces are theirs, too, also where
            nothing is scraped. Empty for none.
    """
    either = f'__name__=~"{metric}|platform_resource_info",kind=~"{kinds}|"' if kinds else f'__name__="{metric}"'
    cluster, namespace, job = (f'{name}=~"${name}"' for name in ("cluster", "namespace", "job"))
    chosen = (
        Variable("cluster", "cluster", f"{{{either}}}", "The cluster, where Prometheus has an external label for it."),
        Variable("namespace", "namespace", f"{{{either},{cluster}}}", "The namespace."),
        Variable("job", "job", select(metric, cluster, namespace), "The job that scrapes."),
        Variable("instance", "instance", select(metric, cluster, namespace, job), "The target that is scraped."),
    )
    if not kinds:
        return chosen
    told = select("platform_resource_info", cluster, namespace, f'kind=~"{kinds}"')
    return (*chosen, Variable("name", "name", told, "The resource."))


def quiet(expr: str, legend: str = "") -> Query:
    """A query that a healthy platform may have no answer to."""
    return Query(expr, legend, quiet=True)


def filled(expr: str, chosen: Mapping[str, str] | None = None, *, interval: str = "1m") -> str:
    """An expression with values in the place of its variables.

    Args:
        chosen: regular expressions of values, by variable; of any other, all.
        interval: what $__rate_interval is: four scrapes at least.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return interval if name == "__rate_interval" else (chosen or {}).get(name, ".*")

    return re.sub(r"\$(\w+)", value, expr)
