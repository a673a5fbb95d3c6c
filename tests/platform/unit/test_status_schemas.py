"""The schemas of the CRDs accept every condition that an operator can report.

The in-memory API server validates no schemas. A real one rejects the whole status for one value that is not declared.
"""

import pytest

import operators
from shared.api.crd import Resource, to_dict
from shared.status import conditions
from shared.status.health import Finding, Health
from shared.status.reasons import Reason
from shared.status.verdict import Verdict
from tests.support.schema import broken_constraints, root_schema

APIS = [api for operator in operators.installed() for api in operator.resources]


@pytest.mark.parametrize("api", APIS, ids=lambda api: str(api.kind))
def test_every_condition_type_is_declared(api: Resource) -> None:
    found = Finding(None, Reason("Any"), "")
    health = Health(found, found, found)
    resource = {"metadata": {"generation": 1}}
    status = conditions.compose(resource, {}, Verdict(), "2026-01-01T00:00:00Z", "an advisory", health)
    assert len(status["conditions"]) == 7
    schema = root_schema(api)["properties"]["status"]["properties"]["conditions"]
    assert list(broken_constraints(schema, status["conditions"], "status.conditions")) == []


@pytest.mark.parametrize("api", APIS, ids=lambda api: str(api.kind))
def test_kubectl_get_shows_phase_and_reason_without_wide_output(api: Resource) -> None:
    """The person on call sees the cause at once."""
    [version] = to_dict(api)["spec"]["versions"]
    shown = {each["name"]: each["jsonPath"] for each in version["additionalPrinterColumns"] if not each.get("priority")}
    assert shown["Phase"] == ".status.phase"
    assert shown["Reason"] == ".status.conditions[?(@.type=='Ready')].reason"
