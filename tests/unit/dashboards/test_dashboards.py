"""What every dashboard keeps to, so that a person who knows one knows all."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard as Known

import operators
from dashboards import __main__ as writing
from dashboards import grafana
from dashboards.catalogue import DASHBOARDS, SHIPPED, queries
from dashboards.model import Dashboard, Graph, Stat, Table, Timeline
from dashboards.promql import KINDS, filled
from dashboards.render.drawing import TYPES
from dashboards.render.units import UNITS
from tests.support import paths

ROOT = paths.REPOSITORY
PAGES = pytest.mark.parametrize("page", DASHBOARDS, ids=lambda page: page.uid)
PANELS = [(page.uid, panel) for page in DASHBOARDS for panel in page.panels]
EACH_PANEL = pytest.mark.parametrize(
    "panel", [panel for _, panel in PANELS], ids=[f"{u}: {p.title}" for u, p in PANELS]
)

COUNTERS = r"(_total|_bucket|_sum|_count|redis_replica_resyncs_full)$"
"""Names of what only grows; oliver006's exporter has one that does not say so."""


TEXTS = {page.uid: grafana.text(page) for page in DASHBOARDS}


def made(page: Dashboard) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TEXTS[page.uid])
    return found


def test_uids_are_those_that_links_and_alerts_name() -> None:
    first, *of_operators, last = (page.uid for page in DASHBOARDS)
    assert (first, last) == ("platform-overview", "platform-operators")
    assert sorted(of_operators) == [f"platform-{operator.name}" for operator in operators.installed()]
    assert {"platform-memcached", "platform-etcd", "platform-redis"} <= set(of_operators)


def test_the_files_are_as_they_are_generated(tmp_path: Path) -> None:
    writing.write(tmp_path)
    fresh = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.json")}
    assert len(fresh) == len(DASHBOARDS) + sum(len(pages) for pages in SHIPPED.values())
    stale = [str(path) for path, text in fresh.items() if (ROOT / path).read_text() != text]
    assert not stale, "mend: make manifests"


def test_no_file_of_a_former_dashboard_is_left() -> None:
    kept = {path.stem for path in ROOT.glob("dashboards/generated/*.json")}
    assert kept == {page.uid for page in DASHBOARDS}
    for chart, pages in SHIPPED.items():
        assert {path.stem for path in ROOT.glob(f"charts/{chart}/files/dashboards/*")} == {page.uid for page in pages}


@PAGES
def test_a_page_is_made_the_same_each_time(page: Dashboard) -> None:
    assert grafana.text(page) == TEXTS[page.uid]


@PAGES
def test_grafanas_own_types_keep_every_field_of_a_page(page: Dashboard) -> None:
    found = made(page)
    assert found["schemaVersion"] == 41
    for mark in found["annotations"]["list"]:
        for own in ("titleFormat", "step", "useValueForTime"):  # the Prometheus source's
            del mark[own]
    assert json.loads(json.dumps(Known.from_json(found), cls=JSONEncoder)) == found


@PAGES
def test_a_page_is_changed_in_code_only(page: Dashboard) -> None:
    assert made(page)["editable"] is False


@PAGES
def test_a_person_chooses_by_the_same_variables_everywhere(page: Dashboard) -> None:
    variables = made(page)["templating"]["list"]
    names = [variable["name"] for variable in variables]
    assert names == ["datasource", "cluster", "namespace", "job", "instance"] + ["name"] * (
        page.uid != "platform-operators"
    )
    for variable in variables[1:]:
        assert (variable["includeAll"], variable["allValue"], variable["multi"]) == (True, ".*", True), variable["name"]
        assert variable["datasource"]["uid"] == "${datasource}"


@PAGES
def test_each_variable_narrows_what_the_next_offers(page: Dashboard) -> None:
    before: list[str] = []
    for variable in page.variables:
        used = re.findall(r"\$(\w+)", variable.source)
        assert used == (before if variable.name != "name" else ["cluster", "namespace"]), variable.name
        before.append(variable.name)


@PAGES
def test_every_query_asks_the_source_that_is_chosen(page: Dashboard) -> None:
    for panel in made(page)["panels"]:
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["datasource"] == target["datasource"]


@PAGES
def test_every_variable_that_is_used_is_there(page: Dashboard) -> None:
    there = {variable.name for variable in page.variables} | {"datasource", "__rate_interval"}
    for asked in queries():
        if asked.dashboard == page.uid:
            assert set(re.findall(r"\$(\w+)", asked.expr)) <= there, asked


