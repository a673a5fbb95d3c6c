"""The cache of rendered charts, which the tests of the charts share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import charts as rendering
from tests.support.charts import Obj, Values


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    made = tmp_path / "charts" / "redis-operator"
    made.mkdir(parents=True)
    (made / "Chart.yaml").write_text("name: redis-operator")
    (made / "values.yaml").write_text("replicaCount: 2")
    return made


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Values]:
    """Return the values of each call of Helm."""
    made: list[Values] = []

    def helm(_: Path, values: Values, **__: str) -> str:
        made.append(values)
        return f"kind: ConfigMap\ndata: {{number: {len(made)}}}"

    monkeypatch.setattr(rendering, "manifest", helm)
    monkeypatch.setattr(rendering, "CACHE", tmp_path / "cache")
    return made


def in_another_process(chart: Path, values: Values) -> list[Obj]:
    rendering._rendered.cache_clear()
    rendering._renderings.cache_clear()
    return rendering.render(chart, values)


def test_helm_renders_the_same_chart_with_the_same_values_once(chart: Path, calls: list[Values]) -> None:
    first = rendering.render(chart, {"logLevel": "debug"})
    assert in_another_process(chart, {"logLevel": "debug"}) == first == [{"kind": "ConfigMap", "data": {"number": 1}}]
    assert calls == [{"logLevel": "debug"}]


def test_helm_renders_other_values_and_a_changed_chart(chart: Path, calls: list[Values]) -> None:
    in_another_process(chart, {})
    in_another_process(chart, {"logLevel": "debug"})
    (chart / "values.yaml").write_text("replicaCount: 3")
    assert in_another_process(chart, {}) == [{"kind": "ConfigMap", "data": {"number": 3}}]
    assert calls == [{}, {"logLevel": "debug"}, {}]


def test_packaged_dependencies_contain_the_time_and_do_not_count(chart: Path, calls: list[Values]) -> None:
    for packaged in (b"at noon", b"later"):
        (chart / "library-0.1.0.tgz").write_bytes(packaged)
        in_another_process(chart, {})
    assert len(calls) == 1


def test_renderings_of_old_charts_are_removed(chart: Path, calls: list[Values], tmp_path: Path) -> None:
    for count in range(rendering.KEPT_RENDERINGS + 2):
        (chart / "values.yaml").write_text(f"replicaCount: {count}")
        in_another_process(chart, {})
    assert len(calls) == rendering.KEPT_RENDERINGS + 2
    assert len(list((tmp_path / "cache" / "renderings").iterdir())) == rendering.KEPT_RENDERINGS
