"""Options of an operator, as parsed from its command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

from shared.api.policy import PlatformPolicy
from shared.kubernetes.kinds import Obj

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Flag(Generic[Value]):
    """A flag of one operator, and the value of its chart that sets it.

    Attributes:
        name: name such as `--password-overlap`, which also defines the environment variable PASSWORD_OVERLAP and the
            chart value passwordOverlap.
        default: default value, as on the command line.
        help: description, for --help and for the README of the chart.
        parse: parses a value; raises argparse.ArgumentTypeError.
    """

    name: str
    default: str
    help: str
    parse: Callable[[str], Value]

    @property
    def key(self) -> str:
        """Name as an identifier, such as `password_overlap`."""
        return self.name.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of an operator. Times are in seconds; addresses are host:port, :port for all, or "0" to disable.

    shared/cli/options.toml has the meaning of each flag.

    Attributes:
        command: "run"; "crd" prints the CRDs.
        own: values of the operator's own flags, by `Flag.key`; `option` reads one.
    """

    operator_name: str
    namespaces: tuple[str, ...]
    kubeconfig: str
    resync: float
    workers: int
    install_crds: bool
    leader_elect: bool
    leader_elect_namespace: str
    shards: int
    lease_duration: int
    renew_deadline: float
    retry_period: float
    create_timeout: float
    upgrade_timeout: float
    metrics_address: str
    metrics_secure: bool
    probe_address: str
    webhook_address: str
    webhook_client_ca: str
    certificates: str
    certificate_hosts: tuple[str, ...]
    certificate_lifetime: float
    webhook_configurations: str
    log_level: str
    log_format: str
    image_repository: str
    agent_image: str
    operator_peers: tuple[Obj, ...]
    require_tls: bool
    require_auth: bool
    allowed_registries: tuple[str, ...]
    allow_host_path: bool
    approval_namespaces: tuple[str, ...]
    otlp_endpoint: str
    profiling: bool
    known_operators: bool
    command: str
    write_secrets: bool = True
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def policy(self) -> PlatformPolicy:
        """Policy of the platform's administrator."""
        return PlatformPolicy(**{each.name: getattr(self, each.name) for each in fields(PlatformPolicy)})

    def option(self, flag: Flag[Value]) -> Value:
        """Return the value of an operator's own flag; the default if it was not parsed."""
        value: Value = self.own[flag.key] if flag.key in self.own else flag.parse(flag.default)
        return value
