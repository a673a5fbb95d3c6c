"""What every part of a chart's values is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Values(BaseModel):
    """A part of a chart's values: camelCase outside, and nothing in it but its fields."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")
