"""However old the tables of nodes are: who owns what is found, and whether all agree on it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from operators.redis.slots.hash_slots import SLOTS, Slots
from tests.unit.redis.topology.tables import (
    M0,
    M1,
    NEW,
    R0,
    R2,
    SIX,
    THIRDS,
    Role,
    Truth,
    all_said,
    failed_over,
    node_id,
    said,
    slots_moved,
    view,
)

CHANGES = st.lists(
    st.tuples(st.just("failover"), st.integers(0, 5), st.just(0), st.just(0))
    | st.tuples(st.just("move"), st.integers(0, 5), st.integers(0, 5), st.integers(0, SLOTS - 1)),
    max_size=6,
)


def history(changes: list[tuple[str, int, int, int]]) -> tuple[list[Truth], dict[str, int]]:
    """The states that a cluster went through, and since which of them each node knows what it gained itself."""
    states: list[Truth] = [SIX]
    gained = dict.fromkeys(SIX, 0)
    for what, one, other, slot in changes:
        now, source, target = states[-1], node_id(one), node_id(other)
        if what == "failover" and now[source].primary:
            states.append(failed_over(now, source))
            gained[source] = len(states) - 1
        elif what == "move" and source != target and not now[source].primary and not now[target].primary:
            slots = now[source].slots & Slots.of(range(slot, min(slot + 1500, SLOTS)))
            if slots:
                states.append(slots_moved(now, source, target, slots))
                gained[target] = len(states) - 1
    return states, gained


def truly_owned(truth: Truth) -> dict[str, Slots]:
    return {node: role.slots for node, role in truth.items() if role.slots}


@given(CHANGES, st.data())
def test_however_old_the_tables_are_those_who_own_slots_are_found_if_they_answer(
    changes: list[tuple[str, int, int, int]], data: st.DataObject
) -> None:
    states, gained = history(changes)
    owning = truly_owned(states[-1])
    others = data.draw(st.sets(st.sampled_from(sorted(set(SIX) - set(owning))))) if set(SIX) - set(owning) else set()
    spoken = {
        node: said(states[data.draw(st.integers(gained[node], len(states) - 1))], node) for node in {*owning, *others}
    }
    seen = view(spoken)
    assert seen.owned == owning
    assert not seen.uncovered


@given(CHANGES, st.data())
def test_who_owns_slots_and_does_not_answer_is_found_if_one_knows(
    changes: list[tuple[str, int, int, int]], data: st.DataObject
) -> None:
    states, gained = history(changes)
    knows = data.draw(st.sampled_from(sorted(SIX)))
    others = data.draw(st.sets(st.sampled_from(sorted(SIX)))) - {knows}
    spoken = {node: said(states[data.draw(st.integers(gained[node], len(states) - 1))], node) for node in others}
    spoken[knows] = said(states[-1], knows)
    assert view(spoken).owned == truly_owned(states[-1])


@given(CHANGES, st.data())
def test_a_view_is_settled_when_everybody_knows_everything_and_not_before(
    changes: list[tuple[str, int, int, int]], data: st.DataObject
) -> None:
    states, gained = history(changes)
    node = data.draw(st.sampled_from(sorted(SIX)))
    version = data.draw(st.integers(gained[node], len(states) - 1))
    spoken = all_said(states[-1])
    assert view(spoken).settled == ""
    spoken[node] = said(states[version], node)
    seen = view(spoken)
    same = all(
        (was.primary, was.slots) == (now.primary, now.slots)
        for was, now in zip(states[version].values(), states[-1].values(), strict=True)
    )
    assert (seen.settled == "") == same
    if not same:
        assert seen.nodes[node].name in seen.settled
        assert any(node in each.reporters or node in each.about for each in seen.disagreements)


@given(CHANGES)
def test_a_view_does_not_depend_on_the_order_of_what_was_said(changes: list[tuple[str, int, int, int]]) -> None:
    states, gained = history(changes)
    spoken = {node: said(states[gained[node]], node) for node in SIX}
    turned = {
        node: replace(spoken[node], nodes=tuple(reversed(spoken[node].nodes))) for node in sorted(spoken, reverse=True)
    }
    assert view(spoken).owned == view(turned).owned
    assert view(spoken).settled == view(turned).settled
    assert list(view(spoken).nodes) == list(view(turned).nodes)


def test_of_two_claims_the_higher_epoch_holds() -> None:
    spoken = all_said(failed_over(SIX, R0))
    spoken[M0] = said(SIX, M0)  # it was away, and has not heard yet
    seen = view(spoken)
    assert seen.owned[R0] == THIRDS[M0]
    assert M0 not in seen.owned
    assert [(each.kind, each.about) for each in seen.disagreements] == [
        ("claims", (R0,)),
        ("role", (M0,)),
        ("role", (R0,)),
    ]
    assert seen.contested == THIRDS[M0]
    assert (
        "demo-3 and demo-0 both claim slots 0-5460: demo-3 will keep them, by configuration epoch (4 against 1)."
        in (seen.settled)
    )


def test_who_does_not_answer_claims_nothing_whatever_old_tables_say() -> None:
    spoken = all_said(failed_over(SIX, R0), unreachable=[M0])
    spoken[R2] = said(SIX, R2)
    seen = view(spoken)
    assert seen.owned[R0] == THIRDS[M0]
    assert not seen.contested
    assert "demo-5 says that slots 0-5460 are demo-0's; they are demo-3's." in seen.settled


def test_of_two_claims_with_the_same_epoch_the_smaller_id_will_win() -> None:
    """Specification, "Configuration epoch conflict resolution": the one with the smaller id takes a new epoch."""
    truth = {**SIX, NEW: Role(1, Slots.of(7))}
    seen = view(all_said(truth))
    assert seen.owners[7] == M0
    assert seen.contested == Slots.of(7)
    assert "of the same configuration epoch (1) the smaller node id takes a higher one" in seen.settled


def test_slots_that_nobody_owns() -> None:
    truth = {**SIX, M1: replace(SIX[M1], slots=SIX[M1].slots - Slots.of(6000))}
    seen = view(all_said(truth))
    assert seen.uncovered == seen.unserved == Slots.of(6000)
    assert 6000 not in seen.owners
    assert seen.settled == "", "they agree on it"
