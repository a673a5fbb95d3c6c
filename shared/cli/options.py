"""Command line and environment of an operator; a flag takes precedence over its environment variable."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared.kubernetes.client import SERVICE_ACCOUNT
from shared.kubernetes.encoding import decode
from shared.kubernetes.kinds import Obj
from shared.observability import logs
from shared.runtime.options import Flag, Options
from shared.runtime.shards import MAX_SHARDS

MIN_CERTIFICATE_LIFETIME_SECONDS = 20
"""Minimum lifetime of a certificate in seconds: issuing and loading the next one takes a few on a busy machine."""


def parse_options(
    operator: str,
    image_repository: str,
    arguments: Sequence[str] | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    flags: Sequence[Flag[Any]] = (),
) -> Options:
    """Parse flags and environment.

    Args:
        operator: default name of the operator, such as `memcached-operator`.
        image_repository: default image repository of the operand.
        arguments: command line without the program; None uses that of the process.
        flags: flags of this operator only.

    Raises:
        SystemExit: a flag or a variable is invalid; the message names it and the accepted values.
    """
    parser = _parser(operator, image_repository, environment, flags)
    given = vars(parser.parse_args(arguments))
    options = Options(own={flag.key: given.pop(flag.key) for flag in flags}, **given)
    if wrong := _contradiction(options):
        parser.error(wrong)
    return options


def _contradiction(options: Options) -> str | None:
    """Return an error if flags contradict each other."""
    if options.renew_deadline >= options.lease_duration:
        return (
            f"--leader-elect-renew-deadline {options.renew_deadline:g} must be below --leader-elect-lease-duration "
            f"{options.lease_duration}: a leader must stop before another starts. Lower the first, or raise the second."
        )
    if options.retry_period * 2 > options.renew_deadline:
        return (
            f"--leader-elect-retry-period {options.retry_period:g} must be at most half of "
            f"--leader-elect-renew-deadline {options.renew_deadline:g}: one failed renewal must be retried. "
            "Lower the first, or raise the second."
        )
    if options.certificate_lifetime < MIN_CERTIFICATE_LIFETIME_SECONDS:
        return (
            f"--certificate-lifetime {options.certificate_lifetime:g} is too short to rotate certificates in time. "
            f"Use at least {MIN_CERTIFICATE_LIFETIME_SECONDS}."
        )
    if options.leader_elect and not options.leader_elect_namespace:
        return "--leader-elect outside a pod requires --leader-elect-namespace, the namespace of the Lease."
    if options.shards > 1 and not options.leader_elect:
        return f"--shards {options.shards} requires --leader-elect: each shard has a leader. Add it, or use --shards 1."
    return None


def _parser(
    operator: str, image_repository: str, environment: Mapping[str, str], own: Sequence[Flag[Any]]
) -> argparse.ArgumentParser:
    flags = _Flags(operator, environment)
    flags.value("--operator-name", operator, "field manager, value of the managed-by label and name of the Lease")
    _add_watch_flags(flags)
    _add_leader_flags(flags)
    _add_operand_flags(flags, image_repository)
    _add_server_flags(flags)
    for flag in own:
        flags.value(flag.name, flag.default, flag.help, type=flag.parse)
    _add_observability_flags(flags, environment)
    flags.switch("--known-operators", "print the operators of this installation with their resources, and exit")
    flags.parser.add_argument(
        "command",
        nargs="?",
        choices=("run", "crd", "reference"),
        default="run",
        help="run the operator, or print its CRDs (crd) or their reference page in Markdown (reference)",
    )
    return flags.parser


class _Flags:
    """Adds flags whose defaults come from the environment."""

    def __init__(self, operator: str, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.parser = argparse.ArgumentParser(
            prog=operator,
            description="Every flag can also be set in the environment, such as --watch-namespace as WATCH_NAMESPACE.",
            allow_abbrev=False,
        )

    def value(self, name: str, default: str, text: str, **rest: Any) -> None:
        given = self._environment.get(_variable(name), default)
        self.parser.add_argument(name, default=given, help=f"{text} (default: {default or 'none'})", **rest)

    def switch(self, name: str, text: str, *, default: bool = False) -> None:
        given = self._environment.get(_variable(name), str(default)).lower()
        if given not in _TRUTHS:
            self.parser.error(f"{_variable(name)}: {given!r} is not true or false")
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
        "namespaces to watch, separated by commas; empty for all",
        dest="namespaces",
        metavar="NS[,NS…]",
        type=_names,
    )
    # Not from the environment: a pod's service account takes precedence over KUBECONFIG (`load_configuration`).
    flags.parser.add_argument(
        "--kubeconfig",
        default="",
        help="path of a kubeconfig (default: the pod's service account, or else KUBECONFIG, or else ~/.kube/config)",
    )
    flags.value("--resync", "600", "seconds between full resyncs", type=seconds)
    flags.value("--workers", "256", "maximum number of concurrent reconciles", type=_count)
    flags.switch("--install-crds", "apply the CRDs of the operator at startup")


def _add_leader_flags(flags: _Flags) -> None:
    flags.switch("--leader-elect", "elect a leader: one replica is active, the others wait")
    flags.value(
        "--shards",
        "1",
        f"number of parts, at most {MAX_SHARDS}, into which resources are split by a hash of their names; each part "
        "has a leader of its own",
        type=_shards,
    )
    flags.value("--leader-elect-namespace", _own_namespace(), "namespace of the Lease")
    for name, default, text, read in (
        ("lease-duration", "15", "whole seconds after the last renewal until another replica takes over", _count),
        ("renew-deadline", "10", "seconds after the last renewal until the leader stops", seconds),
        ("retry-period", "1", "seconds between attempts to acquire the Lease, or to renew it after a failure", seconds),
    ):
        dest = name.replace("-", "_")
        flags.value(f"--leader-elect-{name}", default, text, dest=dest, metavar="SECONDS", type=read)


def _add_operand_flags(flags: _Flags, repository: str) -> None:
    late = "seconds allowed for new servers to become ready before a failure is reported"
    flags.value("--create-timeout", "600", late, type=seconds)
    flags.value(
        "--upgrade-timeout", "1800", "seconds allowed for a rolling update before a failure is reported", type=seconds
    )
    flags.value("--image-repository", repository, "repository of operand images for resources that set only a version")
    flags.switch(
        "--write-secrets",
        "create Secrets that users did not provide: generated passwords, and connections for clients",
        default=True,
    )
    flags.value("--agent-image", "", "image of sidecars and init containers of databases: the image of this operator")
    flags.value(
        "--operator-peers",
        "",
        "peers as which the operator connects to databases: a JSON list as the `from` of a NetworkPolicy; empty if "
        "unknown, and then no NetworkPolicy restricts clients",
        metavar="JSON",
        type=_peers,
    )
    flags.switch("--require-tls", "refuse resources without TLS")
    flags.switch("--require-auth", "refuse resources whose clients need no password")
    flags.value(
        "--allowed-registries",
        "",
        "registries, or repositories in them, of the images that resources may name, separated by commas, such as "
        "registry.example.com/team; empty for all",
        type=_names,
    )
    flags.switch("--allow-host-path", "accept resources that mount directories of the nodes (hostPath)")


def _add_server_flags(flags: _Flags) -> None:
    flags.value("--metrics-bind-address", ":8080", "address of /metrics; 0 to disable", dest="metrics_address")
    flags.switch(
        "--metrics-secure", "serve /metrics over TLS, only to clients that RBAC allows to GET /metrics", default=True
    )
    probes = "address of /healthz and /readyz; 0 to disable"
    flags.value("--health-probe-bind-address", ":8081", probes, dest="probe_address")
    flags.value("--webhook-bind-address", "0", "address of the webhooks; 0 to disable", dest="webhook_address")
    clients = "file with the CA certificates of clients that may call the webhooks; empty for all clients"
    flags.value("--webhook-client-ca", "", clients)
    flags.value(
        "--certificates",
        "",
        "source of serving certificates: self:NAMESPACE/SECRET to issue them and share them in a Secret, or a "
        "directory with tls.crt, tls.key and optionally ca.crt; empty to issue one in memory at startup",
        type=_certificates,
    )
    hosts = "DNS names and IP addresses of issued certificates, separated by commas"
    flags.value("--certificate-hosts", "localhost", hosts, type=_names)
    flags.value("--certificate-lifetime", "7776000", "lifetime of issued certificates in seconds", type=seconds)
    flags.value("--webhook-configurations", "", "name of the WebhookConfigurations whose caBundle the operator updates")


def _add_observability_flags(flags: _Flags, environment: Mapping[str, str]) -> None:
    flags.value("--log-level", "info", "minimum level of logged messages", type=_one_of(logs.LEVELS))
    flags.value("--log-format", "json", "format of log lines", type=_one_of(logs.FORMATS))
    collector = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    flags.value(
        "--otlp-endpoint",
        collector,
        "base URL of an OpenTelemetry collector (OTLP over HTTP); empty to disable tracing",
        type=_url,
    )
    flags.switch("--profiling", "serve profiles on the loopback interface")


_TRUTHS = {"": False, "0": False, "false": False, "no": False, "1": True, "true": True, "yes": True}


def _own_namespace() -> str:
    """Return the namespace of the pod; empty outside a pod."""
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError:
        return ""


# Unlike `choices=`, a type also validates values from the environment.


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def choose(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return choose


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


def seconds(text: str) -> float:
    """Parse a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def _shards(text: str) -> int:
    if _count(text) > MAX_SHARDS:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MAX_SHARDS} shards")
    return _count(text)


def _certificates(text: str) -> str:
    if text.startswith("self:") and not re.fullmatch(r"self:[^/]+/[^/]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} does not name a Secret: use self:NAMESPACE/NAME")
    return text


def _peers(text: str) -> tuple[Obj, ...]:
    form = 'use a list of peers such as [{"podSelector":{"matchLabels":{"app":"operator"}}}]'
    try:
        peers = decode(text or "[]")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON ({error}): {form}") from None
    if not isinstance(peers, list) or not all(isinstance(peer, dict) and peer for peer in peers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of peers: {form}")
    return tuple(peers)


def _url(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL: use http://host:4318 or https://host:4318")
    return text
