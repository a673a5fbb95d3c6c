"""Each incident of the catalogue fires the alerts that it must and no other, and everything is quiet afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.scenarios.incidents.catalogue import INCIDENTS
from e2e.scenarios.incidents.conftest import Stages
from e2e.scenarios.incidents.judge import Judge
from e2e.scenarios.incidents.model import Incident

CASES = [
    pytest.param(
        incident,
        id=incident.name.replace(" ", "-"),
        marks=pytest.mark.nightly if incident.nightly else pytest.mark.weekly,
    )
    for incident in INCIDENTS
]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("incident", CASES)
def test_incident_shows_what_it_must_and_ends_quietly(
    stages: Stages, incident: Incident, record_property: Callable[[str, object], None]
) -> None:
    stage = stages.of(incident.calm)
    try:
        outcome = Judge(stage.watch, stage.scene, incident).play()
    except BaseException:
        stages.close()
        raise
    line = outcome.line(incident)
    print(line)
    record_property("summary", line)
