"""Specs are parsed into frozen models, and errors are reported as sentences."""

from __future__ import annotations

import contextlib
import gc
import weakref
from functools import cached_property
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, Field, ValidationError

from shared.api import spec
from shared.api.crd import structural
from shared.api.memo import Memo
from shared.api.podspec import PodSettings
from shared.api.spec import InvalidSpec, Rule, SpecModel, Transition, broken, parse


class Part(SpecModel):
    low: int = 0
    high: int = 9

    RULES = (
        Rule("self.low <= self.high", lambda part: part.low <= part.high, "is above high; use at most {}.", "low",
             ("self.high", lambda part: part.high)),
    )  # fmt: skip


class Thing(SpecModel):
    memory_mb: Annotated[int, Field(ge=1, le=9)] = Field(alias="memoryMB")
    mode: Literal["a", "b"] = "a"
    words: Annotated[list[Annotated[str, Field(max_length=3)]], Field(max_length=2)] = Field(default_factory=list)
    part: Part = Field(default_factory=Part)
    parts: list[Part] = Field(default_factory=list)
    paused: bool = False

    RULES = (Rule("!self.paused", lambda thing: not thing.paused, "a thing is never paused; 100% of them run."),)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "spec.memoryMB: is required; set it."),
        ({"memoryMB": 0}, "spec.memoryMB: 0 is too small; use at least 1."),
        ({"memoryMB": 10}, "spec.memoryMB: 10 is too large; use at most 9."),
        ({"memoryMB": "1"}, 'spec.memoryMB: "1" is not an integer; use an integer without quotes.'),
        ({"memoryMB": True}, "spec.memoryMB: true is not an integer; use an integer without quotes."),
        ({"memoryMB": None}, "spec.memoryMB: null is not an integer; use an integer without quotes."),
        ({"memoryMB": 1, "mode": "c"}, "spec.mode: \"c\" is not supported; use 'a' or 'b'."),
        ({"memoryMB": 1, "words": ["abcd"]}, 'spec.words[0]: "abcd" is too long; use at most 3 characters.'),
        ({"memoryMB": 1, "words": ["a"] * 3}, 'spec.words: ["a", "a", "a"] has too many entries; use at most 2.'),
        ({"memoryMB": 1, "part": 5}, "spec.part: 5 is not an object; use an object."),
        ({"memoryMB": 1, "parts": [{}, {"low": "x"}]},
         'spec.parts[1].low: "x" is not an integer; use an integer without quotes.'),
    ],
)  # fmt: skip
def test_error_has_the_path_the_value_and_the_fix(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse(Thing, given, at="spec")
    assert str(refused.value) == sentence


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.memoryMB: .* spec\.mode: "):
        parse(Thing, {"memoryMB": 0, "mode": "c"}, at="spec")


def test_long_value_is_shortened() -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse(Thing, {"memoryMB": "x" * 5000}, at="spec")
    assert len(str(refused.value)) < 200


def test_error_keeps_no_value_that_its_message_does_not_have() -> None:
    class Text(str):
        """A text that can have a weak reference."""

    def refused(text: str) -> str:
        raise ValueError(f"{text} is wrong")

    class Refused(SpecModel):
        text: Annotated[str, AfterValidator(refused)]

    given = {"text": Text("x" * 1000)}
    kept = weakref.ref(given["text"])
    gc.disable()  # the value is free without a collection
    try:
        with contextlib.suppress(InvalidSpec):
            parse(Refused, given, at="spec")
        given.clear()
        assert kept() is None
    finally:
        gc.enable()


def test_unknown_fields_of_a_newer_crd_are_ignored() -> None:
    assert parse(Thing, {"memoryMB": 3, "warmRestart": {}}, at="spec").memory_mb == 3


def test_spec_is_frozen() -> None:
    thing = parse(Thing, {"memoryMB": 3}, at="spec")
    with pytest.raises(ValidationError, match="frozen"):
        thing.memory_mb = 4  # type: ignore[misc]


def test_rules_are_checked_in_the_model_and_in_nested_models() -> None:
    thing = Thing(memory_mb=1, paused=True, part=Part(low=5, high=4), parts=[Part(), Part(low=3, high=2)])
    assert broken(thing, "spec") == [
        "spec: a thing is never paused; 100% of them run.",
        "spec.part.low: is above high; use at most 4.",
        "spec.parts[1].low: is above high; use at most 2.",
    ]
    assert broken(Thing(memory_mb=1), "spec") == []


def test_crd_has_the_same_message() -> None:
    assert Rule("self.a % 2 == 0", bool, "100% {} \"b\"", value=("self.a", str)).schema() == {
        "rule": "self.a % 2 == 0",
        "messageExpression": r'"100%% %s \"b\"".format([self.a])',
    }  # fmt: skip


class Inner(SpecModel):
    """An optional part."""

    kind: str = Field(description="Which.")

    RULES = (
        Transition(
            "self.kind == oldSelf.kind",
            lambda new, old: new.kind == old.kind,
            "stays {}",
            at="kind",
            value=("oldSelf.kind", lambda _, old: old.kind),
        ),
    )


class Outer(SpecModel):
    """The whole resource."""

    size: int = Field(description="How many.")
    inner: Inner | None = Field(None, description="A part.")
    parts: list[Inner] = Field(default_factory=list, description="Several.")

    RULES = (
        Rule("self.size > 0", lambda given: given.size > 0, "too small", at="size"),
        Transition("self.size >= oldSelf.size", lambda new, old: new.size >= old.size, "never shrinks", at="size"),
    )


@pytest.mark.parametrize(
    ("new", "old", "errors"),
    [
        (Outer(size=1), None, []),
        (Outer(size=1), Outer(size=1), []),
        (Outer(size=1), Outer(size=2), ["spec.size: never shrinks"]),
        (Outer(size=0), Outer(size=2), ["spec.size: too small", "spec.size: never shrinks"]),
        (Outer(size=1, inner=Inner(kind="b")), Outer(size=1, inner=Inner(kind="a")), ["spec.inner.kind: stays a"]),
        (Outer(size=1, inner=Inner(kind="b")), Outer(size=1), []),  # the part is new
        (Outer(size=1), Outer(size=1, inner=Inner(kind="b")), []),
        (Outer(size=1, parts=[Inner(kind="b")]), Outer(size=1, parts=[Inner(kind="a")]), []),  # items have no identity
    ],
)
def test_transition_is_checked_only_if_the_old_state_has_the_model(
    new: Outer, old: Outer | None, errors: list[str]
) -> None:
    assert broken(new, "spec", before=old) == errors


def test_transition_rule_is_in_the_crd() -> None:
    first, second = structural(Outer)["x-kubernetes-validations"]
    assert "oldSelf" not in first["rule"]
    assert second == {"rule": "self.size >= oldSelf.size", "message": "never shrinks", "fieldPath": ".size"}
    (inner,) = structural(Outer)["properties"]["inner"]["x-kubernetes-validations"]
    assert inner["messageExpression"] == '"stays %s".format([oldSelf.kind])'


def test_model_with_more_rules_keeps_inherited_rules() -> None:
    class Stricter(PodSettings):
        """Pod settings with a further rule."""

        RULES = (*PodSettings.RULES, Rule("true", lambda _: True, "fine"))

    in_schema = [rule for rule in PodSettings.RULES if rule.cel]
    assert len(structural(Stricter)["x-kubernetes-validations"]) == len(in_schema) + 1
    assert len(structural(PodSettings)["x-kubernetes-validations"]) == len(in_schema)


def test_pod_settings_become_fields_of_a_pod() -> None:
    settings = parse(
        PodSettings,
        {
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "topologySpread": [{"topologyKey": "zone"}],
            "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        },
        at="spec",
    )
    assert settings.placement() == {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
    }
    assert settings.spread({"app": "it"}) == [
        {
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "topologyKey": "zone",
            "labelSelector": {"matchLabels": {"app": "it"}},
        }
    ]
    assert settings.environment() == [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]


def test_copy_of_a_model_computes_its_cached_properties_again() -> None:
    class Memory(SpecModel):
        limit: int

        @cached_property
        def cache(self) -> int:
            return self.limit // 2

    before = Memory(limit=8)
    assert before.cache == 4
    after = before.model_copy(update={"limit": 4})
    assert (after.cache, before.cache, after == Memory(limit=4)) == (2, 4, True)


def test_equal_parts_are_parsed_and_checked_once() -> None:
    checked: list[SpecModel] = []

    def holds(box: SpecModel) -> bool:
        checked.append(box)
        return True

    class Box(SpecModel):
        size: int

        RULES = (Rule("", holds, "is checked."),)

    first, second, other = (parse(Box, {"size": size}, at="spec") for size in (1, 1, 2))
    assert first is second
    assert first.violations == second.violations == other.violations == ()
    assert checked == [first, other]
    for wrong in (1.0, True, "1"):
        with pytest.raises(InvalidSpec):
            parse(Box, {"size": wrong}, at="spec")


def test_remembered_parts_are_bounded_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = Memo(100)
    monkeypatch.setattr(spec, "MAX_PARSED_BYTES", 100)
    monkeypatch.setattr(spec, "_parsed", remembered)
    for number in range(20):
        made = parse(Thing, {"memoryMB": 1, "unknown": "x" * number * 8}, at="spec")
        assert made == Thing(memoryMB=1)
        contents = (key[1] for key in remembered._known if isinstance(key, tuple))
        assert sum(map(len, contents)) == remembered.size <= 100
