"""Placement is improved step by step until no arrangement is better: compared with all arrangements of small worlds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.redis.slots.improvement import Failover, Repair, next_change
from operators.redis.slots.pairing import pair
from operators.redis.slots.placement import Location, choose_primaries, complete, replicas_together, tolerated

Shards = Mapping[str, Sequence[str]]
Cost = tuple[int, ...]

ZONES = {"a": "x", "b": "x", "c": "y", "d": "y", "e": "z"}


def after(shards: Mapping[str, Sequence[str]], change: Failover | Repair) -> dict[str, list[str]]:
    """Return the shards once a change is complete."""
    result = {primary: list(replicas) for primary, replicas in shards.items()}
    if isinstance(change, Failover):
        others = [node for node in result.pop(change.primary) if node != change.replica]
        return result | {change.replica: [change.primary, *others]}
    for replicas in result.values():
        if change.replica in replicas:
            replicas.remove(change.replica)
    result[change.primary].append(change.replica)
    return result


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Shards, dict[str, Location]]:
    """Between one and three shards with up to seven nodes, on up to five hosts in up to three zones."""
    count = draw(st.integers(1, 3))
    nodes = [f"n{number}" for number in range(draw(st.integers(count, 7)))]
    zoned = draw(st.booleans())
    hosts = draw(st.lists(st.sampled_from([*ZONES, ""]), min_size=len(nodes), max_size=len(nodes)))
    locations = {
        node: Location(host, ZONES.get(host, "") if zoned else "") for node, host in zip(nodes, hosts, strict=True)
    }
    shards: dict[str, list[str]] = {node: [] for node in nodes[:count]}
    for node in nodes[count:]:
        shards[draw(st.sampled_from(nodes[:count]))].append(node)
    return shards, locations


def required(shards: Shards, locations: Mapping[str, Location]) -> Cost:
    """Costs that justify a full sync: shares, majorities of hosts and zones, then pairs."""
    at = complete(locations, locations)
    loads = [len(replicas) for replicas in shards.values()]
    limit = tolerated(len(shards)) if len(shards) >= 3 else len(shards)
    counts = [Counter(at[node][number] for node in shards) for number in (0, 1)]
    pairs = [(node, other) for node, some in shards.items() for other in some]
    return (
        sum(max(0, sum(loads) // len(loads) - load) for load in loads),
        *(sum(max(0, several - limit) for several in each.values()) for each in counts),
        *(sum(at[one][number] == at[other][number] for one, other in pairs) for number in (0, 1)),
    )


def unevenness(shards: Shards, locations: Mapping[str, Location]) -> Cost:
    """Costs that only failovers lower."""
    at = complete(locations, locations)
    return tuple(sum(count**2 for count in Counter(at[node][number] for node in shards).values()) for number in (0, 1))


def arrangements(nodes: Sequence[str], count: int) -> Iterator[Shards]:
    for primaries in combinations(nodes, count):
        others = [node for node in nodes if node not in primaries]
        for choice in product(primaries, repeat=len(others)):
            yield {
                primary: [node for node, of in zip(others, choice, strict=True) if of == primary]
                for primary in primaries
            }


def failovers(shards: Shards) -> Iterator[Shards]:
    """Yield the shards with all choices of their primaries."""
    members = [(primary, *replicas) for primary, replicas in shards.items()]
    for chosen in product(*members):
        yield {node: [other for other in nodes if other != node] for node, nodes in zip(chosen, members, strict=True)}


def settled(shards: Shards, locations: Mapping[str, Location]) -> tuple[Shards, list[Failover | Repair]]:
    """Apply changes until none is left."""
    done: list[Failover | Repair] = []
    while change := next_change(shards, locations):
        done.append(change)
        assert len(done) <= 4 * len(locations), f"no end: {done[-6:]}"
        shards = after(shards, change)
    return shards, done


@settings(max_examples=300, deadline=None)
@given(worlds())
@example(({"n0": ["n3"], "n1": ["n4"], "n2": ["n5"]}, {f"n{n}": Location("aabbcc"[n]) for n in range(6)}))
def test_placement_converges_to_the_optimum_of_all_arrangements(world: tuple[Shards, dict[str, Location]]) -> None:
    shards, locations = world
    found, _ = settled(shards, locations)
    nodes = tuple(locations)
    best = min(required(each, locations) for each in arrangements(nodes, len(shards)))
    assert required(found, locations) == best
    even = min(unevenness(each, locations) for each in failovers(found) if required(each, locations) == best)
    assert unevenness(found, locations) == even


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_a_settled_placement_does_not_change(world: tuple[Shards, dict[str, Location]]) -> None:
    found, _ = settled(*world)
    shuffled = {primary: found[primary][::-1] for primary in sorted(found, reverse=True)}
    assert next_change(shuffled, world[1]) is None


def even_placements(count: int) -> Iterator[dict[str, Location]]:
    """Yield random placements of six pods on six hosts, two pods in each of three zones."""
    for seed in range(count):
        hosts = list("aabbcc")
        random.Random(seed).shuffle(hosts)
        yield {f"n{number}": Location(f"{host}-{number}", host) for number, host in enumerate(hosts)}


def test_no_new_cluster_has_a_primary_and_its_replica_in_one_zone() -> None:
    """With hosts alone, nearly half of these clusters have one."""
    found = {True: 0, False: 0}
    for locations in even_placements(300):
        for zoned in (True, False):
            known = locations if zoned else {node: Location(location.host) for node, location in locations.items()}
            primaries = choose_primaries(tuple(locations), 3, known, {})
            replicas = [node for node in locations if node not in primaries]
            pairs = pair(primaries, replicas, known, {})
            found[zoned] += any(replicas_together(pairs, locations))
    assert found[True] == 0
    assert found[False] > 100


def test_half_done_exchange_continues() -> None:
    """A replica that was moved to lead a shard is not moved back."""
    locations = {
        node: Location(host) for node, host in zip(("n0", "n1", "n2", "n3", "n4", "n5"), "ababcc", strict=True)
    }
    shards: Shards = {"n0": ["n1"], "n2": ["n3"], "n4": ["n5"]}
    found, done = settled(shards, locations)
    assert max(Counter(locations[node].host for node in found).values()) == 1
    for number in range(len(done)):
        midway = shards
        for change in done[:number]:
            midway = after(midway, change)
        assert next_change(midway, locations) == done[number]


def test_a_large_cluster_whose_hosts_were_drained_needs_few_changes() -> None:
    """Five of 120 pods were rescheduled to one host."""
    locations = {f"n{number}": Location(f"h{number % 20}", f"z{number % 20 % 3}") for number in range(120)}
    nodes = list(locations)
    primaries = choose_primaries(nodes, 60, locations, {})
    pairs = pair(primaries, [node for node in nodes if node not in primaries], locations, {})
    shards: Shards = {primary: [replica for replica, of in pairs.items() if of == primary] for primary in primaries}
    shards, _ = settled(shards, locations)
    moved = locations | {node: Location("h0", "z0") for node in nodes[7:12]}
    _, done = settled(shards, moved)
    assert len(done) <= 15
