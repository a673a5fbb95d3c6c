"""kubectl and helm as a person uses them, and patience with an end."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from e2e.cluster import binaries

ROOT = Path(__file__).resolve().parents[3]
RELEASE, SYSTEM = "platform", "platform-system"

Found = TypeVar("Found")


def until(what: str, look: Callable[[], Found | None], *, seconds: float = 60.0, every: float = 0.25) -> Found:
    """Look again and again until there is something to see.

    Args:
        what: what is waited for, as the failure shall say it.
        look: returns what was found; None or False while there is nothing. A failed assertion or kubectl is nothing.

    Raises:
        AssertionError: it did not come in time; says what was last seen to be wrong.
    """
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            if found := look():
                return found
        except (AssertionError, Refused, OSError) as error:
            last = error
        time.sleep(every)
    raise AssertionError(f"{what}: not within {seconds:.0f} s" + (f"; last: {last}" if last else ""))


class Refused(Exception):
    """A command that failed.

    Attributes:
        said: why, in its own words.
    """

    def __init__(self, command: list[str], said: str) -> None:
        super().__init__(f"{' '.join(command)}: {said}")
        self.said = said


def run(command: list[str], environment: dict[str, str], *, given: str | None = None) -> str:
    """Run a command at the root of the repository; what it printed.

    Args:
        given: its standard input.

    Raises:
        Refused: it failed.
    """
    done = subprocess.run(
        command, input=given, env=environment, capture_output=True, text=True, check=False, timeout=180, cwd=ROOT
    )
    if done.returncode != 0:
        raise Refused(command, (done.stderr + done.stdout).strip())
    return done.stdout


class Kubectl:
    """kubectl in one namespace.

    Args:
        namespace: where commands act unless they say otherwise.
        environment: with KUBECONFIG.
    """

    def __init__(self, namespace: str, environment: dict[str, str]) -> None:
        self.namespace = namespace
        self.environment = environment

    def __call__(self, *arguments: str, given: object = None) -> str:
        """Run kubectl; what it printed. A manifest may be given as standard input.

        Raises:
            Refused: it failed.
        """
        command = [str(ROOT / ".venv/bin/kubectl"), "--namespace", self.namespace, *arguments]
        text = given if isinstance(given, str) or given is None else json.dumps(given)
        return run(command, self.environment, given=text)

    def apply(self, manifest: object) -> str:
        return self("apply", "--server-side", "--force-conflicts", "-f", "-", given=manifest)

    def get(self, *what: str) -> Any:
        return json.loads(self("get", *what, "-o", "json"))

    def items(self, *what: str) -> list[Any]:
        found: list[Any] = self.get(*what)["items"]
        return found

    def within(self, namespace: str) -> Kubectl:
        return Kubectl(namespace, self.environment)


class Helm:
    """helm on the release of the platform."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._binary = str(binaries.find("helm"))
        self._environment = environment

    def __call__(self, *arguments: str) -> str:
        return run([self._binary, "--namespace", SYSTEM, *arguments], self._environment)
