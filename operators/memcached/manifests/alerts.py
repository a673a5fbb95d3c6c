"""Rules about memcached, from what our exporter tells (prometheus/memcached_exporter's names)."""

from __future__ import annotations

from dashboards.rules import operator_rules, resource_rules
from dashboards.rules.asking import OWNER, about_servers, largest
from dashboards.rules.model import Group, Recording, RuleSet
from operators.memcached.api import resource
from operators.memcached.manifests.values import MemcachedThresholds

KIND = resource.API.kind.name
WHO = "Memcached {{ $labels.namespace }}/{{ $labels.app_kubernetes_io_instance }}"
SERVER = "{{ $labels.pod }} of " + WHO

_of_servers = about_servers(KIND).alert

_SERVERS = Group(
    "platform-memcached",
    (
        Recording(
            name="resource:memcached_get_hits:ratio_rate30m",
            expr=f'sum by ({OWNER}) (rate(memcached_commands_total{{command="get",status="hit"}}[30m])) / '
            f'sum by ({OWNER}) (rate(memcached_commands_total{{command="get"}}[30m]))',
        ),
        _of_servers(
            "MemcachedDoesNotAnswer",
            "warning",
            f"{largest('memcached_up')} == 0",
            "3m",
            f"{SERVER} does not answer its exporter",
            "It runs, and does not say what it counts: it hangs, or does not take the exporter's password or "
            "certificate.",
        ),
        _of_servers(
            "MemcachedFull",
            "warning",
            f"sum by ({OWNER}) (rate(memcached_items_evicted_total[5m])) > ${{evictionsPerSecond}}",
            "15m",
            f"{WHO} is full",
            "It throws away {{ $value | humanize }} items in a second before they expire.",
        ),
        _of_servers(
            "MemcachedOutOfMemory",
            "warning",
            f"sum by ({OWNER}) (increase(memcached_item_no_memory_total[10m])) > 0",
            "0s",
            f"{WHO} refuses items",
            "It had no memory for {{ $value | humanize }} items within ten minutes, and could not evict others.",
        ),
        _of_servers(
            "MemcachedConnectionsHigh",
            "warning",
            f"{largest('memcached_current_connections / memcached_max_connections')} > ${{connectionsUsed}}",
            "10m",
            f"{SERVER} has nearly as many connections as it may",
            "{{ $value | humanizePercentage }} of them are in use; further clients will have to wait.",
        ),
        _of_servers(
            "MemcachedConnectionsRejected",
            "critical",
            f"sum by ({OWNER}) (increase(memcached_connections_rejected_total[10m])) > 0",
            "0s",
            f"{WHO} turns clients away",
            "It had no connection for {{ $value | humanize }} clients within ten minutes.",
        ),
        _of_servers(
            "MemcachedHitRatioLow",
            "info",
            f"resource:memcached_get_hits:ratio_rate30m < ${{hitRatio}} and "
            f'sum by ({OWNER}) (rate(memcached_commands_total{{command="get"}}[30m])) > 1',
            "1h",
            f"{WHO} seldom has what it is asked for",
            "{{ $value | humanizePercentage }} of gets found something.",
        ),
        _of_servers(
            "MemcachedRestarts",
            "warning",
            f"{largest('resets(memcached_uptime_seconds[1h])')} > 2",
            "0s",
            f"{SERVER} keeps restarting",
            "It began anew {{ $value }} times within an hour; unless it restarts warm, it is empty each time.",
        ),
    ),
)

RULES = RuleSet(
    "memcached",
    (operator_rules.group("memcached", KIND), resource_rules.group("memcached", KIND), _SERVERS),
    MemcachedThresholds(),
)
