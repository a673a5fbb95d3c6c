"""Steps of a release: `python -m tools.release --help` lists them; docs/how-to/release.md explains them."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import yaml

from tools import catalogue_age
from tools.local import images, registry
from tools.local import release as cluster_release
from tools.local.console import Steps
from tools.local.environment import forget_clusters
from tools.local.errors import ClusterError
from tools.local.machine import processes
from tools.local.machine.commands import run
from tools.local.machine.network import free_ports
from tools.local.paths import REPOSITORY
from tools.local.release import Helm, operators
from tools.release import changelog, charts, krew, layout, publishing, sbom

CHANGELOG = REPOSITORY / "CHANGELOG.md"
DIST = REPOSITORY / "dist"
HOME = "https://example.com/platform"
"""URL of the project in a dry run: the tree names no host."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; an error names the problem and its fix."""
    forget_clusters()
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except ClusterError as error:
        sys.stderr.write(f"\nerror: {error}\n")
        return 1
    return 0


def check(options: argparse.Namespace) -> None:
    """Refuse a release whose version, changelog or catalogues of versions are not ready."""
    problems = problems_of(options.version, CHANGELOG.read_text(), versions_in_tree())
    problems += catalogue_age.outdated(datetime.now(UTC).date())
    if problems:
        raise ClusterError("the tree is not ready for a release:\n  " + "\n  ".join(problems), "fix each and try again")
    sys.stdout.write(f"{options.version}: the versions, the changelog and the catalogues are ready for a release.\n")


def problems_of(version: str, text: str, found: dict[str, str]) -> list[str]:
    """Return a sentence for each reason not to release a version.

    Args:
        version: version without a leading v.
        text: text of CHANGELOG.md.
        found: version in each file that has one.
    """
    problems = [f"{file} has the version {other}, not {version}" for file, other in found.items() if other != version]
    try:
        changelog.section(text, version)
    except ClusterError as error:
        problems.append(f"{error.what}: {error.fix}")
    return problems


def versions_in_tree() -> dict[str, str]:
    """Return the version in pyproject.toml and in each Chart.yaml."""
    found = {
        str(path.relative_to(REPOSITORY)): yaml.safe_load(path.read_text())
        for path in cluster_release.CHARTS.glob("*/Chart.yaml")
    }
    return {"pyproject.toml": cluster_release.version()} | {
        name: metadata["version"] for name, metadata in sorted(found.items())
    }


def notes(options: argparse.Namespace) -> None:
    """Print the release notes: the section of the changelog, and the digests of the images."""
    section = changelog.section(CHANGELOG.read_text(), options.version)
    root = f"{options.home}/blob/v{options.version}"
    text = changelog.with_absolute_links(section, root) if options.home else changelog.without_links(section)
    sys.stdout.write(_notes(text, _images(options.image)))


def _notes(section: str, digests: dict[str, str]) -> str:
    rows = "".join(f"| {operator} | `{image}` |\n" for operator, image in sorted(digests.items()))
    return f"{section}\n### Images\n\n| operator | image |\n|---|---|\n{rows}" if rows else section


def write_sbom(options: argparse.Namespace) -> None:
    """Write the SBOM of an operator's image to a file."""
    _write_sbom(options.operator, options.version, options.output)


