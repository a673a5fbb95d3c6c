"""Fixtures of the incidents: a healthy resource in a namespace of its own, with Prometheus and Alertmanager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.scenarios.incidents.model import Calm, Scene
from e2e.scenarios.observability.watch import NAMES, Watch, watching
from e2e.scenarios.support.commands import SYSTEM, Helm, new_namespace
from e2e.scenarios.support.operator import Operator, accounts
from e2e.scenarios.support.release import Release


class Stage(NamedTuple):
    """A scene, and its Prometheus and Alertmanager."""

    scene: Scene
    watch: Watch


class Stages:
    """The stage of consecutive incidents, which is set up once for all of them.

    pytest sets up a parametrized fixture again for each combination with other parameters, in every scope.

    Args:
        build: sets up a stage.
    """

    def __init__(self, build: Callable[[Calm], AbstractContextManager[Stage]]) -> None:
        self._build = build
        self._stack = ExitStack()
        self._present: tuple[Calm, Stage] | None = None

    def of(self, calm: Calm) -> Stage:
        """Return the stage with a healthy resource, the present one if it has the same."""
        if self._present is None or self._present[0] is not calm:
            self.close()
            self._present = calm, self._stack.enter_context(self._build(calm))
        return self._present[1]

    def close(self) -> None:
        """Remove the present stage, for example because an incident did not end."""
        self._present = None
        self._stack.close()


@pytest.fixture(scope="session")
def stages(environment: dict[str, str], helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    @contextmanager
    def build(calm: Calm) -> Iterator[Stage]:
        directory: Path = tmp_path_factory.mktemp(calm.name)
        with new_namespace(environment) as kubectl, accounts(kubectl) as account:
            system = kubectl.within(SYSTEM)
            release = Release.found(helm, system, directory / "values.json")
            operators = [Operator(system, name) for name in NAMES]
            with watching(directory / "watch", release, operators, kubectl, account) as watch:
                resource = calm.create(kubectl, directory)
                with calm.prepared(resource):
                    yield Stage(Scene(kubectl, resource, Operator(system, calm.operator), directory), watch)

    found = Stages(build)
    yield found
    found.close()
