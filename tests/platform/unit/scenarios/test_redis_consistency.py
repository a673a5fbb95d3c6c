"""The consistency checker for Redis, and the parser of `redis-cli --cluster check`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from redis.crc import key_slot

from e2e.scenarios.redis.cli_check import REQUIRED_LINES, Verdict, parse
from e2e.scenarios.redis.cluster import open_slots, own_slots
from e2e.scenarios.redis.consistency import Death, Operation, Read, Write, lost, violations
from e2e.scenarios.redis.workload import LONG_TTL_SECONDS, MIX, OLD_COUNTER, Command, Key, Kind, Workload
from tests.support.paths import REPOSITORY

ALL_SLOTS = frozenset(range(16384))


def write(number: int, called: float, returned: float | None, key: str = "k") -> Write:
    return Write(key, number, called, returned)


def deleted(number: int, called: float, returned: float | None, delay: float = 0.0) -> Write:
    return Write("k", number, called, returned, deletes=True, delay=delay)


def added(number: int, called: float, returned: float | None, *elements: str, idempotent: bool = True) -> Write:
    return Write("k", number, called, returned, Counter(elements), idempotent)


def incremented(by: int, called: float, returned: float | None) -> Write:
    return Write("k", 1, called, returned, {"": by})


def got(found: int | Mapping[str, int], called: float, returned: float, key: str = "k") -> Read:
    return Read(key, found, called, returned)


def members(called: float, *elements: str) -> Read:
    return got(Counter(elements), called, called + 1)


def played(seed: int, writes: int = 30, readers: int = 3) -> list[Operation]:
    """Return the history of a correct store: a key has one writer, and each operation takes effect at one moment."""
    chance = random.Random(seed)
    history: list[Operation] = []
    changes, now = [(0.0, 0)], 0.0
    for number in range(1, writes + 1):
        called = now
        moment = called + chance.uniform(0, 2)
        now = moment + chance.uniform(0, 2)
        changes.append((moment, number))
        history.append(write(number, called, now))
        now += chance.uniform(0, 1)
    if chance.random() < 0.5:  # the last write has no reply, and may have taken effect
        last = history[-1]
        assert isinstance(last, Write)
        history[-1] = replace(last, returned=None)
        changes = changes[: chance.choice([-1, len(changes)])]
    for _ in range(readers * writes):
        moment = chance.uniform(0, now + 5)
        seen = max(number for changed, number in changes if changed <= moment)
        history.append(got(seen, moment - chance.uniform(0, 2), moment + chance.uniform(0, 2)))
    chance.shuffle(history)
    return history


def acknowledged(history: list[Operation]) -> list[Write]:
    return [each for each in history if isinstance(each, Write) and each.returned is not None]


@given(st.integers())
def test_history_of_a_correct_store_is_accepted(seed: int) -> None:
    assert violations(played(seed)) == []


@given(st.integers(0, 10_000), st.data())
def test_lost_write_is_detected_by_the_last_read(seed: int, data: st.DataObject) -> None:
    history = played(seed)
    last = max(each.number for each in acknowledged(history))
    end = max(each.returned or 0.0 for each in history) + 1
    left = data.draw(st.integers(0, last - 1))
    final = got(left, end, end + 1)
    assert any("misses" in output for output in violations([*history, final]))
    assert {each.number for each in lost(history, [final])} == set(range(left + 1, last + 1))


IMPOSSIBLE: dict[str, tuple[list[Operation], str]] = {
    "lost write": ([write(1, 0, 1), got(0, 2, 3)], "misses write"),
    "lost second write": ([write(1, 0, 1), write(2, 2, 3), got(1, 4, 5)], "misses write"),
    "stale read": ([write(1, 0, None), got(1, 1, 2), got(0, 3, 4)], "misses read"),
    "early read": ([got(1, 0, 1), write(1, 2, 3)], "never written"),
    "foreign value": ([write(1, 0, 1, "a"), got(1, 2, 3, "b")], "never written"),
    "deleted key returns": ([write(1, 0, 1), deleted(2, 2, 3), got(1, 4, 5)], "undoes deletion 2"),
    "key is missing after it was written again": (
        [write(1, 0, 1), deleted(2, 2, 3), write(3, 4, 5), got(0, 6, 7)], "misses write 3"),
    "expired key stays": ([write(1, 0, 1), deleted(2, 2, 3, delay=5), got(1, 20, 21)], "undoes expiry 2"),
    "key expires too early": ([write(1, 0, 1), deleted(2, 2, 3, delay=5), got(0, 5, 6)], "misses write 1"),
    "lost time to live": ([write(1, 0, 1), write(2, 2, 3), got(1, 4, 5)], "misses write 2"),
    "other time to live": ([write(1, 0, 1), got(-1, 4, 5)], "time to live that was never set"),
    "counter starts again": ([incremented(OLD_COUNTER, 0, 1), incremented(1, 9, 10), got({"": 1}, 11, 12)],
                             "misses acknowledged {1000001}"),
    "increment is lost": ([incremented(7, 0, 1), incremented(1, 9, 10), got({"": 7}, 11, 12)], "misses acknowledged"),
    "increment counts twice": ([incremented(7, 0, 1), incremented(1, 9, 10), got({"": 9}, 11, 12)], "more of {9}"),
    "missing counter": ([incremented(OLD_COUNTER, 0, 1), got({}, 11, 12)], "misses acknowledged"),
    "lost member": ([added(1, 0, 1, "a", "b", "c"), members(2, "a", "c")], "misses acknowledged {b×1}"),
    "member returns after its deletion": ([added(1, 0, 1, "a"), deleted(2, 2, 3), members(4, "a")],
                                          "undoes the deletion of {a×1}"),
    "foreign member": ([added(1, 0, 1, "a"), members(4, "a", "z")], "more of {z×1}"),
    "answered push is there twice": ([added(1, 0, 1, "a", idempotent=False), members(4, "a", "a")], "more of {a×2}"),
    "element vanishes": ([added(1, 0, None, "a"), members(2, "a"), members(4)], "misses acknowledged {a×1}"),
}  # fmt: skip


@pytest.mark.parametrize(("history", "violation"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_history_is_reported(history: list[Operation], violation: str) -> None:
    assert any(violation in output for output in violations(history)), violations(history)


@pytest.mark.parametrize(
    "history",
    [
        [write(1, 0, None), got(0, 2, 3), got(1, 4, 5)],
        [write(1, 0, 5), got(1, 1, 2)],
        [write(1, 0, 5), got(0, 1, 2)],
        [write(1, 0, 5), got(1, 1, 3), got(0, 2, 4)],
        [write(1, 0, 1), deleted(2, 2, None), got(1, 4, 5)],
        [write(1, 0, 1), deleted(2, 2, None), got(0, 4, 5)],
        [write(1, 0, 1), deleted(2, 2, 3), write(3, 4, None), got(3, 5, 6)],
        [write(1, 0, 1), deleted(2, 2, 3, delay=5), got(1, 4, 5), got(0, 7.5, 8), got(0, 9.5, 10)],
        [incremented(7, 0, 1), incremented(1, 2, None), got({"": 7}, 3, 4), got({"": 8}, 5, 6)],
        [added(1, 0, None, "a", idempotent=False), added(1, 2, 3, "a", idempotent=False), members(4, "a", "a")],
        [added(1, 0, None, "a"), added(1, 2, 3, "a"), members(4, "a")],
        [added(1, 0, 1, "a"), deleted(2, 2, 5), members(3, "a"), members(3), members(6)],
        [added(1, 0, 1, "a"), deleted(2, 2, 3), added(3, 4, 5, "b"), members(6, "b")],
    ],
)
def test_write_without_a_reply_may_or_may_not_have_taken_effect(history: list[Operation]) -> None:
    assert violations(history) == []


DEATH = Death("demo-0", ALL_SLOTS, replicated=9.0, until=11.0)
"""Death of a primary at 11 s, which had not replicated what it acknowledged after 9 s."""


@pytest.mark.parametrize(
    ("history", "allowed"),
    [
        ([write(1, 0, 1), write(2, 9.5, 10), got(2, 10.1, 10.2), got(1, 12, 13)], True),
        ([write(1, 0, 1), write(2, 9.5, 10), got(0, 12, 13)], False),
        ([write(1, 0, 1), write(2, 12, 13), got(1, 14, 15)], False),
        ([write(1, 0, 1), deleted(2, 9.5, 10), got(1, 12, 13)], True),
        ([write(1, 0, 1), deleted(2, 5, 6), got(1, 12, 13)], False),
        ([incremented(OLD_COUNTER, 0, 1), incremented(1, 9.5, 10), got({"": OLD_COUNTER}, 12, 13)], True),
        ([incremented(OLD_COUNTER, 0, 1), incremented(1, 8, 8.5), got({"": OLD_COUNTER}, 12, 13)], False),
        ([incremented(OLD_COUNTER, 0, 1), incremented(1, 9.5, 10), got({"": 1}, 12, 13)], False),
        ([incremented(OLD_COUNTER, 0, 1), incremented(1, 9.5, 10), got({}, 12, 13)], False),
        ([added(1, 0, 1, "a", "b"), added(2, 9.5, 10, "c"), members(10, "a", "b", "c"), members(12, "a", "b")], True),
        ([added(1, 0, 1, "a", "b"), added(2, 9.5, 10, "c"), members(12, "a", "c")], False),
        ([added(1, 0, 1, "a"), members(5, "a"), members(12)], False),
    ],
)  # fmt: skip
def test_only_writes_that_were_not_replicated_before_a_crash_may_be_lost(
    history: list[Operation], *, allowed: bool
) -> None:
    assert violations(history), "without a crash, nothing may be lost"
    assert (violations(history, [DEATH]) == []) is allowed


def test_keys_of_other_shards_have_no_budget() -> None:
    history: list[Operation] = [write(1, 0, 1), write(2, 9.5, 10), got(1, 12, 13)]
    own = frozenset({key_slot(b"k")})
    assert violations(history, [replace(DEATH, slots=own)]) == []
    assert violations(history, [replace(DEATH, slots=ALL_SLOTS - own)])


@dataclass
class Store:
    """A primary whose log a replica applies later.

    Attributes:
        log: applied writes, with their times.
    """

    log: list[tuple[float, Command]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    ttl: dict[str, float] = field(default_factory=dict)

    def execute(self, now: float, command: Command) -> Any:
        name, key, *rest = command
        if name == "EVAL":
            key = command[3]
        key = str(key)
        if self.ttl.get(key, now) < now:
            self.data.pop(key, None)
            del self.ttl[key]
        if name in ("GET", "EVAL", "SMEMBERS", "LRANGE", "HGETALL"):
            found = self.data.get(key)
            lasts = int(self.ttl[key] - now) if key in self.ttl else -1
            return [found, lasts] if name == "EVAL" else found if name == "GET" else found or {}
        self.log.append((now, command))
        return self._write(now, str(name), key, rest)

    def _write(self, now: float, name: str, key: str, rest: list[Any]) -> Any:
        match name:
            case "SET":
                self.data[key] = str(rest[0])
                self.ttl.pop(key, None)
            case "DEL":
                self.ttl.pop(key, None)
                return int(self.data.pop(key, None) is not None)
            case "EXPIRE" | "PEXPIRE":
                if key in self.data:
                    self.ttl[key] = now + rest[0] / (1000 if name == "PEXPIRE" else 1)
                return int(key in self.data)
            case "INCR":
                self.data[key] = str(int(self.data.get(key, 0)) + 1)
                return int(self.data[key])
            case "HSET":
                self.data[key] = self.data.get(key, {}) | dict(zip(rest[::2], rest[1::2], strict=True))
            case "SADD":
                self.data[key] = self.data.get(key, set()) | set(rest)
            case _:
                self.data[key] = self.data.get(key, []) + rest
        return 1

    def promoted(self, replicated: int) -> Store:
        """Return the replica that applied this number of writes."""
        found = Store()
        for now, command in self.log[:replicated]:
            found.execute(now, command)
        return found


@dataclass
class Trial:
    """A workload on a store that loses the end of its log in the middle."""

    chance: random.Random
    store: Store = field(default_factory=Store)
    history: list[Operation] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    now: float = 0.0

    def send(self, key: Key, command: Command) -> None:
        self.now += self.chance.uniform(0.01, 0.1)
        called, unanswered = self.now, self.chance.random() < 0.05
        reply = None
        if not (unanswered and self.chance.random() < 0.5):
            reply = self.store.execute(called, command)
        self.now += self.chance.uniform(0.001, 0.01)
        self.history += key.wrote(command, called, None if unanswered else self.now, reply)

    def read(self, key: Key) -> None:
        self.now += 0.001
        reply = self.store.execute(self.now, key.read())
        self.history.append(Read(key.name, key.found(reply), self.now - 0.001, self.now + 0.001))

    def crash(self) -> None:
        size = self.chance.randint(max(0, len(self.store.log) - 20), len(self.store.log))
        replicated = self.store.log[size][0] - 0.001 if size < len(self.store.log) else self.now
        self.store = self.store.promoted(size)
        self.now += 0.5
        self.deaths.append(Death("demo-0", ALL_SLOTS, replicated, self.now))

    def work(self, workload: Workload, turns: int) -> None:
        for turn in range(turns):
            key = workload.to_write(0, turn)
            self.send(key, key.next(workload.size))
            self.read(workload.to_read())

    def finish(self, workload: Workload) -> list[Read]:
        self.now += 10
        written = {each.key for each in self.history if isinstance(each, Write)}
        begun = len(self.history)
        for name in sorted(written):
            self.read(workload.keys[name])
        return [each for each in self.history[begun:] if isinstance(each, Read)]


def tried(seed: int) -> tuple[Trial, Workload]:
    random.seed(seed)
    trial, workload = Trial(random.Random(seed)), Workload(1, "p-")
    for key in workload.seeds(48):
        trial.send(key, key.seed(workload.size))
        key.number = 1
    trial.now += 10
    trial.work(workload, 150)
    trial.crash()
    trial.work(workload, 150)
    return trial, workload


@given(st.integers(0, 100_000))
def test_workload_on_a_store_that_loses_what_it_had_not_replicated_is_accepted(seed: int) -> None:
    trial, workload = tried(seed)
    finals = trial.finish(workload)
    assert violations(trial.history, trial.deaths) == []
    oldest = min((each.returned or 0.0 for each in lost(trial.history, finals)), default=trial.deaths[0].until)
    assert oldest > trial.deaths[0].replicated


@given(st.integers(0, 100_000), st.sampled_from(["gone", "first write", "returned"]))
def test_damage_to_an_old_key_in_the_shard_of_a_crash_is_detected(seed: int, damage: str) -> None:
    trial, workload = tried(seed)
    newest = {each.key: each for each in trial.history if isinstance(each, Write)}
    certain = [each for each in newest.values() if each.returned and not each.deletes]
    last = trial.chance.choice([each for each in certain if not trial.deaths[0].may_lose(each)])
    key, data = workload.keys[last.key], trial.store.data
    if damage == "returned" and key.kind is Kind.REGISTER:
        trial.send(key, ("DEL", key.name))
        assume(trial.history[-1].returned is not None)
        data[key.name] = "1:"
    elif damage == "first write":
        assume(last.number > 1)
        kinds: dict[Kind, Any] = {Kind.COUNTER: "1", Kind.SET: {"2"}, Kind.LIST: ["2"], Kind.HASH: {"2": "2"}}
        data[key.name] = kinds.get(key.kind, "1:")
        trial.store.ttl.pop(key.name, None)
    else:
        del data[key.name]
    trial.finish(workload)
    found = violations(trial.history, trial.deaths)
    assert any(f"read {key.name}=" in each for each in found), (damage, key)


def test_every_kind_is_written_and_read() -> None:
    trial, workload = tried(1)
    trial.finish(workload)
    assert {workload.keys[each.key].kind for each in trial.history} == set(MIX)
    assert {each.delay for each in acknowledged(trial.history) if each.deletes} == {0.0, 2.0}


@pytest.mark.parametrize(
    ("ttl", "found"), [(-1, 1), (LONG_TTL_SECONDS, 2), (LONG_TTL_SECONDS - 60, 2), (60, -1), (LONG_TTL_SECONDS + 1, -1)]
)
def test_time_to_live_of_a_lasting_key_is_part_of_what_is_read(ttl: int, found: int) -> None:
    assert Key("k", Kind.LASTING).found(["1:...", ttl]) == found


ME = "aaaa 10.1.2.3:6379@16379,demo-0 myself,master - 0 0 3 connected 0-2 7 [5->-bbbb] [9-<-cccc]"
OTHER = "bbbb 10.1.2.4:6379@16379,demo-1 master - 0 1 1 connected 3-6 8-16383"


def test_own_slots_are_read_from_the_nodes_own_line() -> None:
    assert own_slots(f"{OTHER}\n{ME}\n") == {"aaaa": [0, 1, 2, 7]}
    assert open_slots(f"{OTHER}\n{ME}\n") == "[5->-bbbb][9-<-cccc]"


FINE = (REPOSITORY / "tests/recorded/redis-cli/check.txt").read_text()
"""Output of `redis-cli --cluster check` for a healthy cluster."""


@pytest.mark.parametrize(
    ("output", "problems"),
    [
        (FINE, ()),
        (FINE.replace(REQUIRED_LINES[1], "[ERR] Not all 16384 slots are covered by nodes."),
         ("[ERR] Not all 16384 slots are covered by nodes.", f"missing: {REQUIRED_LINES[1]}")),
        (FINE + "\x1b[31;1m[WARNING] The following slots are open: 5492.\x1b[0m\n",
         ("[WARNING] The following slots are open: 5492.",)),
        ("Could not connect to Redis at 10.1.2.3:6379: Connection refused\n" + FINE,
         ("Could not connect to Redis at 10.1.2.3:6379: Connection refused",)),
    ],
)  # fmt: skip
def test_verdict_lists_the_problems_of_the_check(output: str, problems: tuple[str, ...]) -> None:
    assert parse(output) == Verdict(1, 1, problems)


def test_empty_output_of_the_check_is_a_failure() -> None:
    assert parse("") == Verdict(0, 0, tuple(f"missing: {line}" for line in REQUIRED_LINES))