def _write_sbom(operator: str, version: str, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    locks = [REPOSITORY / "locks" / name for name in ("common.txt", f"{operator}.txt")]
    output.write_text(json.dumps(sbom.bom(operator, version, locks, _commit_time()), indent=2) + "\n")


def update_dependencies(_: argparse.Namespace) -> None:
    """Package each chart of this tree into those that depend on it."""
    cluster_release.update_charts()


def package_charts(options: argparse.Namespace) -> None:
    """Package the charts with the images by digest."""
    entries = changelog.entries(changelog.section(CHANGELOG.read_text(), options.version))
    home = options.home
    charts.package(options.version, _images(options.image), options.output, Helm(None), changes=entries, home=home)


def build_krew(options: argparse.Namespace) -> None:
    """Build the archive of the plugin for krew, and its manifest."""
    krew.build(options.version, options.home or HOME, options.output, _commit_seconds())


def dry_run(options: argparse.Namespace) -> None:
    """Make every artifact of a release, push images and charts to a registry on loopback, and read them back."""
    version = options.version or cluster_release.version()
    text, output = CHANGELOG.read_text(), DIST / version
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    steps = Steps()
    with steps.shown(), tempfile.TemporaryDirectory(prefix="platform-registry-") as scratch:
        problems = problems_of(version, text, versions_in_tree()) + catalogue_age.outdated(datetime.now(UTC).date())
        for problem in problems:
            steps.write(f"  would refuse: {problem}")
        named = changelog.UNRELEASED if any("CHANGELOG" in problem for problem in problems) else version
        section = changelog.section(text, named)
        [port] = free_ports(1)
        address = f"127.0.0.1:{port}"
        with steps.step("Start a registry on loopback"):
            server = registry.start("127.0.0.1", Path(scratch), port=port, dies_with_us=True)
        try:
            references = publishing.push_images(
                address, version, options.architectures, steps, layout=output / "images"
            )
            with steps.step("Inspect the OCI layout: every image is complete and of its own architecture"):
                if found := layout.problems(output / "images", options.architectures):
                    raise ClusterError(
                        "images are wrong:\n  " + "\n  ".join(found), "read locks/install.sh and Dockerfile"
                    )
            for operator in operators():
                _write_sbom(operator, version, output / "sbom" / f"{operator}-operator.cdx.json")
            with steps.step("Package the charts with the images' digests, push them, pull them again"):
                packaged = charts.package(
                    version, references, output / "charts", Helm(None), changes=changelog.entries(section)
                )
                _round_trip(packaged, version, address, references)
        finally:
            processes.stop([server])
        with steps.step("Build the plugin for krew, with a manifest that krew accepts"):
            krew.build(version, HOME, output / "krew", _commit_seconds())
        (output / "notes.md").write_text(_notes(changelog.without_links(section), references))
        _write_checksums(output)
    steps.write(
        f"\nThe artifacts are in {output.relative_to(REPOSITORY)}. Signatures and provenance need the release workflow."
    )


def _round_trip(packaged: list[Path], version: str, address: str, references: dict[str, str]) -> None:
    """Push the charts, pull the umbrella chart, and require that it installs exactly the images of this release."""
    helm = Helm(None)
    platform = publishing.push_charts(packaged, address, helm)
    rendered = helm("template", "platform", platform, "--version", version, "--plain-http")
    missing = [image for image in references.values() if image not in rendered]
    if missing:
        raise ClusterError(
            f"the packaged chart does not install {', '.join(missing)}",
            f"compare with charts/values/metadata.py: helm template of {packaged[-1]}",
        )


def _write_checksums(directory: Path) -> None:
    """Write SHA256SUMS of all artifacts outside the OCI layout, whose files are named by their digests."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and "images" not in path.parts]
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(directory)}\n" for path in files]
    (directory / "SHA256SUMS").write_text("".join(lines))


def _commit_time() -> str:
    """Return the time of the current commit, in RFC 3339."""
    return datetime.fromtimestamp(_commit_seconds(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _commit_seconds() -> int:
    """Return the time of the current commit, in seconds since 1970."""
    return int(run("git", "-C", REPOSITORY, "log", "-1", "--format=%ct"))


def _images(given: list[str]) -> dict[str, str]:
    """Return the image of each operator from arguments such as `redis=registry.example.com/redis-operator@sha256:…`."""
    return dict(each.split("=", 1) for each in given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    checking = commands.add_parser("check", help="check that a version can be released")
    checking.set_defaults(command=check)
    printing = commands.add_parser("notes", help="print the release notes")
    printing.set_defaults(command=notes)
    writing = commands.add_parser("sbom", help="write the SBOM of an operator's image")
    writing.add_argument("operator", choices=operators())
    writing.set_defaults(command=write_sbom)
    updating = commands.add_parser("dependencies", help="package each chart into those that depend on it")
    updating.set_defaults(command=update_dependencies)
    packaging = commands.add_parser("charts", help="package the charts")
    packaging.set_defaults(command=package_charts)
    bundling = commands.add_parser("krew", help="build the plugin of kubectl for krew")
    bundling.set_defaults(command=build_krew)
    for each in (checking, printing, writing, packaging, bundling):
        each.add_argument("version", help="version without a leading v")
    for each in (writing, packaging, bundling):
        each.add_argument("--output", type=Path, required=True)
    for each in (printing, packaging, bundling):
        each.add_argument("--home", default="", help="URL of the project")
    for each in (printing, packaging):
        each.add_argument("--image", action="append", default=[], metavar="OPERATOR=REPOSITORY@DIGEST")
    trying = commands.add_parser("dry-run", help="make every artifact on this machine")
    trying.add_argument("version", nargs="?", help="version without a leading v (default: that of pyproject.toml)")
    trying.add_argument("--architectures", nargs="+", choices=images.ARCHITECTURES, default=list(images.ARCHITECTURES))
    trying.set_defaults(command=dry_run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
