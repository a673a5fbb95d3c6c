"""Models become structural schemas, or generating the CRD fails."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from shared.api.crd import PrinterColumn, Resource, Scale, structural, to_dict, to_yaml
from shared.api.podspec import OPAQUE, PodSettings, Quantity
from shared.api.spec import Rule, SpecModel, Status
from shared.kubernetes.kinds import Kind


class Inner(SpecModel):
    only: Literal["x"] | None = Field(None, description="One value.")
    word: Literal["a", "b"] = Field(description="One of two.")


class Outer(SpecModel):
    """A thing with one field of each sort."""

    count: Annotated[int, Field(ge=1, lt=9)] = Field(3, description="A number.", json_schema_extra={"format": "int32"})
    maybe_text: Annotated[str, Field(max_length=5)] | None = Field(None, description="Text, or none.")
    inner: Inner | None = Field(None, description="Another thing.")
    several: list[Inner] = Field(default_factory=list, description="Several things.")
    named: dict[str, str] = Field(default_factory=dict, description="Words by name.")
    amount: Quantity | None = Field(None, description="A quantity.")
    open: dict[str, Any] | None = Field(None, description="Anything.", json_schema_extra=OPAQUE)
    ruled: bool = Field(False, description="With a rule.")

    RULES = (Rule("!self.ruled", lambda outer: not outer.ruled, "never.", at="ruled"),)


def test_every_type_of_field_has_its_structural_form() -> None:
    schema = structural(Outer)
    assert schema["description"] == "A thing with one field of each sort."
    fields = schema["properties"]
    count = {"type": "integer", "minimum": 1, "default": 3, "format": "int32", "description": "A number."}
    assert fields["count"] == count | {"maximum": 9, "exclusiveMaximum": True}
    assert fields["maybeText"] == {"type": "string", "maxLength": 5, "description": "Text, or none."}
    words = {
        "only": {"type": "string", "enum": ["x"], "description": "One value."},
        "word": {"type": "string", "enum": ["a", "b"], "description": "One of two."},
    }
    assert fields["inner"]["properties"] == fields["several"]["items"]["properties"] == words
    assert fields["inner"]["description"] == "Another thing."
    assert fields["inner"]["required"] == ["word"]
    assert fields["named"]["additionalProperties"] == {"type": "string"}
    assert fields["amount"]["x-kubernetes-int-or-string"] is True
    assert not {"type", "anyOf"} & fields["amount"].keys()
    assert fields["open"] == {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "description": "Anything.",
    }
    assert fields["several"]["x-kubernetes-list-type"] == "atomic"
    rule = {"rule": "!self.ruled", "message": "never.", "fieldPath": ".ruled"}
    assert schema["x-kubernetes-validations"] == [rule]
    assert "required" not in schema


@pytest.mark.parametrize("model", [Outer, PodSettings, Status])
def test_schema_contains_only_keywords_of_structural_schemas(model: type[SpecModel]) -> None:
    text = repr(structural(model))
    for word in ("$ref", "$defs", "anyOf", "allOf", "'title'", "'const'", "'null'", "None"):
        assert word not in text


class Undescribed(SpecModel):
    field: int


class Either(SpecModel):
    field: int | str = Field(description="Two types.")


class Defaulted(SpecModel):
    number: int = Field(1, description="A default.")


class ListOfDefaulted(SpecModel):
    field: list[Defaulted] = Field(default_factory=list, description="Items with defaults.")


class Holding(SpecModel):
    holding: list[Holding] = Field(default_factory=list, description="Itself.")


class Distinct(SpecModel):
    field: set[int] = Field(default_factory=set, description="Kubernetes forbids uniqueItems.")


class Pair(SpecModel):
    field: tuple[int, str] | None = Field(None, description="Two sorts of items.")


class Anything(SpecModel):
    field: Any = Field(description="Not declared as opaque.")


@pytest.mark.parametrize(
    ("model", "because"),
    [
        (Undescribed, "Undescribed.field has no description"),
        (Either, "a union of 2 types"),
        (ListOfDefaulted, "a default inside the items of a list"),
        (Anything, "not possible in a structural schema"),
        (Holding, "Holding contains itself"),
        (Distinct, "not possible in a structural schema: uniqueItems"),
        (Pair, "not possible in a structural schema"),
    ],
)
def test_type_without_a_structural_form_raises(model: type[SpecModel], because: str) -> None:
    with pytest.raises(TypeError, match=because):
        structural(model)


THING = Resource(
    Kind("example.com", "v1", "Thing", "things"),
    spec=Outer,
    status=Status,
    description="A thing.",
    short_names=("th",),
    categories=("all",),
    columns=(PrinterColumn("Count", ".spec.count", "integer", "How many.", wide=True),),
    scale=Scale(".spec.count", ".status.count", ".status.selector"),
    rules=(Rule("self.metadata.name != 'x'", lambda _: True, "not x"),),
)


def test_crd_is_complete() -> None:
    made = to_dict(THING)
    assert made["metadata"]["name"] == "things.example.com"
    assert made["spec"]["names"]["shortNames"] == ["th"]
    version = made["spec"]["versions"][0]
    assert version["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"
    assert version["additionalPrinterColumns"][0]["priority"] == 1
    root = version["schema"]["openAPIV3Schema"]
    assert root["required"] == ["spec"]
    assert root["x-kubernetes-validations"] == [{"rule": "self.metadata.name != 'x'", "message": "not x"}]


def test_yaml_is_deterministic_and_names_its_source() -> None:
    assert to_yaml(THING) == to_yaml(THING)
    assert to_yaml(THING).startswith("# Generated")
