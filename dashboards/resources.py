"""What every dashboard shows of resources in the same way: how many are Ready, their states, what happened."""

from __future__ import annotations

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
    Table,
    Timeline,
    bad_from,
    good_from,
)
from dashboards.promql import (
    ID,
    KIND_NAME,
    KINDS,
    RESOURCE,
    dashboard_of,
    quiet,
    ready,
    select,
    states,
    total,
    variables,
)

DAY_SECONDS = 86400.0
MINUTE_SECONDS = 60.0

EXPIRY = good_from(3 * DAY_SECONDS, 14 * DAY_SECONDS)
"""What is left of a certificate: our own are renewed when 30 days are left."""

UNREADY_FOR = bad_from(2 * MINUTE_SECONDS, 10 * MINUTE_SECONDS)

READY: Mappings = (("True", "Ready", "green"), ("False", "Not ready", "red"), ("Unknown", "Unknown", "orange"))
PHASES: Mappings = (
    ("Running", "Running", "green"),
    ("Complete", "Complete", "green"),
    ("Creating", "Creating", "blue"),
    ("Pending", "Pending", "blue"),
    ("Scaling", "Scaling", "blue"),
    ("Upgrading", "Upgrading", "blue"),
    ("Paused", "Paused", "purple"),
    ("Failed", "Failed", "red"),
)
WELL: Mappings = (("1", "yes", "green"), ("0", "no", "red"))
YES: Mappings = (("1", "yes", "purple"), ("0", "no", "text"))

UPGRADES = "Upgrading|Updating|SwitchingWorkload"
FAILOVERS = "TakingOver|Replacing|ReplacingCorruptMember|Recovering|Promoting"
"""Reasons of events, which docs/runbook.md tells of."""


def page(
    kind: str,
    title: str,
    description: str,
    now: Row,
    *rows: Row,
    metric: str = "platform_resource_info",
    marks: tuple[Mark, ...] = (),
) -> Dashboard:
    """The dashboard of one kind: what holds now, its resources, and rows of its own.

    Args:
        title: after "Platform / ".
        metric: one that each of its servers has.
        marks: further ones than those of every kind.
    """
    return Dashboard(
        uid=KINDS[kind],
        title=f"Platform / {title}",
        description=description,
        variables=variables(metric, kinds=kind),
        marks=(*marks_of(kind), *marks),
        rows=(now, Row("Resources", (table(kind, height=6), readiness(kind))), *rows),
    )


def all_resources(kinds: str) -> str:
    """Each resource once."""
    return states("platform_resource_info", kinds)


def unready(kinds: str, *, width: int = 4) -> Stat:
    """How many are not Ready; nothing at all where no operator tells of any."""
    every, well = all_resources(kinds), ready(kinds)
    return Stat(
        title="Not ready",
        description="Resources whose condition Ready is not True. The table says which, and why.",
        unit="short",
        queries=(Query(f"count({every}) - {total(well)}"),),
        thresholds=bad_from(None, 1),
        none="no resources",
        filled=True,
        width=width,
    )


def unready_for(kinds: str, *, width: int = 4) -> Stat:
    """The time of the one that is not Ready for longest."""
    since = states("platform_resource_unready_since_timestamp_seconds", kinds)
    return Stat(
        title="Longest not ready",
        description="How long the resource that is not Ready for longest has been so. Scaling one takes a minute.",
        unit="s",
        queries=(quiet(f"max(time() - {since})"),),
        thresholds=UNREADY_FOR,
        none="all ready",
        filled=True,
        trend=False,
        width=width,
    )


def servers_ready(kinds: str, noun: str, *, width: int = 4) -> Stat:
    """How many are ready of those that the specs ask for."""
    have = states("platform_resource_ready_replicas", kinds)
    wanted = states("platform_resource_desired_replicas", kinds)
    return Stat(
        title=f"{noun} ready",
        description=f"Of the {noun.lower()} that the specs ask for, those that clients may use.",
        unit="percentunit",
        queries=(Query(f"sum({have}) / (sum({wanted}) > 0)"),),
        thresholds=good_from(0.5, 1),
        none="none wanted",
        width=width,
    )


