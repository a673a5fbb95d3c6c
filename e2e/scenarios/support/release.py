"""The Helm release of the platform, for scenarios that change it."""

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
    """The release as it was at the start of a scenario.

    Attributes:
        helm: Helm in the platform's namespace.
        values: file with the values of the release.
        digest: label by which `make up` recognizes an up-to-date release.
    """

    helm: Helm
    values: Path
    digest: str

    @classmethod
    def found(cls, helm: Helm, system: Kubectl, values: Path) -> Release:
        """Return the installed release.

        Args:
            helm: Helm in the platform's namespace.
            system: kubectl in the platform's namespace.
            values: file to which the values of the release are written.
        """
        values.write_text(helm("get", "values", RELEASE, "-o", "json"))
        [record] = system.items("secrets", "-l", f"owner=helm,name={RELEASE},status=deployed")
        return cls(helm, values, record["metadata"]["labels"].get("platform-digest", ""))

    def upgrade(self, *arguments: str, chart: str = CHART) -> None:
        """Upgrade or install the release with its values and additional arguments, and wait until it is ready."""
        self.helm("upgrade", "--install", RELEASE, chart, "-f", str(self.values), *WAITING, *arguments)

    def restore(self) -> None:
        """Restore the release.

        It takes ownership of the CRDs, which may belong to another release by now.
        """
        self.upgrade("--take-ownership", "--force-conflicts", f"--labels=platform-digest={self.digest}")

    def rendered(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        """Render the chart with the release's values and additional arguments; return the objects of one kind."""
        text = self.helm("template", RELEASE, CHART, "-f", str(self.values), *arguments)
        return [found for found in yaml.safe_load_all(text) if found and found["kind"] == kind]
