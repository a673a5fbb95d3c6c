"""The values that every operator's chart has. A field's description is its comment, its schema's and its README row."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from charts.values.base import Values
from charts.values.kubernetes import Affinity, EnvironmentVariable, Labels, LabelSelector, LocalName, Strings, Text
from charts.values.rules import PrometheusRule, Thresholds
from shared.api.podspec import ResourceRequirements, Toleration, TopologySpread

Port = Annotated[int, Field(ge=1024, le=65535, json_schema_extra={"not": {"const": 8081}})]
"""One that needs no privilege, and is not the probes'."""

Seconds = Annotated[int, Field(ge=1)]
Namespace = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
ImageRepository = Annotated[str, Field(pattern=r"^\S+$")]


class Global(BaseModel):
    """What an umbrella chart gives to all its parts; ours read nothing of it."""

    model_config = ConfigDict(extra="allow")


class Library(Values):
    """The place that Helm gives the library chart among the values."""

    global_: Global = Field(Global(), alias="global", description="Values for every part of an umbrella chart.")


class ImageValues(Values):
    """The operator's image."""

    repository: ImageRepository = Field(description="Where it is pulled from.")
    tag: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")] = Field(
        "", description="Its tag; empty: the chart's appVersion."
    )
    digest: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$")] = Field(
        "", description="sha256:… pins the image; the tag is then not used."
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When nodes pull it: Always, IfNotPresent or Never."
    )


class LeaderElectionValues(Values):
    """Times of the Lease by which one replica leads."""

    lease_duration: Seconds = Field(15, description="Seconds without a renewal after which another replica takes over.")
    renew_deadline: Seconds = Field(
        10, description="Seconds without a renewal after which the leader gives up; below leaseDuration."
    )
    retry_period: Seconds = Field(
        1, description="Seconds between attempts to take the Lease; at most half of renewDeadline."
    )


class Crds(Values):
    """The CRDs."""

    enabled: bool = Field(True, description="Install and upgrade the CRDs. Off where somebody else does.")
    keep: bool = Field(
        True,
        exclude=True,
        description="The CRDs, and with them all resources and their data, always outlive the release; false is "
        "refused with what to do instead.",
        json_schema_extra={"deprecated": True},
    )


class RbacValues(Values):
    """Rights."""

    create: bool = Field(True, description="Make the roles and bindings; without them, you give what they would.")
    aggregate: bool = Field(
        True, description="Kubernetes' own roles view, edit and admin extend to the operator's resources."
    )


class ServiceAccount(Values):
    """The operator's account."""

    create: bool = Field(True, description="Make the account.")
    name: str = Field("", description="Its name; empty: the full name, or `default` where none is created.")
    annotations: Strings = Field({}, description="Annotations of the account.")


class WebhookValues(Values):
    """Admission: what is wrong is refused at `kubectl apply`, where the CRD's schema cannot say it."""

    enabled: bool = Field(
        True, description="Default and validate resources at admission; the operator checks the same again, either way."
    )
    port: Port = Field(9443, description="The port that the operator listens on.")
    failure_policy: Literal["Fail", "Ignore"] = Field(
        "Fail", description="What becomes of a change while no replica answers: Fail refuses it, Ignore lets it pass."
    )
    timeout_seconds: Annotated[int, Field(ge=1, le=30)] = Field(
        5, description="Seconds after which no answer counts as none."
    )
    namespace_selector: LabelSelector = Field(
        LabelSelector(), description="Labels of the namespaces whose resources are looked at; empty: of all it serves."
    )


class IssuerRef(Values):
    """An issuer of cert-manager."""

    name: str = Field("", description="An issuer of cert-manager; empty: the chart makes one that signs for itself.")
    kind: Text = Field("Issuer", description="Its kind: Issuer, ClusterIssuer, or one of another group.")
    group: Text = Field("cert-manager.io", description="Its API group.")


class CertificatesValues(Values):
    """Where the certificate of webhook and metrics comes from; it is renewed and reloaded without a restart."""

    source: Literal["self", "secret", "certManager"] = Field(
        "self",
        description="self: the operator makes and renews it. secret: you bring it, in secretName. certManager: "
        "cert-manager makes it.",
    )
    secret_name: str = Field(
        "",
        description="The Secret it is in (kubernetes.io/tls, with ca.crt), where the source is secret or certManager; "
        "for certManager, empty is the full name with -certificates.",
    )
    issuer_ref: IssuerRef = Field(IssuerRef(), description="Who signs where the source is certManager.")


