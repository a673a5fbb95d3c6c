"""Rules about the pods of resources: scrape targets, memory and volumes, by what the kubelet and Kubernetes report.

They need the metrics that kube-prometheus-stack collects: of the kubelet (kubelet_volume_stats_*), of its cAdvisor
(container_memory_working_set_bytes), and of kube-state-metrics (kube_pod_container_*). Without these they never fire.
"""

from __future__ import annotations

from collections.abc import Callable

from dashboards.rules.expressions import ID, about_resources, about_servers, largest
from dashboards.rules.model import Alert, Group

CONTAINER = "cluster, namespace, pod, container"
CLAIM = "cluster, namespace, persistentvolumeclaim"
RESOURCE = "{{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }}"

STATEFUL_POD = "(.+)-[0-9]+"
"""Name of a StatefulSet's pod, as a regular expression; the group is the name of the resource."""

ANY_POD = "(.+?)(?:-[a-z0-9]+-[a-z0-9]{5}|-[0-9]+)"
"""Name of a Deployment's or StatefulSet's pod, as a regular expression; the group is the name of the resource."""

CLAIM_NAME = "data-(.+)-[0-9]+"
"""Name of a data volume's claim, as a regular expression; the group is the name of the resource."""

FORECAST_SECONDS = 4 * 86400
NEARLY_ALL = 0.95
"""Share of a file system that processes may use: ext4 reserves the rest."""


def group(operator: str, kind: str, *, pod: str = STATEFUL_POD, volumes: bool = True) -> Group:
    """Return the rules about the pods of one kind.

    Args:
        operator: name of the operator, which is the name of the servers' container and scrape job as well.
        kind: kind of the resources, such as EtcdCluster.
        pod: pattern of the pods' names.
        volumes: whether each pod has a data volume.
    """
    of_servers, of_resources = about_servers(kind).alert, about_resources(kind).alert

    def owned(expr: str, label: str, pattern: str) -> str:
        """Keep the series of resources of this kind, and add the labels kind and name."""
        named = f'label_replace({expr}, "name", "$1", "{label}", "{pattern}")'
        resources = f'max by ({ID}) (last_over_time(platform_resource_info{{kind="{kind}"}}[1h]))'
        return f"{named} * on (cluster, namespace, name) group_left (kind) {resources}"

    scraped = f'up{{job="{operator}",app_kubernetes_io_instance!=""}}'
    here = f'container="{operator}"'
    used = f"max by ({CONTAINER}) (container_memory_working_set_bytes{{{here}}})"
    limit = f'max by ({CONTAINER}) (kube_pod_container_resource_limits{{{here},resource="memory",unit="byte"}})'
    killed = f'max by ({CONTAINER}) (kube_pod_container_status_last_terminated_reason{{{here},reason="OOMKilled"}})'
    restarted = f"max by ({CONTAINER}) (increase(kube_pod_container_status_restarts_total{{{here}}}[30m])) > 0"
    rules: tuple[Alert, ...] = (
        of_servers(
            "PlatformTargetDown",
            "warning",
            f"{largest(scraped)} == 0",
            "10m",
            f"Prometheus cannot scrape {{{{ $labels.pod }}}} of {kind} {{{{ $labels.namespace }}}}/"
            "{{ $labels.app_kubernetes_io_instance }}",
            "No metrics of this server have arrived for 10 minutes, so alerts about it cannot fire. Check the pod, its "
            "exporter, and whether a NetworkPolicy admits Prometheus.",
        ),
        of_resources(
            "PlatformContainerMemoryHigh",
            "warning",
            f"{owned(f'({used} / {limit})', 'pod', pod)} > ${{memoryLimitUsed}}",
            "15m",
            f"{{{{ $labels.pod }}}} of {RESOURCE} is close to its memory limit",
            "The container uses {{ $value | humanizePercentage }} of its memory limit. At the limit the kernel kills "
            "it. Increase spec.resources.limits.memory, or reduce what it holds.",
        ),
        of_resources(
            "PlatformContainerOomKilled",
            "warning",
            owned(f"({killed} == 1 and {restarted})", "pod", pod),
            "0s",
            f"{{{{ $labels.pod }}}} of {RESOURCE} was killed: out of memory",
            "The kernel killed the container within the last 30 minutes, because it used more memory than its limit. "
            "Increase spec.resources.limits.memory, or reduce what it holds.",
        ),
    )
    return Group(f"platform-{operator}-pods", (*rules, *(_of_volumes(owned, kind) if volumes else ())))


def _of_volumes(owned: Callable[[str, str, str], str], kind: str) -> tuple[Alert, ...]:
    """Return the rules about data volumes."""
    alert = about_resources(kind).alert
    available, full = (f"kubelet_volume_stats_{which}_bytes" for which in ("available", "capacity"))
    free, taken = (f"max by ({CLAIM}) ({metric} / {full})" for metric in (available, "kubelet_volume_stats_used_bytes"))
    forecast = f"predict_linear(kubelet_volume_stats_used_bytes[6h], {FORECAST_SECONDS})"
    soon = f"max by ({CLAIM}) ({forecast} > {NEARLY_ALL} * {full})"
    claim = ("persistentvolumeclaim", CLAIM_NAME)
    return (
        alert(
            "PlatformVolumeNearlyFull",
            "critical",
            f"{owned(free, *claim)} < ${{volumeFree}}",
            "5m",
            f"Volume {{{{ $labels.persistentvolumeclaim }}}} of {RESOURCE} is nearly full",
            "Only {{ $value | humanizePercentage }} of the volume is free. A full volume stops writes. Increase "
            "spec.storage.size; do not delete files or claims.",
        ),
        alert(
            "PlatformVolumeFillsUp",
            "warning",
            owned(f"({taken} > ${{volumeUsed}} and {soon})", *claim),
            "1h",
            f"Volume {{{{ $labels.persistentvolumeclaim }}}} of {RESOURCE} will be full within four days",
            "{{ $value | humanizePercentage }} of the volume is in use, and it would be full within four days if the "
            "growth of the last six hours continued. Increase spec.storage.size, or find what grows.",
        ),
    )
