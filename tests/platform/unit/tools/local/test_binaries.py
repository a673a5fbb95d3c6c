"""Builds of Go programs, with a real Go and a module without dependencies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tools.local import binaries
from tools.local.binaries import Program
from tools.local.errors import ClusterError
from tools.local.machine.commands import run

SOURCE = 'package main\n\nvar release = "unset"\n\nfunc main() { print(release) }\n'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, Program, Program]:
    monkeypatch.setattr(binaries, "CACHE", tmp_path / "cache")
    module = tmp_path / "tools"
    for package in ("stamped", "plain", "several/v2", "further"):
        (module / package).mkdir(parents=True)
        (module / package / "main.go").write_text(SOURCE)
    (module / "go.mod").write_text("module example.com/tools\n\ngo 1.21\n")
    return (
        Program("one", "./stamped", ("first", "second"), "tools", "-X main.release=1.2", root=tmp_path),
        Program("two", "./plain", ("two",), "tools", root=tmp_path),
        Program("three", "./several/v2 ./further", ("four", "five"), "tools", root=tmp_path),
    )


def output(program: Path) -> str:
    # print of Go writes to standard error
    return run("sh", "-c", f"{program} 2>&1")


def test_programs_of_a_module_are_built_together(
    programs: tuple[Program, Program, Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str | Path, ...]] = []

    def recorded(*command: str | Path, **options: Any) -> str:
        commands.append(command)
        return run(*command, **options)

    monkeypatch.setattr(binaries, "run", recorded)
    one, two, three = programs
    binaries.build_module([one])
    binaries.build_module(programs)
    assert [["./stamped" in command, "./plain" in command] for command in commands] == [[True, False], [False, True]]
    built = {name: output(binaries.cache_path(program) / name) for program in programs for name in program.names}
    assert built == {"first": "1.2", "second": "1.2", "two": "unset", "four": "unset", "five": "unset"}
    assert binaries.build(two) == binaries.cache_path(two)
    assert len(commands) == 2, "what the cache contains is not built again"
    assert sorted(path.name for path in binaries.cache_path(three).iterdir()) == ["five", "four"]


def test_a_stamp_does_not_reach_other_programs(programs: tuple[Program, Program, Program]) -> None:
    one, two, _ = programs
    binaries.build_module([two, one])
    assert output(binaries.build(one) / "first") == "1.2"
    assert output(binaries.build(two) / "two") == "unset"


def test_a_failed_build_leaves_nothing_in_the_cache(programs: tuple[Program, Program, Program]) -> None:
    one, two, _ = programs
    (two.directory / "plain" / "main.go").write_text("package main\n\nfunc main() { missing() }\n")
    with pytest.raises(ClusterError, match=r"go build .* failed") as caught:
        binaries.build_module([one, two])
    assert "undefined: missing" in str(caught.value)
    assert not binaries.is_built(one)
    assert not binaries.is_built(two)


def test_error_without_go_names_every_program(
    programs: tuple[Program, Program, Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ClusterError, match="cannot build one, two, three: Go is not on the PATH"):
        binaries.build_module(programs)
