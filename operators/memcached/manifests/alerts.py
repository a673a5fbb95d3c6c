"""Rules about memcached, based on the exporter's metrics, which have the names of prometheus/memcached_exporter."""

from __future__ import annotations

from dashboards.rules import operator_rules, resource_rules, workload_rules
from dashboards.rules.expressions import OWNER, about_servers, largest
from dashboards.rules.model import Group, Recording, RuleSet
from operators.memcached.api import resource
from operators.memcached.manifests.values import MemcachedThresholds

KIND = resource.API.kind.name
MEMCACHED = "Memcached {{ $labels.namespace }}/{{ $labels.app_kubernetes_io_instance }}"
SERVER = "{{ $labels.pod }} of " + MEMCACHED

_of_servers = about_servers(KIND).alert

_TIMEOUTS = 'increase(memcached_exporter_errors_total{reason="TimedOut"}[5m])'

_SERVERS = Group(
    "platform-memcached",
    (
        Recording(
            name="resource:memcached_get_hits:ratio_rate30m",
            expr=f'sum by ({OWNER}) (rate(memcached_commands_total{{command="get",status="hit"}}[30m])) / '
            f'sum by ({OWNER}) (rate(memcached_commands_total{{command="get"}}[30m]))',
        ),
        _of_servers(
            "MemcachedTimesOut",
            "critical",
            f"{largest('memcached_up')} == 0 and {largest(_TIMEOUTS)} > 0",
            "3m",
            f"{SERVER} hangs",
            "The server accepts connections, but does not respond to its exporter within two seconds, and probably to "
            "no client. Its sidecar ends it after two minutes without any response; one of release 0.1.0 does not. If "
            "CPU and connections are not used up, delete the pod.",
        ),
        _of_servers(
            "MemcachedDoesNotAnswer",
            "warning",
            f"{largest('memcached_up')} == 0",
            "3m",
            f"{SERVER} does not respond to its exporter",
            "The exporter runs, but cannot read the statistics: the server does not start, hangs, or rejects the "
            "exporter's password or certificate. The log of the exporter container names the error.",
        ),
        _of_servers(
            "MemcachedFull",
            "warning",
            f"sum by ({OWNER}) (rate(memcached_items_evicted_total[5m])) > ${{evictionsPerSecond}}",
            "15m",
            f"{MEMCACHED} is full",
            "The servers evict {{ $value | humanize }} items per second before they expire, which lowers the hit "
            "ratio. Increase memoryMB or size, or raise the threshold evictionsPerSecond.",
        ),
        _of_servers(
            "MemcachedOutOfMemory",
            "warning",
            f"sum by ({OWNER}) (increase(memcached_item_no_memory_total[10m])) > 0",
            "0s",
            f"{MEMCACHED} rejects items: out of memory",
            "{{ $value | humanize }} items were rejected in 10 minutes, because there was no memory and no item to "
            "evict. Increase memoryMB; a restart reassigns the memory of slab classes.",
        ),
        _of_servers(
            "MemcachedConnectionsHigh",
            "warning",
            f"{largest('memcached_current_connections / memcached_max_connections')} > ${{connectionsUsed}}",
            "10m",
            f"{SERVER} is close to its connection limit",
            "{{ $value | humanizePercentage }} of its connections are in use. At the limit, new connections wait. "
            "Check clients for connection leaks, or increase maxConnections.",
        ),
        _of_servers(
            "MemcachedConnectionsRejected",
            "warning",
            f"sum by ({OWNER}) (increase(memcached_connections_rejected_total[5m])) > 0",
            "10m",
            f"{MEMCACHED} keeps rejecting connections",
            "{{ $value | humanize }} connections were rejected in 5 minutes, because the connection limit is reached. "
            "Check clients for connection leaks, or increase maxConnections.",
        ),
        _of_servers(
            "MemcachedHitRatioLow",
            "info",
            f"resource:memcached_get_hits:ratio_rate30m < ${{hitRatio}} and "
            f'sum by ({OWNER}) (rate(memcached_commands_total{{command="get"}}[30m])) > 1',
            "1h",
            f"{MEMCACHED} has a low hit ratio",
            "Only {{ $value | humanizePercentage }} of gets were hits in the last 30 minutes. This is expected after "
            "scaling or restarts; if it persists, check evictions, expiry times and the clients' hashing.",
        ),
        _of_servers(
            "MemcachedRestarts",
            "warning",
            f"{largest('resets(memcached_uptime_seconds[1h])')} > 2",
            "0s",
            f"{SERVER} restarts repeatedly",
            "The server restarted {{ $value }} times in the last hour. Each restart empties its cache unless warm "
            "restart is enabled. The previous container's log and exit code name the cause.",
        ),
    ),
)

RULES = RuleSet(
    "memcached",
    (
        operator_rules.group("memcached", KIND),
        resource_rules.group("memcached", KIND),
        workload_rules.group("memcached", KIND, pod=workload_rules.ANY_POD, volumes=False),
        _SERVERS,
    ),
    MemcachedThresholds(),
)
