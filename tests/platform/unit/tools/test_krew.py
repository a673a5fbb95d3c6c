"""The plugin for krew: the manifest by krew's rules, the archive, and its first run."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import subprocess
import sys
import tarfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.local.errors import ClusterError
from tools.local.paths import REPOSITORY
from tools.release import krew

HOME = "https://example.com/platform"
ARCHIVE = b"an archive"
URI = f"{HOME}/releases/download/v1.2.3/kubectl-platform-1.2.3.tar.gz"


def made(**spec: Any) -> dict[str, Any]:
    found = krew.manifest("1.2.3", URI, ARCHIVE, HOME)
    return found | {"spec": found["spec"] | spec}


def with_platform(**fields: Any) -> dict[str, Any]:
    [platform] = made()["spec"]["platforms"]
    return made(platforms=[platform | fields])


def test_manifest_has_no_problems_and_names_the_archive() -> None:
    found = made()
    assert list(krew.problems("platform", found)) == []
    [platform] = found["spec"]["platforms"]
    assert (platform["uri"], platform["sha256"]) == (URI, hashlib.sha256(ARCHIVE).hexdigest())
    assert found["spec"]["version"] == "v1.2.3"


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (made() | {"apiVersion": "v1"}, "apiVersion is 'v1'"),
        (made() | {"kind": "Formula"}, "kind is 'Formula'"),
        (made() | {"metadata": {"name": "other"}}, "metadata.name is 'other', not 'platform'"),
        (made(shortDescription=""), "spec.shortDescription is ''"),
        (made(shortDescription="a\nb"), "spec.shortDescription is 'a\\nb'"),
        (made(shortDescription="a" * 51), "one line of 1 to 50 characters"),
        (made(version="1.2.3"), "a leading v is required"),
        (made(version="v1.2"), "a semantic version"),
        (made(version="v1.02.3"), "a semantic version"),
        (made(version=None), "spec.version is None"),
        (made(platforms=[]), "spec.platforms is empty"),
        (with_platform(uri=""), "spec.platforms[0].uri is missing"),
        (with_platform(sha256="A" * 64), "64 hexadecimal digits in lower case"),
        (with_platform(sha256=""), "spec.platforms[0].sha256 is ''"),
        (with_platform(bin=""), "spec.platforms[0].bin is missing"),
        (with_platform(files=[]), "files is empty"),
        (with_platform(files=[{"from": "*"}]), "without from or to"),
        (with_platform(selector=None), "selector is empty"),
        (with_platform(selector={"matchLabels": {"libc": "musl"}}), "the key 'libc'"),
        (with_platform(selector={"matchExpressions": [{"key": "libc"}]}), "the key 'libc'"),
    ],
)
def test_each_rule_of_krew_is_checked(manifest: dict[str, Any], problem: str) -> None:
    [found] = krew.problems("platform", manifest)
    assert problem in found


def test_name_with_other_characters_is_refused() -> None:
    found = deepcopy(made()) | {"metadata": {"name": "a.b"}}
    [problem] = krew.problems("a.b", found)
    assert "does not match" in problem


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "platform_operators-1.2.3-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


def contents(archive: bytes) -> dict[str, tuple[bytes, int]]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {each.name: (tar.extractfile(each), each.mode) for each in tar}
        return {name: (file.read(), mode) for name, (file, mode) in files.items() if file is not None}


def test_archive_is_reproducible_and_has_what_an_index_requires(wheel: Path) -> None:
    first, second = (krew.pack("1.2.3", wheel, 1_700_000_000) for _ in range(2))
    assert first == second
    found = contents(first)
    assert found.keys() == {"kubectl-platform", "VERSION", "requirements.txt", wheel.name, "LICENSE"}
    assert found["kubectl-platform"][1] == 0o755
    assert found["VERSION"][0] == b"1.2.3\n"


def test_build_writes_a_manifest_with_the_sum_of_the_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheel: Path
) -> None:
    def build(*command: str | Path) -> str:
        target = Path(command[command.index("--out-dir") + 1])
        target.mkdir(parents=True, exist_ok=True)
        (target / wheel.name).write_bytes(wheel.read_bytes())
        return ""

    monkeypatch.setattr(krew, "run", build)
    archive, manifest = krew.build("1.2.3", HOME, tmp_path / "krew", 1_700_000_000)
    found = yaml.safe_load(manifest.read_text())
    [platform] = found["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"] == f"{HOME}/releases/download/v1.2.3/{archive.name}"
    assert sorted(path.name for path in (tmp_path / "krew").iterdir()) == [archive.name, "platform.yaml"]
    with pytest.raises(ClusterError, match="krew would refuse the manifest"):
        krew.build("1.2", HOME, tmp_path / "krew", 0)


def test_lock_has_every_dependency_of_the_plugin() -> None:
    lock = (REPOSITORY / "locks" / "kubectl.txt").read_text()
    dev = (REPOSITORY / "locks" / "dev.txt").read_text()
    pinned = [line.split()[0] for line in lock.splitlines() if "==" in line]
    names = {each.partition("==")[0] for each in pinned}
    assert {"click", "rich", "kubernetes", "aiohttp", "pydantic", "redis", "hiredis", "cronsim"} <= names
    assert all(f"\n{each} " in f"\n{dev}" for each in pinned), "they are those that the tests run with"


PYTHON = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *version_info*) exit {old};;
  *venv*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python"
          printf '#!/bin/sh\\necho "ran $*"\\n' > "$4/bin/kubectl-platform"; chmod +x "$4/bin/kubectl-platform";;
esac
"""


