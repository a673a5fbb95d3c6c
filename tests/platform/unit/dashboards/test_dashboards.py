"""Conventions that all dashboards follow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder

import operators
from dashboards import __main__ as writing
from dashboards import grafana
from dashboards.catalogue import DASHBOARDS, SHIPPED, queries
from dashboards.model import NO_DATA, Dashboard, Graph, Stat, Table, Timeline
from dashboards.promql import KINDS, filled, leading
from dashboards.render.drawing import TYPES
from dashboards.render.units import UNITS
from tests.platform.unit.dashboards import grafana_schema
from tests.platform.unit.dashboards.promtool import promtool
from tests.support import paths

ROOT = paths.REPOSITORY
PAGES = pytest.mark.parametrize("page", DASHBOARDS, ids=lambda page: page.uid)
PANELS = [(page.uid, panel) for page in DASHBOARDS for panel in page.panels]
EACH_PANEL = pytest.mark.parametrize(
    "panel", [panel for _, panel in PANELS], ids=[f"{u}: {p.title}" for u, p in PANELS]
)

COUNTERS = r"(_total|_bucket|_sum|_count|redis_replica_resyncs_full)$"
"""Names of counters; oliver006's exporter has one without the suffix."""


TEXTS = {page.uid: grafana.text(page) for page in DASHBOARDS}


def made(page: Dashboard) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TEXTS[page.uid])
    return found


def test_uids_are_stable() -> None:
    first, *of_operators, last = (page.uid for page in DASHBOARDS)
    assert (first, last) == ("platform-overview", "platform-operators")
    assert sorted(of_operators) == [f"platform-{operator.name}" for operator in operators.installed()]
    assert {"platform-memcached", "platform-etcd", "platform-redis"} <= set(of_operators)


def test_generated_dashboards_are_up_to_date(tmp_path: Path) -> None:
    writing.write(tmp_path)
    fresh = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.json")}
    assert len(fresh) == len(DASHBOARDS) + sum(len(pages) for pages in SHIPPED.values())
    stale = [str(path) for path, text in fresh.items() if (ROOT / path).read_text() != text]
    assert not stale, f"outdated: {stale}; run `make manifests`"


def test_no_files_of_removed_dashboards_remain() -> None:
    kept = {path.stem for path in ROOT.glob("dashboards/generated/*.json")}
    assert kept == {page.uid for page in DASHBOARDS}
    for chart, pages in SHIPPED.items():
        assert {path.stem for path in ROOT.glob(f"charts/{chart}/files/dashboards/*")} == {page.uid for page in pages}


@PAGES
def test_rendering_a_dashboard_is_deterministic(page: Dashboard) -> None:
    assert grafana.text(page) == TEXTS[page.uid]


@PAGES
def test_dashboards_follow_the_schema_of_grafana(page: Dashboard) -> None:
    found = made(page)
    assert found["schemaVersion"] == 41
    assert grafana_schema.breaches(found) == []


def first_stat(page: dict[str, Any]) -> dict[str, Any]:
    return next(panel for panel in page["panels"] if panel["type"] == "stat")


@pytest.mark.parametrize(
    ("path", "value", "breach"),
    [
        ("type", "stats", "unknown panel type stats"),
        ("title", 7, "title: 7 is no str"),
        ("gridPos.w", "wide", "grid_pos.w: 'wide' is no int"),
        ("colour", "red", "colour: unknown field"),
        ("gridPos", [0, 0, 3, 4], "gridPos: [0, 0, 3, 4] was read as"),
        ("options.colorMode", "rainbow", "options.color_mode: 'rainbow' is no BigValueColorMode"),
        ("options.reduceOptions.calcs", "last", "options.reduce_options.calcs: 'last' is no list"),
        ("options.sparkline", True, "options.sparkline: unknown field"),
        ("fieldConfig.defaults.unit", None, "unit"),
        ("fieldConfig.defaults.decimals", "two", "decimals: 'two' is no float"),
        ("fieldConfig.defaults.thresholds.mode", "relative", "thresholds.mode: 'relative' is no ThresholdsMode"),
        ("fieldConfig.defaults.thresholds.steps.0.color", 1, "steps[0].color: 1 is no str"),
        ("fieldConfig.defaults.mappings.0.type", "values", "the structure is not that of a dashboard"),
        ("targets.0.expr", 1, "targets[0].expr: 1 is no str"),
        ("targets.0.instant", "yes", "targets[0].instant: 'yes' is no bool"),
        ("targets.0.query", "up", "targets[0].query: unknown field"),
        ("datasource.type", "influxdb2", "query of an unknown data source"),
    ],
)
def test_broken_panel_is_refused(path: str, value: object, breach: str) -> None:
    page = made(DASHBOARDS[0])
    *parents, name = path.split(".")
    part: Any = first_stat(page)
    for parent in parents:
        part = part[int(parent) if isinstance(part, list) else parent]
    part[name] = value
    found = grafana_schema.breaches(page)
    assert [each for each in found if breach in each], found


