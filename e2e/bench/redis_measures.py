"""What a run with clusters of Redis and Valkey came to, and the goals it is held against. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from e2e.bench.measures import Goal, median, percentile


@dataclass(frozen=True)
class Side:
    """Slots that moved to a master that joined, by one who moves them, beside clients.

    Attributes:
        seconds: until all had moved.
        slots: how many.
        waits: seconds of each operation of the clients meanwhile, its repetitions counted in; of some seconds at least.
        errors: what attempts of theirs were answered, but for success, MOVED and ASK; how often.
    """

    seconds: float
    slots: int
    waits: Sequence[float]
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Race:
    """The same slots on the same servers, once by the operator's engine and once by the servers' own client."""

    ours: Side
    theirs: Side

    @property
    def ratio(self) -> float:
        """How many times as fast ours was."""
        return self.theirs.seconds / self.ours.seconds


@dataclass(frozen=True)
class Moves:
    """The races with one engine.

    Attributes:
        engine: and its version.
        keys: how many there were.
    """

    engine: str
    keys: int
    races: Sequence[Race]

    @property
    def ratio(self) -> float:
        return median(race.ratio for race in self.races)

    @property
    def ours(self) -> Side:
        """All rounds of ours together; of the seconds, the median."""
        return _together([race.ours for race in self.races])

    @property
    def theirs(self) -> Side:
        return _together([race.theirs for race in self.races])


@dataclass(frozen=True)
class Creation:
    """A cluster that came to be.

    Attributes:
        seconds: from apply to Ready.
        own: seconds from the creation of its first pod until the last was ready.
    """

    seconds: float
    own: float

    @property
    def ratio(self) -> float:
        """All of it as a multiple of the pods' own time."""
        return self.seconds / self.own


@dataclass(frozen=True)
class Loss:
    """A master that fell silent.

    Attributes:
        seconds: until a write into one of its slots was acknowledged.
        timeout: seconds of silence after which the others take a node for dead.
    """

    seconds: float
    timeout: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.timeout


@dataclass(frozen=True)
class Figures:
    """What was measured: on loopback, and on the cluster."""

    moves: Sequence[Moves]
    created: Sequence[Creation]
    losses: Sequence[Loss]


def goals(found: Figures) -> list[Goal]:
    """The figures against what they should be."""
    created, lost = (median(each.ratio for each in some) for some in (found.created, found.losses))
    held = [
        Goal("apply to Ready of 3 masters and 3 replicas, of the pods' own", created, 1.5),
        Goal("a lost master's slots are served again, of cluster-node-timeout", lost, 2.0),
    ]
    for moves in found.moves:
        ours, theirs = moves.ours, moves.theirs
        held += [
            Goal(f"{moves.engine}: a fourth master joins, times as fast", moves.ratio, 4.0, at_least=True),
            Goal(f"{moves.engine}: clients' errors meanwhile", sum(ours.errors.values()), 0),
            Goal(f"{moves.engine}: clients' p99 meanwhile, of theirs", p99(ours) / max(p99(theirs), 1e-9), 1.0),
        ]
    return held


def figures(found: Figures) -> dict[str, Any]:
    """All of it as JSON."""
    return {
        "created": [asdict(each) for each in found.created],
        "losses": [asdict(each) for each in found.losses],
        "moves": [
            {
                "engine": moves.engine,
                "keys": moves.keys,
                "ratio": moves.ratio,
                "races": [{"ours": _side(race.ours), "theirs": _side(race.theirs)} for race in moves.races],
            }
            for moves in found.moves
        ],
    }


def p99(side: Side) -> float:
    """Seconds within which 99 of 100 operations were answered."""
    return percentile(side.waits, 0.99)


def _together(sides: Sequence[Side]) -> Side:
    errors: dict[str, int] = {}
    for side in sides:
        for said, count in side.errors.items():
            errors[said] = errors.get(said, 0) + count
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
