"""The Greeter resource: spec, status and validation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shared.api.crd import READY_MESSAGE, READY_REASON, PrinterColumn, Resource
from shared.api.spec import (
    INT32,
    Admission,
    CustomResource,
    InvalidSpec,
    Review,
    Rule,
    SpecModel,
    Status,
    contradictions,
    parse,
)
from shared.kubernetes.kinds import Kind, Obj

_MAX_NAME = 50


class GreeterSpec(SpecModel):
    """Desired state of a Greeter."""

    text: Annotated[str, Field(max_length=1024)] = Field(description="Text that the servers show.")
    replicas: Annotated[int, Field(ge=0, le=100)] = Field(1, description="Servers.", json_schema_extra=INT32)
    version: Annotated[str, Field(max_length=128, pattern=r"^[0-9A-Za-z_][0-9A-Za-z_.-]*$")] = Field(
        "1.29", description="Tag of the server image."
    )
    paused: bool = Field(False, description="If true, the operator only reports status and changes nothing.")


class GreeterStatus(Status):
    """Observed state of a Greeter. Phases: Creating, Running, Paused and Failed."""

    config_map: str | None = Field(None, description="Name of the ConfigMap that holds the text.")
    ready_replicas: int | None = Field(None, description="Number of ready servers.", json_schema_extra=INT32)


API = Resource(
    kind=Kind("greeter.example.com", "v1alpha1", "Greeter", "greeters"),
    spec=GreeterSpec,
    status=GreeterStatus,
    description="Web servers that show a greeting.",
    categories=("platform",),
    columns=(
        PrinterColumn("Ready", ".status.readyReplicas", "integer", "Number of ready servers."),
        PrinterColumn("Phase", ".status.phase", "string", "Phase of the resource."),
        READY_REASON,
        PrinterColumn("Age", ".metadata.creationTimestamp", "date", "Time since it was created."),
        READY_MESSAGE,
    ),
    rules=(
        Rule(
            f"size(self.metadata.name) <= {_MAX_NAME}",
            lambda resource: len(resource.name) <= _MAX_NAME,
            f"metadata.name is also the name of the Deployment and the Service: at most {_MAX_NAME} characters. "
            "Choose a shorter name.",
        ),
    ),
)


class Greeter(CustomResource[GreeterSpec]):
    """One Greeter, parsed."""

    @classmethod
    def parse(cls, obj: Obj) -> Greeter:
        """Return the resource as a model; raise InvalidSpec where a field is wrong."""
        return cls(obj, parse(GreeterSpec, obj.get("spec") or {}, at="spec"))


def validate(resource: Greeter) -> list[str]:
    """Check the CEL rules for a resource that bypassed admission."""
    return contradictions(resource, API.rules)


def default(obj: Obj) -> Obj:
    """Set defaults that depend on other fields: none yet."""
    return obj


def review(new: Obj, _old: Obj | None) -> Review:
    """Return validation errors and warnings."""
    try:
        return Review(errors=tuple(validate(Greeter.parse(new))))
    except InvalidSpec as wrong:
        return Review(errors=(str(wrong),))


ADMISSION = Admission(API.kind, default, review)
