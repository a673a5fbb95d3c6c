"""The command line and environment of an operator; each flag may be given by either, the flag wins."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared.kubernetes.client import SERVICE_ACCOUNT
from shared.observability import logs
from shared.runtime.options import Flag, Options

MIN_CERTIFICATE_LIFETIME_SECONDS = 20
"""Seconds that a certificate is valid at least: making the next one and taking it up takes some on a busy machine."""


def parse_options(
    operator: str,
    image_repository: str,
    arguments: Sequence[str] | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    flags: Sequence[Flag[Any]] = (),
) -> Options:
    """Read flags and environment.

    Args:
        operator: the operator's default name, such as `memcached-operator`.
        image_repository: its operand's default image repository.
        arguments: the command line without the program; None takes the process's.
        flags: the operator's own.

    Raises:
        SystemExit: a flag or a variable is wrong; the message says which and what it takes.
    """
    parser = _parser(operator, image_repository, environment, flags)
    given = vars(parser.parse_args(arguments))
    options = Options(own={flag.key: given.pop(flag.key) for flag in flags}, **given)
    if wrong := _contradiction(options):
        parser.error(wrong)
    return options


def _contradiction(options: Options) -> str | None:
    """What flags say against each other."""
    if options.renew_deadline >= options.lease_duration:
        return (
            f"--leader-elect-renew-deadline {options.renew_deadline:g} must be below --leader-elect-lease-duration "
            f"{options.lease_duration}: a leader stops before another may begin. Lower the first, or raise the second."
        )
    if options.retry_period * 2 > options.renew_deadline:
        return (
            f"--leader-elect-retry-period {options.retry_period:g} must be at most half of "
            f"--leader-elect-renew-deadline {options.renew_deadline:g}: a renewal that fails once is tried again. "
            "Lower the first, or raise the second."
        )
    if options.certificate_lifetime < MIN_CERTIFICATE_LIFETIME_SECONDS:
        return (
            f"--certificate-lifetime {options.certificate_lifetime:g} is shorter than replicas can follow. "
            f"Give at least {MIN_CERTIFICATE_LIFETIME_SECONDS}."
        )
    if options.leader_elect and not options.leader_elect_namespace:
        return "--leader-elect outside a pod needs --leader-elect-namespace: the namespace of the Lease."
    return None


def _parser(
    operator: str, image_repository: str, environment: Mapping[str, str], own: Sequence[Flag[Any]]
) -> argparse.ArgumentParser:
    flags = _Flags(operator, environment)
    flags.value("--operator-name", operator, "field manager, value of the managed-by label, and name of the Lease")
    _add_watch_flags(flags)
    _add_leader_flags(flags)
    _add_operand_flags(flags, image_repository)
    _add_server_flags(flags)
    for flag in own:
        flags.value(flag.name, flag.default, flag.help, type=flag.parse)
    _add_observability_flags(flags, environment)
    flags.switch("--known-operators", "print the operators that this installation holds, with their resources, and end")
    flags.parser.add_argument(
        "command",
        nargs="?",
        choices=("run", "crd", "reference"),
        default="run",
        help="crd prints the CRD and ends, reference the page that describes it",
    )
    return flags.parser


class _Flags:
    """Adds flags whose defaults the environment may replace."""

    def __init__(self, operator: str, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.parser = argparse.ArgumentParser(
            prog=operator,
            description="Every flag may also come from the environment: --watch-namespace as WATCH_NAMESPACE.",
            allow_abbrev=False,
        )

    def value(self, name: str, default: str, text: str, **rest: Any) -> None:
        given = self._environment.get(_variable(name), default)
        self.parser.add_argument(name, default=given, help=f"{text} (default: {default or 'none'})", **rest)

    def switch(self, name: str, text: str, *, default: bool = False) -> None:
        given = self._environment.get(_variable(name), str(default)).lower()
        if given not in _TRUTHS:
            self.parser.error(f"{_variable(name)}: {given!r} is not one of true and false")
        self.parser.add_argument(
            name,
            action=argparse.BooleanOptionalAction,
            default=_TRUTHS[given],
            help=f"{text} (default: {str(default).lower()})",
        )


def _variable(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_").upper()


def _add_watch_flags(flags: _Flags) -> None:
    flags.value(
        "--watch-namespace",
        "",
        "namespaces to serve, comma-separated; none means all",
        dest="namespaces",
        metavar="NS[,NS…]",
        type=_names,
    )
    flags.value("--kubeconfig", "", "kubeconfig file; none means the pod's service account, else ~/.kube/config")
    flags.value("--resync", "600", "seconds between full re-reads", type=seconds)
    flags.value("--workers", "512", "resources handled at once", type=_count)
    flags.switch("--install-crds", "apply the operator's own CRDs at start")


def _add_leader_flags(flags: _Flags) -> None:
    flags.switch("--leader-elect", "one replica works and the others stand by")
    flags.value("--leader-elect-namespace", _own_namespace(), "namespace of the Lease")
    for name, default, text, read in (
        ("lease-duration", "15", "whole seconds after a leader's last renewal until another takes over", _count),
        ("renew-deadline", "10", "seconds after its last renewal until a leader stops working", seconds),
        ("retry-period", "1", "seconds between tries to take the Lease, or to renew it after a failure", seconds),
    ):
        dest = name.replace("-", "_")
        flags.value(f"--leader-elect-{name}", default, text, dest=dest, metavar="SECONDS", type=read)


def _add_operand_flags(flags: _Flags, repository: str) -> None:
    late = "seconds until servers that are not ready are told as a failure"
    flags.value("--create-timeout", "600", late, type=seconds)
    flags.value("--upgrade-timeout", "1800", "the same for a change that replaces servers", type=seconds)
    flags.value("--image-repository", repository, "where operand images come from if a resource gives only a version")
    flags.value("--agent-image", "", "image of what stands beside databases or prepares them: this operator's own")


def _add_server_flags(flags: _Flags) -> None:
    flags.value("--metrics-bind-address", ":8080", "address of /metrics; 0 for none", dest="metrics_address")
    flags.switch("--metrics-secure", "/metrics over TLS, for those who may GET /metrics", default=True)
    probes = "address of /healthz and /readyz; 0 for none"
    flags.value("--health-probe-bind-address", ":8081", probes, dest="probe_address")
    flags.value("--webhook-bind-address", "0", "address of the webhooks; 0 for none", dest="webhook_address")
    flags.value(
        "--certificates",
        "",
        "self:NAMESPACE/SECRET for ours, kept in a Secret; or a directory with tls.crt, tls.key and maybe ca.crt; none "
        "means one made at start",
        type=_certificates,
    )
    hosts = "names that a certificate of ours is for, comma-separated"
    flags.value("--certificate-hosts", "localhost", hosts, type=_names)
    flags.value("--certificate-lifetime", "7776000", "seconds for which a certificate of ours is valid", type=seconds)
    flags.value("--webhook-configurations", "", "name of the WebhookConfigurations whose caBundle to keep")


def _add_observability_flags(flags: _Flags, environment: Mapping[str, str]) -> None:
    flags.value("--log-level", "info", "least severe message to log", type=_one_of(logs.LEVELS))
    flags.value("--log-format", "json", "form of a log line", type=_one_of(logs.FORMATS))
    collector = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    flags.value("--otlp-endpoint", collector, "base URL of an OpenTelemetry collector, OTLP over HTTP", type=_url)
    flags.switch("--profiling", "answer profiles on loopback")


_TRUTHS = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


def _own_namespace() -> str:
    """The pod's namespace; empty outside a pod."""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return ""


# Unlike `choices=`, a type is asked of what comes from the environment, too.


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def choose(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return choose


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


def seconds(text: str) -> float:
    """Read a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def _certificates(text: str) -> str:
    if text.startswith("self:") and not re.fullmatch(r"self:[^/]+/[^/]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} names no Secret: write self:NAMESPACE/NAME")
    return text


def _url(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} is no URL: write http://host:4318 or https://host:4318")
    return text
