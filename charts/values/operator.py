"""Values common to all operators' charts.

The description of a field becomes its comment in values.yaml, its description in the schema and its row in the README.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel

from charts.values.base import Values
from charts.values.kubernetes import Affinity, EnvironmentVariable, Labels, LabelSelector, LocalName, Strings, Text
from charts.values.pods import (
    Capabilities,
    ContainerSecurityContext,
    PodSecurityContext,
    Probe,
    Profile,
    Volume,
    VolumeMount,
)
from charts.values.rules import PrometheusRule, Thresholds
from shared.api.network import Peer
from shared.api.podspec import ResourceRequirements, Toleration, TopologySpread

Port = Annotated[int, Field(ge=1024, le=65535)]
"""An unprivileged port."""

Seconds = Annotated[int, Field(ge=1)]
Replicas = Annotated[int, Field(ge=1, le=10)]
Namespace = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
NAMESPACE_OR_EMPTY = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"
ImageRepository = Annotated[str, Field(pattern=r"^\S+$")]
REGISTRY = r"^([A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*/?)?$"
"""Pattern of a registry with an optional path, without a scheme; empty for none."""


class Global(BaseModel):
    """Values that all charts of a release share; keys of other charts are accepted."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    image_registry: Annotated[str, Field(pattern=REGISTRY)] = Field(
        "",
        description="Registry, with an optional path, that replaces the host of every image: those of the operators, "
        "operandImageRepository and agentImage, such as registry.example.com/mirror. Docker Hub's official images are "
        "below library/ there. Images that a resource names are not changed.",
    )
    image_pull_secrets: list[LocalName | Text] = Field(
        [],
        description="Secrets for pulling the operators' images, in addition to imagePullSecrets; names or {name: …}.",
    )
    common_labels: Labels = Field(
        {},
        description="Labels added to all objects and to the operators' pods. The charts' own labels take precedence.",
    )
    common_annotations: Strings = Field(
        {},
        description="Annotations added to all objects and to the operators' pods. The charts' own annotations take "
        "precedence.",
    )
    node_selector: Labels = Field({}, description="Node selector of the operators that set no nodeSelector.")
    tolerations: list[Toleration] = Field([], description="Tolerations of the operators that set no tolerations.")
    affinity: Affinity = Field(Affinity(), description="Affinity of the operators that set no affinity.")
    priority_class_name: str = Field("", description="PriorityClass of the operators that set no priorityClassName.")


class Library(Values):
    """Values of the library chart, for which Helm adds a key."""

    global_: Global = Field(Global(), alias="global", description="Values that all charts of a release share.")


class ImageValues(Values):
    """The operator's image."""

    repository: Annotated[str, Field(pattern=r"^\S*$")] = Field(
        "",
        description="Repository of the operator's image. A chart of a release names one; a chart of a source checkout "
        "is refused without one.",
    )
    tag: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")] = Field(
        "", description="Tag of the operator's image. Empty: the chart's appVersion."
    )
    digest: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$")] = Field(
        "", description="Digest of the operator's image, as sha256:…. If set, the tag is ignored."
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="Pull policy of the operator's image: Always, IfNotPresent or Never."
    )


class LeaderElectionValues(Values):
    """Timing of the leader election, and its priority in the API server."""

    lease_duration: Seconds = Field(
        15, description="Time without a renewal of the Lease after which another replica takes over, in seconds."
    )
    renew_deadline: Seconds = Field(
        10,
        description="Time without a renewal of the Lease after which the leader stops leading, in seconds. Must be "
        "less than leaseDuration.",
    )
    retry_period: Seconds = Field(
        1,
        description="Time between attempts to acquire or renew the Lease, in seconds. At most half of renewDeadline.",
    )
    flow_schema: bool = Field(
        True,
        description="Create a FlowSchema that gives the requests of the operator for its Leases the priority "
        "`leader-election`, so that an API server under load costs no leader. It is cluster-scoped, and not created if "
        "watchNamespaces is set.",
    )


class Crds(Values):
    """CustomResourceDefinitions."""

    enabled: bool = Field(
        True, description="Install and upgrade the CRDs. Set to false if they are managed outside of this release."
    )
    keep: bool = Field(
        True,
        exclude=True,
        description="Deprecated. `helm uninstall` always keeps the CRDs, all resources and their data; the chart "
        "rejects false.",
        json_schema_extra={"deprecated": True},
    )