def test_panel_without_a_required_field_is_refused() -> None:
    page = made(DASHBOARDS[0])
    del first_stat(page)["targets"][0]["expr"]
    assert any(each.endswith("targets[0].expr: missing") for each in grafana_schema.breaches(page))


@PAGES
def test_dashboards_are_not_editable_in_grafana(page: Dashboard) -> None:
    assert made(page)["editable"] is False


@PAGES
def test_all_dashboards_have_the_same_variables(page: Dashboard) -> None:
    variables = made(page)["templating"]["list"]
    names = [variable["name"] for variable in variables]
    assert names == ["datasource", "logs", "traces", "cluster", "namespace", "job", "instance"] + ["name"] * (
        page.uid != "platform-operators"
    )
    for variable in variables[3:]:
        assert (variable["includeAll"], variable["allValue"], variable["multi"]) == (True, ".*", True), variable["name"]
        assert variable["datasource"]["uid"] == "${datasource}"


@PAGES
def test_each_variable_filters_the_values_of_the_next(page: Dashboard) -> None:
    before: list[str] = []
    for variable in page.variables:
        used = re.findall(r"\$(\w+)", variable.source)
        assert used == (before if variable.name != "name" else ["cluster", "namespace"]), variable.name
        before.append(variable.name)


@PAGES
def test_every_query_uses_the_selected_data_source(page: Dashboard) -> None:
    for panel in made(page)["panels"]:
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["datasource"] == target["datasource"]


@PAGES
def test_queries_use_only_defined_variables(page: Dashboard) -> None:
    defined = {variable.name for variable in page.variables} | {"datasource", "__rate_interval"}
    for query in queries():
        if query.dashboard == page.uid:
            assert set(re.findall(r"\$([A-Za-z_]\w*)", query.expr)) <= defined, query


@PAGES
def test_panels_do_not_overlap(page: Dashboard) -> None:
    boxes = [(panel["gridPos"], panel["title"]) for panel in made(page)["panels"]]
    for (one, title), (other, other_title) in combinations(boxes, 2):
        disjoint = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert disjoint, f"{title} and {other_title}"
    for box, title in boxes:
        assert box["x"] + box["w"] <= 24, title


@PAGES
def test_panel_ids_and_titles_are_unique(page: Dashboard) -> None:
    panels = made(page)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for row in page.rows:
        titles = [panel.title for panel in row.panels]
        assert len(set(titles)) == len(titles), row.title


@PAGES
def test_dashboards_annotate_scales_upgrades_and_failovers(page: Dashboard) -> None:
    names = {mark["name"] for mark in made(page)["annotations"]["list"]}
    of_operators, of_resources = {"Leader changes", "Restarts"}, {"Scales", "Upgrades", "Failovers"}
    assert names >= (of_operators if page.uid == "platform-operators" else of_resources)


def test_every_panel_has_a_description_a_unit_and_queries() -> None:
    assert len(PANELS) > 100
    for name, panel in PANELS:
        assert re.fullmatch(r"[A-Z\d].{20,}[.]", panel.description), f"{name}: {panel.description}"
        assert panel.unit in UNITS, name
        assert len(panel.title) <= 30, name
        assert panel.queries, name


@PAGES
def test_renderer_supports_every_panel_type(page: Dashboard) -> None:
    assert {panel["type"] for panel in made(page)["panels"]} <= TYPES | {"row"}


def test_graph_series_have_legends() -> None:
    for name, panel in PANELS:
        if isinstance(panel, Graph | Timeline):
            assert all(query.legend for query in panel.queries), name


STATS = [(name, panel) for name, panel in PANELS if isinstance(panel, Stat)]
EACH_STAT = pytest.mark.parametrize("panel", [panel for _, panel in STATS], ids=[f"{u}: {p.title}" for u, p in STATS])


@EACH_STAT
def test_stats_are_instant_queries(panel: Stat) -> None:
    """A range query with the last value that is not null shows an old value for as long as the range."""
    built = json.loads(json.dumps(grafana._panel(panel).build(), cls=JSONEncoder))
    assert [(target["instant"], target["range"]) for target in built["targets"]] == [(True, False)] * len(panel.queries)
    assert built["options"]["reduceOptions"]["calcs"] == ["last"]
    assert built["options"]["graphMode"] == "none"


