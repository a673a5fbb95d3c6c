"""Outages that every scenario of an EtcdCluster must survive: the operator knows less than it did."""

from __future__ import annotations

from collections.abc import Callable

from operators.etcd.membership.raft_log import ENTRIES_PER_SNAPSHOT
from tests.etcd.simulation.database import FakeEtcd
from tests.harness.disturbance import Disturbance
from tests.harness.outage import Change, Outage, disturbance, every, status_lost
from tests.harness.scenario import Stage, later


def _etcd(act: Callable[[FakeEtcd], object]) -> Change:
    def change(stage: Stage) -> None:
        act(stage.database)
        stage.database.settle("an outage")

    return change


def _set(name: str, value: bool) -> Change:
    return _etcd(lambda etcd: setattr(etcd, name, value))


def _member_unreachable(number: int) -> Disturbance:
    return disturbance(
        f"member {number} does not answer the operator",
        Outage(
            _etcd(lambda etcd: etcd.unreachable.add(number)),
            _etcd(lambda etcd: etcd.unreachable.discard(number)),
        ),
    )


STATUS_LOST = "the status is lost"

MUCH_WRITTEN = _etcd(lambda etcd: etcd.written(ENTRIES_PER_SNAPSHOT + 1))
"""Clients write: an upgrade to 3.7 waits for a snapshot of every member if the origin of the log is unknown."""

RECOVERY = every(MUCH_WRITTEN, later(700).act)
"""A learner on the volume of a removed member, which nothing records any more, is removed after --create-timeout."""

RECORDS = ("runsAs", "restore")

OUTAGES = (
    disturbance("the operator is cut off", Outage(_set("cut_off", True), _set("cut_off", False))),
    disturbance("all members hang", Outage(_set("halted", True), _set("halted", False), MUCH_WRITTEN)),
    *map(_member_unreachable, range(3)),
    disturbance(STATUS_LOST, Outage(status_lost, every(), RECOVERY), unstable=RECORDS),
    disturbance(
        f"{STATUS_LOST} while the operator is cut off",
        Outage(every(status_lost, _set("cut_off", True)), _set("cut_off", False), RECOVERY),
        unstable=RECORDS,
    ),
)
