"""Run commands and report their failures."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tools.local.errors import ClusterError

SHOWN_LINES = 15


def run(
    *command: str | Path,
    fix: str = "see the output of the command above",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    stdin: IO[bytes] | str | None = None,
    timeout: float = 1800,
) -> str:
    """Run a command and return its standard output.

    Args:
        command: program and arguments.
        fix: advice for the reader when the command fails.
        env: complete environment; the current one by default.
        cwd: working directory.
        log: file that receives all output; an error names it and shows its last lines.
        stdin: open file or text for standard input; empty by default.
        timeout: seconds until the command is killed.

    Raises:
        ClusterError: the program is missing, failed or timed out.
    """
    arguments = [str(part) for part in command]
    try:
        finished = _finish(arguments, env, cwd, log, stdin, timeout)
    except FileNotFoundError as error:
        raise ClusterError(f"{arguments[0]} is not installed", f"install it ({error})") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{_shown(arguments)} did not finish within {timeout:g} s", fix) from error
    if finished.returncode:
        output = log.read_text(errors="replace") if log else finished.stderr + finished.stdout
        end = "\n    ".join(output.strip().splitlines()[-SHOWN_LINES:])
        full_output = f"\n  full output: {log}" if log else ""
        raise ClusterError(f"{_shown(arguments)} failed ({finished.returncode}):\n    {end}{full_output}", fix)
    return finished.stdout


def succeeds(*command: str | Path, timeout: float = 30) -> bool:
    """Return whether a command exists and exits with 0; its output is discarded."""
    try:
        run(*command, timeout=timeout)
    except ClusterError:
        return False
    return True


def _finish(
    arguments: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    log: Path | None,
    stdin: IO[bytes] | str | None,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    if isinstance(stdin, str):
        return subprocess.run(
            arguments, env=env, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
    source = stdin or subprocess.DEVNULL
    if log is None:
        return subprocess.run(
            arguments, env=env, cwd=cwd, stdin=source, capture_output=True, text=True, timeout=timeout, check=False
        )
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        return subprocess.run(
            arguments,
            env=env,
            cwd=cwd,
            stdin=source,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )


def _shown(arguments: Sequence[str]) -> str:
    return " ".join(arguments[:6]) + (" …" if len(arguments) > 6 else "")
