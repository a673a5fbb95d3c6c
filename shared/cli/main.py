"""The entry point of every operator: `python -m operators.<name>`."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Iterable

from shared.api import crd
from shared.cli import list_operators
from shared.cli.options import parse_options
from shared.kubernetes.client import SERVICE_ACCOUNT
from shared.kubernetes.credentials import load_configuration
from shared.kubernetes.errors import KubeError
from shared.kubernetes.transport import Transports
from shared.observability import logs, tracing
from shared.runtime.operator import Operator
from shared.runtime.options import Options
from shared.runtime.process import Process
from shared.runtime.supervisor import MustEnd

log = logging.getLogger(__name__)


def main(operator: Operator, installed: Callable[[], Iterable[Operator]]) -> None:
    """Run an operator until it is stopped; exit with code 1 if it cannot run.

    Args:
        installed: returns the operators of this installation, for --known-operators.
    """
    options = parse_options(operator.process_name, operator.image_repository, flags=operator.flags)
    if printed := _printed(operator, installed, options):
        sys.stdout.write(printed)
        return
    logs.configure(options.log_level, options.log_format)
    try:
        asyncio.run(_run(operator, options))
    except (KubeError, MustEnd, OSError, ValueError) as error:
        log.error("%s cannot run: %s", options.operator_name, error)
        sys.exit(1)


def _printed(operator: Operator, installed: Callable[[], Iterable[Operator]], options: Options) -> str:
    """Return the requested output, if any option or command requests output instead of running."""
    if options.known_operators:
        return list_operators.table(installed())
    return "---\n".join(map(crd.to_yaml, operator.resources)) if options.command == "crd" else ""


def _resource() -> tracing.Attributes:
    """Return the pod of this process, as attributes of its traces; empty outside a pod."""
    try:
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return {}
    return {tracing.NAMESPACE: namespace, tracing.POD: socket.gethostname()}


async def _run(operator: Operator, options: Options) -> None:
    configuration = await load_configuration(options.kubeconfig)
    async with (
        Transports.open(configuration, options.workers * len(operator.kinds)) as transports,
        tracing.exported(options.otlp_endpoint, options.operator_name, _resource()),
    ):
        await Process(operator, options, transports, configuration).run()
