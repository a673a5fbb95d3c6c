"""Artifacts of a release: notes, SBOMs and charts, and the registry that is used instead of a public one."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
import yaml

from tools.local import binaries, registry
from tools.local.errors import ClusterError
from tools.local.paths import REPOSITORY
from tools.local.release import operators
from tools.release import __main__ as release
from tools.release import changelog, charts, layout, sbom

CHANGELOG = """\
# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Added

- A guide ([how to](docs/how.md)) with
  a second line.
- Another.

## [0.1.0] - 2026-11-21

- First.
"""
LOCK = """\
aiohttp==3.14.5 \\
    --hash=sha256:00
    # via
    #   -c locks/dev.txt
    #   platform-operators (pyproject.toml)
async-timeout==5.0.1 ; python_full_version < '3.11.3' \\
    --hash=sha256:00
    # via aiohttp
cffi==2.1.1 ; platform_python_implementation != 'PyPy' \\
    --hash=sha256:00
    # via
    #   -c locks/dev.txt
    #   cryptography
cryptography==49.0.1 \\
    --hash=sha256:00
    # via aiohttp

# The following packages were excluded from the output:
# attrs
"""
DIGEST = "sha256:" + "0" * 64
IMAGES = {name: f"registry.example:5000/platform/{name}-operator@{DIGEST}" for name in operators()}


def test_notes_are_the_section_of_the_version() -> None:
    assert changelog.section(CHANGELOG, "0.2.0").startswith("### Added\n\n- A guide")
    assert changelog.section(CHANGELOG, "0.1.0") == "- First.\n"


@pytest.mark.parametrize(
    ("version", "problem"), [("0.3.0", "is missing"), ("Unreleased", "is empty"), ("0.2", "is missing")]
)
def test_missing_or_empty_section_is_refused(version: str, problem: str) -> None:
    with pytest.raises(ClusterError, match=rf"section \[{version}\] {problem}"):
        changelog.section(CHANGELOG, version)


def test_entries_are_single_lines_without_links_into_the_tree() -> None:
    assert changelog.entries(changelog.section(CHANGELOG, "0.2.0")) == [
        "A guide (how to) with a second line.",
        "Another.",
    ]


def test_links_of_notes_lead_to_the_tree_at_the_version() -> None:
    text = "[a](docs/a.md#b), [c](https://example.com/c), [d](#d)"
    linked = changelog.with_absolute_links(text, "https://example.com/project/blob/v0.2.0")
    assert linked == "[a](https://example.com/project/blob/v0.2.0/docs/a.md#b), [c](https://example.com/c), [d](#d)"
    assert changelog.without_links(text) == "a, c, d"


def test_changelog_of_the_tree_has_entries() -> None:
    text = release.CHANGELOG.read_text()
    assert len(changelog.entries(changelog.section(text, "0.1.0"))) == 1


def test_sbom_lists_what_the_lock_installs_on_the_python_of_the_images() -> None:
    found = {package.name: package for package in sbom.packages(LOCK)}
    assert found.keys() == {"aiohttp", "cffi", "cryptography"}
    assert found["cffi"].required_by == {"cryptography"}
    assert found["cffi"].purl == "pkg:pypi/cffi@2.1.1"


def test_unpinned_requirement_is_refused() -> None:
    with pytest.raises(ClusterError, match="pins no version"):
        sbom.packages("aiohttp>=3\n")


@pytest.mark.parametrize("operator", operators())
def test_sbom_of_each_operator_is_complete_and_reproducible(operator: str) -> None:
    locks = [REPOSITORY / "locks" / name for name in ("common.txt", f"{operator}.txt")]
    first = sbom.bom(operator, "0.2.0", locks, "2026-11-24T00:00:00Z")
    assert first == sbom.bom(operator, "0.2.0", locks, "2026-11-24T00:00:00Z")
    references = {component["bom-ref"] for component in first["components"]}
    dependencies = {each["ref"]: each["dependsOn"] for each in first["dependencies"]}
    assert references | {f"pkg:generic/{operator}-operator@0.2.0"} == dependencies.keys()
    assert {each for depends in dependencies.values() for each in depends} == references
    assert any(each.startswith("pkg:pypi/kopf@") for each in references)


def test_python_of_the_sbom_is_that_of_the_images() -> None:
    assert f"python:{sbom.PYTHON}-" in (REPOSITORY / "Dockerfile").read_text()


def test_release_needs_one_version_everywhere_and_a_section_of_the_changelog() -> None:
    assert release.problems_of("0.2.0", CHANGELOG, {"pyproject.toml": "0.2.0"}) == []
    wrong_version, no_section = release.problems_of("0.3.0", CHANGELOG, {"charts/platform/Chart.yaml": "0.2.0"})
    assert wrong_version == "charts/platform/Chart.yaml has the version 0.2.0, not 0.3.0"
    assert no_section.startswith("the section [0.3.0] is missing in CHANGELOG.md: rename [Unreleased]")


def test_all_files_of_the_tree_have_the_same_version() -> None:
    assert len(set(release.versions_in_tree().values())) == 1


def test_notes_name_the_digests() -> None:
    assert f"| redis | `{IMAGES['redis']}` |" in release._notes("### Added\n", IMAGES)


def test_chart_with_an_image_that_could_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"the image of redis, registry.example/redis:1, has no digest"):
        charts.package("0.2.0", {"redis": "registry.example/redis:1"}, tmp_path, lambda *_: "")


def test_every_chart_is_packaged_with_version_and_digest_the_umbrella_last(tmp_path: Path) -> None:
    seen: dict[str, tuple[str, str]] = {}

    def helm(*arguments: str | Path) -> str:
        if arguments[0] == "package":
            chart = Path(arguments[1])
            metadata = yaml.safe_load((chart / "Chart.yaml").read_text())
            values = yaml.safe_load((chart / "values.yaml").read_text())
            seen[chart.name] = (metadata["version"], values.get("image", {}).get("digest", ""))
            assert {each["version"] for each in metadata["dependencies"]} == {"0.9.0"}
        return ""

    packaged = charts.package("0.9.0", IMAGES, tmp_path / "out", helm)
    expected = {f"{name}-operator": ("0.9.0", DIGEST) for name in operators()}
    assert seen == {**expected, "platform": ("0.9.0", "")}
    assert list(seen)[-1] == "platform"
    assert [path.name for path in packaged] == [f"{name}-0.9.0.tgz" for name in seen]


def blob(layout: Path, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs/sha256" / digest).write_bytes(content)
    return f"sha256:{digest}"


def oci_layout(layout: Path, images: dict[str, int]) -> dict[str, str]:
    """Write an OCI layout with one index; return the digest of each image's layer.

    Args:
        images: field e_machine of the program in the image, by architecture.
    """
    manifests, layers = [], {}
    for architecture, machine in images.items():
        program, archive = b"\x7fELF".ljust(18, b"\0") + machine.to_bytes(2, "little"), io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as files:
            for name, content in (("opt/module.so", program), ("opt/module.py", b"pass"), ("opt/empty", b"")):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                files.addfile(entry, io.BytesIO(content))
        layers[architecture] = blob(layout, archive.getvalue())
        manifest = blob(layout, json.dumps({"layers": [{"digest": layers[architecture]}]}).encode())
        manifests.append({"digest": manifest, "platform": {"architecture": architecture, "os": "linux"}})
    index = blob(layout, json.dumps({"manifests": manifests}).encode())
    named = {"org.opencontainers.image.ref.name": "redis-operator-0.2.0"}
    (layout / "index.json").write_text(json.dumps({"manifests": [{"digest": index, "annotations": named}]}))
    return layers


def test_layout_with_programs_of_each_architecture_has_no_problems(tmp_path: Path) -> None:
    oci_layout(tmp_path, {"amd64": 62, "arm64": 183})
    assert layout.problems(tmp_path, ["amd64", "arm64"]) == []


def test_program_of_the_building_machine_in_an_image_of_another_architecture_is_found(tmp_path: Path) -> None:
    oci_layout(tmp_path, {"amd64": 62, "arm64": 62})
    assert layout.problems(tmp_path, ["amd64", "arm64"]) == [
        "redis-operator-0.2.0 for arm64: opt/module.so is for machine 62 of ELF, not 183"
    ]


def test_missing_architecture_and_changed_layer_are_found(tmp_path: Path) -> None:
    layers = oci_layout(tmp_path, {"amd64": 62})
    (tmp_path / "blobs" / "sha256" / layers["amd64"].removeprefix("sha256:")).write_bytes(b"other")
    changed, missing = layout.problems(tmp_path, ["amd64", "arm64"])
    assert changed.startswith(f"redis-operator-0.2.0 for amd64: the content of layer {layers['amd64']} has the digest ")
    assert missing == "redis-operator-0.2.0 has no image for arm64"


def test_registry_listens_on_the_given_address_only(tmp_path: Path) -> None:
    configuration = json.loads(json.dumps(registry.configuration("127.0.0.1:5000", tmp_path)))
    assert configuration["http"] == {"addr": "127.0.0.1:5000"}
    assert 'server = "http://10.240.0.1:5000"' in registry.hosts_toml("10.240.0.1:5000")


def test_registry_is_built_from_a_pinned_module() -> None:
    assert "github.com/distribution/distribution/v3 v3." in (binaries.REGISTRY.directory / "go.mod").read_text()
