"""From when on the rules of dashboards/rules speak up: expressions name these, and people set them by the charts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from charts.values.base import Values
from charts.values.kubernetes import Labels, Strings, Text

Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[float, Field(ge=0)]
Time = Annotated[float, Field(gt=0)]
"""Seconds."""


class Thresholds(Values):
    """From when on alerts fire, for every operator."""

    unready_seconds: Time = Field(900, description="Seconds that a resource may be not Ready.")
    certificate_seconds: Time = Field(
        1_209_600,
        description="Seconds that a certificate must be good for; the operators' own are renewed a month before.",
    )
    error_budget: Share = Field(
        0.01, description="Share of reconciles that may fail: alerts fire by how fast this is used up."
    )
    queue_seconds: Time = Field(10, description="Seconds that one in a hundred resources may wait for a worker.")
    api_error_ratio: Share = Field(0.05, description="Share of requests to the API server that may get 429 or 5xx.")


class PrometheusRule(Values):
    """Alerts and recording rules for the Prometheus operator."""

    enabled: bool = Field(False, description="Make a PrometheusRule; it asks what the ServiceMonitors' targets tell.")
    labels: Labels = Field({}, description="Labels by which your Prometheus selects it, such as release: prometheus.")
    alert_labels: Strings = Field({}, description="Further labels of every alert, such as team: storage.")
    disabled: list[Text] = Field([], description="Names of alerts to leave out, such as [PlatformResourcePaused].")
    dashboards_url: str = Field("", description="Where Grafana is: what links to dashboards begin with.")
    runbooks_url: str = Field(
        "", description="Where this repository can be read, with a / at its end: what links to the runbook begin with."
    )
    thresholds: Thresholds = Field(Thresholds(), description="From when on alerts fire.")
