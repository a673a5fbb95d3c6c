"""The reference page contains everything that a CRD contains."""

from __future__ import annotations

import re
from dataclasses import replace

from docs.resources import HEADER, fields, to_markdown
from operators.memcached.api.resource import API
from shared.api import crd

SCHEMA = crd.to_dict(API)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_every_field_of_the_schema_has_a_row_with_its_description() -> None:
    page = to_markdown(API)
    named = [field for field in fields(SCHEMA, "") if field.path.startswith(("spec.", "status."))]
    assert len(named) > 50
    for field in named:
        if not field.path.endswith(("[]", "{}")):
            row = next(line for line in page.splitlines() if line.startswith(f"| `{field.path}` |"))
            assert field.schema["description"].replace("|", "\\|") in row


def test_every_rule_is_listed_by_its_message() -> None:
    page = to_markdown(API)
    rules = [
        rule for field in fields(SCHEMA, "") for rule in field.schema.get("x-kubernetes-validations", ())
    ] + SCHEMA["x-kubernetes-validations"]
    expected = page.split("## Status")[0].split("these rules")[1]
    assert expected.count("\n- ") == len(rules) > 5
    assert "%s" not in expected
    assert not re.search(r"\bself\.", expected)


def test_fields_of_the_kind_come_before_common_fields() -> None:
    page = to_markdown(API)
    assert page.index("`spec.size`") < page.index("`spec.memoryMB`") < page.index("`spec.nodeSelector`")


def test_bounds_and_defaults_are_shown() -> None:
    page = to_markdown(API)
    assert "| `spec.memoryMB` | integer, 8 to 1048576 | `64` |" in page
    assert "| `spec.size` | integer, 0 to 1000 | required |" in page


def test_several_kinds_share_a_page() -> None:
    other = replace(API, kind=replace(API.kind, name="Other", plural="others"))
    page = to_markdown(API, other)
    assert page.count("<!-- Generated") == 1
    assert page.replace(to_markdown(API), "").strip() == to_markdown(other).removeprefix(HEADER).strip()
