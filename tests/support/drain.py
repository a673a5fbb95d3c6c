"""A drain of Kubernetes nodes that meets planned work of the operator."""

from __future__ import annotations

from typing import Any

from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import POD, Obj
from tests.harness.scenario_runner import ScenarioRun


class Drain:
    """A drain that evicts another pod right after the operator has stopped one, before any controller acts."""

    def __init__(self, play: ScenarioRun) -> None:
        self._play = play
        self._user = play.world.server.actor("kubectl")
        self.evicted: list[str] = []
        self.refused = 0
        self.most_stopping = 0

    def begin(self) -> None:
        server = self._play.world.server
        check = server.check_write

        def check_write(target: Any, live: Obj | None) -> None:
            check(target, live)
            if target.stops_pod:
                self.evict()

        server.check_write = check_write

    def evict(self) -> None:
        """Evict the first pod that runs."""
        running = [pod for _, pod in self._pods if not pod["metadata"].get("deletionTimestamp")]
        metadata = running[0]["metadata"]
        try:
            self._user.evict(metadata["namespace"], metadata["name"])
            self.evicted.append(metadata["name"])
        except Unavailable:
            self.refused += 1
        stopping = sum(bool(pod["metadata"].get("deletionTimestamp")) for _, pod in self._pods)
        self.most_stopping = max(self.most_stopping, stopping)

    @property
    def _pods(self) -> list[tuple[Any, Obj]]:
        return self._play.world.server.objects(POD)
