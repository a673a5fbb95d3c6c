"""Workflows: valid syntax, pinned actions, least permissions, and commands that exist in this tree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.local import binaries, debian
from tools.local.paths import REPOSITORY
from tools.local.release import operators
from tools.release import __main__ as release

FILES = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z.][a-z0-9.-]*):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
OF_THE_PUBLISHER = {"contents", "packages", "id-token", "attestations", "artifact-metadata"}


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return found


def commands(path: Path) -> list[str]:
    return [step["run"] for job in jobs(path).values() for step in job.get("steps", ()) if "run" in step]


def linted(*paths: Path) -> str:
    """Return the problems that actionlint finds in workflows, and shellcheck in their commands; both are built once."""
    shellcheck = debian.program("shellcheck", "shellcheck")
    flags = ["-no-color", f"-shellcheck={shellcheck}", "-pyflakes="]
    command: list[str | Path] = [binaries.find("actionlint"), *flags, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.stdout or done.returncode == 0, done.stderr
    return done.stdout


def test_workflows_are_valid() -> None:
    assert linted(*FILES) == ""


@pytest.mark.parametrize(
    ("valid", "invalid", "problem"),
    [
        ("timeout-minutes:", "timeout:", 'unexpected key "timeout"'),
        ("needs: [check, test]", "needs: [check, tests]", 'needs job "tests"'),
        ("matrix.operator }}", "matrix.operators }}", 'property "operators" is not defined'),
        ('"$GITHUB_REF_NAME" --verify', "$GITHUB_REF_NAME --verify", "SC2086"),
    ],
    ids=["key", "job", "property", "command"],
)
def test_invalid_workflow_is_noticed(valid: str, invalid: str, problem: str, tmp_path: Path) -> None:
    text = (REPOSITORY / ".github/workflows/release.yml").read_text()
    assert valid in text
    file = tmp_path / "release.yml"
    file.write_text(text.replace(valid, invalid))
    assert problem in linted(file)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_with_the_version_as_comment(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text())
    assert used
    for action, comment in used:
        if not action.startswith("./"):
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action


def test_workflows_use_the_same_commit_of_an_action() -> None:
    used = re.findall(r"uses: (\S+)@([0-9a-f]{40}) # (\S+)", "".join(path.read_text() for path in FILES))
    assert len({action for action, _, _ in used}) == len(set(used))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_jobs_can_only_read_unless_they_publish(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    writing = {name for name, job in jobs(path).items() if "write" in job.get("permissions", {}).values()}
    assert writing == ({"image", "publish"} if path.name == "release.yml" else set())
    for name in writing:
        assert jobs(path)[name]["permissions"].keys() <= OF_THE_PUBLISHER


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_make_targets_exist(path: Path) -> None:
    for target in re.findall(r"^make (\S+)", "\n".join(commands(path)), re.MULTILINE):
        assert target in TARGETS | {".venv"}, target


def test_arguments_of_release_commands_are_valid() -> None:
    used = re.findall(r"-m tools\.release (.*)", "\n".join(commands(REPOSITORY / ".github/workflows/release.yml")))
    assert {each.split()[0] for each in used} == {"check", "sbom", "charts", "notes", "krew"}
    values = {'"$VERSION"': "0.2.0", '"$OPERATOR"': operators()[0], '"$HOME_URL"': "https://example.com"}
    for each in used:
        words = re.sub(r"> \S+|\"\$\{images.*?\}\"", "", each).split()
        release._parser().parse_args([values.get(word, word.strip('"')) for word in words])


def test_release_waits_for_the_check_and_all_tests_and_builds_both_architectures() -> None:
    found = jobs(REPOSITORY / ".github/workflows/release.yml")
    assert found["test"]["uses"] == "./.github/workflows/test.yml"
    assert found["image"]["needs"] == ["check", "test"]
    assert "image" in found["publish"]["needs"]
    [build] = [step for step in found["image"]["steps"] if step.get("id") == "build"]
    assert build["with"]["platforms"] == "linux/amd64,linux/arm64"


def test_release_signs_every_artifact_with_provenance_and_sbom() -> None:
    found = jobs(REPOSITORY / ".github/workflows/release.yml")
    image, publish = found["image"]["steps"], found["publish"]["steps"]
    (build,) = [step for step in image if step.get("id") == "build"]
    assert (build["with"]["provenance"], build["with"]["sbom"]) == ("mode=max", True)
    attested = [step["with"] for step in image if step.get("uses", "").startswith("actions/attest@")]
    assert [step["subject-digest"] for step in attested] == ["${{ steps.build.outputs.digest }}"] * 2
    assert sorted("sbom-path" in step for step in attested) == [False, True]
    signed = [step for step in image if step.get("run", "").startswith("cosign sign --yes --recursive")]
    assert [step["env"]["DIGEST"] for step in signed] == ["${{ steps.build.outputs.digest }}"]
    [files] = [step["with"]["subject-path"] for step in publish if step.get("uses", "").startswith("actions/attest@")]
    assert files.split() == ["dist/charts/*.tgz", "dist/krew/*.tar.gz"]
    assert all(path in publish[-1]["run"] for path in ("dist/krew/*.tar.gz", "dist/krew/*.yaml")), (
        "assets of the release"
    )
    (push,) = [step["run"] for step in publish if "cosign sign" in step.get("run", "")]
    loop = push.partition("for chart in dist/charts/*.tgz; do")[2].partition("done")[0]
    assert 'cosign sign --yes "$CHARTS/$name@$digest"' in loop
    for job in (found["image"], found["publish"]):
        assert job["permissions"]["id-token"] == job["permissions"]["attestations"] == "write", "signs as this workflow"


def test_release_takes_the_operators_from_the_tree() -> None:
    text = (REPOSITORY / ".github/workflows/release.yml").read_text()
    assert not [name for name in operators() if name in text]