@pytest.fixture
def installed(tmp_path: Path, wheel: Path) -> Path:
    """Unpack the archive as krew does, and return the link to the plugin."""
    store, links = tmp_path / "store", tmp_path / "krew-bin"
    store.mkdir()
    links.mkdir()
    for name, (content, mode) in contents(krew.pack("1.2.3", wheel, 0)).items():
        (store / name).write_bytes(content)
        (store / name).chmod(mode)
    (links / "kubectl-platform").symlink_to(store / "kubectl-platform")
    return links / "kubectl-platform"


def run(installed: Path, *words: str, old: int = 0) -> subprocess.CompletedProcess[str]:
    bin_ = installed.parent.parent / "bin"
    bin_.mkdir(exist_ok=True)
    python = bin_ / "python3"
    python.write_text(PYTHON.format(log=installed.parent.parent / "log", old=old))
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    environment = {"PATH": f"{bin_}:/usr/bin:/bin", "HOME": str(installed.parent.parent / "home")}
    environment["PLATFORM_PYTHON"] = str(python)
    return subprocess.run([installed, *words], capture_output=True, text=True, check=False, env=environment)


def test_first_run_installs_the_locked_packages_once(installed: Path) -> None:
    first = run(installed, "status", "-A")
    assert (first.returncode, first.stdout) == (0, "ran status -A\n"), first.stderr
    assert "Installing kubectl platform 1.2.3 into" in first.stderr
    log = (installed.parent.parent / "log").read_text().splitlines()
    [locked] = [line for line in log if "--require-hashes" in line]
    assert "--no-deps --only-binary :all:" in locked
    assert locked.endswith("store/requirements.txt")
    assert next(line for line in log if "--no-index" in line).endswith("platform_operators-1.2.3-py3-none-any.whl")
    second = run(installed, "doctor")
    assert (second.stdout, second.stderr) == ("ran doctor\n", "")
    assert len((installed.parent.parent / "log").read_text().splitlines()) == len(log)


@pytest.mark.skipif(sys.platform != "linux", reason="it needs a machine without another Python on its PATH")
def test_python_that_is_too_old_is_an_error_with_a_fix(installed: Path) -> None:
    for number in ("3.11", "3.12", "3.13", "3.14"):  # those of this machine are hidden
        path = installed.parent.parent / "bin" / f"python{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\nexit 1\n")
        path.chmod(0o755)
    result = run(installed, "status", old=1)
    assert result.returncode == 1
    assert result.stderr == (
        "error: kubectl platform needs Python 3.11 or later, and none was found\n"
        "  fix: install it, or set PLATFORM_PYTHON to its path\n"
    )
    assert not os.path.lexists(installed.parent.parent / "home" / ".cache")
