"""Options of an operator, as parsed from its command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

    Attributes:
        operator_name: field manager, component of events and value of the managed-by label.
        namespaces: namespaces to watch; empty for all.
        kubeconfig: path of a kubeconfig; empty for the pod's service account, KUBECONFIG or the default file.
        resync: time between full resyncs, with jitter.
        workers: maximum number of concurrent reconciles.
        install_crds: whether to apply the CRDs of the operator at startup.
        leader_elect: whether to elect a leader among the replicas.
        leader_elect_namespace: namespace of the Lease.
        shards: number of parts into which the resources are split, each with a leader of its own.
        lease_duration: time after the last renewal until another replica takes over.
        renew_deadline: time after the last renewal until the leader stops.
        retry_period: time between attempts to acquire the Lease, or to renew it after a failure.
        create_timeout: time allowed for new servers to become ready before a failure is reported.
        upgrade_timeout: time allowed for a rolling update before a failure is reported.
        metrics_address: address of /metrics.
        metrics_secure: whether /metrics uses TLS and requires permission to GET /metrics.
        probe_address: address of /healthz and /readyz.
        webhook_address: address of the webhooks.
        webhook_client_ca: file with the CA certificates of clients that may call the webhooks; empty for all clients.
        certificates: source of serving certificates (pki/serving.py): self:NAMESPACE/SECRET, or a directory; empty to
            issue one in memory at startup.
        certificate_hosts: DNS names and IP addresses of issued certificates.
        certificate_lifetime: lifetime of issued certificates.
        webhook_configurations: name of the MutatingWebhookConfiguration and ValidatingWebhookConfiguration whose
            caBundle the operator updates; empty if the caBundle is managed elsewhere.
        image_repository: repository of operand images for resources that set only a version.
        agent_image: image of sidecars and init containers of databases, which is the image of the operator; empty if
            unknown.
        operator_peers: peers as which the operator connects to databases, as the `from` of a NetworkPolicy; empty if
            unknown.
        require_tls: whether resources must use TLS.
        require_auth: whether resources must use a password.
        allowed_registries: registries, or repositories in them, whose images resources may name; empty for all.
        allow_host_path: whether resources may mount directories of the nodes.
        otlp_endpoint: base URL of an OpenTelemetry collector (OTLP over HTTP); empty to disable tracing.
        profiling: whether to serve profiles on the loopback interface (profiling.py).
        known_operators: whether to print the operators of this installation and exit.
        write_secrets: whether to create Secrets that no server needs to run: generated passwords, and connections.
        command: "run"; "crd" prints the CRDs, "reference" their reference page in Markdown.
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
    otlp_endpoint: str
    profiling: bool
    known_operators: bool
    command: str
    write_secrets: bool = True
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def policy(self) -> PlatformPolicy:
        """Policy of the platform's administrator."""
        return PlatformPolicy(self.require_tls, self.require_auth, self.allowed_registries, self.allow_host_path)

    def option(self, flag: Flag[Value]) -> Value:
        """Return the value of an operator's own flag; the default if it was not parsed."""
        value: Value = self.own[flag.key] if flag.key in self.own else flag.parse(flag.default)
        return value