@EACH_STAT
def test_stats_without_data_have_a_colour_and_a_text_of_their_own(panel: Stat) -> None:
    built = json.loads(json.dumps(grafana._panel(panel).build(), cls=JSONEncoder))
    mappings = built["fieldConfig"]["defaults"]["mappings"]
    [missing] = [each["options"] for each in mappings if each["type"] == "special"]
    assert missing["match"] == "null+nan"
    assert (missing["result"]["text"], missing["result"]["color"]) == NO_DATA
    others = {result["color"] for each in mappings if each["type"] == "value" for result in each["options"].values()}
    steps = {step["color"] for step in built["fieldConfig"]["defaults"]["thresholds"]["steps"]}
    assert NO_DATA[1] not in others | steps


SERVES_NO_CLIENTS = {
    "Unavailable": "the condition Available is False",
    "Available": "the same, as a column",
    "Without a leader": "members of etcd report that they accept no writes",
    "Unserved slots": "keys of these slots can be neither read nor written",
    "Cluster ok": "a Redis node rejects commands of clients",
    "Operators without a leader": "the target is absent: no replica leads, or none is scraped",
    "Leader": "the same, by operator",
    "Up": "the target is absent: the exporter cannot reach its server",
    "Severity": "an alert that pages, by name",
}
"""Panels and columns that may be red, and why: see docs/concepts/health.md. A warning is orange."""


def coloured(page: Dashboard) -> Iterator[tuple[str, set[str]]]:
    """Yield the colours of each tile, each timeline and each column of a table, as in the generated file, by title."""
    for panel in made(page)["panels"]:
        if panel["type"] in ("stat", "state-timeline"):
            yield panel["title"], set(colours(panel["fieldConfig"]["defaults"]))
        for override in panel.get("fieldConfig", {}).get("overrides", ()):
            yield override["matcher"]["options"], set(colours(override["properties"]))