class OperandMonitor(Values):
    """Scraping what the operator runs."""

    enabled: bool = Field(
        True, description="A further ServiceMonitor scrapes whatever the operator runs that has metrics."
    )


class ServiceMonitor(Values):
    """Scraping by the Prometheus operator."""

    enabled: bool = Field(False, description="Make ServiceMonitors, for a Prometheus operator to find.")
    labels: Labels = Field({}, description="Labels by which your Prometheus selects them, such as release: prometheus.")
    interval: Annotated[str, Field(pattern=r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$")] = Field(
        "", description="Time between scrapes, such as 30s; empty: as Prometheus is set."
    )
    operands: OperandMonitor = Field(OperandMonitor(), description="The same for what the operator runs.")


class DashboardsValues(Values):
    """Dashboards for Grafana."""

    enabled: bool = Field(
        False, description="Make a ConfigMap with the dashboards; its data is from the ServiceMonitors' targets."
    )
    labels: Labels = Field({"grafana_dashboard": "1"}, description="Labels by which Grafana's sidecar finds it.")
    annotations: Strings = Field(
        {"grafana_folder": "Platform"}, description="Annotations of it: the folder, as the sidecar is set to read it."
    )


class MetricsValues(Values):
    """Prometheus metrics of the operator."""

    enabled: bool = Field(True, description="Serve /metrics, and make a Service for it.")
    port: Port = Field(8443, description="The port that the operator and the Service listen on.")
    secure: bool = Field(
        True,
        description="HTTPS, for accounts that may get /metrics (see the role -metrics-reader); false: HTTP, for all.",
    )
    service_monitor: ServiceMonitor = Field(ServiceMonitor(), description="Scraping by the Prometheus operator.")
    dashboards: DashboardsValues = Field(DashboardsValues(), description="Dashboards, for a Grafana that finds them.")
    prometheus_rule: PrometheusRule = Field(
        PrometheusRule(), description="Alerts and recording rules for the Prometheus operator."
    )


class NetworkPolicy(Values):
    """What may reach the operator, and what it may reach."""

    enabled: bool = Field(
        False,
        description="Allow the operator what it needs, and nothing else: to be asked on its ports, and to reach DNS, "
        "the API server and what it runs.",
    )
    api_server_ports: Annotated[list[Annotated[int, Field(ge=1, le=65535)]], Field(min_length=1)] = Field(
        [443, 6443], description="Ports of the API server: of its Service, and of its endpoints."
    )


class PodDisruptionBudget(Values):
    """Draining nodes."""

    enabled: bool = Field(True, description="Draining nodes takes one replica at a time; where there are several.")


class OperatorValues(Values):
    """The values of an operator's chart."""

    enabled: bool = Field(True, exclude=True, description="The umbrella chart's condition; of no effect here.")
    global_: Global = Field(
        Global(), alias="global", exclude=True, description="Values for every part of an umbrella chart; none is read."
    )
    operator_library: Library = Field(
        Library(), alias="operator-library", exclude=True, description="Helm gives every dependency a place."
    )

    name_override: Annotated[str, Field(max_length=63)] = Field(
        "", description="Instead of the operator's name, in names and labels of its own objects."
    )
    fullname_override: Annotated[str, Field(max_length=52)] = Field(
        "", description="Instead of release and name, in the names of its own objects."
    )
    image: ImageValues = Field(description="The operator's image.")
    image_pull_secrets: list[LocalName] = Field([], description="Secrets to pull images with, such as [{name: mine}].")
    replicas: Annotated[int, Field(ge=1, le=10)] = Field(
        2, description="One replica leads; the others answer webhooks, and take over within seconds."
    )
    leader_election: LeaderElectionValues = Field(LeaderElectionValues(), description="Times of the leader's Lease.")
    watch_namespaces: Annotated[list[Namespace], Field(json_schema_extra={"uniqueItems": True})] = Field(
        [], description="Namespaces to serve; empty: all. Where some are listed, the operator's rights end at them."
    )
    resync: Seconds = Field(600, description="Seconds between full re-reads, the net under what watches might miss.")
    workers: Annotated[int, Field(ge=1, le=1000)] = Field(512, description="Resources handled at once.")
    create_timeout: Seconds = Field(600, description="Seconds after which a creation that does not end is reported.")
    upgrade_timeout: Seconds = Field(1800, description="Seconds after which a change that does not end is reported.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least severe messages logged: debug, info, warning or error."
    )
    log_format: Literal["json", "text"] = Field("json", description="The form of a log line: json or text.")
    profiling: bool = Field(
        False, description="Serve profiles on the pod's loopback, port 6060, for kubectl port-forward."
    )
    otlp_endpoint: Annotated[str, Field(pattern=r"^(https?://\S+)?$")] = Field(
        "", description="Where traces go by OTLP over HTTP, such as http://collector.tracing:4318; empty: nowhere."
    )
    operand_image_repository: ImageRepository = Field(
        description="Where images come from if a resource names a version only."
    )
    agent_image: str = Field(
        "", description="Image of what the operator puts beside or before its databases; empty: the operator's own."
    )
    crds: Crds = Field(Crds(), description="The CRDs. They, and so your resources, always outlive the release.")
    rbac: RbacValues = Field(RbacValues(), description="Rights.")
    service_account: ServiceAccount = Field(ServiceAccount(), description="The operator's account.")
    webhook: WebhookValues = Field(
        WebhookValues(), description="Admission: what is wrong is refused at `kubectl apply`."
    )
    certificates: CertificatesValues = Field(
        CertificatesValues(),
        description="The certificate of webhook and metrics; renewed and reloaded without a restart.",
    )
    metrics: MetricsValues = Field(MetricsValues(), description="Prometheus metrics of the operator.")
    network_policy: NetworkPolicy = Field(NetworkPolicy(), description="For networks that enforce NetworkPolicies.")
    pod_disruption_budget: PodDisruptionBudget = Field(PodDisruptionBudget(), description="Draining nodes.")
    resources: ResourceRequirements = Field(
        ResourceRequirements(requests={"cpu": "50m", "memory": "96Mi"}, limits={"memory": "256Mi"}),
        description="CPU and memory of the operator. No limit on CPU: throttled, it falls behind and fails its probes.",
    )
    node_selector: Labels = Field({}, description="Labels that a node must have.")
    tolerations: list[Toleration] = Field([], description="Taints of nodes that the pods tolerate.")
    affinity: Affinity = Field(
        Affinity(), description="Where the pods run, as in a pod; empty: rather not two on one node."
    )
    topology_spread: list[TopologySpread] = Field(
        [], description="How the replicas spread over nodes and zones; empty: as evenly over zones as can be."
    )
    priority_class_name: str = Field("", description="PriorityClass of the pods.")
    pod_annotations: Strings = Field({}, description="Further annotations of the pods.")
    pod_labels: Labels = Field({}, description="Further labels of the pods; the chart's own win.")
    extra_env: list[EnvironmentVariable] = Field(
        [], description="Further variables for the container, as in a pod; what the chart sets by flags wins."
    )


CERT_MANAGER = Field(
    True, description="The operator may ask cert-manager for certificates, for clusters with tls.mode certManager."
)


def operator_values(
    name: str, operand_images: str, *, thresholds: type[Thresholds] = Thresholds, **fields: Any
) -> type[OperatorValues]:
    """The model of the values of charts/<name>-operator.

    Args:
        name: the operator's.
        operand_images: the description of operandImageRepository.
        thresholds: those of its alerts.
        fields: others that are its own, or that stand for a common one, as `create_model` takes them.
    """
    prefix = name.capitalize()
    rule = create_model(
        f"{prefix}Rule",
        __base__=PrometheusRule,
        __doc__=PrometheusRule.__doc__,
        thresholds=(thresholds, Field(thresholds(), description="From when on alerts fire.")),
    )
    described = "Alerts and recording rules for the Prometheus operator; docs/runbook/alerts.md tells of each."
    metrics = create_model(
        f"{prefix}Metrics",
        __base__=MetricsValues,
        __doc__=MetricsValues.__doc__,
        prometheus_rule=(rule, Field(rule(), description=described)),
    )
    common: dict[str, Any] = {
        "image": (
            ImageValues,
            Field(ImageValues(repository=f"platform/{name}-operator"), description="The operator's image."),
        ),
        "metrics": (metrics, Field(metrics(), description="Prometheus metrics of the operator.")),
        "operand_image_repository": (ImageRepository, Field(name, description=operand_images)),
    }
    return create_model(
        f"{prefix}Operator",
        __base__=OperatorValues,
        __doc__=f"The values of charts/{name}-operator.",
        **common | fields,
    )
