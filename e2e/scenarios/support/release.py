"""The platform's release, for scenarios that change it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.scenarios.support.commands import RELEASE, Helm, Kubectl

CHART = "charts/platform"
WAITING = ("--wait", "--timeout=120s")


@dataclass(frozen=True)
class Release:
    """The release as a scenario found it.

    Attributes:
        helm: by which it is changed.
        values: a file with its values.
        digest: the mark by which `make up` knows what it is made of.
    """

    helm: Helm
    values: Path
    digest: str

    @classmethod
    def found(cls, helm: Helm, system: Kubectl, values: Path) -> Release:
        """The release that is there now.

        Args:
            system: a kubectl in its namespace.
            values: a file to write its values to.
        """
        values.write_text(helm("get", "values", RELEASE, "-o", "json"))
        [record] = system.items("secrets", "-l", f"owner=helm,name={RELEASE},status=deployed")
        return cls(helm, values, record["metadata"]["labels"].get("platform-digest", ""))

    def upgrade(self, *arguments: str, chart: str = CHART) -> None:
        """Upgrade it, or install it, with its values and these arguments, and wait until all of it is ready."""
        self.helm("upgrade", "--install", RELEASE, chart, "-f", str(self.values), *WAITING, *arguments)

    def restore(self) -> None:
        """Make it what it was, whoever changed it.

        The CRD stays with the release that came last, and that may have been another.
        """
        self.upgrade("--take-ownership", "--force-conflicts", f"--labels=platform-digest={self.digest}")

    def rendered(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """The objects of one kind that it would have with its values and these arguments."""
        text = self.helm("template", RELEASE, CHART, "-f", str(self.values), *arguments)
        return [found for found in yaml.safe_load_all(text) if found and found["kind"] == kind]
