"""Replicas are where their masters are not, as many for each, and no more of them move than must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product

from hypothesis import example, given
from hypothesis import strategies as st

from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.placement import Violation, choose_primaries, pair, violations

MASTERS = ["m0", "m1", "m2", "m3"]
REPLICAS = ["r0", "r1", "r2", "r3", "r4"]
HOSTS = st.fixed_dictionaries({node: st.sampled_from(["", "a", "b", "c"]) for node in [*MASTERS, *REPLICAS]})
CURRENT = st.dictionaries(st.sampled_from(REPLICAS), st.sampled_from([*MASTERS, "gone"]))

Standing = tuple[int, int, int, int]


def standing(
    pairs: Mapping[str, str], primaries: Sequence[str], hosts: Mapping[str, str], current: Mapping[str, str]
) -> Standing:
    """How bad it is: masters lacking a replica, replicas beside their masters, unevenness, and how much changes."""
    each = len(pairs) // len(primaries)
    has = Counter(pairs.values())
    return (
        sum(max(0, each - has[primary]) for primary in primaries),
        len(violations(pairs, hosts)),
        sum(sum(range(max(0, has[primary] - each))) for primary in primaries),
        sum(current.get(replica) in primaries and current[replica] != primary for replica, primary in pairs.items()),
    )


def best(
    primaries: Sequence[str], replicas: Sequence[str], hosts: Mapping[str, str], current: Mapping[str, str]
) -> Standing:
    """Of all pairings that there are."""
    return min(
        standing(dict(zip(replicas, choice, strict=True)), primaries, hosts, current)
        for choice in product(primaries, repeat=len(replicas))
    )


CROWDED = {"m0": "a", "m1": "a", "m2": "b", "m3": "b", "r0": "a", "r1": "a", "r2": "a", "r3": "a", "r4": "b"}


@given(st.integers(1, 4), st.integers(0, 5), HOSTS, CURRENT)
@example(3, 5, CROWDED, {})
def test_no_pairing_is_better(primaries: int, replicas: int, hosts: dict[str, str], current: dict[str, str]) -> None:
    pairs = pair(MASTERS[:primaries], REPLICAS[:replicas], hosts, current)
    assert list(pairs) == REPLICAS[:replicas]
    found = standing(pairs, MASTERS[:primaries], hosts, current)
    assert found == best(MASTERS[:primaries], REPLICAS[:replicas], hosts, current)


@given(st.integers(1, 4), st.integers(0, 5), HOSTS, CURRENT)
def test_what_is_paired_well_stays(
    primaries: int, replicas: int, hosts: dict[str, str], current: dict[str, str]
) -> None:
    pairs = pair(MASTERS[:primaries], REPLICAS[:replicas], hosts, current)
    assert pair(MASTERS[:primaries], REPLICAS[:replicas], hosts, pairs) == pairs


def test_six_on_three_hosts() -> None:
    hosts = {"m0": "a", "m1": "b", "m2": "c", "r0": "a", "r1": "b", "r2": "c"}
    pairs = pair(MASTERS[:3], REPLICAS[:3], hosts, {})
    assert violations(pairs, hosts) == ()
    assert sorted(pairs.values()) == ["m0", "m1", "m2"]


def test_the_seventh_of_seven_is_one_more_replica_where_its_master_is_not() -> None:
    hosts = {"m0": "a", "m1": "b", "m2": "c", "r0": "b", "r1": "c", "r2": "a", "r3": "a"}
    current = {"r0": "m0", "r1": "m1", "r2": "m2"}
    assert pair(MASTERS[:3], REPLICAS[:4], hosts, current) == {**current, "r3": "m1"}


def test_a_replica_moved_by_the_scheduler_changes_places_with_one_other() -> None:
    hosts = {"m0": "a", "m1": "b", "m2": "c", "r0": "a", "r1": "c", "r2": "b"}
    current = {"r0": "m0", "r1": "m1", "r2": "m2"}
    pairs = pair(MASTERS[:3], REPLICAS[:3], hosts, current)
    assert violations(pairs, hosts) == ()
    assert sum(pairs[replica] != current[replica] for replica in current) == 2


def test_where_there_is_but_one_host_a_replica_there_is_better_than_none() -> None:
    hosts = dict.fromkeys([*MASTERS, *REPLICAS], "a")
    pairs = pair(MASTERS[:3], REPLICAS[:3], hosts, {})
    assert sorted(pairs.values()) == ["m0", "m1", "m2"]
    assert violations(pairs, hosts)[0] == Violation("r0", pairs["r0"], "a")


def test_a_master_that_lost_its_replica_is_given_one_of_two() -> None:
    current = {"r0": "m0", "r1": "m0", "r2": "m1"}
    pairs = pair(MASTERS[:3], REPLICAS[:3], {}, current)
    assert Counter(pairs.values()) == {"m0": 1, "m1": 1, "m2": 1}
    assert pairs["r2"] == "m1"


def test_two_replicas_of_a_new_master_are_on_two_hosts() -> None:
    hosts = {"m0": "a", "m1": "b", "r0": "c", "r1": "c", "r2": "d", "r3": "d"}
    pairs = pair(MASTERS[:2], REPLICAS[:4], hosts, {})
    assert all(
        {hosts[replica] for replica in pairs if pairs[replica] == primary} == {"c", "d"} for primary in MASTERS[:2]
    )


def test_without_a_master_there_is_nobody_to_follow() -> None:
    assert pair([], REPLICAS, {}, {}) == {}


def test_nodes_without_a_host_are_beside_nobody() -> None:
    assert violations({"r0": "m0"}, {"r0": "", "m0": ""}) == violations({"r0": "m0"}, {}) == ()


# Who is a master.

CANDIDATES = [f"n{number}" for number in range(7)]
PLACED = st.fixed_dictionaries({node: st.sampled_from(["a", "b", "c", "d"]) for node in CANDIDATES})
OWNERS = st.dictionaries(st.sampled_from(CANDIDATES), st.integers(0, 3).map(lambda count: Slots.of(range(count))))


@given(st.integers(0, 8), PLACED, OWNERS)
def test_who_owns_slots_stays_a_master(count: int, hosts: dict[str, str], owners: dict[str, Slots]) -> None:
    chosen = choose_primaries(CANDIDATES, count, hosts, owners)
    assert len(chosen) == len(set(chosen)) == min(count, len(CANDIDATES))
    assert sorted(chosen) == list(chosen)
    having = {node for node in owners if owners[node]}
    assert having <= set(chosen) or set(chosen) <= having
    given_up = [len(owners[node]) for node in having - set(chosen)]
    kept = [len(owners[node]) for node in having & set(chosen)]
    assert max(given_up, default=0) <= min(kept, default=4), "the fewest slots move"


@given(st.integers(1, 7), PLACED)
def test_new_masters_are_spread_over_the_hosts_as_evenly_as_can_be(count: int, hosts: dict[str, str]) -> None:
    def crowd(primaries: Sequence[str]) -> int:
        return max(Counter(hosts[node] for node in primaries).values())

    assert crowd(choose_primaries(CANDIDATES, count, hosts, {})) == min(map(crowd, combinations(CANDIDATES, count)))


@given(PLACED)
def test_new_masters_leave_no_replica_beside_its_master_if_any_choice_would(hosts: dict[str, str]) -> None:
    six = CANDIDATES[:6]

    def beside(primaries: Sequence[str]) -> int:
        replicas = [node for node in six if node not in primaries]
        return len(violations(pair(primaries, replicas, hosts, {}), hosts))

    assert beside(choose_primaries(six, 3, hosts, {})) == min(map(beside, combinations(six, 3)))


def test_the_replica_of_a_master_that_leaves_takes_its_place() -> None:
    owners = {"n0": Slots.of(1), "n1": Slots.of(2), "n7": Slots.of(3), "n8": Slots.of(4)}
    current = {"n3": "n0", "n4": "n7", "n5": "n7"}
    assert choose_primaries(CANDIDATES[:6], 3, {}, owners, current) == ("n0", "n1", "n4")
    assert choose_primaries(CANDIDATES[:6], 2, {}, owners, current) == ("n0", "n1")
    assert choose_primaries(CANDIDATES[:6], 4, {}, owners, current) == ("n0", "n1", "n2", "n4"), "one for each"


def test_as_many_as_there_are() -> None:
    assert choose_primaries(["n0", "n0", "n1"], 3, {}, {}) == ("n0", "n1")
