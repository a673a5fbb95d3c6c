"""Conditions as kstatus reads them, and minimal patches."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj
from shared.status import conditions as status
from shared.status import health
from shared.status.health import Finding, Health
from shared.status.reasons import Reason
from shared.status.verdict import Progress, Verdict

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def resource(reported: Obj | None = None, generation: int = 1) -> Obj:
    return {"metadata": {"name": "a", "generation": generation}, **({"status": reported} if reported else {})}


def conditions(reported: Obj) -> dict[str, tuple[str, str]]:
    return {found["type"]: (found["status"], found["reason"]) for found in reported["conditions"]}


def test_first_status_of_an_unfinished_resource_is_unknown() -> None:
    first = status.compose(resource(), {}, Verdict(Progress.PROGRESSING, "Creating", "…"), THEN)
    assert conditions(first) == {
        "Ready": ("Unknown", "Creating"),
        "Reconciling": ("True", "Creating"),
        "Stalled": ("False", "Creating"),
    }
    second = status.compose(resource(first), {}, Verdict(Progress.PROGRESSING, "Creating", "1 of 3"), NOW)
    assert conditions(second)["Ready"] == ("Unknown", "Creating"), "there is no newer information"
    third = status.compose(resource(second), {}, Verdict(Progress.PROGRESSING, "ServerFailing", "…"), NOW)
    assert conditions(third)["Ready"] == ("False", "ServerFailing")


def test_conditions_of_done_stalled_and_paused_resources() -> None:
    done = status.compose(resource(), {}, Verdict(), THEN)
    assert [conditions(done)[name][0] for name in ("Ready", "Reconciling", "Stalled")] == ["True", "False", "False"]
    stalled = status.compose(resource(done), {}, Verdict(Progress.BLOCKED, "InvalidSpec", "size"), THEN)
    assert [conditions(stalled)[name][0] for name in ("Ready", "Reconciling", "Stalled")] == ["False", "False", "True"]
    paused = status.compose(resource(done), {}, Verdict(Progress.PAUSED, "Paused", "", ready=True), THEN)
    assert [conditions(paused)[name][0] for name in ("Ready", "Reconciling", "Stalled")] == ["True", "False", "False"]


def test_transition_time_is_kept_until_the_next_transition() -> None:
    first = status.compose(resource(), {}, Verdict(), THEN)
    same = status.compose(resource(first, generation=2), {}, Verdict(message="new words"), NOW)
    assert {found["lastTransitionTime"] for found in same["conditions"]} == {THEN}
    assert same["observedGeneration"] == 2
    turned = status.compose(resource(same), {}, Verdict(Progress.PROGRESSING, "Degraded", ""), NOW)
    assert {found["type"]: found["lastTransitionTime"] for found in turned["conditions"]} == {
        "Ready": NOW,
        "Reconciling": NOW,
        "Stalled": THEN,
    }


def test_other_entries_follow_in_the_same_list() -> None:
    instance = {"name": "cache-0", "type": "master", "status": "True"}
    first = status.compose(resource(), {"conditions": [instance]}, Verdict(), THEN)
    assert [entry["type"] for entry in first["conditions"]] == ["Ready", "Reconciling", "Stalled", "master"]
    assert first["conditions"][-1] == instance
    again = status.compose(resource(first), first, Verdict(), NOW)
    assert again == first, "an unchanged report changes nothing and has no duplicates"
    assert accessors.is_true(resource(first), "Ready")


def test_known_weaknesses_are_a_condition_of_their_own() -> None:
    ready = status.compose(resource(), {}, Verdict(), THEN)
    first = status.compose(resource(ready), {}, Verdict(), THEN, "weak")
    assert conditions(first)["Ready"] == conditions(ready)["Ready"], "nothing else is reported differently"
    vulnerable = first["conditions"][-1]
    assert (vulnerable["type"], vulnerable["status"], vulnerable["reason"]) == ("Vulnerable", "True", "KnownAdvisory")
    later = status.compose(resource(first), first, Verdict(), NOW, "weaker")
    assert [entry["type"] for entry in later["conditions"]].count("Vulnerable") == 1
    assert (later["conditions"][-1]["message"], later["conditions"][-1]["lastTransitionTime"]) == ("weaker", THEN)
    assert "Vulnerable" not in conditions(status.compose(resource(later), later, Verdict(), NOW)), "after an upgrade"


HEALTHY = Health(
    Finding(True, Reason("Served"), ""), Finding(False, Reason("Redundant"), ""), Finding(True, Reason("Observed"), "")
)


def test_health_is_reported_in_addition_to_the_progress() -> None:
    first = status.compose(resource(), {}, Verdict(), THEN, "weak", HEALTHY)
    assert list(conditions(first)) == [
        *("Ready", "Reconciling", "Stalled", "Available", "Degraded", "Observed", "Vulnerable")
    ]
    assert conditions(first)["Available"] == ("True", "Served")
    assert conditions(first)["Degraded"] == ("False", "Redundant")
    unknown = replace(HEALTHY, available=Finding(None, Reason("Any"), ""))
    later = status.compose(resource(first), first, Verdict(), NOW, "weak", unknown)
    assert conditions(later)["Available"] == ("Unknown", "Any")
    times = {found["type"]: found["lastTransitionTime"] for found in later["conditions"]}
    assert times["Available"] == NOW
    assert set(times.values()) - {NOW} == {THEN}, "nothing else changed"
    assert status.compose(resource(first), first, Verdict(), NOW, "weak", HEALTHY) == first


def test_health_that_is_not_known_stays_as_last_reported() -> None:
    first = status.compose(resource(), {}, Verdict(), THEN, health=HEALTHY)
    blind = Health(observed=Finding(False, Reason("Any"), "cut off"))
    later = status.compose(resource(first, generation=2), first, Verdict(Progress.WAITING, "Any"), NOW, health=blind)
    before, after = (
        {found["type"]: found for found in each["conditions"] if found["type"] in ("Available", "Degraded")}
        for each in (first, later)
    )
    assert before == after
    assert len(after) == 2
    assert conditions(later)["Observed"][0] == "False"
    assert "Available" not in conditions(status.compose(resource(), {}, Verdict(), THEN)), "a kind without servers"


def test_long_lists_of_servers_are_shortened() -> None:
    blind = health.observed({f"cache-{number}": "" for number in range(7)})
    assert blind.message.startswith("cache-0, cache-1, cache-2, cache-3, cache-4 and 2 more: ready according")
    assert blind.message.endswith(
        "not answering the operator. Check whether a NetworkPolicy blocks connections from the operator's pods."
    )


def test_equal_status_has_no_patch() -> None:
    reported = status.compose(resource(), {"nodes": ["a", "b"]}, Verdict(), THEN)
    assert status.change(resource(reported), reported) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


def without_nulls(value: Obj) -> Obj:
    """Remove nulls, which a merge patch cannot express."""
    return {
        key: without_nulls(inner) if isinstance(inner, dict) else inner
        for key, inner in value.items()
        if inner is not None
    }


def merge(target: Obj, patch: Obj) -> Obj:
    """Apply a merge patch as defined in RFC 7386."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            inner = result.get(key)
            result[key] = merge(inner if isinstance(inner, dict) else {}, value)
        else:
            result[key] = value
    return result