class RbacValues(Values):
    """RBAC permissions of the operator."""

    create: bool = Field(
        True,
        description="Create the operator's roles and role bindings. If false, you must grant the same permissions.",
    )
    aggregate: bool = Field(
        True, description="Add the operator's resources to the ClusterRoles view, edit and admin of Kubernetes."
    )
    watch_secrets: bool = Field(
        False,
        description="Allow the operator to watch Secrets, so that it notices a changed password or certificate within "
        "a second, without requests. It watches their metadata only, but the permission covers the content of every "
        "Secret in its scope: all namespaces, or those of watchNamespaces. If false, the operator reads each Secret "
        "that a resource names every 10 seconds.",
    )


class ServiceAccount(Values):
    """The operator's ServiceAccount."""

    create: bool = Field(True, description="Create the operator's ServiceAccount.")
    name: str = Field(
        "",
        description="Name of the ServiceAccount. Empty: the full name of the release, or `default` if create is false.",
    )
    annotations: Strings = Field({}, description="Annotations of the ServiceAccount.")


class WebhookValues(Values):
    """Admission webhook, for defaults and for rules that the CRD's schema cannot express."""

    enabled: bool = Field(
        True,
        description="Default and validate resources at admission. The operator validates them again on each reconcile.",
    )
    port: Port = Field(9443, description="Port of the webhook server in the operator's pod.")
    client_ca: Annotated[str, Field(alias="clientCA", max_length=253)] = Field(
        "",
        description="ConfigMap with the certificates, ca.crt, of the authority that signs the API servers' client "
        "certificates. The webhook then accepts no other client; the API servers need an AdmissionConfiguration "
        "(docs/how-to/restrict-network-access.md). Empty: all clients. A change needs a restart of the operator.",
    )
    failure_policy: Literal["Fail", "Ignore"] = Field(
        "Fail",
        description="Handling of changes while no replica responds: Fail rejects them, Ignore admits them unvalidated.",
    )
    timeout_seconds: Annotated[int, Field(ge=1, le=30)] = Field(
        5, description="Timeout of an admission request, in seconds (1 to 30)."
    )
    namespace_selector: LabelSelector = Field(
        LabelSelector(),
        description="Label selector of the namespaces whose resources are admitted by the webhook. Empty: all "
        "namespaces that the operator watches.",
    )


class IssuerRef(Values):
    """Issuer of cert-manager."""

    name: str = Field("", description="Name of the cert-manager issuer. Empty: the chart creates a self-signed Issuer.")
    kind: Text = Field(
        "Issuer", description="Kind of the issuer: Issuer, ClusterIssuer, or the kind of an external issuer."
    )
    group: Text = Field("cert-manager.io", description="API group of the issuer.")


class CertificatesValues(Values):
    """Serving certificate of the webhook and metrics. The operator reloads a renewed certificate without a restart."""

    source: Literal["self", "secret", "certManager"] = Field(
        "self",
        description="Source of the serving certificate. self: the operator issues and renews it. secret: you provide "
        "it in secretName. certManager: cert-manager issues and renews it.",
    )
    secret_name: str = Field(
        "",
        description="Secret with the serving certificate (type kubernetes.io/tls, with ca.crt), if source is secret or "
        "certManager. Empty with certManager: the full name of the release with the suffix -certificates.",
    )
    issuer_ref: IssuerRef = Field(IssuerRef(), description="Issuer of the certificate, if source is certManager.")


class Relabeling(Values):
    """A rule that changes labels, as in a ServiceMonitor."""

    source_labels: list[Text] | None = None
    separator: str | None = None
    target_label: str | None = None
    regex: str | None = None
    modulus: Annotated[int, Field(ge=0)] | None = None
    replacement: str | None = None
    action: str | None = None


RELABELINGS: Any = Field([], description="Rules that change the labels of the targets before they are scraped.")
METRIC_RELABELINGS: Any = Field([], description="Rules that change or drop metrics after they are scraped.")


class TokenSecret(Values):
    """Secret with the token with which Prometheus reads the operator's metrics."""

    name: str = Field(
        "",
        description="Name of a Secret in the namespace of the operator, with the token of an account that may get "
        "/metrics. Empty: Prometheus uses the token of its own account, which it reads from its file system.",
    )
    key: Text = Field("token", description="Key of the token in the Secret.")


