"""Rendering of pictures with a real Prometheus server, and its pure parts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from dashboards.catalogue import DASHBOARDS, queries
from dashboards.promql import filled
from dashboards.render import __main__ as program
from dashboards.render.drawing import cut, intervals
from dashboards.render.fields import COLOURS, Json, ValueFormat, cells, columns, legend, merged
from dashboards.render.page import CAPTION, HEAD, MARGIN, ROW, View, answers, load, picture
from dashboards.render.prometheus import Prometheus, QueryFailed, Series
from dashboards.render.units import scale, shown
from tests.platform.unit.dashboards import scraped
from tools.local.machine.network import free_ports

GENERATED = program.GENERATED


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraped.prometheus(tmp_path_factory.mktemp("scraped")) as running:
        yield running


@pytest.fixture
def view() -> View:
    return View(time.time(), 60, "10s")


def overview() -> Json:
    return load(GENERATED / "platform-overview.json")


def panel(title: str, page: Json) -> Json:
    return next(found for found in page["panels"] if found["title"] == title and found["type"] != "row")


def colour_of(file: Path, column: int, row: float) -> str:
    """Return the colour at the left edge of a grid position."""
    pixel = Image.open(file).convert("RGB").getpixel((MARGIN + column * 56 + 6, int(HEAD + row * ROW)))
    assert isinstance(pixel, tuple)
    return "#" + "".join(f"{part:02x}" for part in pixel)


def test_prometheus_accepts_every_query(prometheus: Prometheus) -> None:
    now = time.time()
    found = {query: prometheus.at(filled(query.expr, interval="10s"), now) for query in queries()}
    with_series = {query.dashboard for query, series in found.items() if series}
    assert with_series == {page.uid for page in DASHBOARDS}


def test_table_merges_results_by_resource_and_sorts_unready_ones_first(prometheus: Prometheus, view: View) -> None:
    table = panel("Resources", {"panels": [p for p in overview()["panels"] if p["type"] == "table"]})
    titles = [column.title for column in columns(table)]
    rows = [dict(zip(titles, row, strict=True)) for row in cells(table, answers(table, prometheus, view))]
    assert [row["Name"].text for row in rows] == ["carts", "sessions"]
    degraded, healthy = rows
    texts = [degraded[title].text for title in ("Kind", "Ready", "Reason", "Ready pods", "Desired", "Version")]
    assert texts == ["RedisCluster", "Not ready", "Degraded", "2", "3", "1.2.3"]
    assert (degraded["Ready"].colour, healthy["Ready"].colour) == (COLOURS["orange"], COLOURS["green"])
    assert (healthy["Ready pods"].text, healthy["Not ready for"].text) == ("3", "")


def test_overview_picture_shows_unready_resources_in_orange_and_has_a_caption(
    prometheus: Prometheus, view: View, tmp_path: Path
) -> None:
    file = tmp_path / "overview.png"
    picture(overview(), prometheus, view, file)
    image = Image.open(file)
    bottom = max(found["gridPos"]["y"] + found["gridPos"]["h"] for found in overview()["panels"])
    assert image.width == 24 * 56 + 2 * MARGIN
    assert image.height > bottom * ROW
    assert image.info["Description"] == CAPTION
    assert colour_of(file, 0, 2) == COLOURS["green"], "Unavailable: 0"
    assert colour_of(file, 6, 2) == COLOURS["orange"], "Not ready: 1"
    assert colour_of(file, 15, 2) == COLOURS["green"], "Operators without a leader: 0"


def test_every_panel_can_be_drawn_without_data(tmp_path: Path) -> None:
    class Empty(Prometheus):
        def _query(self, path: str, expr: str, **times: float) -> list[Series]:
            return []

    for page in DASHBOARDS:
        file = tmp_path / f"{page.uid}.png"
        picture(load(GENERATED / f"{page.uid}.json"), Empty(""), View(3600, 3600), file)
        assert file.stat().st_size > 10_000


def test_rejected_query_is_reported_with_prometheus_error_message(prometheus: Prometheus) -> None:
    with pytest.raises(QueryFailed, match=r"parse error.*: sum\(\(up"):
        prometheus.at("sum((up", time.time())


def test_unreachable_prometheus_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    [port] = free_ports(1)
    assert program.main([f"http://127.0.0.1:{port}", "--into", str(tmp_path)]) == 1
    assert f"error: Prometheus at http://127.0.0.1:{port} does not respond" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "short", "0"),
        (16384, "short", "16.4 k"),
        (3, "short", "3"),
        (0.125, "percentunit", "12.5 %"),
        (1, "percentunit", "100 %"),
        (1536, "bytes", "1.5 KiB"),
        (512, "Bps", "512 B/s"),
        (0.0042, "s", "4.2 ms"),
        (0, "s", "0 s"),
        (90, "s", "1.5 min"),
        (86400 * 3, "s", "3 days"),
        (-7200, "s", "-2 h"),
        (1234, "reqps", "1.23 k req/s"),
        (0.5, "ops", "0.5 ops/s"),
    ],
)
def test_values_are_formatted_with_their_unit(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_unsupported_unit_is_rejected() -> None:
    with pytest.raises(ValueError, match="unsupported unit 'furlongs'; supported units: Bps, bytes"):
        shown(1, "furlongs")


@pytest.mark.parametrize(
    ("top", "unit", "one"),
    [(3000, "bytes", 1024), (0.5, "percentunit", 0.01), (0.02, "s", 0.001), (7200, "s", 3600), (5000, "short", 1000)],
)
def test_axes_use_the_unit_prefix_of_the_largest_value(top: float, unit: str, one: float) -> None:
    assert scale(top, unit) == one


def test_colours_follow_thresholds_and_mappings_take_precedence() -> None:
    steps = {"steps": [{"value": None, "color": "green"}, {"value": 10, "color": "red"}]}
    mappings = [{"type": "value", "options": {"1": {"text": "yes", "color": "purple", "index": 0}}}]
    field = ValueFormat.of({"unit": "short", "thresholds": steps, "mappings": mappings})
    assert [field.colour(value) for value in (9.9, 10.0, 1.0)] == [COLOURS[c] for c in ("green", "red", "purple")]
    assert [field.text(value) for value in (9.0, 1.0)] == ["9", "yes"]


def test_legend_is_formatted_from_labels() -> None:
    assert legend("{{namespace}}/{{ pod }} used", {"namespace": "shop", "pod": "a-0"}) == "shop/a-0 used"
    assert legend("{{missing}}", {}) == ""
    assert legend("", {"b": "2", "a": "1"}) == "a=1, b=2"


def test_results_with_different_labels_become_separate_rows() -> None:
    one, other = ({"name": name, "zone": "x"} for name in ("a", "b"))
    found = {
        "A": [Series(one, [1], [5]), Series(other, [1], [6])],
        "B": [Series({"name": "b"}, [1], [7])],
        "C": [Series({"name": "c"}, [1], [8])],
    }
    assert merged(found, ["name", "Value #A", "Value #B", "Value #C"]) == [
        {"name": "a", "Value #A": 5},
        {"name": "b", "Value #A": 6, "Value #B": 7},
        {"name": "c", "Value #C": 8},
    ]


def test_equal_samples_form_one_interval_until_a_change_or_a_gap() -> None:
    times = [0.0, 1, 2, 3, 8, 9]
    assert list(intervals(Series({}, times, [1, 1, 0, 0, 0, 0]), 1)) == [(0, 2, 1), (2, 4, 0), (8, 10, 0)]


def test_long_text_is_shortened_with_an_ellipsis() -> None:
    assert cut("Certificate expires in", 1000, 12) == "Certificate expires in"
    assert cut("Certificate expires in", 60, 12) == "Certifi…"
