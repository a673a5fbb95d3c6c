"""Command line of `kubectl platform`."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Any

import click

from plugin.commands import (
    advisories,
    approve,
    backup,
    confirm,
    connect,
    doctor,
    failover,
    logs,
    pause,
    plan,
    report,
    restart,
    status,
    why,
)

PROGRAM = "kubectl platform"

NO_FILES = 4
"""Directive of kubectl's completion: complete no names of files.

Source: ShellCompDirectiveNoFileComp in completions.go of github.com/spf13/cobra.
"""


class WrongUsage(click.UsageError):
    """An error in the command line."""

    exit_code = 1


class Program(click.Group):
    """A group of commands in which a wrong command line ends with 1: exit code 2 of `plan` has a meaning."""

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        with _usage_errors():
            return super().make_context(*given, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _usage_errors():
            return super().invoke(ctx)


@contextlib.contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise WrongUsage(error.format_message(), error.ctx) from None


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """See and operate the Memcacheds, EtcdClusters and RedisClusters of the platform.

    A resource is named as for kubectl: KIND/NAME, such as rediscluster/orders, or rec/orders. The flags --namespace,
    --context and --kubeconfig choose the cluster as kubectl's do.
    """


for module in (
    status,
    why,
    plan,
    approve,
    doctor,
    confirm,
    pause,
    restart,
    failover,
    connect,
    logs,
    backup,
    advisories,
    report,
):
    for each in module.COMMANDS:
        cli.add_command(each)


def main() -> None:
    """Run the command that the command line names."""
    signal.signal(signal.SIGINT, _interrupted)
    cli(prog_name=PROGRAM)


def _interrupted(*_: object) -> None:
    """End at once: the handler of asyncio waits for the next `await`, which a prompt or a client does not reach."""
    raise KeyboardInterrupt


def complete() -> None:
    """Print completions for kubectl, which runs `kubectl_complete-platform` with the words so far.

    Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/
    """
    from click.shell_completion import ShellComplete

    words = sys.argv[1:] or [""]
    found = ShellComplete(cli, {}, PROGRAM, "_PLATFORM_COMPLETE").get_completions(words[:-1], words[-1])
    lines = [f"{item.value}\t{item.help}" if item.help else item.value for item in found]
    sys.stdout.write("\n".join([*lines, f":{NO_FILES}"]) + "\n")
