"""The catalogue of incidents names existing alerts and tiles, and has every alert or the reason why not."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from dashboards.rules.catalogue import RULES
from dashboards.rules.model import Severity
from e2e.scenarios.incidents.catalogue import INCIDENTS, NOT_STAGED
from e2e.scenarios.incidents.model import Incident
from e2e.scenarios.incidents.tiles import panel_of
from e2e.scenarios.observability.watch import TRUE_HERE
from e2e.scenarios.support.alertmanager import RECOMMENDED, adapted
from shared.status import reasons
from tools.local import debian

SEVERITIES: dict[str, Severity] = {alert.name: alert.severity for rules in RULES.values() for alert in rules.alerts}
HEALTH = {"Available", "Degraded", "Observed", "Ready", "Stalled", "Reconciling", "Vulnerable"}


def test_catalogue_has_at_least_25_incidents_with_distinct_names() -> None:
    names = [incident.name for incident in INCIDENTS]
    assert len(names) >= 25
    assert len(set(names)) == len(names)
    nightly = [incident for incident in INCIDENTS if incident.nightly]
    assert {incident.calm.operator for incident in nightly} == set(RULES), "each operator has one each night"


def test_incidents_of_the_same_resource_follow_each_other() -> None:
    runs = [incident.calm for incident in INCIDENTS]
    starts = [calm for before, calm in zip([None, *runs], runs, strict=False) if calm is not before]
    assert len(starts) == len(set(starts)), "a resource would be created twice"


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.name)
def test_incident_names_alerts_by_their_severity(incident: Incident) -> None:
    assert {SEVERITIES[name] for name in incident.pages} <= {"critical"}
    assert {SEVERITIES[name] for name in incident.warns} <= {"warning"}
    assert {SEVERITIES[name] for name in incident.may} <= {"warning", "info"}, "what pages is never left to chance"
    assert not incident.fires.keys() & set(incident.may)
    assert incident.conditions.keys() <= HEALTH


def test_every_alert_is_fired_by_an_incident_or_has_a_reason_why_not() -> None:
    fired = {name for incident in INCIDENTS for name in incident.fires}
    assert fired | NOT_STAGED.keys() == SEVERITIES.keys()
    assert not fired & NOT_STAGED.keys()
    assert set(TRUE_HERE) <= SEVERITIES.keys()


def test_tiles_exist() -> None:
    for incident in INCIDENTS:
        for tile in incident.tiles:
            assert len(panel_of(tile.dashboard, tile.title)["targets"]) == 1, tile


def test_conditions_name_declared_reasons() -> None:
    import operators

    catalogues = [operator.reasons for operator in operators.installed()]
    declared = {str(reason) for catalogue in (reasons.COMMON, *catalogues) for reason in catalogue}
    named = {value.partition(" ")[2] for incident in INCIDENTS for value in incident.conditions.values()} - {""}
    assert named <= declared


def recommended() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(RECOMMENDED.read_text())
    return found


def test_recommended_configuration_passes_amtool() -> None:
    program = debian.program("amtool", "prometheus-alertmanager")
    done = subprocess.run([program, "check-config", RECOMMENDED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_durations_of_alertmanager_are_divided_and_every_receiver_is_replaced() -> None:
    made = adapted(recommended(), "http://127.0.0.1:1/", 60)
    assert made["route"]["group_wait"] == "500ms"
    assert made["route"]["routes"][0]["receiver"] == "page"
    assert made["inhibit_rules"] == recommended()["inhibit_rules"]
    urls = {name["name"]: [hook["url"] for hook in name.get("webhook_configs", ())] for name in made["receivers"]}
    assert urls == {"page": ["http://127.0.0.1:1/"], "warn": ["http://127.0.0.1:1/"], "none": []}


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [({"severity": "critical"}, "page"), ({"severity": "warning"}, "warn"), ({"severity": "info"}, "none")],
)
def test_severities_are_routed(labels: dict[str, str], receiver: str) -> None:
    program = debian.program("amtool", "prometheus-alertmanager")
    given = [f"{name}={value}" for name, value in labels.items()]
    command = [str(program), "config", "routes", "test", f"--config.file={RECOMMENDED}", *given]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == receiver
