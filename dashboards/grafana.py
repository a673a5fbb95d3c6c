"""Render dashboards as Grafana JSON, with panels laid out from left to right and top to bottom. Pure.

The JSON follows the schema of Grafana 11.6 (grafana-foundation-sdk); later versions migrate it when they load it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import (
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as types
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards import explore
from dashboards.model import (
    NO_DATA,
    NONE,
    Column,
    Dashboard,
    Graph,
    Mappings,
    Mark,
    Panel,
    Query,
    Row,
    Stat,
    Steps,
    Table,
    Timeline,
    Variable,
)

GRID_COLUMNS = 24
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TAG = "platform"
"""Tag of every dashboard; each dashboard links to all installed ones with this tag."""

SOURCE = types.DataSourceRef("prometheus", "${datasource}")

Builder = stat.Panel | timeseries.Panel | statetimeline.Panel | table.Panel


SOURCES = (
    ("datasource", "Data source", "prometheus", "Prometheus data source of all queries."),
    ("logs", "Logs", "loki", "Loki data source of the link to logs."),
    ("traces", "Traces", "tempo", "Tempo data source of the link to the operators' traces."),
)
"""Data source variables: name, label, type and description."""


def text(page: Dashboard) -> str:
    """Return the content of a dashboard's JSON file."""
    return json.dumps(_built(page), cls=JSONEncoder, indent=2, ensure_ascii=False) + "\n"


