"""Panels and annotations about custom resources that all dashboards share: readiness, states, events."""

from __future__ import annotations

from charts.values.rules import Thresholds
from dashboards.model import (
    BLUE,
    Column,
    Dashboard,
    Graph,
    Mappings,
    Mark,
    Query,
    Row,
    Stat,
    Steps,
    Table,
    Timeline,
    warns_below,
    warns_from,
)
from dashboards.promql import (
    ID,
    KIND_NAME,
    KINDS,
    RESOURCE,
    SERVED,
    STOPPED,
    dashboard_of,
    or_none,
    quiet,
    ready,
    select,
    states,
    to_renew,
    total,
    variables,
)

MINUTE_SECONDS = 60.0
TILE_WIDTH = 3
"""Width of a tile in a row of eight, in grid columns."""

TO_RENEW = (
    f"Less than {Thresholds().certificate_share:.0%} of the validity is left, and less than "
    f"{Thresholds().certificate_seconds / 86400:.0f} days. Operators and cert-manager renew when a third is left."
)

UNREADY_FOR = warns_from(10 * MINUTE_SECONDS, notice=2 * MINUTE_SECONDS)

READY: Mappings = (("True", "Ready", "green"), ("False", "Not ready", "orange"), ("Unknown", "Unknown", "orange"))
AVAILABLE: Mappings = (("True", "yes", "green"), ("False", "no", "red"), ("Unknown", "unknown", "orange"))
SCRAPED: Mappings = (("0", "no exporter", "orange"),)
PHASES: Mappings = (
    ("Running", "Running", "green"),
    ("Complete", "Complete", "green"),
    ("Creating", "Creating", "blue"),
    ("Pending", "Pending", "blue"),
    ("Scaling", "Scaling", "blue"),
    ("Upgrading", "Upgrading", "blue"),
    ("Paused", "Paused", "purple"),
    ("Hibernated", "Hibernated", "purple"),
    ("Failed", "Failed", "orange"),
)
CERTIFICATE: Mappings = (("0", "valid", "green"), ("1", "renew", "orange"))
OK: Mappings = (("1", "yes", "green"), ("0", "no", "red"))
WRITTEN: Mappings = (("1", "yes", "green"), ("0", "no", "orange"))
YES: Mappings = (("1", "yes", "purple"), ("0", "no", "text"))

UPGRADES = "Upgrading|Updating|SwitchingWorkload"
FAILOVERS = "TakingOver|Replacing|ReplacingCorruptMember|Recovering|Promoting"
"""Event reasons, as regular expressions; docs/runbook/README.md describes them."""


def page(
    kind: str,
    title: str,
    description: str,
    now: Row,
    *rows: Row,
    metric: str = "platform_resource_info",
    marks: tuple[Mark, ...] = (),
) -> Dashboard:
    """Build the dashboard of one kind: current state, resources, then the kind's own rows.

    Args:
        title: title after the prefix "Platform / ".
        metric: a metric that every server of the kind exposes.
        marks: annotations in addition to those of every kind.
    """
    return Dashboard(
        uid=KINDS[kind],
        title=f"Platform / {title}",
        description=description,
        variables=variables(metric, kinds=kind),
        marks=(*marks_of(kind), *marks),
        rows=(now, Row("Resources", (table(kind, height=6), readiness(kind))), *rows),
    )


def now(kind: str, noun: str, *tiles: Stat) -> Row:
    """Return the first row of the dashboard of one kind: readiness, the kind's own tiles, certificates.

    Args:
        noun: servers of the kind, such as Members.
        tiles: up to five tiles of width `TILE_WIDTH`.
    """
    before = (unready(kind, width=TILE_WIDTH), servers_ready(kind, noun, width=TILE_WIDTH))
    return Row("Now", (*before, *tiles, certificates_to_renew(kind, width=TILE_WIDTH)))


def all_resources(kinds: str) -> str:
    """Return an expression with one series per resource."""
    return states("platform_resource_info", kinds)


def with_condition(
    kinds: str, title: str, name: str, status: str, description: str, *, thresholds: Steps, width: int = 4
) -> Stat:
    """Number of resources whose condition `name` has this status, without those whose pods are stopped on purpose."""
    labels = f'type="{name}"', f'status="{status}"', f'reason!~"{STOPPED}"'
    found = states("platform_resource_condition", kinds, *labels)
    return Stat(
        title=title,
        description=description,
        unit="short",
        queries=(Query(f"count({found} == 1) or count({all_resources(kinds)}) * 0"),),
        thresholds=thresholds,
        filled=True,
        width=width,
    )


