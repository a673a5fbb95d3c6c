"""Results of the redis benchmark and their goals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from e2e.bench.measures import Goal, median, percentile

SPEEDUP, ATOMIC_SPEEDUP = 4.0, 40.0
"""Goals of the speed of a migration relative to the command-line client: key by key, and with jobs of the servers."""


@dataclass(frozen=True)
class Side:
    """Migration of slots to a new primary under load, by the operator or by the command-line client.

    Attributes:
        seconds: duration of the migration.
        slots: number of migrated slots.
        waits: seconds of each client operation during the migration, including its retries.
        errors: number of error replies to clients by error, except `MOVED` and `ASK`.
    """

    seconds: float
    slots: int
    waits: Sequence[float]
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Race:
    """The same migration on the same servers, by the operator and by the command-line client."""

    operator: Side
    cli: Side

    @property
    def ratio(self) -> float:
        """Speedup of the operator over the command-line client."""
        return self.cli.seconds / self.operator.seconds


@dataclass(frozen=True)
class Moves:
    """All races with one engine.

    Attributes:
        engine: name and version of the engine.
        keys: number of keys.
        races: one race per round.
    """

    engine: str
    keys: int
    races: Sequence[Race]

    @property
    def ratio(self) -> float:
        return median(race.ratio for race in self.races)

    @property
    def operator(self) -> Side:
        """Migrations by the operator in all rounds: all operations and errors, median duration."""
        return _together([race.operator for race in self.races])

    @property
    def cli(self) -> Side:
        return _together([race.cli for race in self.races])


@dataclass(frozen=True)
class Creation:
    """Creation of a cluster.

    Attributes:
        seconds: time from apply to Ready.
        own: seconds from the creation of the first pod to the readiness of the last.
    """

    seconds: float
    own: float

    @property
    def ratio(self) -> float:
        """Total time as a multiple of the pods' time."""
        return self.seconds / self.own


@dataclass(frozen=True)
class Loss:
    """Loss of a primary.

    Attributes:
        seconds: time until a write to one of its slots was acknowledged.
        timeout: cluster-node-timeout, in seconds.
    """

    seconds: float
    timeout: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.timeout


@dataclass(frozen=True)
class Figures:
    """Results of a benchmark."""

    moves: Sequence[Moves]
    created: Sequence[Creation]
    losses: Sequence[Loss]


def goals(found: Figures) -> list[Goal]:
    """Return the goals with the measured values."""
    results: list[Goal] = []
    ratios = [each.ratio for each in found.created], [each.ratio for each in found.losses]
    for name, some, most in (
        ("create 3 primaries and 3 replicas, relative to the pod starts", ratios[0], 1.5),
        ("failover, relative to cluster-node-timeout", ratios[1], 2.0),
    ):
        if some:  # otherwise not measured
            results.append(Goal(name, median(some), most))
    for moves in found.moves:
        operator, cli = moves.operator, moves.cli
        least = ATOMIC_SPEEDUP if moves.engine.startswith("valkey") else SPEEDUP
        results += [
            Goal(f"{moves.engine}: add a fourth primary, speedup over the CLI", moves.ratio, least, at_least=True),
            Goal(f"{moves.engine}: client errors during the migration", sum(operator.errors.values()), 0),
            Goal(
                f"{moves.engine}: client p99 during the migration, relative to the CLI",
                p99(operator) / max(p99(cli), 1e-9),
                1.0,
            ),
        ]
    return results


def figures(found: Figures) -> dict[str, Any]:
    """Return the results as JSON."""
    return {
        "created": [asdict(each) for each in found.created],
        "losses": [asdict(each) for each in found.losses],
        "moves": [
            {
                "engine": moves.engine,
                "keys": moves.keys,
                "ratio": moves.ratio,
                "races": [{"ours": _side(race.operator), "theirs": _side(race.cli)} for race in moves.races],
            }
            for moves in found.moves
        ],
    }


def p99(side: Side) -> float:
    """Return the 99th percentile of the latency of client operations, in seconds."""
    return percentile(side.waits, 0.99)


def _together(sides: Sequence[Side]) -> Side:
    errors: dict[str, int] = {}
    for side in sides:
        for error, count in side.errors.items():
            errors[error] = errors.get(error, 0) + count
    waits = [wait for side in sides for wait in side.waits]
    return Side(median(side.seconds for side in sides), sides[0].slots, waits, errors)


def _side(side: Side) -> dict[str, Any]:
    return {
        "seconds": side.seconds,
        "slots": side.slots,
        "operations": len(side.waits),
        "median": percentile(side.waits, 0.5),
        "p99": p99(side),
        "errors": dict(side.errors),
    }