@PAGES
def test_panels_stand_side_by_side_and_never_over_each_other(page: Dashboard) -> None:
    boxes = [(panel["gridPos"], panel["title"]) for panel in made(page)["panels"]]
    for (one, title), (other, beside) in combinations(boxes, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, f"{title} and {beside}"
    for box, title in boxes:
        assert box["x"] + box["w"] <= 24, title


@PAGES
def test_ids_and_titles_tell_panels_apart(page: Dashboard) -> None:
    panels = made(page)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for row in page.rows:
        titles = [panel.title for panel in row.panels]
        assert len(set(titles)) == len(titles), row.title


@PAGES
def test_scales_upgrades_failovers_and_the_like_are_marked(page: Dashboard) -> None:
    names = {mark["name"] for mark in made(page)["annotations"]["list"]}
    wanted = {"Leader changes", "Restarts"} if page.uid == "platform-operators" else {"Scales", "Upgrades", "Failovers"}
    assert names >= wanted


def test_every_panel_says_what_it_shows_and_in_what() -> None:
    assert len(PANELS) > 100
    for name, panel in PANELS:
        assert re.fullmatch(r"[A-Z\d].{20,}[.]", panel.description), f"{name}: {panel.description}"
        assert panel.unit in UNITS, name
        assert len(panel.title) <= 30, name
        assert panel.queries, name


@PAGES
def test_every_panel_can_be_drawn_without_grafana(page: Dashboard) -> None:
    assert {panel["type"] for panel in made(page)["panels"]} <= TYPES | {"row"}


def test_series_of_graphs_have_names() -> None:
    for name, panel in PANELS:
        if isinstance(panel, Graph | Timeline):
            assert all(query.legend for query in panel.queries), name


def test_what_may_be_missing_says_so_instead_of_no_data() -> None:
    missing = [
        (name, panel)
        for name, panel in PANELS
        if isinstance(panel, Stat | Graph) and all(query.quiet for query in panel.queries)
    ]
    assert len(missing) > 20
    for name, panel in missing:
        assert panel.none, name


def test_tables_show_labels_and_values_that_their_queries_have() -> None:
    tables = [(name, panel) for name, panel in PANELS if isinstance(panel, Table)]
    assert tables
    for name, panel in tables:
        letters = [chr(ord("A") + place) for place in range(len(panel.queries))]
        sources = [column.source for column in panel.columns]
        assert {source for source in sources if len(source) == 1} <= set(letters), name
        assert panel.sort in {column.title for column in panel.columns}, name
        exprs = " ".join(query.expr for query in panel.queries)
        kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", exprs))))
        for source in sources:
            whole = "ALERTS" in exprs  # every label of an alert is kept
            assert len(source) == 1 or source in kept or whole, f"{name}: no query keeps the label {source}"


def test_links_of_tables_lead_to_dashboards_that_exist() -> None:
    uids = {page.uid for page in DASHBOARDS}
    assert set(KINDS.values()) <= uids
    links = [column.link for _, panel in PANELS if isinstance(panel, Table) for column in panel.columns if column.link]
    assert links
    for link in links:
        assert re.match(r"/d/\$\{__data\.fields\.dashboard\}\?", link)


@PAGES
def test_pages_lead_to_each_other_by_a_tag_that_all_have(page: Dashboard) -> None:
    found = made(page)
    [link] = found["links"]
    assert (link["type"], link["tags"], link["includeVars"], link["keepTime"]) == (
        "dashboards",
        found["tags"],
        True,
        True,
    )


def test_rates_are_of_counters_alone() -> None:
    asked = [(query, name) for query in queries() for name in re.findall(r"\b(?:rate|increase)\((\w+)", query.expr)]
    assert len(asked) > 100
    for query, name in asked:
        assert re.search(COUNTERS, name), f"{query.dashboard}, {query.panel}: {name} may fall"


def test_rates_are_over_what_grafana_finds_fitting_or_over_the_windows_of_objectives() -> None:
    for query in queries():
        windows = set(re.findall(r"\[([^\]]+)\]", query.expr)) - {"$__rate_interval"}
        assert windows <= {"5m", "30m", "1h", "6h"}, query
        if windows:
            assert query.dashboard in ("platform-operators", "platform-overview"), query


def test_a_state_is_never_counted_twice() -> None:
    for query in queries():
        for told in re.finditer(r"platform_(resource|etcd|redis)_\w+\{", query.expr):
            before = query.expr[: told.start()]
            alone = query.panel.startswith("variable ")
            assert alone or re.search(
                r"(max by \([^)]*\) \(|max by \([^)]*\) \(changes\(|max\(time\(\) - )$", before
            ), query


def test_every_question_of_every_file_is_listed() -> None:
    listed = {(asked.dashboard, asked.expr) for asked in queries()}
    for page in DASHBOARDS:
        found = made(page)
        exprs = [target["expr"] for panel in found["panels"] for target in panel.get("targets", ())]
        exprs += [mark["expr"] for mark in found["annotations"]["list"]]
        assert {(page.uid, expr) for expr in exprs} <= listed
    assert len(listed) > 150


def test_variables_are_filled_in_whole() -> None:
    expr = 'sum(rate(up{name=~"$name",namespace=~"$namespace"}[$__rate_interval]))'
    assert filled(expr, {"name": "a|b"}, interval="5m") == 'sum(rate(up{name=~"a|b",namespace=~".*"}[5m]))'
