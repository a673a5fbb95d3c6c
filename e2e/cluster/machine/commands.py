"""Running a command to its end, and saying well what went wrong."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from e2e.cluster.errors import ClusterError

SHOWN_LINES = 15


def run(
    *command: str | Path,
    mend: str = "the command's own words above say more",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    stdin: IO[bytes] | str | None = None,
    timeout: float = 1800,
) -> str:
    """Run a command and return what it wrote to standard output.

    Args:
        command: the program and its arguments.
        mend: what the reader should do when it fails.
        env: the whole environment; the present one by default.
        cwd: the directory to run in.
        log: a file that takes all output instead; the error then names it and shows its end.
        stdin: an open file or a text to read from; nothing by default.
        timeout: seconds until the command is killed.

    Raises:
        ClusterError: the program is missing, failed or took too long.
    """
    arguments = [str(part) for part in command]
    try:
        finished = _finish(arguments, env, cwd, log, stdin, timeout)
    except FileNotFoundError as error:
        raise ClusterError(f"{arguments[0]} is not installed", f"install it ({error})") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{_shown(arguments)} did not end within {timeout:g} s", mend) from error
    if finished.returncode:
        said = log.read_text(errors="replace") if log else finished.stderr + finished.stdout
        end = "\n    ".join(said.strip().splitlines()[-SHOWN_LINES:])
        place = f"\n  its whole output: {log}" if log else ""
        raise ClusterError(f"{_shown(arguments)} failed ({finished.returncode}):\n    {end}{place}", mend)
    return finished.stdout


def succeeds(*command: str | Path, timeout: float = 30) -> bool:
    """Whether a command exists and ends well; its output is dropped."""
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
