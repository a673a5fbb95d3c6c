"""The part of the spec that says how slots come to masters that join."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from operators.redis.api.rules import STRATEGY_RULES
from operators.redis.slots.slot_planner import Strategy
from shared.api.spec import INT32, Rule, SpecModel


class AssignStrategy(SpecModel):
    """Slots that a new master takes from others."""

    slots: Annotated[int, Field(ge=1, le=16384)] = Field(description="How many.", json_schema_extra=INT32)
    from_replicas: Annotated[str, Field(max_length=4096, pattern=r"^\s*[0-9A-Za-z]+(\s*,\s*[0-9A-Za-z]+)*\s*$")] = (
        Field(
            description="Node ids of the masters that give them (status.conditions tells them), separated by commas; "
            "of several, each gives in proportion to what it owns. Less than slots, or an id that is no master's, is "
            "refused."
        )
    )

    @property
    def sources(self) -> tuple[str, ...]:
        """Ids of the masters that give."""
        return tuple(part.strip() for part in self.from_replicas.split(","))


class UpdateStrategy(SpecModel):
    """How slots come to masters that join."""

    type: Literal["AutoReceive", "AssignReceive"] = Field(
        "AutoReceive",
        description="AutoReceive: every master owns as many as the others, with the fewest moves. AssignReceive: "
        "masters that join take what assignStrategies say, each in turn; there must be an entry for each of them. "
        "The first slots of a new cluster, and those of masters that leave, are always spread evenly.",
    )
    pipeline: Annotated[str, Field(max_length=16)] = Field(
        "100",
        description="How many keys move by one command, where the engine moves slots key by key.",
    )
    assign_strategies: Annotated[list[AssignStrategy], Field(max_length=64)] = Field(
        default_factory=list,
        description="Where type is AssignReceive: what each master that joins takes, the first first.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = STRATEGY_RULES

    @property
    def keys_at_once(self) -> int:
        """Keys that one MIGRATE takes."""
        return int(self.pipeline)

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """What masters that join take, each in turn."""
        return tuple(Strategy(given.slots, given.sources) for given in self.assign_strategies)