def colours(part: Any) -> Iterator[str]:
    """Yield every colour in the JSON of a panel."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        if key == "color" and isinstance(value, str):
            yield value
        yield from colours(value)


@PAGES
def test_red_means_that_clients_are_not_served_or_that_a_target_is_absent(page: Dashboard) -> None:
    red = {title for title, used in coloured(page) if "red" in used}
    assert red <= set(SERVES_NO_CLIENTS), "a warning is orange"


def test_warnings_are_orange_and_every_exception_is_used() -> None:
    found = [each for page in DASHBOARDS for each in coloured(page)]
    for title in ("Degraded", "Not ready", "Longest not ready", "Certificates to renew", "Firing alerts", "Ready"):
        used = [colours for name, colours in found if name == title]
        assert used, title
        assert all("orange" in each for each in used), title
    assert {title for title, used in found if "red" in used} == set(SERVES_NO_CLIENTS)


def test_stats_do_not_hide_missing_metrics_behind_a_constant() -> None:
    for name, panel in STATS:
        for query in panel.queries:
            assert not query.quiet, f"{name}, {panel.title}: use or_none, so that missing metrics look different"
            assert not query.expr.endswith("or vector(0)"), f"{name}, {panel.title}"


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ({}, []),
        ({"operator:expected:info": "etcd"}, [("etcd", 0)]),
        ({"operator:expected:info": "etcd", "leader": "1"}, [("etcd", 1)]),
        ({"leader": "0"}, [("etcd", 0)]),
    ],
    ids=["nothing", "absent operator", "leader", "standby"],
)
def test_absent_operator_has_no_leader(series: dict[str, str], expected: list[tuple[str, int]], tmp_path: Path) -> None:
    leads = {
        "series": 'leader_election_master_status{name="etcd-operator",pod="a"}',
        "values": f"{series.get('leader')}x9",
    }
    rules = {"series": 'operator:expected:info{operator="etcd"}', "values": "1x9"}
    given = [*([leads] if "leader" in series else []), *([rules] if "operator:expected:info" in series else [])]
    samples = [{"labels": f'{{operator="{name}"}}', "value": value} for name, value in expected]
    check = {"expr": filled(leading('job=~"$job"')), "eval_time": "5m", "exp_samples": samples}
    file = tmp_path / "test.json"
    file.write_text(json.dumps({"tests": [{"interval": "1m", "input_series": given, "promql_expr_test": [check]}]}))
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_that_may_be_empty_have_a_text_for_no_data() -> None:
    missing = [
        (name, panel)
        for name, panel in PANELS
        if isinstance(panel, Graph) and all(query.quiet for query in panel.queries)
    ]
    assert len(missing) > 10
    for name, panel in missing:
        assert panel.none, name


def test_table_columns_exist_in_the_queries() -> None:
    tables = [(name, panel) for name, panel in PANELS if isinstance(panel, Table)]
    assert tables
    for name, panel in tables:
        letters = [chr(ord("A") + index) for index in range(len(panel.queries))]
        sources = [column.source for column in panel.columns]
        assert {source for source in sources if len(source) == 1} <= set(letters), name
        assert panel.sort in {column.title for column in panel.columns}, name
        exprs = " ".join(query.expr for query in panel.queries)
        kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", exprs))))
        for source in sources:
            whole = "ALERTS" in exprs  # ALERTS keeps all labels
            assert len(source) == 1 or source in kept or whole, f"{name}: no query keeps the label {source}"


def test_table_links_lead_to_existing_dashboards() -> None:
    uids = {page.uid for page in DASHBOARDS}
    assert set(KINDS.values()) <= uids
    links = [column.link for _, panel in PANELS if isinstance(panel, Table) for column in panel.columns if column.link]
    assert links
    for link in links:
        assert re.match(r"/d/(\$\{__data\.fields\.dashboard\}|6581e46e4e5c7ba40a07646395ef7b23)\?", link)


@PAGES
def test_dashboards_link_to_each_other_by_a_common_tag(page: Dashboard) -> None:
    found = made(page)
    link, *_ = found["links"]
    assert (link["type"], link["tags"], link["includeVars"], link["keepTime"]) == (
        "dashboards",
        found["tags"],
        True,
        True,
    )


@PAGES
def test_dashboards_link_to_logs_traces_and_pods_of_the_selection(page: Dashboard) -> None:
    urls = {link["title"]: link["url"] for link in made(page)["links"][1:]}
    assert list(urls) == ["Logs", "Traces", "Pods"]
    named = {"logs", "traces", "datasource", "cluster", "namespace", "__from", "__to", "__url_time_range", "name"}
    for title, source in (("Logs", "logs"), ("Traces", "traces")):
        path, _, given = urls[title].partition("?")
        assert path == "/explore"
        [pane] = json.loads(parse_qs(given)["panes"][0]).values()
        assert pane["datasource"] == f"${{{source}}}"
    for url in urls.values():
        assert set(re.findall(r"\$\{(\w+)", url)) <= named
        assert "%24" not in url, "variables must not be encoded: Grafana would not replace them"
    assert ("name" in re.findall(r"\$\{(\w+)", urls["Logs"])) == (page.uid != "platform-operators")


def test_rates_are_applied_to_counters_only() -> None:
    rated = [(query, name) for query in queries() for name in re.findall(r"\b(?:rate|increase)\((\w+)", query.expr)]
    assert len(rated) > 100
    for query, name in rated:
        assert re.search(COUNTERS, name), f"{query.dashboard}, {query.panel}: {name} is not a counter"


def test_rate_windows_are_the_rate_interval_or_those_of_objectives() -> None:
    for query in queries():
        windows = set(re.findall(r"\[(\$?\w+)\]", query.expr)) - {"$__rate_interval"}
        assert windows <= {"5m", "30m", "1h", "6h"}, query
        if windows:
            assert query.dashboard in ("platform-operators", "platform-overview"), query


def test_resource_states_are_deduplicated() -> None:
    for query in queries():
        for state in re.finditer(r"platform_(resource|etcd|redis)_\w+\{", query.expr):
            before = query.expr[: state.start()]
            is_variable = query.panel.startswith("variable ")
            assert is_variable or re.search(
                r"(max by \([^)]*\) \(|max by \([^)]*\) \(changes\(|max\(time\(\) - )$", before
            ), query


def test_catalogue_lists_every_query_of_every_file() -> None:
    listed = {(query.dashboard, query.expr) for query in queries()}
    for page in DASHBOARDS:
        found = made(page)
        exprs = [target["expr"] for panel in found["panels"] for target in panel.get("targets", ())]
        exprs += [mark["expr"] for mark in found["annotations"]["list"]]
        assert {(page.uid, expr) for expr in exprs} <= listed
    assert len(listed) > 150


def test_variables_are_substituted_by_their_full_name() -> None:
    expr = 'sum(rate(up{name=~"$name",namespace=~"$namespace"}[$__rate_interval]))'
    assert filled(expr, {"name": "a|b"}, interval="5m") == 'sum(rate(up{name=~"a|b",namespace=~".*"}[5m]))'
