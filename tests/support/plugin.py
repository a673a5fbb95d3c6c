"""The plugin as a user runs it, in a simulated world: an operator works on between its requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from plugin import session, version
from plugin.cli import cli
from plugin.commands import base
from plugin.session import Session, Target
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.client import Request, Response
from shared.kubernetes.kinds import DEPLOYMENT
from simulator.harness import NAMESPACE
from tests.harness.scenario import ScenarioStep, Subject
from tests.harness.scenario_runner import ScenarioRun
from tests.support import plays


def operator(name: str, image: str = "", **labels: str) -> ScenarioStep:
    """Install the Deployment of an operator, as its chart does."""
    tag = image or f"registry.example.com/{name}-operator:{version.own()}"
    container = {
        "name": "operator",
        "image": tag,
        "args": [
            "--leader-elect",
            "--leader-elect-namespace=platform-system",
            f"--agent-image=example.com/{name}-operator:1",
            f"--image-repository={name}",
        ],
    }
    own = {
        "app.kubernetes.io/name": f"{name}-operator",
        "app.kubernetes.io/component": "operator",
        "app.kubernetes.io/part-of": "platform",
        **labels,
    }
    template = {"metadata": {"labels": own}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": own}, "template": template}

    def act(stage: Any) -> None:
        metadata = {"name": f"{name}-operator", "namespace": "platform-system", "labels": own}
        stage.user_client.create(DEPLOYMENT, {"metadata": metadata, "spec": spec})

    return ScenarioStep(f"{name} operator installed", act)


class UserTransport:
    """The API server of a simulated world, for a user.

    Attributes:
        between: called before each request, so that the world continues.
        requests: requests that changed something.
    """

    def __init__(self, play: ScenarioRun) -> None:
        self.play = play
        self.between: Callable[[], Awaitable[object]] | None = None
        self.requests: list[Request] = []

    async def request(self, request: Request) -> Response:
        if self.between is not None:
            await self.between()
        if request.path == "/version":
            return Response(200, {"gitVersion": "v1.32.0", "minor": "32"})
        if request.path == session.REVIEW.path():
            return Response(201, {"metadata": {"creationTimestamp": rfc3339(base.now())}})
        if request.method != "GET":
            self.requests.append(request)
        return self.play.world.server.handle(request)


class Terminal:
    """Runs commands of the plugin in a world.

    Args:
        monkeypatch: connects the plugin to the world.
        subject: operator and database of the world.
        step: how the world began; it is built once.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, subject: Subject, step: ScenarioStep) -> None:
        self.play = asyncio.run(plays.begun_once(subject, step))
        self.transport = UserTransport(self.play)
        monkeypatch.setattr(base, "connected", self._connected)
        monkeypatch.setattr(base, "POLL_SECONDS", 0.0)

    def do(self, *steps: ScenarioStep) -> None:
        asyncio.run(plays.run(self.play, steps))

    def run(self, line: str | Iterable[str], stdin: str | None = None) -> Result:
        """Run a command line, without `kubectl platform`."""
        return CliRunner().invoke(cli, line.split() if isinstance(line, str) else list(line), input=stdin)

    def text(self, line: str) -> str:
        """Return what a command prints that succeeds."""
        result = self.run(line)
        assert result.exit_code == 0, result.output
        return result.output

    @contextlib.asynccontextmanager
    async def _connected(self, target: Target) -> AsyncIterator[Session]:
        yield Session(self.transport, target.namespace or NAMESPACE, target)
