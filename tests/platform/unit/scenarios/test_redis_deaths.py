"""The budget of a primary that dies, from samples of the replication."""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.scenarios.redis.deaths import FLUSH_SECONDS, MAX_LAG_SECONDS, Sample, death_of, sample_of


def primary(at: float, offset: int, **changes: object) -> Sample:
    found = Sample("demo-0", at, at + 0.01, "run-1", True, "history-1", offset, claims="0-9 12")
    return replace(found, **changes)  # type: ignore[arg-type]


def replica(at: float, offset: int, name: str = "demo-3") -> Sample:
    return Sample(name, at, at + 0.01, f"run-of-{name}", False, "history-1", offset)


def promoted(at: float, end: int, claims: str = "0-9 12") -> Sample:
    """Return a sample of the replica that took over at the first position that it does not have."""
    return Sample("demo-3", at, at + 0.01, "run-of-demo-3", True, "history-2", end + 50, "history-1", end, claims)


def down(at: float) -> Sample:
    return Sample("demo-0", at, at + 0.01)


BEFORE = [primary(10.0, 100), primary(10.1, 200), primary(10.2, 300)]
CRASHED = [*BEFORE, down(10.3)]


@pytest.mark.parametrize(
    ("others", "replicated"),
    [
        ([promoted(15, 301)], 10.2),
        ([promoted(15, 300)], 10.1),
        ([promoted(15, 201)], 10.1),
        ([promoted(15, 101)], 10.0),
        ([replica(10.1, 250)], 10.1),
        ([replica(10.25, 300)], 10.2),
        ([replica(10.1, 250), replica(10.1, 100, "demo-4")], 10.0),
        ([replica(10.1, 300), replica(10.1, 100, "demo-4"), promoted(15, 251)], 10.1),
        ([promoted(15, 50)], 10.2 - MAX_LAG_SECONDS),
    ],
)
def test_writes_are_replicated_up_to_the_last_offset_that_the_successor_applied(
    others: list[Sample], replicated: float
) -> None:
    death = death_of([*others, *CRASHED], "demo-0", 10.25)
    assert death is not None
    assert death.replicated == replicated
    assert death.until == 10.31


@pytest.mark.parametrize(
    ("unwritten", "replicated"),
    [((), 10.2), ((10.2,), 10.1), ((10.1, 10.2), 10.0), ((10.0, 10.1, 10.2), 10.2 - FLUSH_SECONDS)],
)
def test_primary_without_a_replica_may_lose_what_it_had_not_written(
    unwritten: tuple[float, ...], replicated: float
) -> None:
    samples = [replace(each, written=each.called not in unwritten) for each in CRASHED]
    death = death_of(samples, "demo-0", 10.25)
    assert death is not None
    assert death.replicated == replicated


def test_nodes_that_all_end_may_lose_what_one_of_them_had_not_written_though_it_was_replicated() -> None:
    """With everysec, a slow fsync delays the write to the file; the kernel has nothing of it when all are killed."""
    primaries = [primary(10.0, 100), primary(10.1, 200, written=False), primary(10.2, 300, written=False), down(10.3)]
    death = death_of([*primaries, replica(10.21, 300)], "demo-0", 10.25)
    assert death is not None
    assert death.replicated == 10.0
    replicas = [replica(10.1, 200), replace(replica(10.21, 300), written=False)]
    death = death_of([*CRASHED, *replicas], "demo-0", 10.25)
    assert death is not None
    assert death.replicated == 10.1
    death = death_of([*primaries, replica(10.21, 300), promoted(15, 301)], "demo-0", 10.25)
    assert death is not None
    assert death.replicated == 10.2, "a replica that takes over has it in memory"


def test_budget_covers_the_slots_of_the_dead_primary_with_those_that_it_imported() -> None:
    samples = [primary(10.0, 100, claims="0-2 [7->-bbbb] 12 [9-<-cccc]"), down(10.3)]
    death = death_of(samples, "demo-0", 10.25)
    assert death is not None
    assert death.slots == {0, 1, 2, 12, 9}
    death = death_of([*samples, promoted(15, 101, "0-2 12 14"), promoted(16, 101, "0-2 12 14 20")], "demo-0", 10.25)
    assert death is not None
    assert death.slots == {0, 1, 2, 12, 9, 14}, "slots that arrived after the last sample"


def test_restarted_process_ends_the_budget() -> None:
    restarted = primary(10.4, 10, run="run-2", replication="history-9", claims="0-9 12 15")
    death = death_of([*BEFORE, restarted, replica(10.21, 300)], "demo-0", 10.25)
    assert death is not None
    assert death.until == restarted.returned
    assert 15 in death.slots


def test_isolated_primary_dies_when_it_stops_to_serve() -> None:
    isolated = [primary(11 + number, 400 + number) for number in range(4)]
    stopped = primary(15, 500, serving=False)
    death = death_of([*BEFORE, *isolated, stopped, promoted(17, 301)], "demo-0", 10.25)
    assert death is not None
    assert (death.replicated, death.until) == (10.2, stopped.returned)


def test_missing_answers_of_a_process_that_lives_on_are_no_death() -> None:
    assert death_of([*CRASHED, primary(10.5, 400)], "demo-0", 10.25) is None


def test_end_of_a_replica_has_no_budget() -> None:
    assert death_of([replica(10, 100), Sample("demo-3", 11, 12)], "demo-3", 10.5) is None


def test_death_without_a_sample_is_an_error() -> None:
    with pytest.raises(AssertionError, match="not sampled"):
        death_of([primary(10.0, 100)], "demo-0", 9.0)


def test_sample_is_parsed() -> None:
    info = {"role": "master", "run_id": "run", "master_replid": "a", "master_repl_offset": 7, "slave_repl_offset": 3}
    info |= {"master_replid2": "b", "second_repl_offset": 5}
    nodes = "bbbb 10.1.2.4:6379@16379 master - 0 1 1 connected 3\n"
    nodes += "aaaa 10.1.2.3:6379@16379 myself,master - 0 0 3 connected 0-2\n"
    found = sample_of("demo-0", 1, 2, info, "cluster_state:ok\r\n", nodes)
    assert found == Sample("demo-0", 1, 2, "run", True, "a", 7, "b", 5, "0-2")
    assert not sample_of("demo-0", 1, 2, info | {"aof_buffer_length": 31}, "cluster_state:ok\r\n", nodes).written
    following = sample_of("demo-0", 1, 2, info | {"role": "slave"}, "cluster_state:ok\r\n", nodes)
    assert (following.offset, following.serving, following.former) == (3, False, "")
