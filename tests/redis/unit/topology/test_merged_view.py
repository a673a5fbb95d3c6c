"""The merged view: slot owners and agreement, from tables of any age."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from operators.redis.slots.hash_slots import SLOTS, Slots
from tests.redis.unit.topology.tables import (
    NEW,
    P0,
    P1,
    R0,
    R2,
    SIX,
    THIRDS,
    Role,
    Truth,
    all_reports,
    changed,
    cluster,
    failed_over,
    flagged,
    node_id,
    report_of,
    slots_moved,
    unaware,
    view,
)

CHANGES = st.lists(
    st.tuples(st.just("failover"), st.integers(0, 5), st.just(0), st.just(0))
    | st.tuples(st.just("move"), st.integers(0, 5), st.integers(0, 5), st.integers(0, SLOTS - 1)),
    max_size=6,
)


def history(changes: list[tuple[str, int, int, int]]) -> tuple[list[Truth], dict[str, int]]:
    """Successive states of a cluster, and for each node the index of the last state in which it gained slots."""
    states: list[Truth] = [SIX]
    gained = dict.fromkeys(SIX, 0)
    for change, first, second, slot in changes:
        now, source, target = states[-1], node_id(first), node_id(second)
        if change == "failover" and now[source].primary:
            states.append(failed_over(now, source))
            gained[source] = len(states) - 1
        elif change == "move" and source != target and not now[source].primary and not now[target].primary:
            slots = now[source].slots & Slots.of(range(slot, min(slot + 1500, SLOTS)))
            if slots:
                states.append(slots_moved(now, source, target, slots))
                gained[target] = len(states) - 1
    return states, gained


def truly_owned(truth: Truth) -> dict[str, Slots]:
    return {node: role.slots for node, role in truth.items() if role.slots}


@given(CHANGES, st.data())
def test_reachable_slot_owners_are_found_in_tables_of_any_age(
    changes: list[tuple[str, int, int, int]], data: st.DataObject
) -> None:
    states, gained = history(changes)
    owning = truly_owned(states[-1])
    others = data.draw(st.sets(st.sampled_from(sorted(set(SIX) - set(owning))))) if set(SIX) - set(owning) else set()
    reports = {
        node: report_of(states[data.draw(st.integers(gained[node], len(states) - 1))], node)
        for node in {*owning, *others}
    }
    seen = view(reports)
    assert seen.owned == owning
    assert not seen.uncovered


@given(CHANGES, st.data())
def test_unreachable_slot_owner_is_found_if_one_node_is_up_to_date(
    changes: list[tuple[str, int, int, int]], data: st.DataObject
) -> None:
    states, gained = history(changes)
    knows = data.draw(st.sampled_from(sorted(SIX)))
    others = data.draw(st.sets(st.sampled_from(sorted(SIX)))) - {knows}
    reports = {node: report_of(states[data.draw(st.integers(gained[node], len(states) - 1))], node) for node in others}
    reports[knows] = report_of(states[-1], knows)
    assert view(reports).owned == truly_owned(states[-1])


@given(CHANGES, st.data())
def test_view_is_settled_only_once_every_node_is_up_to_date(
    changes: list[tuple[str, int, int, int]], data: st.DataObject
) -> None:
    states, gained = history(changes)
    node = data.draw(st.sampled_from(sorted(SIX)))
    version = data.draw(st.integers(gained[node], len(states) - 1))
    reports = all_reports(states[-1])
    assert view(reports).settled == ""
    reports[node] = report_of(states[version], node)
    seen = view(reports)
    same = all(
        (was.primary, was.slots) == (now.primary, now.slots)
        for was, now in zip(states[version].values(), states[-1].values(), strict=True)
    )
    assert (seen.settled == "") == same
    if not same:
        assert seen.nodes[node].name in seen.settled
        assert any(node in each.reporters or node in each.about for each in seen.disagreements)


@given(CHANGES)
def test_view_does_not_depend_on_the_order_of_the_reports(changes: list[tuple[str, int, int, int]]) -> None:
    states, gained = history(changes)
    reports = {node: report_of(states[gained[node]], node) for node in SIX}
    reversed_reports = {
        node: replace(reports[node], nodes=tuple(reversed(reports[node].nodes)))
        for node in sorted(reports, reverse=True)
    }
    assert view(reports).owned == view(reversed_reports).owned
    assert view(reports).settled == view(reversed_reports).settled
    assert list(view(reports).nodes) == list(view(reversed_reports).nodes)


def test_higher_epoch_wins_between_two_claims() -> None:
    reports = all_reports(failed_over(SIX, R0))
    reports[P0] = report_of(SIX, P0)  # stale: the node was unreachable
    seen = view(reports)
    assert seen.owned[R0] == THIRDS[P0]
    assert P0 not in seen.owned
    assert [(each.kind, each.about) for each in seen.disagreements] == [
        ("claims", (R0,)),
        ("role", (P0,)),
        ("role", (R0,)),
    ]
    assert Slots.union(slots for _, _, slots in seen.disputes()) == THIRDS[P0]
    assert "demo-3 and demo-0 both claim slots 0-5460: demo-3 will keep them, by config epoch (4 against 1)." in (
        seen.settled
    )


def test_unreachable_node_claims_no_slots_through_stale_tables() -> None:
    reports = all_reports(failed_over(SIX, R0), unreachable=[P0])
    reports[R2] = report_of(SIX, R2)
    seen = view(reports)
    assert seen.owned[R0] == THIRDS[P0]
    assert not [*seen.disputes()]
    assert "demo-5 reports demo-0 as the owner of slots 0-5460; the owner is demo-3." in seen.settled


def test_smaller_id_wins_between_claims_with_the_same_epoch() -> None:
    """Specification, "Configuration epoch conflict resolution": the node with the smaller id takes a new epoch."""
    truth = {**SIX, NEW: Role(1, Slots.of(7))}
    seen = view(all_reports(truth))
    assert seen.owners[7] == P0
    assert Slots.union(slots for _, _, slots in seen.disputes()) == Slots.of(7)
    assert "with the same config epoch (1) the smaller node id wins" in seen.settled


def test_slots_without_an_owner_are_uncovered() -> None:
    truth = {**SIX, P1: replace(SIX[P1], slots=SIX[P1].slots - Slots.of(6000))}
    seen = view(all_reports(truth))
    assert seen.uncovered == seen.unserved == Slots.of(6000)
    assert 6000 not in seen.owners
    assert seen.settled == "", "all nodes agree that the slot has no owner"


@given(st.data())
def test_entries_are_those_of_each_table(data: st.DataObject) -> None:
    """Alike tables are read together; the result is as if each line were read by itself."""
    reports = all_reports(SIX)
    for _ in range(data.draw(st.integers(0, 12))):
        reporter, subject = data.draw(st.sampled_from(list(SIX))), data.draw(st.sampled_from(list(SIX)))
        change = data.draw(st.sampled_from(["fail", "noaddr", "handshake", "unaware", "copy", "address"]))
        if reporter == subject and change in ("unaware", "handshake"):
            continue
        if change == "unaware":
            reports[reporter] = unaware(reports[reporter], subject)
        elif change == "copy":
            reports[reporter] = replace(reports[reporter])
        elif change == "address":
            reports[reporter] = changed(reports[reporter], subject, address="192.0.2.9")
        elif reports[reporter].node(subject):
            reports[reporter] = flagged(reports[reporter], subject, change)
    found = {
        (seen.id, reporter): entry.node
        for seen in view(reports).nodes.values()
        for entry in seen.others
        for reporter in entry.reporters
    }
    assert found == {
        (node.id, reporter): node
        for reporter, report in reports.items()
        for node in report.nodes
        if node.id != reporter and not node.handshake
    }


def test_tables_that_all_differ_are_read_line_by_line() -> None:
    truth = cluster(primaries=10, replicas=10)
    reports = {
        reporter: changed(report, node_id((number + 1) % 20), address=f"192.0.2.{number}")
        for number, (reporter, report) in enumerate(all_reports(truth).items())
    }
    nodes = view(reports).nodes
    assert {len(seen.reporters) for seen in nodes.values()} == {19}
    assert nodes[P1].reported_by(lambda node: node.address.startswith("192")) == {P0}
