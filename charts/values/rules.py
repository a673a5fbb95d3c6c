"""Values of the alerting rules: thresholds that the rule expressions name, and PrometheusRule options."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from charts.values.base import Values
from charts.values.kubernetes import Labels, Strings, Text

Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[float, Field(ge=0)]
Time = Annotated[float, Field(gt=0)]
"""Duration in seconds."""


class Thresholds(Values):
    """Alert thresholds."""

    unready_seconds: Time = Field(
        900,
        description="PlatformResourceNotReady fires when a resource is not Ready for longer than this, in seconds, and "
        "no planned change is in progress.",
    )
    change_seconds: Time = Field(
        3600,
        description="PlatformResourceNotReady fires when a resource is not Ready for longer than this, in seconds, and "
        "its planned change has made no progress for 30 minutes.",
    )
    certificate_share: Share = Field(
        0.25,
        description="PlatformResourceCertificateEnds and PlatformOperatorCertificateEnds fire when less than this "
        "share of the validity of a certificate is left (0 to 1), and less than certificateSeconds. Operators and "
        "cert-manager renew when a third is left.",
    )
    certificate_critical_share: Share = Field(
        0.1,
        description="PlatformResourceCertificateExpires fires when less than this share of the validity of a "
        "certificate is left (0 to 1), and less than certificateCriticalSeconds. While the certificate is being "
        "renewed, it fires at half of this share.",
    )
    certificate_seconds: Time = Field(
        5_184_000,
        description="PlatformResourceCertificateEnds and PlatformOperatorCertificateEnds fire only below this "
        "remaining validity, in seconds. It limits the alerts on certificates that are valid for years.",
    )
    certificate_critical_seconds: Time = Field(
        604_800,
        description="PlatformResourceCertificateExpires fires only below this remaining validity, in seconds.",
    )
    error_budget: Share = Field(
        0.01,
        description="Share of resources whose reconciles may fail (0 to 1); each resource counts once. "
        "PlatformOperatorErrorBudgetBurn fires when this error budget is consumed too fast.",
    )
    memory_limit_used: Share = Field(
        0.9, description="PlatformContainerMemoryHigh fires above this share of a container's memory limit (0 to 1)."
    )
    queue_seconds: Time = Field(
        10,
        description="PlatformOperatorQueueSlow fires above this 99th percentile of the time that a resource waits for "
        "a worker, in seconds.",
    )
    api_error_ratio: Share = Field(
        0.05,
        description="PlatformOperatorApiErrors fires above this share of API server requests that return 429 or 5xx "
        "(0 to 1).",
    )
    watch_stalled_seconds: Time = Field(
        600,
        description="PlatformOperatorWatchStalled fires when a watch has delivered nothing for longer than this, in "
        "seconds.",
    )


class VolumeThresholds(Thresholds):
    """Alert thresholds of the operators of databases with volumes."""

    volume_free: Share = Field(
        0.05, description="PlatformVolumeNearlyFull fires below this free share of a data volume (0 to 1)."
    )
    volume_used: Share = Field(
        0.6,
        description="PlatformVolumeFillsUp fires above this used share of a data volume (0 to 1), if its growth would "
        "fill it within four days.",
    )


class PrometheusRule(Values):
    """Alerts and recording rules for the Prometheus operator."""

    enabled: bool = Field(
        False, description="Create a PrometheusRule. Its rules use the metrics that the ServiceMonitors collect."
    )
    labels: Labels = Field(
        {}, description="Labels of the PrometheusRule, by which Prometheus selects it, such as release: prometheus."
    )
    alert_labels: Strings = Field({}, description="Labels added to every alert, such as team: storage.")
    disabled: list[Text] = Field([], description="Names of alerts to omit, such as [PlatformResourcePaused].")
    dashboards_url: str = Field(
        "",
        description="Base URL of Grafana, such as https://grafana.example.com, for the alerts' dashboard_url. Empty: "
        "alerts have no dashboard_url.",
    )
    runbooks_url: str = Field(
        "",
        description="Base URL of this repository's files, with a trailing slash, for the alerts' runbook_url. Empty: "
        "the runbook of the release, below `home` of Chart.yaml (https://HOST/OWNER/NAME/blob/vVERSION/). A chart that "
        "was packaged from a checkout has no home, and the URL is a path.",
    )
    thresholds: Thresholds = Field(Thresholds(), description="Alert thresholds.")
