"""Software bill of materials of an operator's image: the Python packages of its locks, as CycloneDX 1.6 (ECMA-424).

The packages of the base image are listed in the SBOM that BuildKit attaches to each image.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker

from tools.local.errors import ClusterError

PYTHON = "3.13"
"""Version of Python in the images, as in the Dockerfile."""

_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 9562, for names that are URLs
_REQUIREMENT = re.compile(r"^([a-z0-9._-]+)==([^\s;]+)(?: *; *(.*?))? *\\?$")


@dataclass(frozen=True)
class Package:
    """A pinned package.

    Attributes:
        required_by: names of the packages that require it; empty if the operator itself does.
    """

    name: str
    version: str
    required_by: frozenset[str] = frozenset()

    @property
    def purl(self) -> str:
        """Package URL, which identifies the package for scanners."""
        return f"pkg:pypi/{self.name}@{self.version}"


def packages(lock: str) -> list[Package]:
    """Return the packages that a lock installs on Linux with the Python of the images.

    Args:
        lock: text of a lock that `uv pip compile` wrote.

    Raises:
        ClusterError: a requirement is not pinned.
    """
    found: list[Package] = []
    for block in re.split(r"\n(?=[^\s#])", lock.strip()):
        head, *rest = block.splitlines()
        if head.startswith("#"):
            continue
        requirement = _REQUIREMENT.match(head)
        if requirement is None:
            raise ClusterError(f"the lock contains {head!r}, which pins no version", "make lock")
        name, version, marker = requirement.groups()
        if marker and not Marker(marker.strip()).evaluate(_environment()):
            continue
        via = re.findall(r"^ +# +(?:via )?((?!via$)[a-z0-9._-]+)$", "\n".join(rest), re.MULTILINE)
        found.append(Package(name, version, frozenset(via)))
    return found


def bom(operator: str, version: str, locks: list[Path], timestamp: str) -> dict[str, Any]:
    """Return the SBOM of an operator's image.

    Args:
        operator: name of the operator.
        version: version of the release.
        locks: locks whose packages the image contains.
        timestamp: time of the release, in RFC 3339. The SBOM depends only on the arguments, so it can be reproduced.
    """
    installed = [package for lock in locks for package in packages(lock.read_text())]
    name = f"{operator}-operator"
    root = f"pkg:generic/{name}@{version}"
    required = {
        package.name: [each.purl for each in installed if package.name in each.required_by] for package in installed
    }
    direct = [each.purl for each in installed if not each.required_by & required.keys()]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, root + timestamp)}",
        "version": 1,
        "metadata": {
            "timestamp": timestamp,
            "component": {
                "type": "container",
                "bom-ref": root,
                "name": name,
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": [
            {"type": "library", "bom-ref": each.purl, "name": each.name, "version": each.version, "purl": each.purl}
            for each in installed
        ],
        "dependencies": [
            {"ref": root, "dependsOn": sorted(direct)},
            *({"ref": each.purl, "dependsOn": sorted(required[each.name])} for each in installed),
        ],
    }


def _environment() -> dict[str, str]:
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{PYTHON}.0",
        "python_version": PYTHON,
        "sys_platform": "linux",
    }