def _built(page: Dashboard) -> types.Dashboard:
    made = (
        dashboard.Dashboard(page.title)
        .uid(page.uid)
        .description(page.description)
        .tags([TAG])
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(types.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Platform")
            .type(types.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
    )
    for name, url in _links(page):
        made.link(dashboard.DashboardLink(name).type(types.DashboardLinkType.LINK).url(url).target_blank(True))
    for name, label, kind, description in SOURCES:
        made.with_variable(dashboard.DatasourceVariable(name).label(label).description(description).type(kind))
    for variable in page.variables:
        made.with_variable(_variable(variable))
    for mark in page.marks:
        made.annotation(_Marks(mark))
    built = made.build()
    built.panels = list(_laid_out(page.rows))
    return built


def _links(page: Dashboard) -> Iterable[tuple[str, str]]:
    """Return names and URLs of the links to logs, traces and pods of the selected resources."""
    name = "${name:regex}" if any(variable.name == "name" for variable in page.variables) else ""
    pods = f'pod=~"({name})-.+"' if name else 'pod=~".+-operator-.+"'
    about = f' && span.k8s.object.name =~ "{name}"' if name else ""
    yield "Logs", explore.logs(f'{{namespace=~"${{namespace:regex}}",{pods}}}')
    yield "Traces", explore.traces(f'{{resource.service.name =~ ".+-operator"{about}}}')
    yield "Pods", f"{explore.PODS}&${{__url_time_range}}"


class _Annotation(types.AnnotationQuery):
    """An annotation query with the fields of the Prometheus data source, which the SDK's types lack."""

    def __init__(self, mark: Mark) -> None:
        super().__init__(mark.name, SOURCE, mark.shown, False, mark.colour, expr=mark.expr)
        self._title = mark.title

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "titleFormat": self._title, "step": "30s", "useValueForTime": False}


class _Marks(dashboard.AnnotationQuery):
    """Builder of `_Annotation`."""

    def __init__(self, mark: Mark) -> None:
        self._internal = _Annotation(mark)


def _variable(variable: Variable) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.name.capitalize())
        .description(variable.description)
        .datasource(SOURCE)
        .query({"query": variable.query, "refId": "StandardVariableQuery"})
        .refresh(types.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(types.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(types.VariableOption(True, ["All"], ["$__all"]))
    )


def _laid_out(rows: Iterable[Row]) -> Iterable[types.Panel | types.RowPanel]:
    """Yield rows and panels with positions that follow from their sizes, and ids in order."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield types.RowPanel(title=row.title, id_val=number, grid_pos=types.GridPos(h=1, w=GRID_COLUMNS, x=0, y=top))
        top += 1
        left = tallest = 0
        for panel in row.panels:
            if left + panel.width > GRID_COLUMNS:
                left, top, tallest = 0, top + tallest, 0
            number += 1
            built = _panel(panel).build()
            built.id_val = number
            built.grid_pos = types.GridPos(h=panel.height, w=panel.width, x=left, y=top)
            yield built
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest


def _panel(panel: Panel) -> Builder:
    made: Builder
    if isinstance(panel, Stat):
        made = _stat(panel)
    elif isinstance(panel, Graph):
        made = _graph(panel)
    elif isinstance(panel, Timeline):
        made = _timeline()
    elif isinstance(panel, Table):
        made = _table(panel)
    else:
        raise TypeError(f"{panel.title}: no Grafana panel type for {type(panel).__name__}")
    made.title(panel.title).description(panel.description).datasource(SOURCE).unit(panel.unit)
    if panel.thresholds:
        made.thresholds(_thresholds(panel.thresholds))
    if isinstance(panel, Stat):
        made.mappings(_mappings_of_stat(panel)).no_value(NO_DATA[0])
    elif panel.mappings:
        made.mappings(_mappings(panel.mappings))
    if panel.decimals is not None:
        made.decimals(panel.decimals)
    if panel.none and not isinstance(panel, Stat):
        made.no_value(panel.none)
    for letter, query in zip(LETTERS, panel.queries, strict=False):
        made.with_target(_target(panel, letter, query))
    return made


def _target(panel: Panel, letter: str, query: Query) -> prometheus.Dataquery:
    target = prometheus.Dataquery().ref_id(letter).expr(query.expr).datasource(SOURCE)
    if query.legend:
        target.legend_format(query.legend)
    if isinstance(panel, Table):
        return target.instant().format(PromQueryFormat.TABLE)
    return target.instant() if isinstance(panel, Stat) else target.range()


def _stat(panel: Stat) -> stat.Panel:
    return (
        stat.Panel()
        .reduce_options(options.ReduceDataOptions().calcs(["last"]))
        .color_mode(common.BigValueColorMode.BACKGROUND if panel.filled else common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME if panel.named else common.BigValueTextMode.VALUE)
        .color_scheme(dashboard.FieldColor().mode(types.FieldColorModeId.THRESHOLDS))
    )


def _graph(panel: Graph) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .color_scheme(dashboard.FieldColor().mode(types.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .line_width(1)
        .fill_opacity(30 if panel.stacked else 4)
        .show_points(common.VisibilityMode.NEVER)
        .min(0)
        .legend(
            options.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(options.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
    )
    if panel.stacked:
        made.stacking(options.StackingConfig().mode(common.StackingMode.NORMAL))
    if panel.stepped:
        made.line_interpolation(common.LineInterpolation.STEP_AFTER)
    if panel.most is not None:
        made.axis_soft_max(panel.most)
    if panel.thresholds:
        made.thresholds_style(options.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED))
    return made


def _timeline() -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .color_scheme(dashboard.FieldColor().mode(types.FieldColorModeId.THRESHOLDS))
        .merge_values(True)
        .show_value(common.VisibilityMode.NEVER)
        .fill_opacity(80)
        .row_height(0.8)
    )


_HIDDEN_SINCE_12 = types.DynamicConfigValue("custom.hideFrom", {"viz": True, "legend": False, "tooltip": False})


def _table(panel: Table) -> table.Panel:
    shown = [column.field for column in panel.columns]
    order: dict[str, object] = {name: index for index, name in enumerate(shown)}
    titles: dict[str, object] = {column.field: column.title for column in panel.columns}
    made = (
        table.Panel()
        .cell_height(common.TableCellHeight.SM)
        .sort_by([options.TableSortByFieldState().display_name(panel.sort)])
        .with_transformation(types.DataTransformerConfig("merge", options={}))
        .with_transformation(
            types.DataTransformerConfig("organize", options={"indexByName": order, "renameByName": titles})
        )
    )
    others = f"/^(?!(?:{'|'.join(column.title for column in panel.columns)})$)/"
    made.override_by_regexp(others, [types.DynamicConfigValue("custom.hidden", True), _HIDDEN_SINCE_12])
    for column in panel.columns:
        made.override_by_name(column.title, list(_properties(column)))
    return made


def _properties(column: Column) -> Iterable[types.DynamicConfigValue]:
    yield types.DynamicConfigValue("unit", column.unit)
    if column.width:
        yield types.DynamicConfigValue("custom.width", column.width)
    if column.thresholds:
        yield types.DynamicConfigValue("thresholds", _thresholds(column.thresholds).build())
    if column.mappings:
        yield types.DynamicConfigValue("mappings", _mappings(column.mappings))
    if column.mappings or column.thresholds:
        yield types.DynamicConfigValue("custom.cellOptions", common.TableColorTextCellOptions())
    if column.link:
        yield types.DynamicConfigValue("links", [{"title": "Open the dashboard", "url": column.link}])


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(types.ThresholdsMode.ABSOLUTE)
        .steps([types.Threshold(value, colour) for value, colour in steps])
    )


def _mappings_of_stat(panel: Stat) -> list[types.ValueMapping]:
    """Return the mappings of a stat, with those of `NONE` and of a missing value."""
    none: Mappings = ((f"{NONE}", panel.none, panel.calm),) if panel.none else ()
    values = (*panel.mappings, *none)
    text, colour = NO_DATA
    missing = types.DashboardSpecialValueMapOptions(
        types.SpecialValueMatch.NULL_AND_NAN, types.ValueMappingResult(text, colour, index=len(values))
    )
    return [*(_mappings(values) if values else ()), types.SpecialValueMap(missing)]


def _mappings(mappings: Mappings) -> list[types.ValueMapping]:
    results = {
        value: types.ValueMappingResult(shown, colour, index=index)
        for index, (value, shown, colour) in enumerate(mappings)
    }
    return [types.ValueMap(results)]