def unready(kinds: str, *, width: int = 4) -> Stat:
    """Number of resources that are not Ready; no value if no operator reports any."""
    every, well = all_resources(kinds), ready(kinds)
    return Stat(
        title="Not ready",
        description="Resources whose Ready condition is not True. The resources table lists them with the reason.",
        unit="short",
        queries=(Query(f"count({every}) - {total(well)}"),),
        thresholds=warns_from(1),
        filled=True,
        width=width,
    )


def unready_for(kinds: str, *, width: int = 4) -> Stat:
    """Time since the first of the unready resources became unready."""
    since = states("platform_resource_unready_since_timestamp_seconds", kinds)
    return Stat(
        title="Longest not ready",
        description="Longest time that a resource has currently been not Ready. A scale operation takes about a "
        "minute.",
        unit="s",
        queries=(or_none(f"max(time() - {since})", all_resources(kinds)),),
        thresholds=UNREADY_FOR,
        none="all ready",
        calm="green",
        filled=True,
        width=width,
    )


def servers_ready(kinds: str, noun: str, *, width: int = 4) -> Stat:
    """Ready share of the desired servers."""
    ready_replicas = states("platform_resource_ready_replicas", kinds)
    desired = states("platform_resource_desired_replicas", kinds)
    return Stat(
        title=f"{noun} ready",
        description=f"Share of the desired {noun.lower()} that are ready to serve clients.",
        unit="percentunit",
        queries=(Query(f"sum({ready_replicas}) / (sum({desired}) > 0)"),),
        thresholds=warns_below(1, notice=0.5),
        width=width,
    )


def certificates_to_renew(kinds: str, *, width: int = 4) -> Stat:
    """Number of certificates that should have been renewed."""
    due, every = to_renew(*validity(kinds)), validity(kinds)[1]
    return Stat(
        title="Certificates to renew",
        description=f"Certificates of resources that should have been renewed. {TO_RENEW}",
        unit="short",
        queries=(or_none(f"count({due}) or count({every}) * 0", all_resources(kinds)),),
        thresholds=warns_from(1),
        none="no certificates",
        width=width,
    )


def validity(kinds: str) -> tuple[str, str]:
    """Return the Unix times at which the validity of each certificate begins and ends."""
    metric = "platform_resource_certificate"
    begins, ends = (
        states(f"{metric}_{which}_timestamp_seconds", kinds, by="secret") for which in ("not_before", "not_after")
    )
    return begins, ends


def table(kinds: str, *, height: int = 8) -> Table:
    """Table with one row per resource, unready resources first."""
    version = states("platform_resource_info", kinds, by="version")
    condition = states("platform_resource_condition", kinds, 'type="Ready"', by="status, reason")
    since = states("platform_resource_unready_since_timestamp_seconds", kinds)
    ends = states("platform_resource_certificate_expiry_timestamp_seconds", kinds)
    late = f"clamp_max(count by ({ID}) ({to_renew(*validity(kinds))}), 1)"
    condition_of = states("platform_resource_condition", kinds, 'type="Available"', by="status")
    available = f'max by ({ID}, available) (label_replace({condition_of} == 1, "available", "$1", "status", "(.+)"))'
    link = (
        "/d/${__data.fields.dashboard}?${datasource:queryparam}&${cluster:queryparam}"
        "&var-namespace=${__data.fields.namespace}&var-name=${__data.fields.name}&${__url_time_range}"
    )
    return Table(
        title="Resources",
        description="State of each resource, as its status reports it. A name links to the resource's dashboard.",
        unit="string",
        queries=(
            Query(dashboard_of(version, kinds)),
            Query(f"{condition} == 1"),
            quiet(f"{states('platform_resource_phase', kinds, by='phase')} == 1"),
            Query(states("platform_resource_ready_replicas", kinds)),
            Query(states("platform_resource_desired_replicas", kinds)),
            quiet(f"time() - {since}"),
            quiet(f"{ends} - time()"),
            Query(states("platform_resource_paused", kinds)),
            quiet(available),
            Query(f"(({scraped(kinds)}) and on ({ID}) {all_resources(kinds)}) or {all_resources(kinds)} * 0"),
            quiet(f"{late} or {ends} * 0"),
        ),
        columns=(
            Column(source="kind", title="Kind", width=100),
            Column(source="namespace", title="Namespace", width=120),
            Column(source="name", title="Name", link=link, width=170),
            Column(source="status", title="Ready", mappings=READY, width=90),
            Column(source="available", title="Available", mappings=AVAILABLE, width=90),
            Column(source="phase", title="Phase", mappings=PHASES, width=90),
            Column(source="reason", title="Reason"),
            Column(source="F", title="Not ready for", unit="s", thresholds=UNREADY_FOR, width=100),
            Column(source="D", title="Ready pods", unit="short", thresholds=BLUE, width=85),
            Column(source="E", title="Desired", unit="short", thresholds=BLUE, width=70),
            Column(source="J", title="Scraped", unit="short", thresholds=BLUE, mappings=SCRAPED, width=100),
            Column(source="version", title="Version", width=110),
            Column(source="K", title="Certificate", unit="short", mappings=CERTIFICATE, width=90),
            Column(source="G", title="Certificate expiry", unit="s", thresholds=BLUE, width=130),
            Column(source="H", title="Paused", unit="short", mappings=YES, width=70),
        ),
        sort="Ready",
        height=height,
    )


