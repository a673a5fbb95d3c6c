"""The overview dashboard: the state of the whole platform, with links to the dashboards of its parts."""

from __future__ import annotations

from dashboards import resources
from dashboards.model import Column, Dashboard, Graph, Query, Row, Stat, Table, bad_from, warns_below, warns_from
from dashboards.pages import PAGES
from dashboards.promql import (
    ALL,
    KIND_NAME,
    KINDS,
    OPERATOR_TARGET,
    leading,
    or_none,
    quantile,
    quiet,
    rate,
    ready,
    select,
    states,
    variables,
)

_NAMES = "|".join(KINDS[kind].removeprefix("platform-").capitalize() for kind in KINDS)
_LISTED = " and ".join(", ".join(f"{kind}s" for kind in KINDS).rsplit(", ", 1))
FIRING = f'ALERTS{{alertstate="firing",cluster=~"$cluster",alertname=~"(Platform|{_NAMES}).+"}}'
LEADS = leading(OPERATOR_TARGET)
FAILED, DONE = (
    f"sum (rate({select('controller_runtime_reconcile_total', OPERATOR_TARGET, result)}[1h]))"
    for result in ('result="error"', 'result=~".+"')
)

NOW = Row(
    "Health",
    (
        resources.with_condition(
            ALL,
            "Unavailable",
            "Available",
            "False",
            "Resources whose clients cannot read and write all of their data, by the evidence of the servers and of "
            "the kubelet.",
            thresholds=bad_from(None, 1),
            width=3,
        ),
        resources.with_condition(
            ALL,
            "Degraded",
            "Degraded",
            "True",
            "Resources with less redundancy than requested, or with servers that share a host or a zone.",
            thresholds=warns_from(1),
            width=3,
        ),
        resources.unready(ALL, width=3),
        resources.unready_for(ALL, width=3),
        Stat(
            title="Firing alerts",
            description="Number of the platform's alerts that are firing. The table below lists them. No data: "
            "Prometheus has not loaded the rules.",
            unit="short",
            queries=(Query(f'count({FIRING}) or count(operator:expected:info{{cluster=~"$cluster"}}) * 0'),),
            thresholds=warns_from(1),
            filled=True,
            width=3,
        ),
        Stat(
            title="Operators without a leader",
            description="Operators without a leading replica, or without any metrics although their rules are "
            "installed. Their databases continue to run, but nothing is reconciled or repaired.",
            unit="short",
            queries=(Query(f"count({LEADS} == 0) or count({LEADS}) * 0"),),
            thresholds=bad_from(None, 1),
            filled=True,
            width=3,
        ),
        resources.servers_ready(ALL, "Servers", width=3),
        Stat(
            title="Resources",
            description=f"Number of {_LISTED} that operators report.",
            unit="short",
            queries=(Query(f"count({resources.all_resources(ALL)})"),),
            width=3,
        ),
    ),
)

STATE = Row(
    "Resources",
    (
        resources.table(ALL),
        resources.readiness(ALL, height=7),
        Table(
            title="Firing alerts",
            description="Firing alerts of the platform's rules. The runbook describes each of them.",
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
            description="Number of resources that are not Ready, by kind.",
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

TRAFFIC = Row("Client traffic", tuple(page.traffic for page in PAGES if page.traffic is not None))
CAPACITY = Row("Memory and disk usage", tuple(page.fullness for page in PAGES if page.fullness is not None))

OPERATORS = Row(
    "Operators",
    (
        Stat(
            title="Reconcile success rate",
            description="Share of reconciles that succeeded in the last hour.",
            unit="percentunit",
            queries=(
                or_none(f"1 - {FAILED} / ({DONE} > 0)", select("leader_election_master_status", OPERATOR_TARGET)),
            ),
            none="no reconciles",
            thresholds=warns_below(0.99, notice=0.9),
            decimals=2,
            width=4,
            height=8,
        ),
        Graph(
            title="Reconciles",
            description="Reconciles per second, by kind.",
            unit="ops",
            queries=(
                Query(rate("controller_runtime_reconcile_total", OPERATOR_TARGET, by="controller"), "{{controller}}"),
            ),
            width=6,
        ),
        Graph(
            title="Reconcile duration p99",
            description="99th percentile of the duration of a reconcile.",
            unit="s",
            queries=(
                Query(
                    quantile(0.99, "controller_runtime_reconcile_time_seconds", OPERATOR_TARGET, by="controller"),
                    "{{controller}}",
                ),
            ),
            width=7,
        ),
        Graph(
            title="Certificate expiry",
            none="no certificates",
            description="Remaining validity of each resource's certificate that expires first. Operators and "
            "cert-manager renew when a third of the validity is left.",
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
    description="State of every resource of the platform, with links to the dashboards of each kind.",
    variables=variables("platform_resource_info", kinds=ALL),
    marks=resources.marks_of(ALL),
    rows=(NOW, STATE, TRAFFIC, CAPACITY, OPERATORS),
)