class OperandMonitor(Values):
    """ServiceMonitor of the databases."""

    enabled: bool = Field(
        True, description="Create a second ServiceMonitor, for all databases of the operator that expose metrics."
    )
    relabelings: list[Relabeling] = RELABELINGS
    metric_relabelings: list[Relabeling] = METRIC_RELABELINGS


class ServiceMonitor(Values):
    """ServiceMonitors for the Prometheus operator."""

    enabled: bool = Field(False, description="Create ServiceMonitors for the Prometheus operator.")
    labels: Labels = Field(
        {}, description="Labels of the ServiceMonitors, by which Prometheus selects them, such as release: prometheus."
    )
    interval: Annotated[str, Field(pattern=r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$")] = Field(
        "", description="Scrape interval, such as 30s. Empty: Prometheus's default."
    )
    token_secret: TokenSecret = Field(
        TokenSecret(),
        description="Token with which Prometheus reads the operator's metrics. Needed where the Prometheus operator "
        "denies access to files (arbitraryFSAccessThroughSMs).",
    )
    relabelings: list[Relabeling] = RELABELINGS
    metric_relabelings: list[Relabeling] = METRIC_RELABELINGS
    operands: OperandMonitor = Field(
        OperandMonitor(), description="ServiceMonitor of the databases that the operator manages."
    )


class DashboardsValues(Values):
    """Grafana dashboards."""

    enabled: bool = Field(
        False,
        description="Create a ConfigMap with Grafana dashboards. They show the metrics that the ServiceMonitors "
        "collect.",
    )
    labels: Labels = Field(
        {"grafana_dashboard": "1"}, description="Labels of the ConfigMap, by which Grafana's sidecar finds it."
    )
    annotations: Strings = Field(
        {"grafana_folder": "Platform"},
        description="Annotations of the ConfigMap, such as the Grafana folder in the sidecar's folder annotation.",
    )


class MetricsValues(Values):
    """Prometheus metrics of the operator."""

    enabled: bool = Field(True, description="Serve the operator's metrics at /metrics, and create a Service for them.")
    port: Port = Field(8443, description="Port of the metrics, in the operator's pod and in its Service.")
    secure: bool = Field(
        True,
        description="Serve metrics over HTTPS, only to accounts with the permission to get /metrics (ClusterRole "
        "<full name>-metrics-reader). If false, serve them over HTTP without authentication.",
    )
    service_monitor: ServiceMonitor = Field(
        ServiceMonitor(), description="ServiceMonitors for the Prometheus operator."
    )
    dashboards: DashboardsValues = Field(
        DashboardsValues(), description="Grafana dashboards, for Grafana's dashboard sidecar."
    )
    prometheus_rule: PrometheusRule = Field(
        PrometheusRule(), description="Alerts and recording rules for the Prometheus operator."
    )


class NetworkPolicy(Values):
    """NetworkPolicy of the operator."""

    enabled: bool = Field(
        True,
        description="Create a NetworkPolicy that allows connections to the ports of the probes, of the metrics and of "
        "the webhook only.",
    )
    api_server: Annotated[list[Peer], Field(max_length=32)] = Field(
        [],
        description="Sources of webhook calls, as the `from` of a NetworkPolicy: what the API server's connections "
        "look like in the pod network. Empty: all, because that differs between clusters and network plugins "
        "(docs/how-to/restrict-network-access.md).",
    )
    metrics_from: Annotated[list[Peer], Field(max_length=32)] = Field(
        [],
        description="Clients of the metrics port, as the `from` of a NetworkPolicy. Empty: all; metrics.secure "
        "requires a token of them.",
    )
    restrict_egress: bool = Field(
        False,
        description="Allow connections from the operator only to DNS, the API server, the pods that it manages and "
        "the host of otlpEndpoint. Object stores of snapshots on another port than 443 need a policy of yours.",
    )
    api_server_ports: Annotated[list[Annotated[int, Field(ge=1, le=65535)]], Field(min_length=1)] = Field(
        [443, 6443],
        description="Ports of the API server that restrictEgress allows: those of its Service and endpoints.",
    )


class PodDisruptionBudget(Values):
    """PodDisruptionBudget of the operator."""

    enabled: bool = Field(
        True,
        description="Create a PodDisruptionBudget that allows one unavailable replica. Has no effect with one replica.",
    )


class PolicyValues(Values):
    """Policy for all resources of the operator."""

    require_tls: bool = Field(False, alias="requireTLS", description="Refuse resources without TLS (`spec.tls`).")
    require_auth: bool = Field(False, description="Refuse resources whose clients need no password (`spec.auth`).")
    allowed_registries: list[Annotated[str, Field(pattern=r"^[^\s,]+$")]] = Field(
        [],
        description="Registries, or repositories in them, of the images that resources may name, such as "
        "registry.example.com/team. An image without a registry is in docker.io. Empty: all. Images of "
        "operandImageRepository are always allowed.",
    )
    allow_host_path: bool = Field(
        False, description="Accept resources that mount directories of the nodes (`hostPath`)."
    )
    approval_namespaces: list[Annotated[str, Field(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")]] = Field(
        [],
        description="Namespaces in which each change of a spec needs an approval, as with `spec.changes: Approved`; "
        "`*` means all.",
    )
    deletion_protection: bool = Field(
        True,
        description="Create the ValidatingAdmissionPolicy (cluster-scoped) by which the API server refuses to delete "
        "resources with spec.deletionProtection. If false, that field has no effect.",
    )


class OperatorValues(Values):
    """Values of an operator's chart."""

    enabled: bool = Field(
        True, exclude=True, description="Condition of the umbrella chart; has no effect in this chart."
    )
    global_: Global = Field(Global(), alias="global", description="Values that all charts of a release share.")
    operator_library: Library = Field(
        Library(), alias="operator-library", exclude=True, description="Values of the library chart; it has none."
    )

    name_override: Annotated[str, Field(max_length=63)] = Field(
        "", description="Replaces the operator's name in the names and labels of the chart's objects."
    )
    fullname_override: Annotated[str, Field(max_length=52)] = Field(
        "", description="Replaces the full name (release name and operator name) in the names of the chart's objects."
    )
    namespace_override: Annotated[str, Field(max_length=63, pattern=NAMESPACE_OR_EMPTY)] = Field(
        "", description="Namespace of the chart's objects. Empty: the namespace of the release."
    )
    image: ImageValues = Field(ImageValues(), description="The operator's image.")
    image_pull_secrets: list[LocalName] = Field(
        [], description="Secrets for pulling the operator's image, such as [{name: registry}]."
    )
    replica_count: Replicas = Field(
        2,
        description="Number of replicas of the operator. One replica leads; the others serve webhooks and take over "
        "within seconds.",
    )
    replicas: Replicas | None = Field(
        None,
        exclude=True,
        description="Deprecated name of replicaCount, which it overrides.",
        json_schema_extra={"deprecated": True},
    )
    shards: Annotated[int, Field(ge=1, le=10)] = Field(
        1,
        description="Number of parts into which the resources are split by a hash of their names. Each has a leader, "
        "so that several replicas reconcile at once. Use at least shards + 1 replicas. A change of the number pauses "
        "reconciles for leaderElection.leaseDuration.",
    )
    leader_election: LeaderElectionValues = Field(
        LeaderElectionValues(), description="Timing of the leader election, and its priority in the API server."
    )
    watch_namespaces: Annotated[list[Namespace], Field(json_schema_extra={"uniqueItems": True})] = Field(
        [],
        description="Namespaces that the operator watches. If set, its permissions are limited to them. Empty: all "
        "namespaces.",
    )
    resync: Annotated[int, Field(ge=1, le=1200)] = Field(
        600,
        description="Interval of full resyncs, in seconds, which recover events that a watch has missed. At most 1200: "
        "an alert fires after 35 minutes without a reconcile.",
    )
    workers: Annotated[int, Field(ge=1, le=1000)] = Field(
        256, description="Maximum number of resources that are reconciled concurrently, split evenly among the shards."
    )
    create_timeout: Seconds = Field(
        600,
        description="Time allowed for a new resource to become ready before it is reported as failed, in seconds.",
    )
    upgrade_timeout: Seconds = Field(
        1800, description="Time allowed for a change to complete before it is reported as failed, in seconds."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum severity of log messages: debug, info, warning or error."
    )
    log_format: Literal["json", "text"] = Field("json", description="Format of log lines: json or text.")
    profiling: bool = Field(
        False, description="Serve profiles on port 6060 of the pod's loopback interface, for kubectl port-forward."
    )
    otlp_endpoint: Annotated[str, Field(pattern=r"^(https?://\S+)?$")] = Field(
        "",
        description="OTLP/HTTP endpoint for traces, such as http://collector.tracing:4318. Empty: no traces are sent.",
    )
    operand_image_repository: ImageRepository = Field(
        description="Default repository of the databases' images, for resources that set only a version."
    )
    check_version: Annotated[str, Field(pattern=r"^[0-9A-Za-z_.-]*$")] = Field(
        "",
        description="Version of the resource that `helm test` creates, for clusters that have only some images. Empty: "
        "the operator's default.",
    )
    agent_image: str = Field(
        "",
        description="Image of the sidecar and init containers that the operator adds to its databases. Empty: the "
        "operator's own image.",
    )
    host_network: bool = Field(
        False,
        description="Run the operator on the network of the node, for clusters whose API server cannot reach pods. The "
        "ports of the probes, metrics and webhook must then be free on the nodes, and differ between operators.",
    )
    probe_port: Port = Field(8081, description="Port of the probes in the operator's pod.")
    operator_peers: Annotated[list[Peer], Field(max_length=32)] = Field(
        [],
        description="Peers as which the operator connects to databases, as the `from` of a NetworkPolicy; the "
        "NetworkPolicies of the databases admit them. Empty: the operator's pods. Set it with hostNetwork to the "
        "addresses of the nodes, such as [{ipBlock: {cidr: 10.0.0.0/16}}].",
    )
    policy: PolicyValues = Field(
        PolicyValues(),
        description="Policy for all resources of the operator. Violations are refused at admission. Resources that "
        "already violate it keep running, but are not changed (reason PolicyViolated).",
    )
    crds: Crds = Field(
        Crds(), description="CustomResourceDefinitions. `helm uninstall` keeps them, and so all resources."
    )
    rbac: RbacValues = Field(RbacValues(), description="RBAC permissions of the operator.")
    service_account: ServiceAccount = Field(ServiceAccount(), description="The operator's ServiceAccount.")
    webhook: WebhookValues = Field(
        WebhookValues(), description="Admission webhook, which rejects invalid resources at `kubectl apply`."
    )
    certificates: CertificatesValues = Field(
        CertificatesValues(),
        description="Serving certificate of the webhook and metrics. The operator reloads a renewed certificate "
        "without a restart.",
    )
    metrics: MetricsValues = Field(MetricsValues(), description="Prometheus metrics of the operator.")
    network_policy: NetworkPolicy = Field(NetworkPolicy(), description="NetworkPolicy of the operator.")
    pod_disruption_budget: PodDisruptionBudget = Field(
        PodDisruptionBudget(), description="PodDisruptionBudget of the operator."
    )
    resources: ResourceRequirements = Field(
        ResourceRequirements(requests={"cpu": "50m", "memory": "96Mi"}, limits={"memory": "256Mi"}),
        description="Resource requests and limits of the operator. There is no CPU limit by default: a throttled "
        "operator falls behind and fails its probes.",
    )
    node_selector: Labels = Field({}, description="Node selector of the operator's pods.")
    tolerations: list[Toleration] = Field([], description="Tolerations of the operator's pods.")
    affinity: Affinity = Field(
        Affinity(),
        description="Affinity of the operator's pods. Empty: the replicas prefer different nodes.",
    )
    topology_spread_constraints: list[TopologySpread] = Field(
        [],
        description="Topology spread constraints of the operator's pods. Empty: the replicas prefer different zones.",
    )
    topology_spread: list[TopologySpread] | None = Field(
        None,
        exclude=True,
        description="Deprecated name of topologySpreadConstraints, which it overrides.",
        json_schema_extra={"deprecated": True},
    )
    priority_class_name: str = Field("", description="PriorityClass of the operator's pods.")
    deployment_annotations: Strings = Field({}, description="Annotations added to the operator's Deployment.")
    deployment_labels: Labels = Field(
        {}, description="Labels added to the operator's Deployment. The chart's own labels take precedence."
    )
    pod_annotations: Strings = Field({}, description="Annotations added to the operator's pods.")
    pod_labels: Labels = Field(
        {}, description="Labels added to the operator's pods. The chart's own labels take precedence."
    )
    pod_security_context: PodSecurityContext = Field(
        PodSecurityContext(
            run_as_non_root=True,
            run_as_user=65532,
            run_as_group=65532,
            seccomp_profile=Profile(type="RuntimeDefault"),
        ),
        description="Security context of the operator's pods. Set runAsUser and runAsGroup to null if the cluster "
        "assigns them, as OpenShift's restricted-v2 does.",
    )
    security_context: ContainerSecurityContext = Field(
        ContainerSecurityContext(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=Capabilities(drop=["ALL"]),
        ),
        description="Security context of the operator's container.",
    )
    startup_probe: Probe = Field(
        Probe(period_seconds=1, timeout_seconds=3, failure_threshold=60),
        description="Timing of the startup probe. It allows a minute to start, on a slow or busy node too.",
    )
    liveness_probe: Probe = Field(
        Probe(period_seconds=20, timeout_seconds=5, failure_threshold=3),
        description="Timing of the liveness probe. The container is restarted if it does not respond, or if a "
        "reconcile hangs, for a minute.",
    )
    readiness_probe: Probe = Field(
        Probe(period_seconds=2, timeout_seconds=3, failure_threshold=4),
        description="Timing of the readiness probe. The operator is ready once its caches are in sync; an installation "
        "waits for that.",
    )
    extra_args: list[Annotated[str, Field(pattern=r"^--[a-z]")]] = Field(
        [],
        description="Arguments added to those of the operator, such as [--certificate-lifetime=864000]. They take "
        "precedence over the arguments that the chart sets.",
    )
    extra_env: list[EnvironmentVariable] = Field(
        [],
        description="Environment variables added to the operator's container. The flags that the chart sets take "
        "precedence.",
    )
    extra_volumes: list[Volume] = Field([], description="Volumes added to the operator's pods.")
    extra_volume_mounts: list[VolumeMount] = Field(
        [], description="Mounts added to the operator's container, such as those of extraVolumes."
    )


WRITE_SECRETS = Field(
    True,
    description="Allow the operator to create and update Secrets by name, which it needs for generated passwords (auth "
    "without a Secret), certificates of tls.mode self, copies of the Secrets of users, and the connection Secrets of "
    "clients. If false, it only reads Secrets that resources name, writes no connection Secrets, refuses auth without "
    "a Secret, and mode self, and reports servers that mount the Secrets of users themselves (SecretsNotCopied).",
)

CERT_MANAGER = Field(
    True,
    description="Allow the operator to request certificates from cert-manager, which clusters with tls.mode "
    "certManager need.",
)


def operator_values(
    name: str,
    operand_images: str,
    *,
    repository: str = "",
    thresholds: type[Thresholds] = Thresholds,
    **fields: Any,
) -> type[OperatorValues]:
    """Create the model of the values of charts/<name>-operator.

    Args:
        name: name of the operator.
        operand_images: description of operandImageRepository.
        repository: default of operandImageRepository; the name of the operator if empty.
        thresholds: model of the alert thresholds.
        fields: additional or overridden fields, in the form that `create_model` accepts.
    """
    prefix = name.capitalize()
    rule = create_model(
        f"{prefix}Rule",
        __base__=PrometheusRule,
        __doc__=PrometheusRule.__doc__,
        thresholds=(thresholds, Field(thresholds(), description="Alert thresholds.")),
    )
    described = "Alerts and recording rules for the Prometheus operator. docs/runbook/alerts.md describes each alert."
    metrics = create_model(
        f"{prefix}Metrics",
        __base__=MetricsValues,
        __doc__=MetricsValues.__doc__,
        prometheus_rule=(rule, Field(rule(), description=described)),
    )
    common: dict[str, Any] = {
        "metrics": (metrics, Field(metrics(), description="Prometheus metrics of the operator.")),
        "operand_image_repository": (ImageRepository, Field(repository or name, description=operand_images)),
    }
    return create_model(
        f"{prefix}Operator",
        __base__=OperatorValues,
        __doc__=f"Values of charts/{name}-operator.",
        **common | fields,
    )