OBJECTS = st.dictionaries(st.text(max_size=2), JSON, max_size=4).map(without_nulls)


@given(OBJECTS, OBJECTS)
def test_patch_turns_one_status_into_the_other(before: Obj, after: Obj) -> None:
    patch = status.change({"metadata": {}, "status": before}, after)
    assert merge(before, patch["status"] if patch else {}) == after


def test_all_messages_are_bounded_and_the_column_of_kubectl_most() -> None:
    """Databases, registries and Kubernetes report texts of any length."""
    text = "A sentence of an error. " * 400
    resource: Obj = {"metadata": {"generation": 1}}
    finding = Finding(False, Reason("Broken"), text)
    reported: Obj = {"phase": "Failed", "reason": text, "conditions": [{"type": "node-0", "message": text}]}
    verdict = Verdict(Progress.BLOCKED, "Broken", text)
    found = status.compose(resource, reported, verdict, "", text, Health(finding, finding, finding))
    lengths = {entry["type"]: len(entry["message"]) for entry in found["conditions"]}
    assert lengths.pop("Ready") <= 400
    assert lengths.pop("Reconciling") == 0
    assert lengths.keys() == {"Stalled", "Available", "Degraded", "Observed", "Vulnerable", "node-0"}
    assert all(900 < length <= 1000 for length in lengths.values())
    assert 900 < len(found["reason"]) <= 1000
    assert re.search(r"A sentence of an error\. \(and 92\d\d more characters\)$", found["conditions"][0]["message"])


def test_messages_that_were_reported_before_are_bounded_too() -> None:
    """An earlier operator, or another client, wrote them; the new one lacks their detail, or nothing is known now."""
    detail = "x" * 9_000
    before = [
        {"type": name, "status": "False", "reason": "Broken", "message": f"a-0 is broken: {detail}"}
        for name in ("Ready", "Available")
    ]
    resource: Obj = {"metadata": {"generation": 1}, "status": {"conditions": before}}
    found = status.compose(resource, {}, Verdict(Progress.BLOCKED, "Broken", "a-0 is broken."), "", "", Health())
    lengths = {entry["type"]: len(entry["message"]) for entry in found["conditions"]}
    assert lengths["Ready"] <= 400
    assert lengths["Available"] <= 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
ENTRY = st.dictionaries(
    st.sampled_from(["type", "status", "reason", "lastTransitionTime"]),
    st.sampled_from(["Ready", "Reconciling", "Available", "Unknown", "True"]) | JSON,
)
ANY_STATUS = JSON | st.fixed_dictionaries({"conditions": JSON | st.lists(ENTRY | JSON, max_size=4)})


@given(ANY_STATUS, st.sampled_from(list(Progress)))
def test_any_content_of_the_status_is_replaced_by_conditions_with_a_time(reported: object, progress: Progress) -> None:
    """Another client may write the status, and a schema does not require each field of a condition."""
    observed: Obj = {"metadata": {"name": "a", "generation": 1}, "status": reported}
    composed = status.compose(observed, {}, Verdict(progress, "Any", "…"), NOW, "", Health())
    found = {each["type"]: each for each in composed["conditions"] if each.get("type") in ("Ready", "Reconciling")}
    assert all(each["lastTransitionTime"] for each in found.values())
    status.change(observed, composed)
    assert accessors.is_current(observed) in (True, False)