def scraped(kinds: str) -> str:
    """Return the number of servers that Prometheus scrapes, by resource; no series for one without an exporter."""
    each = []
    for kind in kinds.split("|"):
        job = KINDS[kind].removeprefix("platform-")
        up = select("up", SERVED, f'job="{job}"')
        named = f'label_replace({up} == 1, "name", "$1", "app_kubernetes_io_instance", "(.+)")'
        each.append(f'count by ({ID}) (label_replace({named}, "kind", "{kind}", "", ""))')
    return " or ".join(each)


def readiness(kinds: str, *, height: int = 5) -> Timeline:
    """Timeline of each resource's Ready condition."""
    return Timeline(
        title="Ready over time",
        description="Ready condition of each resource: green is True, orange is not. A gap means that no operator "
        "reported the resource.",
        unit="short",
        queries=(Query(f"({ready(kinds)}) or {all_resources(kinds)} * 0", KIND_NAME),),
        thresholds=warns_below(1),
        mappings=(("1", "Ready", "green"), ("0", "Not ready", "orange")),
        height=height,
    )


def replicas(kinds: str, noun: str) -> Graph:
    """Ready and desired servers over time."""
    ready_replicas = states("platform_resource_ready_replicas", kinds)
    desired = states("platform_resource_desired_replicas", kinds)
    return Graph(
        title=f"{noun} ready and desired",
        description=f"Number of {noun.lower()} that are ready, and the number that the spec requests. They differ "
        "during a change or a failure.",
        unit="short",
        queries=(Query(ready_replicas, "{{namespace}}/{{name}}"), Query(desired, "{{namespace}}/{{name}} desired")),
        stepped=True,
    )


def marks_of(kinds: str) -> tuple[Mark, ...]:
    """Annotations of scale operations, upgrades, failovers and Warning events of these kinds."""
    controllers = "|".join(kind.lower() for kind in kinds.split("|"))
    return (
        Mark("Scales", f"{_scaled(kinds)} > 0", "{{kind}} {{namespace}}/{{name}} scaled", "blue"),
        Mark("Upgrades", _events(controllers, UPGRADES), "{{controller}}: {{reason}}", "purple"),
        Mark("Failovers", _events(controllers, FAILOVERS), "{{controller}}: {{reason}}", "orange"),
        Mark("Warnings", _events(controllers, ".+", "Warning"), "{{controller}}: {{reason}}", "red", shown=False),
    )


def _scaled(kinds: str) -> str:
    desired = select("platform_resource_desired_replicas", RESOURCE, f'kind=~"{kinds}"')
    return f"max by ({ID}) (changes({desired}[$__rate_interval]))"


def _events(controllers: str, reasons: str, kind: str = "Normal|Warning") -> str:
    labels = f'cluster=~"$cluster",controller=~"{controllers}",type=~"{kind}",reason=~"{reasons}"'
    return f"sum by (controller, reason) (increase(platform_events_total{{{labels}}}[$__rate_interval])) > 0"
