"""The dashboard that one looks at first: everything of the platform, and the way down."""

from __future__ import annotations

from dashboards import resources
from dashboards.model import Column, Dashboard, Graph, Query, Row, Stat, Table, bad_from, good_from
from dashboards.pages import PAGES
from dashboards.promql import (
    ALL,
    KIND_NAME,
    KINDS,
    quantile,
    quiet,
    rate,
    ready,
    select,
    states,
    total,
    variables,
)

OPERATING = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"'
"""Labels of operators, wherever they run."""

_NAMES = "|".join(KINDS[kind].removeprefix("platform-").capitalize() for kind in KINDS)
_LISTED = " and ".join(", ".join(f"{kind}s" for kind in KINDS).rsplit(", ", 1))
FIRING = f'ALERTS{{alertstate="firing",cluster=~"$cluster",alertname=~"(Platform|{_NAMES}).+"}}'
LEADERS = f"max by (cluster, name) ({select('leader_election_master_status', OPERATING)})"
FAILED, DONE = (
    f"sum (rate({select('controller_runtime_reconcile_total', OPERATING, result)}[1h]))"
    for result in ('result="error"', 'result=~".+"')
)

NOW = Row(
    "Is everything well?",
    (
        resources.unready(ALL),
        resources.unready_for(ALL),
        Stat(
            title="Alerts",
            description="Alerts of the platform that fire now. The list says which.",
            unit="short",
            queries=(Query(f"count({FIRING}) or vector(0)"),),
            thresholds=bad_from(None, 1),
            filled=True,
        ),
        Stat(
            title="Operators without a leader",
            description="Operators of which no replica leads: what runs, runs on, and nothing is mended.",
            unit="short",
            queries=(Query(f"count({LEADERS}) - {total(f'{LEADERS} == 1')}"),),
            thresholds=bad_from(None, 1),
            none="no operators",
            filled=True,
        ),
        resources.servers_ready(ALL, "Servers"),
        Stat(
            title="Resources",
            description=f"{_LISTED} that operators tell of.",
            unit="short",
            queries=(Query(f"count({resources.all_resources(ALL)})"),),
            none="none",
        ),
    ),
)

STATE = Row(
    "Resources",
    (
        resources.table(ALL),
        resources.readiness(ALL, height=7),
        Table(
            title="Alerts that fire",
            description="Those of the platform's own rules; each has a page in the runbook.",
            unit="string",
            queries=(quiet(FIRING),),
            columns=(
                Column(
                    source="severity",
                    title="Severity",
                    mappings=(
                        ("critical", "critical", "red"),
                        ("warning", "warning", "orange"),
                        ("info", "info", "blue"),
                    ),
                    width=110,
                ),
                Column(source="alertname", title="Alert", width=320),
                Column(source="kind", title="Kind", width=130),
                Column(source="namespace", title="Namespace", width=160),
                Column(source="name", title="Name"),
            ),
            sort="Severity",
            width=12,
            height=7,
        ),
        Graph(
            title="Not ready",
            description="Resources that are not Ready, by kind.",
            unit="short",
            queries=(
                Query(
                    f"count by (kind) ({resources.all_resources(ALL)}) - (count by (kind) ({ready(ALL)}) "
                    f"or count by (kind) ({resources.all_resources(ALL)}) * 0)",
                    "{{kind}}",
                ),
            ),
            stepped=True,
            stacked=True,
            width=12,
            height=7,
        ),
    ),
)

TRAFFIC = Row("What clients ask", tuple(page.traffic for page in PAGES if page.traffic is not None))
ROOM = Row("How full they are", tuple(page.fullness for page in PAGES if page.fullness is not None))

OPERATORS = Row(
    "The operators",
    (
        Stat(
            title="Reconciles that succeed",
            description="Of all within the last hour.",
            unit="percentunit",
            queries=(quiet(f"1 - {FAILED} / ({DONE} > 0)"),),
            none="no reconciles",
            thresholds=good_from(0.9, 0.99),
            decimals=2,
            width=4,
            height=8,
        ),
        Graph(
            title="Reconciles",
            description="Times in a second that an operator looked at a resource, by kind.",
            unit="ops",
            queries=(Query(rate("controller_runtime_reconcile_total", OPERATING, by="controller"), "{{controller}}"),),
            width=6,
        ),
        Graph(
            title="Time of a reconcile p99",
            description="99 of 100 reconciles take no longer than this.",
            unit="s",
            queries=(
                Query(
                    quantile(0.99, "controller_runtime_reconcile_time_seconds", OPERATING, by="controller"),
                    "{{controller}}",
                ),
            ),
            width=7,
        ),
        Graph(
            title="Certificates end in",
            none="no certificates",
            description="Those of resources that have any. Ours are renewed by themselves when 30 days are left.",
            unit="s",
            queries=(
                quiet(f"{states('platform_resource_certificate_expiry_timestamp_seconds', ALL)} - time()", KIND_NAME),
            ),
            width=7,
        ),
    ),
)

OVERVIEW = Dashboard(
    uid="platform-overview",
    title="Platform / Overview",
    description="Every resource of the platform, whether it is well, and the way to its dashboard.",
    variables=variables("platform_resource_info", kinds=ALL),
    marks=resources.marks_of(ALL),
    rows=(NOW, STATE, TRAFFIC, ROOM, OPERATORS),
)
