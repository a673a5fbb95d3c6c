"""The part of the spec that defines which slots new primaries receive."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from operators.redis.api.rules import STRATEGY_RULES
from operators.redis.slots.slot_planner import Strategy
from shared.api.spec import INT32, Rule, SpecModel


class AssignStrategy(SpecModel):
    """Slots that one new primary receives."""

    slots: Annotated[int, Field(ge=1, le=16384)] = Field(
        description="Number of slots to move to the new primary.", json_schema_extra=INT32
    )
    from_replicas: Annotated[str, Field(max_length=4096, pattern=r"^\s*[0-9A-Za-z]+(\s*,\s*[0-9A-Za-z]+)*\s*$")] = (
        Field(
            description="Node ids of the primaries that give the slots, separated by commas; status.nodes lists them. "
            "Several primaries give in proportion to the slots that they own. An assignment of more slots than "
            "they own, or an id that is not a primary's, is rejected."
        )
    )

    @property
    def sources(self) -> tuple[str, ...]:
        """Node ids of the primaries that give the slots."""
        return tuple(part.strip() for part in self.from_replicas.split(","))


class UpdateStrategy(SpecModel):
    """How slots are distributed when primaries join."""

    type: Literal["AutoReceive", "AssignReceive"] = Field(
        "AutoReceive",
        description="AutoReceive: slots are spread evenly over all primaries, with the minimum number of moves. "
        "AssignReceive: new primaries receive the slots of assignStrategies, which needs one entry for each of them, "
        "in order. The slots of a new cluster, and those of removed primaries, are always spread evenly.",
    )
    pipeline: Annotated[str, Field(max_length=16)] = Field(
        "100",
        description='Maximum number of keys in one MIGRATE, "1" to "9999", for engines that move slots key by key.',
    )
    wait_for_replicas: bool = Field(
        True,
        description="Whether slots move only to a primary with a replica that is online and nearly up to date, and "
        "each batch waits until a replica has it. Ignored if replicasPerMaster is 0. false: if a primary that receives "
        "slots fails, keys that just moved to it are lost; set it only for caches.",
    )
    assign_strategies: Annotated[list[AssignStrategy], Field(max_length=64)] = Field(
        default_factory=list,
        description="With type AssignReceive: the slots of each new primary, in order. Ignored with AutoReceive.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = STRATEGY_RULES

    @property
    def keys_at_once(self) -> int:
        """Maximum number of keys in one MIGRATE."""
        return int(self.pipeline)

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """Manual assignments, one for each new primary, in order."""
        return tuple(Strategy(given.slots, given.sources) for given in self.assign_strategies)
