"""The plugin as a user runs it, in a simulated world: an operator works on between its requests."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from plugin import session, version
from plugin.cli import cli
from plugin.commands import base
from plugin.session import Session, Target
from plugin.templates import CONTROLLER_REVISION, ROLLOUT
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.client import Request, Response
from shared.kubernetes.kinds import DEPLOYMENT, REPLICA_SET, STATEFUL_SET, Kind, Obj
from simulator.api_server.server import ApiServer
from simulator.harness import NAMESPACE
from simulator.kubelet.replicas import reference, template_hash
from tests.harness.scenario import ScenarioStep, Subject
from tests.harness.scenario_runner import ScenarioRun
from tests.support import plays


def kept(server: ApiServer) -> dict[Kind, list[Obj]]:
    """Return the ControllerRevisions and ReplicaSets that Kubernetes would keep of what happened in a world.

    The simulated controllers keep none: Kubernetes has the templates, and copies of the workloads' annotations.
    """
    revisions: dict[str, Obj] = {}
    sets: dict[str, Obj] = {}
    deployments: dict[str, Obj] = {}
    last: dict[str, str] = {}
    for kind, event in server.watches.history:
        obj, metadata = event["object"], event["object"]["metadata"]
        if kind == DEPLOYMENT:
            deployments[metadata["uid"]] = obj
        elif kind == REPLICA_SET and event["type"] == "ADDED":
            owner = deployments[metadata["ownerReferences"][0]["uid"]]
            annotations = owner["metadata"].get("annotations", {}) | {ROLLOUT: str(len(sets) + 1)}
            sets[metadata["name"]] = {**obj, "metadata": metadata | {"annotations": annotations}}
        elif kind == STATEFUL_SET and event["type"] != "DELETED":
            name = f"{metadata['name']}-{template_hash(obj)}"
            if last.get(metadata["uid"]) == name:
                continue
            last[metadata["uid"]] = name
            number = 1 + max((each["revision"] for each in revisions.values()), default=0)
            revision = revisions.setdefault(name, _revision(obj, name))
            revision["revision"] = number
    return {CONTROLLER_REVISION: list(revisions.values()), REPLICA_SET: list(sets.values())}


def _revision(owner: Obj, name: str) -> Obj:
    metadata, template = owner["metadata"], owner["spec"]["template"]
    written = [entry.get("time", "") for entry in metadata.get("managedFields", ())]
    return {
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": metadata.get("annotations", {}),
            "creationTimestamp": max([metadata["creationTimestamp"], *written]),
            "ownerReferences": [reference(owner, STATEFUL_SET)],
        },
        "data": {"spec": {"template": {"$patch": "replace", **template}}},
    }


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
        forbidden: pattern of paths that the user has no right to; empty for none.
        answers: responses instead of those of the world, by path.
    """

    def __init__(self, play: ScenarioRun) -> None:
        self.play = play
        self.between: Callable[[], Awaitable[object]] | None = None
        self.requests: list[Request] = []
        self.forbidden = ""
        self.answers: dict[str, Response] = {}

    async def request(self, request: Request) -> Response:
        if self.between is not None:
            await self.between()
        if self.forbidden and re.search(self.forbidden, request.path):
            return Response(403, {"reason": "Forbidden", "message": f"User cannot {request.method} {request.path}"})
        if request.path in self.answers:
            return self.answers[request.path]
        if request.path == "/version":
            return Response(200, {"gitVersion": "v1.32.0", "minor": "32"})
        if request.path == session.REVIEW.path():
            return Response(201, {"metadata": {"creationTimestamp": rfc3339(base.now())}})
        if request.method != "GET":
            self.requests.append(request)
        for kind, objects in kept(self.play.world.server).items():
            if request.method == "GET" and request.path == kind.path(NAMESPACE):
                return listed(kind, *objects)
        return self.play.world.server.handle(request)


def listed(kind: Kind, *objects: Obj) -> Response:
    """Return the response to a list."""
    head = {"apiVersion": kind.api_version, "kind": f"{kind.name}List", "metadata": {"resourceVersion": "1"}}
    stored = {"name": "one", "resourceVersion": "1"}
    items = [{**each, "metadata": stored | each["metadata"]} for each in objects]
    return Response(200, head | {"items": items})


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