def first_certificate(kinds: str, *, width: int = 4) -> Stat:
    """What is left of the certificate that ends first."""
    ends = states("platform_resource_certificate_expiry_timestamp_seconds", kinds)
    return Stat(
        title="Certificate ends in",
        description="Of the resources' certificates, the one that ends first. The operator's own are renewed by itself "
        "when 30 days are left.",
        unit="s",
        queries=(quiet(f"min({ends}) - time()"),),
        thresholds=EXPIRY,
        none="no certificates",
        trend=False,
        width=width,
    )


def table(kinds: str, *, height: int = 8) -> Table:
    """A row a resource, those that are not Ready first."""
    version = states("platform_resource_info", kinds, by="version")
    condition = states("platform_resource_condition", kinds, 'type="Ready"', by="status, reason")
    since = states("platform_resource_unready_since_timestamp_seconds", kinds)
    ends = states("platform_resource_certificate_expiry_timestamp_seconds", kinds)
    there = (
        "/d/${__data.fields.dashboard}?${datasource:queryparam}&${cluster:queryparam}"
        "&var-namespace=${__data.fields.namespace}&var-name=${__data.fields.name}&${__url_time_range}"
    )
    return Table(
        title="Resources",
        description="Each resource as its status tells of it; a name leads to its dashboard.",
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
        ),
        columns=(
            Column(source="kind", title="Kind", width=100),
            Column(source="namespace", title="Namespace", width=120),
            Column(source="name", title="Name", link=there, width=170),
            Column(source="status", title="Ready", mappings=READY, width=90),
            Column(source="phase", title="Phase", mappings=PHASES, width=90),
            Column(source="reason", title="Reason"),
            Column(source="F", title="Not ready for", unit="s", thresholds=UNREADY_FOR, width=100),
            Column(source="D", title="Have", unit="short", thresholds=BLUE, width=60),
            Column(source="E", title="Want", unit="short", thresholds=BLUE, width=60),
            Column(source="version", title="Version", width=110),
            Column(source="G", title="Certificate ends in", unit="s", thresholds=EXPIRY, width=130),
            Column(source="H", title="Paused", unit="short", mappings=YES, width=70),
        ),
        sort="Ready",
        height=height,
    )


def readiness(kinds: str, *, height: int = 5) -> Timeline:
    """When each was Ready."""
    return Timeline(
        title="Ready over time",
        description="Green while a resource was Ready, red while it was not; a gap is when no operator told.",
        unit="short",
        queries=(Query(f"({ready(kinds)}) or {all_resources(kinds)} * 0", KIND_NAME),),
        thresholds=good_from(None, 1),
        mappings=(("1", "Ready", "green"), ("0", "Not ready", "red")),
        height=height,
    )


def replicas(kinds: str, noun: str) -> Graph:
    """How many there are of those wanted, over time."""
    have = states("platform_resource_ready_replicas", kinds)
    wanted = states("platform_resource_desired_replicas", kinds)
    return Graph(
        title=f"{noun} ready and wanted",
        description=f"{noun} that clients may use, and as many as the spec asks for. They differ while the operator "
        "works, or where something fails.",
        unit="short",
        queries=(Query(have, "{{namespace}}/{{name}}"), Query(wanted, "{{namespace}}/{{name}} wanted")),
        stepped=True,
    )


def marks_of(kinds: str) -> tuple[Mark, ...]:
    """Scales, upgrades, failovers and what went wrong, of the resources on a page."""
    controllers = "|".join(kind.lower() for kind in kinds.split("|"))
    return (
        Mark("Scales", f"{_scaled(kinds)} > 0", "{{kind}} {{namespace}}/{{name}} scaled", "blue"),
        Mark("Upgrades", _events(controllers, UPGRADES), "{{controller}}: {{reason}}", "purple"),
        Mark("Failovers", _events(controllers, FAILOVERS), "{{controller}}: {{reason}}", "orange"),
        Mark("Warnings", _events(controllers, ".+", "Warning"), "{{controller}}: {{reason}}", "red", shown=False),
    )


def _scaled(kinds: str) -> str:
    wanted = select("platform_resource_desired_replicas", RESOURCE, f'kind=~"{kinds}"')
    return f"max by ({ID}) (changes({wanted}[$__rate_interval]))"


def _events(controllers: str, reasons: str, kind: str = "Normal|Warning") -> str:
    labels = f'cluster=~"$cluster",controller=~"{controllers}",type=~"{kind}",reason=~"{reasons}"'
    return f"sum by (controller, reason) (increase(platform_events_total{{{labels}}}[$__rate_interval])) > 0"
