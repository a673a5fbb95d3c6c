"""Copies of moved keys: only a member that replicates the target keeps one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from operators.redis.client.errors import TargetNotReplicating
from operators.redis.client.responses import Facts, Follower, Node, NodeReport
from operators.redis.client.server import Command
from operators.redis.migration.acknowledgement import await_replica, require_replica

ME, REPLICA = "a" * 40, "b" * 40
TARGET: Any = SimpleNamespace(
    name="demo-1",
    id=ME,
    report=NodeReport(
        ME,
        nodes=(
            Node(ME, "10.0.0.1", 6379, frozenset({"myself", "master"})),
            Node(REPLICA, "10.0.0.2", 6379, frozenset({"slave"}), primary=ME),
        ),
    ),
)
OWN, FOREIGN = Follower("10.0.0.2", 6379, True, 100), Follower("10.9.9.9", 6379, True, 100)


def test_member_that_replicates_the_target_keeps_a_copy() -> None:
    require_replica(TARGET, Facts(offset=100, replicas=(FOREIGN, OWN)))


@pytest.mark.parametrize("followers", [(FOREIGN,), (FOREIGN, replace(OWN, online=False))])
def test_other_client_that_replicates_the_target_keeps_none(followers: tuple[Follower, ...]) -> None:
    with pytest.raises(TargetNotReplicating, match="none of its replicas is online"):
        require_replica(TARGET, Facts(offset=100, replicas=followers))


@dataclass
class Server:
    """The target, to which its replica and another client are connected.

    Attributes:
        acknowledging: addresses of the followers that acknowledge writes, in that order.
        waited: numbers of followers that WAIT was sent with.
    """

    acknowledging: list[str]
    waited: list[int] = field(default_factory=list)

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        return [self._answer(*command) for command in commands]

    def _answer(self, name: Any, *words: Any) -> Any:
        if name == "INFO":
            return self._info(self.waited[-1] if self.waited else 0)
        if name == "WAIT":
            self.waited.append(int(words[0]))
            return min(int(words[0]), len(self.acknowledging))
        return "OK"

    def _info(self, acknowledged: int) -> str:
        offsets = dict.fromkeys(("10.9.9.9", "10.0.0.2"), 100) | dict.fromkeys(self.acknowledging[:acknowledged], 101)
        followers = [
            f"slave{number}:ip={address},port=6379,state=online,offset={offset},lag=0"
            for number, (address, offset) in enumerate(offsets.items())
        ]
        return "\r\n".join(["role:master", *followers, "master_repl_offset:101"])


def target(*acknowledging: str) -> Any:
    return SimpleNamespace(**vars(TARGET), server=Server(list(acknowledging)))


@pytest.mark.parametrize(
    ("acknowledging", "waited"),
    [(["10.0.0.2"], [1]), (["10.0.0.2", "10.9.9.9"], [1]), (["10.9.9.9", "10.0.0.2"], [1, 2])],
    ids=["the replica alone", "the replica first", "another client first"],
)
async def test_keys_that_the_replica_has_are_acknowledged(acknowledging: list[str], waited: list[int]) -> None:
    found = target(*acknowledging)
    await await_replica(found)
    assert found.server.waited == waited


@pytest.mark.parametrize("acknowledging", [[], ["10.9.9.9"]], ids=["no follower", "another client"])
async def test_keys_that_no_replica_has_are_not_acknowledged(acknowledging: list[str]) -> None:
    with pytest.raises(TargetNotReplicating, match="no replica of it acknowledged the last keys"):
        await await_replica(target(*acknowledging))
