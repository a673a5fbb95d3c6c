"""Every alert fires, stays inactive when healthy, resolves, and handles missing series."""

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
from tests.platform.unit.dashboards.alert_cases import cases, server
from tests.platform.unit.dashboards.promtool import Gauge, promtool, rules_of, trials, written
from tests.support import paths

ROOT = paths.REPOSITORY
RUNBOOK = ROOT / "docs/runbook/alerts.md"


def identity(alert: Alert) -> tuple[str, frozenset[tuple[str, str]]]:
    return alert.name, frozenset(alert.labels.items())


@pytest.mark.parametrize("operator", RULES)
def test_alerts_and_cases_correspond(operator: str) -> None:
    tested = {identity(case.of(RULES[operator])) for case in cases(operator)}
    assert sorted(tested, key=str) == sorted(map(identity, RULES[operator].alerts), key=str)


@pytest.mark.parametrize("operator", RULES)
def test_alerts_fire_resolve_and_handle_missing_series(
    operator: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rules, count, files = RULES[operator], 0, []
    for number, case in enumerate(cases(operator)):
        alert = case.of(rules)
        tests = list(trials(case, alert))
        count += len(tests)
        files.append(written(tmp_path, f"{number:02}-{alert.name}", rules_of(rules, alert), tests))
    done = promtool("test", "rules", *files)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = done.stdout.count("SUCCESS")
    assert passed == len(files)
    record_property("summary", f"promtool, {operator}: alerts {passed}/{len(files)}, trials {count}/{count}")


def test_alert_that_cannot_fire_fails_its_case(tmp_path: Path) -> None:
    """A public mixin alerts on a lost primary with this expression: the sum of no series is empty, not below 1."""
    rules = RULES["redis"]
    [case] = [case for case in cases("redis") if case.name == "RedisSlotsUnserved"]
    blind = replace(case.of(rules), expr='sum by (namespace) (redis_instance_info{role="master"}) < 1')
    lost = replace(case, series={server("redis_instance_info", role="master"): Gauge(None, 1)})
    done = promtool("test", "rules", written(tmp_path, "blind", rules_of(rules, blind), list(trials(lost, blind))))
    assert done.returncode != 0
    assert "RedisSlotsUnserved" in done.stdout + done.stderr


@pytest.mark.parametrize("operator", RULES)
def test_rule_files_are_up_to_date_and_pass_promtool(operator: str, tmp_path: Path) -> None:
    from dashboards.rules.__main__ import write

    write(tmp_path)
    for made in (f"dashboards/generated/rules/{operator}.yaml", f"charts/{operator}-operator/files/alerts.yaml"):
        assert (ROOT / made).read_text() == (tmp_path / made).read_text(), f"{made} is outdated; run `make manifests`"
    done = promtool(
        "check", "rules", "--lint=all", "--lint-fatal", tmp_path / f"dashboards/generated/rules/{operator}.yaml"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def headings() -> list[str]:
    return re.findall(r"^### (.+)$", RUNBOOK.read_text(), re.MULTILINE)


def test_alerts_and_runbook_headings_correspond() -> None:
    names = {alert.name for rules in RULES.values() for alert in rules.alerts}
    assert sorted(headings()) == sorted(names)


def entries() -> dict[str, str]:
    """Return the text of each alert's runbook entry; consecutive headings share the text that follows."""
    parts = re.split(r"^### (.+)$", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]
    found: dict[str, str] = {}
    following = ""
    for name, text in reversed(list(zip(parts[::2], parts[1::2], strict=True))):
        following = text.split("\n## ")[0] if text.strip() else following
        found[name] = following
    return found


PARTS = ("Meaning", "Impact", "Diagnosis", "Mitigation")


def test_every_runbook_entry_has_four_parts_and_a_command() -> None:
    found = entries()
    assert set(found) == set(headings())
    for name, text in found.items():
        assert re.findall(r"^\*\*(\w+):\*\* ", text, re.MULTILINE) == list(PARTS), name
        diagnosis = text.partition("**Diagnosis:**")[2].partition("**Mitigation:**")[0]
        assert "```console\n$ " in diagnosis, f"{name}: the diagnosis has no command"


@pytest.mark.parametrize(("page", "variable"), [("redis", "CLI"), ("etcd", "CTL"), ("memcached", "ASK")])
def test_pages_of_databases_define_the_variables_of_all_three_set_ups(page: str, variable: str) -> None:
    text = (ROOT / f"docs/runbook/{page}.md").read_text()
    [section] = re.findall(r"^## Connect\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    for title in ("Plain", "With `spec.auth`", "With `spec.tls`"):
        assert re.search(rf"^{re.escape(title)}[^\n]*:$", section, re.MULTILINE), f"{page}: {title}"
    assert f'$ {variable}="' in section
    assert f"${variable}" in RUNBOOK.read_text(), "alerts.md uses the variable"


def links(operator: str) -> list[str]:
    content = yaml.safe_load((ROOT / f"dashboards/generated/rules/{operator}.yaml").read_text())
    return [
        rule["annotations"]["runbook_url"] for group in content["groups"] for rule in group["rules"] if "alert" in rule
    ]


@pytest.mark.parametrize("operator", RULES)
def test_runbook_links_lead_to_headings(operator: str) -> None:
    for link in links(operator):
        page, _, anchor = link.partition("#")
        found = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in {heading.lower().replace(" ", "-") for heading in found}, link


@pytest.mark.parametrize("operator", RULES)
def test_dashboard_links_use_variables_of_the_dashboard(operator: str) -> None:
    for alert in RULES[operator].alerts:
        page = json.loads((ROOT / f"dashboards/generated/{alert.dashboard}.json").read_text())
        assert page["uid"] == alert.dashboard
        assert set(alert.of) <= {variable["name"] for variable in page["templating"]["list"]}, alert.name


@pytest.mark.parametrize("operator", RULES)
def test_alert_texts_use_only_labels_of_the_alert(operator: str) -> None:
    for case in cases(operator):
        alert = case.of(RULES[operator])
        texts = " ".join((alert.summary, alert.description, *alert.labels.values()))
        named = {*re.findall(r"\$labels\.(\w+)", texts), *alert.of.values()}
        assert named <= set(case.labels), alert.name
        assert 10 < len(alert.summary) < 160, alert.name
        assert alert.description.endswith("."), alert.name


@pytest.mark.parametrize("operator", RULES)
def test_thresholds_and_names_in_expressions_correspond(operator: str) -> None:
    rules = RULES[operator]
    named = {name for alert in rules.alerts for name in re.findall(r"\$\{(\w+)\}", alert.expr)}
    assert named == set(rules.defaults)
    with pytest.raises(KeyError):
        filled("up > ${unknown}", rules.defaults)
