"""How an operator runs, as its command line says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Flag(Generic[Value]):
    """A flag that one operator has, and the value of its chart that sets it.

    Attributes:
        name: such as `--password-overlap`; the environment variable PASSWORD_OVERLAP and the chart's value
            passwordOverlap follow it.
        default: as on the command line.
        help: what it is for, for --help and for the chart's README.
        parse: reads a value; raises argparse.ArgumentTypeError.
    """

    name: str
    default: str
    help: str
    parse: Callable[[str], Value]

    @property
    def key(self) -> str:
        """Its name as an identifier, such as `password_overlap`."""
        return self.name.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Options:
    """How an operator runs. Times are in seconds; an address is host:port, :port for every address, or "0" for none.

    Attributes:
        operator_name: field manager, component of events and value of the managed-by label.
        namespaces: namespaces to serve; empty for all.
        kubeconfig: path of a kubeconfig; empty for the pod's service account or the default file.
        resync: time between full re-reads, spread by jitter.
        workers: resources handled at once.
        install_crds: whether to apply the operator's own CRDs at start.
        leader_elect: whether one replica at a time works, and the others stand by.
        leader_elect_namespace: where the Lease is.
        lease_duration: how long after the last renewal another replica may take over.
        renew_deadline: how long after the last renewal a leader stops working.
        retry_period: time between tries to take the Lease, or to renew it after a failure.
        create_timeout: how long servers may take to become ready before that is told as a failure.
        upgrade_timeout: the same for a change that replaces them.
        metrics_address: address of /metrics.
        metrics_secure: whether /metrics speaks TLS, and only to those whom the API server lets GET /metrics.
        probe_address: address of /healthz and /readyz.
        webhook_address: address of the webhooks.
        certificates: where serving certificates come from (pki/serving.py): self:NAMESPACE/SECRET, or a directory;
            empty for one made at start.
        certificate_hosts: DNS names and IP addresses that a certificate of our own making is for.
        certificate_lifetime: how long it is valid.
        webhook_configurations: name of the Mutating- and of the ValidatingWebhookConfiguration whose caBundle is kept;
            empty where that is somebody else's to do.
        image_repository: where operand images come from if a resource names only a version.
        agent_image: the image of what the operator puts beside or before its databases: the operator's own, as its
            chart says; empty if none is known.
        otlp_endpoint: base URL of an OpenTelemetry collector (OTLP over HTTP); empty for no tracing.
        profiling: whether to answer profiles on loopback (profiling.py).
        known_operators: print the operators that this installation holds, and end.
        command: "run"; "crd" prints the CRD, "reference" its reference page in Markdown.
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
    lease_duration: int
    renew_deadline: float
    retry_period: float
    create_timeout: float
    upgrade_timeout: float
    metrics_address: str
    metrics_secure: bool
    probe_address: str
    webhook_address: str
    certificates: str
    certificate_hosts: tuple[str, ...]
    certificate_lifetime: float
    webhook_configurations: str
    log_level: str
    log_format: str
    image_repository: str
    agent_image: str
    otlp_endpoint: str
    profiling: bool
    known_operators: bool
    command: str
    own: Mapping[str, Any] = field(default_factory=dict)

    def option(self, flag: Flag[Value]) -> Value:
        """The value of an operator's own flag; its default where it was not parsed."""
        value: Value = self.own[flag.key] if flag.key in self.own else flag.parse(flag.default)
        return value
