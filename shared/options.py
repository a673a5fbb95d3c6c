"""The command line and environment of an operator; each flag may be given by either, the flag wins."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shared import logs


@dataclass(frozen=True, slots=True)
class Options:
    """How an operator runs.

    Attributes:
        operator_name: field manager, component of events and value of the managed-by label.
        namespaces: namespaces to serve; empty for all.
        kubeconfig: path of a kubeconfig; empty for the pod's service account or the default file.
        resync: seconds between full re-reads, spread by jitter.
        workers: resources handled at once.
        install_crds: whether to apply the operator's own CRDs at start.
        metrics_address: host:port of /metrics; "0" for none.
        probe_address: host:port of /healthz and /readyz; "0" for none.
        image_repository: where operand images come from if a resource names only a version.
        command: "run"; "crd" prints the CRD, "reference" its reference page in Markdown.
    """

    operator_name: str
    namespaces: tuple[str, ...]
    kubeconfig: str
    resync: float
    workers: int
    install_crds: bool
    metrics_address: str
    probe_address: str
    log_level: str
    log_format: str
    image_repository: str
    command: str


def parse_options(
    operator: str,
    image_repository: str,
    arguments: Sequence[str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Options:
    """Read flags and environment.

    Args:
        operator: the operator's default name, such as `memcached-operator`.
        image_repository: its operand's default image repository.
        arguments: the command line without the program; None takes the process's.

    Raises:
        SystemExit: a flag or a variable is wrong; the message says which and what it takes.
    """
    given = _parser(operator, image_repository, environment).parse_args(arguments)
    return Options(
        operator_name=given.operator_name,
        namespaces=tuple(sorted({name.strip() for name in given.watch_namespace.split(",") if name.strip()})),
        kubeconfig=given.kubeconfig,
        resync=given.resync,
        workers=given.workers,
        install_crds=given.install_crds,
        metrics_address=given.metrics_bind_address,
        probe_address=given.health_probe_bind_address,
        log_level=given.log_level,
        log_format=given.log_format,
        image_repository=given.image_repository,
        command=given.command,
    )


_TRUTHS = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


def _parser(operator: str, image_repository: str, environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=operator,
        description="Every flag may also come from the environment: --watch-namespace as WATCH_NAMESPACE.",
    )

    def flag(name: str, default: str, text: str, **rest: object) -> None:
        value = environment.get(name.removeprefix("--").replace("-", "_").upper(), default)
        parser.add_argument(name, default=value, help=f"{text} (default: {default or 'none'})", **rest)  # type: ignore[arg-type]

    flag("--operator-name", operator, "field manager and value of the managed-by label")
    flag("--watch-namespace", "", "namespaces to serve, comma-separated; none means all", metavar="NS[,NS…]")
    flag("--kubeconfig", "", "kubeconfig file; none means the pod's service account, else ~/.kube/config")
    flag("--resync", "600", "seconds between full re-reads", type=_positive_seconds)
    flag("--workers", "16", "resources handled at once", type=_positive_count)
    flag("--metrics-bind-address", ":8080", "address of /metrics; 0 for none")
    flag("--health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none")
    flag("--log-level", "info", "least severe message to log", type=_one_of(logs.LEVELS))
    flag("--log-format", "json", "form of a log line", type=_one_of(logs.FORMATS))
    flag("--image-repository", image_repository, "where operand images come from if a resource gives only a version")
    given = environment.get("INSTALL_CRDS", "").lower()
    if given not in _TRUTHS:
        parser.error(f"INSTALL_CRDS: {given!r} is not one of true and false")
    parser.add_argument(
        "--install-crds",
        action=argparse.BooleanOptionalAction,
        default=_TRUTHS[given],
        help="apply the operator's own CRDs at start",
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=("run", "crd", "reference"),
        default="run",
        help="crd prints the CRD and ends, reference the page that describes it",
    )
    return parser


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    """Unlike `choices=`, a type is asked of what comes from the environment, too."""

    def choose(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return choose


def _positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _positive_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)
