"""kubectl and Helm as command-line programs, and waiting with a timeout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from e2e.scenarios.support.reading import Failed, Reader, reader
from tools.local import binaries, images
from tools.local.cluster import Cluster

ROOT = Path(__file__).resolve().parents[3]
RELEASE, SYSTEM = "platform", "platform-system"

Found = TypeVar("Found")

_SELECTORS = {"-l": "labelSelector", "--field-selector": "fieldSelector"}

_provided: set[str] = set()
"""Images that this session loaded into the nodes."""


def until(what: str, check: Callable[[], Found | None], *, seconds: float = 60.0, every: float = 0.25) -> Found:
    """Poll until a check succeeds, and return its result.

    Args:
        what: expected state, for the error message.
        check: returns a true value on success; None, False, a failed assertion or a failed command mean "not yet".
        seconds: timeout.
        every: interval between two checks, in seconds.

    Raises:
        AssertionError: the check did not succeed in time; the message contains the last error.
    """
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            if found := check():
                return found
        except (AssertionError, Refused, OSError) as error:
            last = error
        time.sleep(every)
    raise AssertionError(f"timed out after {seconds:.0f} s: {what}" + (f"; last error: {last}" if last else ""))


class Refused(Exception):
    """A command failed.

    Attributes:
        output: output of the command.
    """

    def __init__(self, command: list[str], output: str) -> None:
        super().__init__(f"{' '.join(command)}: {output}")
        self.output = output


def run(command: list[str], environment: dict[str, str], *, given: str | None = None) -> str:
    """Run a command at the root of the repository and return its output.

    Args:
        command: program and arguments.
        environment: complete environment.
        given: text for standard input.

    Raises:
        Refused: the command failed.
    """
    done = subprocess.run(
        command, input=given, env=environment, capture_output=True, text=True, check=False, timeout=180, cwd=ROOT
    )
    if done.returncode != 0:
        raise Refused(command, (done.stderr + done.stdout).strip())
    return done.stdout


def provide_images(text: str) -> None:
    """Build and load the operand images that a command needs, if this machine's local cluster runs.

    `make up` has only the images of the samples; other clusters pull images.
    """
    missing = [image for image in images.required_by(text) if image.tag not in _provided]
    if missing and (cluster := Cluster.running()):
        cluster.load_images([images.build(image) for image in missing])
        _provided.update(image.tag for image in missing)


def _files(arguments: Sequence[str]) -> list[str]:
    """Return the content of the files that the arguments of kubectl name."""
    named = (Path(value) for flag, value in pairwise(arguments) if flag in ("-f", "--filename"))
    return [path.read_text() for path in named if path.is_file()]


def local_environment() -> dict[str, str] | None:
    """Return the environment of commands for the local cluster of this clone; None, with a message, if none runs."""
    running = Cluster.running()
    if running is None:
        sys.stderr.write("error: no local cluster of this clone is running\nfix: make up VERSIONS=all\n")
        return None
    return {**os.environ, "KUBECONFIG": str(running.kubeconfig)}


class Kubectl:
    """kubectl in one namespace, and reads that need no process of kubectl.

    Args:
        namespace: default namespace of the commands.
        environment: environment variables, with KUBECONFIG.
    """

    def __init__(self, namespace: str, environment: dict[str, str]) -> None:
        self.namespace = namespace
        self.environment = environment

    def __call__(self, *arguments: str, given: object = None) -> str:
        """Run kubectl and return its output.

        Args:
            arguments: arguments of kubectl.
            given: text or manifest for standard input.

        Raises:
            Refused: the command failed.
        """
        command = [str(ROOT / ".venv/bin/kubectl"), "--namespace", self.namespace, *arguments]
        text = given if isinstance(given, str) or given is None else json.dumps(given)
        provide_images("\n".join([*arguments, *_files(arguments), text or ""]))
        return run(command, self.environment, given=text)

    def shell(self, command: str) -> str:
        """Run a command as a user types it, in which kubectl is this one; return its output.

        Raises:
            Refused: the command failed.
        """
        provide_images(command)
        program = f'kubectl() {{ {ROOT}/.venv/bin/kubectl --namespace {self.namespace} "$@"; }}'
        return run(["sh", "-c", f"{program}\n{command}"], self.environment)

    def apply(self, manifest: object) -> str:
        return self("apply", "--server-side", "--force-conflicts", "-f", "-", given=manifest)

    def get(self, kind: str, name: str = "") -> Any:
        """Return an object, read in this process.

        Args:
            kind: kind as kubectl accepts it, or kind/name.
            name: name of the object, unless `kind` contains it.

        Raises:
            Refused: the object does not exist, or the API server does not respond.
        """
        if not name:
            kind, _, name = kind.partition("/")
        with self._read("get", kind, name) as reader:
            return reader.get(kind, self.namespace, name)

    def items(self, kinds: str, *options: str) -> list[Any]:
        """Return the objects of one or several kinds, separated by commas, read in this process.

        Args:
            options: `-l` or `--field-selector`, each with its value, or `--all-namespaces`.

        Raises:
            Refused: the API server does not respond, or has no such kind.
        """
        remaining, selectors = list(options), dict[str, str]()
        namespace: str | None = self.namespace
        while remaining:
            option = remaining.pop(0)
            if option == "--all-namespaces":
                namespace = None
            else:
                selectors[_SELECTORS[option]] = remaining.pop(0)
        with self._read("get", kinds, *options) as reader:
            return reader.list(kinds, namespace, selectors)

    @contextmanager
    def _read(self, *command: str) -> Iterator[Reader]:
        try:
            yield reader(self.environment["KUBECONFIG"])
        except Failed as error:
            raise Refused(list(command), str(error)) from None

    @property
    def server_minor(self) -> int:
        """Minor version of the API server, such as 36."""
        return int(json.loads(self("get", "--raw=/version"))["minor"].rstrip("+"))

    def within(self, namespace: str) -> Kubectl:
        return Kubectl(namespace, self.environment)


@contextmanager
def new_namespace(environment: dict[str, str]) -> Iterator[Kubectl]:
    """Yield kubectl in a new namespace that enforces the restricted Pod Security Standard, and delete it afterwards."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    kubectl = Kubectl(name, environment)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    try:
        yield kubectl
    finally:
        kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


class Helm:
    """Helm in the platform's namespace."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._binary = str(binaries.find("helm"))
        self._environment = environment

    def __call__(self, *arguments: str) -> str:
        return run([self._binary, "--namespace", SYSTEM, *arguments], self._environment)
