"""Placement: replicas on other hosts than their primaries, evenly distributed, with the fewest changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.pairing import pair
from operators.redis.slots.placement import (
    Location,
    Locations,
    SharedLocation,
    choose_primaries,
    primaries_together,
    replicas_together,
)

PRIMARIES = ["p0", "p1", "p2", "p3"]
REPLICAS = ["r0", "r1", "r2", "r3", "r4"]
HOSTS = st.fixed_dictionaries({node: st.sampled_from(["", "a", "b", "c"]) for node in [*PRIMARIES, *REPLICAS]})
CURRENT = st.dictionaries(st.sampled_from(REPLICAS), st.sampled_from([*PRIMARIES, "removed"]))

Cost = tuple[int, int, int, int, int]

ZONES = {"a": "x", "b": "x", "c": "y"}


def on(hosts: Mapping[str, str], zones: Mapping[str, str] | None = None) -> dict[str, Location]:
    """Return locations on these hosts."""
    return {node: Location(host, (zones or {}).get(host, "")) for node, host in hosts.items()}


def violations(pairs: Mapping[str, str], hosts: Mapping[str, str]) -> tuple[SharedLocation, ...]:
    """Replicas on the host of their primary."""
    return tuple(location for location in replicas_together(pairs, on(hosts)) if location.kind == "host")


def cost(pairs: Mapping[str, str], primaries: Sequence[str], locations: Locations, current: Mapping[str, str]) -> Cost:
    """Cost of a pairing: missing replicas, those on the host and in the zone of their primary, unevenness, changes."""
    per_primary = len(pairs) // len(primaries)
    has = Counter(pairs.values())
    apart = [(locations[replica], locations[primary]) for replica, primary in pairs.items()]
    return (
        sum(max(0, per_primary - has[primary]) for primary in primaries),
        sum(bool(one.host) and one.host == other.host for one, other in apart),
        sum(bool(one.zone) and one.zone == other.zone for one, other in apart),
        sum(sum(range(max(0, has[primary] - per_primary))) for primary in primaries),
        sum(current.get(replica) in primaries and current[replica] != primary for replica, primary in pairs.items()),
    )


def best(primaries: Sequence[str], replicas: Sequence[str], locations: Locations, current: Mapping[str, str]) -> Cost:
    """Return the lowest cost of all possible pairings."""
    return min(
        cost(dict(zip(replicas, choice, strict=True)), primaries, locations, current)
        for choice in product(primaries, repeat=len(replicas))
    )


CROWDED = {"p0": "a", "p1": "a", "p2": "b", "p3": "b", "r0": "a", "r1": "a", "r2": "a", "r3": "a", "r4": "b"}


@given(st.integers(1, 4), st.integers(0, 5), HOSTS, CURRENT, st.booleans())
@example(3, 5, CROWDED, {}, False)
def test_pairing_is_optimal(
    primaries: int, replicas: int, hosts: dict[str, str], current: dict[str, str], zoned: bool
) -> None:
    locations = on(hosts, ZONES if zoned else {})
    pairs = pair(PRIMARIES[:primaries], REPLICAS[:replicas], locations, current)
    assert list(pairs) == REPLICAS[:replicas]
    found = cost(pairs, PRIMARIES[:primaries], locations, current)
    assert found == best(PRIMARIES[:primaries], REPLICAS[:replicas], locations, current)


@given(st.integers(1, 4), st.integers(0, 5), HOSTS, CURRENT, st.booleans())
def test_best_pairing_is_stable(
    primaries: int, replicas: int, hosts: dict[str, str], current: dict[str, str], zoned: bool
) -> None:
    locations = on(hosts, ZONES if zoned else {})
    pairs = pair(PRIMARIES[:primaries], REPLICAS[:replicas], locations, current)
    assert pair(PRIMARIES[:primaries], REPLICAS[:replicas], locations, pairs) == pairs


@given(st.integers(1, 4), HOSTS, st.permutations(REPLICAS))
def test_replicas_that_are_to_stay_do_not_move_because_of_their_locations(
    primaries: int, hosts: dict[str, str], order: list[str]
) -> None:
    current = {replica: PRIMARIES[number % primaries] for number, replica in enumerate(order)}
    pairs = pair(PRIMARIES[:primaries], REPLICAS, on(hosts), current, keep=True)
    assert pairs == {replica: current[replica] for replica in REPLICAS}


def test_six_nodes_on_three_hosts() -> None:
    hosts = {"p0": "a", "p1": "b", "p2": "c", "r0": "a", "r1": "b", "r2": "c"}
    pairs = pair(PRIMARIES[:3], REPLICAS[:3], on(hosts), {})
    assert violations(pairs, hosts) == ()
    assert sorted(pairs.values()) == ["p0", "p1", "p2"]


def test_seventh_node_becomes_a_replica_on_another_host_than_its_primary() -> None:
    hosts = {"p0": "a", "p1": "b", "p2": "c", "r0": "b", "r1": "c", "r2": "a", "r3": "a"}
    current = {"r0": "p0", "r1": "p1", "r2": "p2"}
    assert pair(PRIMARIES[:3], REPLICAS[:4], on(hosts), current) == {**current, "r3": "p1"}


def test_rescheduled_replica_swaps_its_primary_with_one_other_replica() -> None:
    hosts = {"p0": "a", "p1": "b", "p2": "c", "r0": "a", "r1": "c", "r2": "b"}
    current = {"r0": "p0", "r1": "p1", "r2": "p2"}
    pairs = pair(PRIMARIES[:3], REPLICAS[:3], on(hosts), current)
    assert violations(pairs, hosts) == ()
    assert sum(pairs[replica] != current[replica] for replica in current) == 2


def test_replica_shares_the_host_of_its_primary_if_there_is_only_one_host() -> None:
    hosts = dict.fromkeys([*PRIMARIES, *REPLICAS], "a")
    pairs = pair(PRIMARIES[:3], REPLICAS[:3], on(hosts), {})
    assert sorted(pairs.values()) == ["p0", "p1", "p2"]
    assert violations(pairs, hosts)[0] == SharedLocation("host", "a", (pairs["r0"], "r0"))


def test_primary_without_a_replica_receives_a_surplus_one() -> None:
    current = {"r0": "p0", "r1": "p0", "r2": "p1"}
    pairs = pair(PRIMARIES[:3], REPLICAS[:3], {}, current)
    assert Counter(pairs.values()) == {"p0": 1, "p1": 1, "p2": 1}
    assert pairs["r2"] == "p1"


def test_two_replicas_of_a_new_primary_are_on_two_hosts() -> None:
    hosts = {"p0": "a", "p1": "b", "r0": "c", "r1": "c", "r2": "d", "r3": "d"}
    pairs = pair(PRIMARIES[:2], REPLICAS[:4], on(hosts), {})
    assert all(
        {hosts[replica] for replica in pairs if pairs[replica] == primary} == {"c", "d"} for primary in PRIMARIES[:2]
    )


def test_no_pairing_without_a_primary() -> None:
    assert pair([], REPLICAS, {}, {}) == {}


def test_nodes_without_a_host_violate_nothing() -> None:
    assert violations({"r0": "p0"}, {"r0": "", "p0": ""}) == violations({"r0": "p0"}, {}) == ()


# Choice of primaries.

CANDIDATES = [f"n{number}" for number in range(7)]
HOSTS_OF_CANDIDATES = st.fixed_dictionaries({node: st.sampled_from(["a", "b", "c", "d"]) for node in CANDIDATES})
OWNERS = st.dictionaries(st.sampled_from(CANDIDATES), st.integers(0, 3).map(lambda count: Slots.of(range(count))))


@given(st.integers(0, 8), HOSTS_OF_CANDIDATES, OWNERS)
def test_slot_owner_stays_a_primary(count: int, hosts: dict[str, str], owners: dict[str, Slots]) -> None:
    chosen = choose_primaries(CANDIDATES, count, on(hosts), owners)
    assert len(chosen) == len(set(chosen)) == min(count, len(CANDIDATES))
    assert sorted(chosen) == list(chosen)
    slot_owners = {node for node in owners if owners[node]}
    assert slot_owners <= set(chosen) or set(chosen) <= slot_owners
    given_up = [len(owners[node]) for node in slot_owners - set(chosen)]
    kept = [len(owners[node]) for node in slot_owners & set(chosen)]
    assert max(given_up, default=0) <= min(kept, default=4), "the primaries with the fewest slots are given up"


@given(st.integers(3, 7), HOSTS_OF_CANDIDATES)
def test_new_primaries_are_spread_evenly_over_hosts(count: int, hosts: dict[str, str]) -> None:
    def most_on_a_host(primaries: Sequence[str]) -> int:
        return max(Counter(hosts[node] for node in primaries).values())

    assert most_on_a_host(choose_primaries(CANDIDATES, count, on(hosts), {})) == min(
        map(most_on_a_host, combinations(CANDIDATES, count))
    )


@given(HOSTS_OF_CANDIDATES)
def test_new_primaries_allow_replicas_on_other_hosts_if_possible(hosts: dict[str, str]) -> None:
    six = CANDIDATES[:6]

    def co_located(primaries: Sequence[str]) -> int:
        replicas = [node for node in six if node not in primaries]
        return len(violations(pair(primaries, replicas, on(hosts), {}), hosts))

    assert co_located(choose_primaries(six, 3, on(hosts), {})) == min(map(co_located, combinations(six, 3)))


def test_replica_of_a_removed_primary_is_promoted() -> None:
    owners = {"n0": Slots.of(1), "n1": Slots.of(2), "n7": Slots.of(3), "n8": Slots.of(4)}
    current = {"n3": "n0", "n4": "n7", "n5": "n7"}
    assert choose_primaries(CANDIDATES[:6], 3, {}, owners, current) == ("n0", "n1", "n4")
    assert choose_primaries(CANDIDATES[:6], 2, {}, owners, current) == ("n0", "n1")
    assert choose_primaries(CANDIDATES[:6], 4, {}, owners, current) == ("n0", "n1", "n2", "n4"), (
        "one replica of each removed primary"
    )


def test_all_candidates_are_primaries_if_there_are_too_few() -> None:
    assert choose_primaries(["n0", "n0", "n1"], 3, {}, {}) == ("n0", "n1")


@given(st.integers(1, 7), HOSTS_OF_CANDIDATES)
def test_new_primaries_are_spread_evenly_over_zones_if_hosts_allow(count: int, hosts: dict[str, str]) -> None:
    zones = {"a": "x", "b": "x", "c": "y", "d": "z"}

    def crowded(primaries: Sequence[str]) -> tuple[int, int]:
        if len(primaries) < 3:
            return 0, 0
        limit = (len(primaries) - 1) // 2
        counts = Counter(hosts[node] for node in primaries), Counter(zones[hosts[node]] for node in primaries)
        return (
            sum(max(0, many - limit) for many in counts[0].values()),
            sum(max(0, many - limit) for many in counts[1].values()),
        )

    found = choose_primaries(CANDIDATES, count, on(hosts, zones), {})
    assert crowded(found) == min(map(crowded, combinations(CANDIDATES, count)))


# What is reported.


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("aab", [("host", "a", ("n0", "n1"))]),
        ("abc", []),
        ("aabbc", []),
        ("aaabc", [("host", "a", ("n0", "n1", "n2"))]),
        ("aabc", [("host", "a", ("n0", "n1"))]),
        ("aa", []),
    ],
    ids=["two of three", "one each", "two of five", "three of five", "two of four", "two primaries never lose one"],
)
def test_host_whose_loss_leaves_no_majority_is_reported(hosts: str, expected: list[object]) -> None:
    locations = on({f"n{number}": host for number, host in enumerate(hosts)})
    assert [(each.kind, each.name, each.nodes) for each in primaries_together(tuple(locations), locations)] == expected


def test_zone_whose_loss_leaves_no_majority_is_reported_if_there_are_enough_zones() -> None:
    hosts = {"n0": "a", "n1": "b", "n2": "c", "n3": "d"}
    two, three = {"a": "x", "b": "x", "c": "y", "d": "y"}, {"a": "x", "b": "x", "c": "y", "d": "z"}
    assert list(primaries_together(("n0", "n1", "n2"), on(hosts, two))) == []
    assert list(primaries_together(("n0", "n1", "n2"), on(hosts, three))) == [SharedLocation("zone", "x", ("n0", "n1"))]


def test_replica_in_the_zone_of_its_primary_is_reported_if_there_are_several_zones() -> None:
    locations = on({"p": "a", "r": "b", "s": "c"}, {"a": "x", "b": "x", "c": "y"})
    assert list(replicas_together({"r": "p", "s": "p"}, locations)) == [SharedLocation("zone", "x", ("p", "r"))]
    alone = on({"p": "a", "r": "b"}, {"a": "x", "b": "x"})
    assert list(replicas_together({"r": "p"}, alone)) == []
