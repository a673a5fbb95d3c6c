"""The cluster of the user: the API server, with the user's credentials, and kubectl for what needs a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from plugin.databases import ALL, Database
from plugin.problem import Problem
from shared.kubernetes.client import Kube, Request, Transport, error_of
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.errors import KubeError, NotFound
from shared.kubernetes.kinds import Kind, Obj

MANAGER = "kubectl-platform"
"""Field manager of what the plugin writes."""

REQUEST_RIGHT = "request this right from the administrator of the cluster; `auth can-i` of kubectl shows yours"

REVIEW = Kind("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)
"""An object that is answered, not stored, and has the API server's time as its creation."""


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster and namespace the user means, as for kubectl.

    Attributes:
        kubeconfig: file; empty for kubectl's default.
        context: context of the kubeconfig; empty for its current one.
        namespace: namespace; empty for that of the context.
        all_namespaces: whether all namespaces are meant.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    all_namespaces: bool = False

    @property
    def flags(self) -> list[str]:
        """Flags of kubectl for the same cluster."""
        kubeconfig = ["--kubeconfig", self.kubeconfig] if self.kubeconfig else []
        return [*kubeconfig, *(["--context", self.context] if self.context else [])]


class Session:
    """The API server as the user sees it.

    Args:
        transport: transport to the API server.
        namespace: namespace of resources that are named without one.
        target: the flags that the user gave.
    """

    def __init__(self, transport: Transport, namespace: str, target: Target) -> None:
        self._transport = transport
        self.kube = Kube(transport, manager=MANAGER)
        self.namespace = namespace
        self.target = target

    @property
    def flags(self) -> str:
        """Flags of the plugin for the same cluster and namespace, in a command that a user may copy."""
        return shlex.join([*self.target.flags, "--namespace", self.namespace])

    async def resource(self, database: Database, name: str) -> Obj:
        """Return a resource.

        Raises:
            Problem: the resource does not exist, or the operator's CRD is not installed.
        """
        try:
            return await self.kube.get(database.kind, self.namespace, name)
        except NotFound:
            fix = shlex.join(["kubectl", "get", database.kind.plural, *self.target.flags, "--all-namespaces"])
            raise Problem(
                f"{database.kind.name} {self.namespace}/{name} does not exist", f"find it with: {fix}"
            ) from None

    async def resources(self, databases: Sequence[Database] = ALL) -> list[tuple[Database, Obj]]:
        """Return all resources of the chosen namespaces. A kind that the cluster does not serve has none."""
        namespace = None if self.target.all_namespaces else self.namespace
        found: list[tuple[Database, Obj]] = []
        for database in databases:
            with contextlib.suppress(NotFound):
                found += [(database, each) for each in await self.objects(database.kind, namespace)]
        return found

    async def objects(self, kind: Kind, namespace: str | None, labels: str = "") -> list[Obj]:
        """Return the objects of a kind."""
        pages = self.kube.pages(kind, namespace, labels=labels)
        return [item async for page in pages for item in page["items"]]

    async def raw(self, path: str) -> Any:
        """Return what a path of the API server answers."""
        return await self.send(Request("GET", path))

    async def send(self, request: Request) -> Any:
        """Return what the API server answers.

        Raises:
            KubeError: the answer is an error.
        """
        answer = await self._transport.request(request)
        if answer.status >= 400:
            raise error_of(answer, request)
        return answer.body

    async def skew(self) -> float | None:
        """Return the seconds by which this machine's clock is ahead of the API server's; None if that is unknown."""
        body = {"apiVersion": REVIEW.api_version, "kind": REVIEW.name, "metadata": {}}
        answer = await self._transport.request(Request("POST", REVIEW.path(), body=body))
        made = ((answer.body or {}).get("metadata") or {}).get("creationTimestamp") if answer.status < 400 else None
        return (datetime.now(UTC) - datetime.fromisoformat(made)).total_seconds() if made else None

    def kubectl(self, *arguments: str, namespace: str = "") -> list[str]:
        """Return the command line of kubectl for this cluster and namespace.

        Raises:
            Problem: kubectl is not installed.
        """
        program = os.environ.get("KUBECTL") or shutil.which("kubectl")
        if not program:
            raise Problem("kubectl is not on the PATH", "install kubectl, or set KUBECTL to its path")
        return [program, *self.target.flags, "--namespace", namespace or self.namespace, *arguments]

    def run(self, *arguments: str, namespace: str = "", stdin: str | None = None) -> str:
        """Run kubectl and return its output.

        Raises:
            Problem: kubectl failed; the message has its words.
        """
        done = subprocess.run(
            self.kubectl(*arguments, namespace=namespace),
            input=stdin or "",  # never the input of the user, which kubectl would consume or wait for
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise Problem(f"kubectl {arguments[0]} failed: {done.stderr.strip()[:1000]}")
        return done.stdout


@contextlib.asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Session]:
    """Yield a session with the cluster that the user means.

    Raises:
        Problem: there is no usable kubeconfig.
    """
    from shared.kubernetes.transport import HttpTransport

    configuration, namespace = await _configuration(target)
    transport = HttpTransport(configuration)
    try:
        yield Session(transport, target.namespace or namespace, target)
    finally:
        await transport.close()


async def _configuration(target: Target) -> tuple[Configuration, str]:
    """Return address and credentials of the API server, and the namespace of the context."""
    from kubernetes.aio import config

    loader: Any = config  # the module has no type hints
    paths = target.kubeconfig or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    read = partial(_load, loader, paths, target.context)
    configuration = Configuration(read=read)
    await read(configuration)
    contexts, active = await asyncio.to_thread(loader.list_kube_config_contexts, paths)
    chosen = next((each for each in contexts if each["name"] == target.context), active)
    return configuration, chosen["context"].get("namespace") or "default"


async def _load(loader: Any, paths: str, context: str, configuration: Configuration) -> None:
    try:
        await loader.load_kube_config(config_file=paths, context=context or None, client_configuration=configuration)
    except Exception as error:  # the client raises any error if a file is empty or incomplete
        fix = "set KUBECONFIG, or --kubeconfig and --context, as for kubectl"
        raise Problem(f"cannot read the kubeconfig {paths}: {error}", fix) from None


def described(error: KubeError) -> Problem:
    """Return what a failed request means for a user."""
    fixes = {
        "Forbidden": REQUEST_RIGHT,
        "Conflict": "the object has changed in between: read it again, and repeat the command",
        "Unavailable": "the API server cannot be reached now: check the network, and repeat the command",
    }
    return Problem(str(error), fixes.get(type(error).__name__, ""))
