"""The charts and their values."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from charts.values.operator import Global, Image, ImageRepository, Operator, Values


class MemcachedOperator(Operator):
    """The values of charts/memcached-operator."""

    image: Image = Field(Image(repository="platform/memcached-operator"), description="The operator's image.")
    operand_image_repository: ImageRepository = Field(
        "memcached", description="Where memcached's images come from if a resource names a version only."
    )


class Part(BaseModel):
    """An operator in the umbrella chart; all its other values are checked by the schema of its own chart."""

    model_config = ConfigDict(extra="allow")

    enabled: bool = Field(True, description="Install the operator. Off later, it goes; its CRDs and resources stay.")


class Platform(Values):
    """The values of charts/platform."""

    global_: Global = Field(
        Global(), alias="global", exclude=True, description="Values for every part of an umbrella chart; none is read."
    )
    memcached: Part = Field(Part(), description="The memcached operator; it takes all values of ../memcached-operator.")


CHARTS: dict[str, type[Values]] = {"memcached-operator": MemcachedOperator, "platform": Platform}
"""The values of each chart that takes any, by the chart's directory."""
