"""Links from a dashboard to the logs, traces and pods of the selected resources. Pure.

Logs open in Explore with the data source of the variable `logs` (Loki), traces with that of `traces` (Tempo). The URL
format is that of Grafana 10 and later (https://grafana.com/docs/grafana/latest/explore/get-started-with-explore/).
Pods open the dashboards of kubernetes-mixin, which kube-prometheus-stack installs with fixed uids.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote

PODS = "/d/85a562078cdf77779eaa1add43ccec1e?${datasource:queryparam}&${cluster:queryparam}&${namespace:queryparam}"
"""URL of the dashboard Kubernetes / Compute Resources / Namespace (Pods)."""

POD = (
    "/d/6581e46e4e5c7ba40a07646395ef7b23?${datasource:queryparam}&${cluster:queryparam}"
    "&var-namespace=${__data.fields.namespace}&var-pod=${__data.fields.pod}&${__url_time_range}"
)
"""URL of the dashboard Kubernetes / Compute Resources / Pod, for the pod of a table's row."""


def logs(selector: str) -> str:
    """Return the URL of the logs that a LogQL stream selector matches; it may use variables."""
    return _explore("${logs}", {"refId": "A", "expr": selector, "queryType": "range"})


def traces(query: str) -> str:
    """Return the URL of the traces that a TraceQL query finds; it may use variables."""
    return _explore("${traces}", {"refId": "A", "query": query, "queryType": "traceql"})


def _explore(source: str, query: dict[str, str]) -> str:
    pane = {"datasource": source, "queries": [query], "range": {"from": "${__from}", "to": "${__to}"}}
    text = quote(json.dumps({"a": pane}, separators=(",", ":")))
    # Grafana replaces variables before the browser decodes the URL.
    return "/explore?schemaVersion=1&panes=" + re.sub(
        r"%24%7B(\w+)(?:%3A(\w+))?%7D", lambda found: "${" + ":".join(filter(None, found.groups())) + "}", text
    )
