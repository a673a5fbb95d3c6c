"""Every alert fires, is silent when all is well, clears, and is right where its series are absent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dashboards.rules.catalogue import RULES
from dashboards.rules.model import Alert, filled
from tests.support import paths
from tests.unit.dashboards.alert_cases import KINDS, cases, server
from tests.unit.dashboards.promtool import Gauge, promtool, rules_of, trials, written

ROOT = paths.REPOSITORY


def told(alert: Alert) -> tuple[str, frozenset[tuple[str, str]]]:
    return alert.name, frozenset(alert.labels.items())


@pytest.mark.parametrize("operator", RULES)
def test_every_alert_has_a_case_and_every_case_an_alert(operator: str) -> None:
    tried = [told(case.of(RULES[operator])) for case in cases(operator)]
    assert sorted(tried, key=str) == sorted(map(told, RULES[operator].alerts), key=str)


@pytest.mark.parametrize("operator", RULES)
def test_every_alert_fires_is_silent_when_healthy_clears_and_is_right_without_its_series(
    operator: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rules, count, files = RULES[operator], 0, []
    for number, case in enumerate(cases(operator)):
        alert = case.of(rules)
        tried = list(trials(case, alert))
        count += len(tried)
        files.append(written(tmp_path, f"{number:02}-{alert.name}", rules_of(rules, alert), tried))
    said = promtool("test", "rules", *files)
    assert said.returncode == 0, said.stdout + said.stderr
    passed = said.stdout.count("SUCCESS")
    assert passed == len(files) == len(list(rules.alerts))
    record_property("told", f"promtool, {operator}: alerts {passed}/{len(files)}, trials {count}/{count}")


def test_an_alert_that_cannot_fire_is_found(tmp_path: Path) -> None:
    """What a public mixin has for a lost master: a sum of nothing is nothing, and not below 1."""
    rules = RULES["redis"]
    [case] = [case for case in cases("redis") if case.name == "RedisNoMaster"]
    blind = replace(case.of(rules), expr='sum by (namespace) (redis_instance_info{role="master"}) < 1')
    lost = replace(case, series={server("redis_instance_info", role="master"): Gauge(None, 1)})
    said = promtool("test", "rules", written(tmp_path, "blind", rules_of(rules, blind), list(trials(lost, blind))))
    assert said.returncode != 0
    assert "RedisNoMaster" in said.stdout + said.stderr


@pytest.mark.parametrize("operator", RULES)
def test_periodic_requeues_burn_no_budget(operator: str, tmp_path: Path) -> None:
    """Three days of reconciles that only wait as planned, one of a thousand failing."""
    rules = RULES[operator]
    burns = [alert for alert in rules.alerts if alert.name == "PlatformOperatorErrorBudgetBurn"]
    assert len(burns) == 4
    results = (("requeue_after", 990), ("success", 9), ("error", 1))
    for alert in burns:
        series = [
            {
                "series": "controller_runtime_reconcile_total"
                f'{{controller="{KINDS[operator].lower()}",result="{result}"}}',
                "values": f"0+{rate}x450",
            }
            for result, rate in results
        ]
        silent = {"expr": 'ALERTS{alertname=~".+"}', "eval_time": "4500m", "exp_samples": []}
        recorded = {"expr": f"count({alert.expr.split('{')[0]})", "eval_time": "4500m"}
        expected = [{"labels": "{}", "value": 1}]
        tried = {
            "name": "periodic",
            "interval": "600s",
            "input_series": series,
            "promql_expr_test": [silent, {**recorded, "exp_samples": expected}],
        }
        name = f"periodic-{alert.labels['window']}"
        if alert.labels["window"] == "1h":  # its short window is shorter than that
            tried = {**tried, "interval": "60s"}
            tried["promql_expr_test"] = [
                {**each, "eval_time": "400m"} for each in (silent, {**recorded, "exp_samples": expected})
            ]
        said = promtool("test", "rules", written(tmp_path, name, rules_of(rules, alert), [tried]))
        assert said.returncode == 0, said.stdout + said.stderr


def test_a_failure_that_was_retried_wakes_nobody_where_little_happens(tmp_path: Path) -> None:
    """One resource, looked at every ten minutes, with five failures in an hour: more than the budget, and nothing."""
    rules = RULES["memcached"]
    [alert] = [alert for alert in rules.alerts if alert.labels.get("window") == "1h"]
    told = {"success": "0x9 1x9 2x9 3x9 4x9 5x9 6x9", "error": "0x45 1x2 2x2 3x2 4x2 5x12"}
    asked = {
        'ALERTS{alertname=~".+"}': [],
        f"{alert.expr.split('{')[0]} > bool 0.144": [{"labels": '{controller="memcached"}', "value": 1}],
    }
    tried = {
        "name": "little",
        "interval": "60s",
        "input_series": [
            {
                "series": f'controller_runtime_reconcile_total{{controller="memcached",result="{result}"}}',
                "values": values,
            }
            for result, values in told.items()
        ],
        "promql_expr_test": [
            {"expr": expr, "eval_time": "62m", "exp_samples": samples} for expr, samples in asked.items()
        ],
    }
    said = promtool("test", "rules", written(tmp_path, "little", rules_of(rules, alert), [tried]))
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("operator", RULES)
def test_prometheus_takes_the_rule_files_and_they_are_as_generated(operator: str, tmp_path: Path) -> None:
    from dashboards.rules.__main__ import write

    write(tmp_path)
    for made in (f"dashboards/generated/rules/{operator}.yaml", f"charts/{operator}-operator/files/alerts.yaml"):
        assert (ROOT / made).read_text() == (tmp_path / made).read_text(), f"{made}; mend: make manifests"
    said = promtool(
        "check", "rules", "--lint=all", "--lint-fatal", tmp_path / f"dashboards/generated/rules/{operator}.yaml"
    )
    assert said.returncode == 0, said.stdout + said.stderr


def headings() -> list[str]:
    return re.findall(r"^### (.+)$", (ROOT / "docs/runbook/alerts.md").read_text(), re.MULTILINE)


def test_every_alert_has_its_place_in_the_runbook_and_every_place_an_alert() -> None:
    names = {alert.name for rules in RULES.values() for alert in rules.alerts}
    assert sorted(headings()) == sorted(names)


def links(operator: str) -> list[str]:
    content = yaml.safe_load((ROOT / f"dashboards/generated/rules/{operator}.yaml").read_text())
    return [
        rule["annotations"]["runbook_url"] for group in content["groups"] for rule in group["rules"] if "alert" in rule
    ]


@pytest.mark.parametrize("operator", RULES)
def test_every_link_to_the_runbook_leads_to_a_heading(operator: str) -> None:
    for link in links(operator):
        page, _, anchor = link.partition("#")
        found = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in {heading.lower().replace(" ", "-") for heading in found}, link


@pytest.mark.parametrize("operator", RULES)
def test_every_link_to_a_dashboard_leads_to_one_that_has_its_variables(operator: str) -> None:
    for alert in RULES[operator].alerts:
        page = json.loads((ROOT / f"dashboards/generated/{alert.dashboard}.json").read_text())
        assert page["uid"] == alert.dashboard
        assert set(alert.of) <= {variable["name"] for variable in page["templating"]["list"]}, alert.name


@pytest.mark.parametrize("operator", RULES)
def test_what_an_alert_says_names_only_labels_that_it_has(operator: str) -> None:
    for case in cases(operator):
        alert = case.of(RULES[operator])
        said = " ".join((alert.summary, alert.description, *alert.labels.values()))
        named = {*re.findall(r"\$labels\.(\w+)", said), *alert.of.values()}
        assert named <= set(case.who), alert.name
        assert 10 < len(alert.summary) < 160, alert.name
        assert alert.description.endswith("."), alert.name


@pytest.mark.parametrize("operator", RULES)
def test_every_threshold_is_named_by_a_rule_and_every_name_is_a_threshold(operator: str) -> None:
    rules = RULES[operator]
    named = {name for alert in rules.alerts for name in re.findall(r"\$\{(\w+)\}", alert.expr)}
    assert named == set(rules.defaults)
    with pytest.raises(KeyError):
        filled("up > ${unknown}", rules.defaults)
