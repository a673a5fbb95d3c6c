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
    operator: str, image_repository: str, environment: Mapping[str, str], flags: Sequence[Flag[Any]]
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=operator,
        description="Every flag may also come from the environment: --watch-namespace as WATCH_NAMESPACE.",
        allow_abbrev=False,
    )

    def given(name: str, default: str) -> str:
        return environment.get(name.removeprefix("--").replace("-", "_").upper(), default)

    def flag(name: str, default: str, text: str, **rest: object) -> None:
        value = given(name, default)
        parser.add_argument(name, default=value, help=f"{text} (default: {default or 'none'})", **rest)  # type: ignore[arg-type]

    def switch(name: str, text: str, *, default: bool = False) -> None:
        value = given(name, str(default)).lower()
        if value not in _TRUTHS:
            variable = name.removeprefix("--").replace("-", "_").upper()
            parser.error(f"{variable}: {value!r} is not one of true and false")
        parser.add_argument(
            name,
            action=argparse.BooleanOptionalAction,
            default=_TRUTHS[value],
            help=f"{text} (default: {str(default).lower()})",
        )

    flag("--operator-name", operator, "field manager, value of the managed-by label, and name of the Lease")
    flag(
        "--watch-namespace",
        "",
        "namespaces to serve, comma-separated; none means all",
        dest="namespaces",
        metavar="NS[,NS…]",
        type=_names,
    )
    flag("--kubeconfig", "", "kubeconfig file; none means the pod's service account, else ~/.kube/config")
    flag("--resync", "600", "seconds between full re-reads", type=seconds)
    flag("--workers", "512", "resources handled at once", type=_count)
    switch("--install-crds", "apply the operator's own CRDs at start")

    switch("--leader-elect", "one replica works and the others stand by")
    flag("--leader-elect-namespace", _own_namespace(), "namespace of the Lease")
    flag(
        "--leader-elect-lease-duration",
        "15",
        "whole seconds after a leader's last renewal until another takes over",
        dest="lease_duration",
        metavar="SECONDS",
        type=_count,
    )
    flag(
        "--leader-elect-renew-deadline",
        "10",
        "seconds after its last renewal until a leader stops working",
        dest="renew_deadline",
        metavar="SECONDS",
        type=seconds,
    )
    flag(
        "--leader-elect-retry-period",
        "1",
        "seconds between tries to take the Lease, or to renew it after a failure",
        dest="retry_period",
        metavar="SECONDS",
        type=seconds,
    )

    flag("--create-timeout", "600", "seconds until servers that are not ready are told as a failure", type=seconds)
    flag("--upgrade-timeout", "1800", "the same for a change that replaces servers", type=seconds)
    flag("--image-repository", image_repository, "where operand images come from if a resource gives only a version")
    flag("--agent-image", "", "image of what stands beside databases or prepares them: this operator's own")

    flag("--metrics-bind-address", ":8080", "address of /metrics; 0 for none", dest="metrics_address")
    switch("--metrics-secure", "/metrics over TLS, for those who may GET /metrics", default=True)
    flag("--health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none", dest="probe_address")
    flag("--webhook-bind-address", "0", "address of the webhooks; 0 for none", dest="webhook_address")
    flag(
        "--certificates",
        "",
        "self:NAMESPACE/SECRET for ours, kept in a Secret; or a directory with tls.crt, tls.key and maybe ca.crt; none "
        "means one made at start",
        type=_certificates,
    )
    flag("--certificate-hosts", "localhost", "names that a certificate of ours is for, comma-separated", type=_names)
    flag("--certificate-lifetime", "7776000", "seconds for which a certificate of ours is valid", type=seconds)
    flag("--webhook-configurations", "", "name of the WebhookConfigurations whose caBundle to keep")
    for own in flags:
        flag(own.name, own.default, own.help, type=own.parse)

    flag("--log-level", "info", "least severe message to log", type=_one_of(logs.LEVELS))
    flag("--log-format", "json", "form of a log line", type=_one_of(logs.FORMATS))
    collector = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    flag("--otlp-endpoint", collector, "base URL of an OpenTelemetry collector, OTLP over HTTP", type=_url)
    switch("--profiling", "answer profiles on loopback")
    switch("--known-operators", "print the operators that this installation holds, with their resources, and end")
    parser.add_argument(
        "command",
        nargs="?",
        choices=("run", "crd", "reference"),
        default="run",
        help="crd prints the CRD and ends, reference the page that describes it",
    )
    return parser


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
