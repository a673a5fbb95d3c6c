"""Rules about Redis and Valkey, from what oliver006's exporter tells of nodes, and the operator of clusters."""

from __future__ import annotations

from dashboards.rules import operator_rules, resource_rules
from dashboards.rules.asking import OWNER, SERVER, about_resources, about_servers, largest, told
from dashboards.rules.model import Group, Recording, RuleSet
from operators.redis.api import resource
from operators.redis.manifests.values import RedisThresholds

KIND = resource.API.kind.name
WHO = "RedisCluster {{ $labels.namespace }}/{{ $labels.app_kubernetes_io_instance }}"
NODE = "{{ $labels.pod }} of " + WHO
RESOURCE = "RedisCluster {{ $labels.namespace }}/{{ $labels.name }}"

_of_nodes, _of_resources = about_servers(KIND).alert, about_resources(KIND).alert

_unserved = told("platform_redis_slots", KIND, 'state="unserved"')
_left = told("platform_redis_migration_slots_left", KIND)

_RESOURCES = Group(
    "platform-redis-clusters",
    (
        _of_resources(
            "RedisSlotsUnserved",
            "critical",
            f"{_unserved} > 0",
            "1m",
            f"{RESOURCE} does not serve {{{{ $value }}}} slots",
            "No node that serves owns them. Unless cluster-require-full-coverage is no, clients get CLUSTERDOWN for "
            "all keys.",
        ),
        _of_resources(
            "RedisNoMaster",
            "critical",
            f"{told('platform_redis_masters', KIND)} == 0 and {_unserved} > 0",
            "1m",
            f"{RESOURCE} has no master",
            "No node that answers owns slots: nothing is read or written.",
        ),
        _of_resources(
            "RedisRecoveryWaiting",
            "critical",
            f"{told('platform_redis_recovery_waiting', KIND)} == 1",
            "1m",
            f"{RESOURCE} waits for a person",
            "A master has lost its disk, as have all of its replicas. Nothing happens before somebody decides.",
        ),
        _of_resources(
            "RedisSplitView",
            "warning",
            told("platform_resource_condition", KIND, 'type="Ready"', 'reason="Settling"') + " == 1",
            "5m",
            f"Nodes of {RESOURCE} do not agree who is who",
            "Nothing that could lose data is done until they do.",
        ),
        _of_resources(
            "RedisMigrationStuck",
            "warning",
            f"{_left} > 0 and max by (cluster, kind, namespace, name) "
            f'(changes(platform_redis_migration_slots_left{{kind="{KIND}"}}[30m])) == 0',
            "10m",
            f"Slots of {RESOURCE} do not move on",
            "{{ $value }} are left, and none has moved for half an hour. Clients are served all the while.",
        ),
    ),
)

_NODES = Group(
    "platform-redis",
    (
        Recording(
            name="server:redis_memory_used:ratio",
            expr=f"max by ({SERVER}) (redis_memory_used_bytes / (redis_memory_max_bytes > 0))",
        ),
        _of_nodes(
            "RedisDoesNotAnswer",
            "warning",
            f"{largest('redis_up')} == 0",
            "3m",
            f"{NODE} does not answer its exporter",
            "Its pod runs; it hangs, reads its data, or does not take the exporter's password or certificate.",
        ),
        _of_nodes(
            "RedisClusterDown",
            "critical",
            f"{largest('redis_cluster_state')} == 0",
            "1m",
            f"{NODE} answers CLUSTERDOWN",
            "It sees a slot without a master, or no majority of the masters.",
        ),
        _of_nodes(
            "RedisMemoryHigh",
            "warning",
            "server:redis_memory_used:ratio > ${memoryUsed}",
            "10m",
            f"{NODE} has nearly used up its maxmemory",
            "{{ $value | humanizePercentage }} of it is in use; then keys are evicted or writes refused, as "
            "maxmemory-policy says.",
        ),
        _of_nodes(
            "RedisEvicting",
            "warning",
            f"sum by ({OWNER}) (rate(redis_evicted_keys_total[5m])) > ${{evictionsPerSecond}}",
            "15m",
            f"{WHO} evicts keys",
            "{{ $value | humanize }} in a second, to stay within maxmemory.",
        ),
        _of_nodes(
            "RedisReplicaCutOff",
            "warning",
            f"{largest('redis_master_link_up')} == 0",
            "5m",
            f"{NODE} does not hear its master",
            "It is a replica, and falls behind. If its master is lost now, so is what came since.",
        ),
        _of_nodes(
            "RedisReplicaLags",
            "warning",
            f"{largest('redis_connected_slave_lag_seconds')} > ${{replicaLagSeconds}}",
            "5m",
            f"A replica of {NODE} lags",
            "It was last in step {{ $value | humanizeDuration }} ago.",
        ),
        _of_nodes(
            "RedisLogNotWritten",
            "critical",
            f"min by ({SERVER}) (redis_aof_last_write_status) == 0",
            "1m",
            f"{NODE} cannot write its log",
            "Most often its volume is full. It refuses writes until that is mended.",
        ),
        _of_nodes(
            "RedisSnapshotFails",
            "warning",
            f"min by ({SERVER}) (redis_rdb_last_bgsave_status) == 0",
            "5m",
            f"{NODE} cannot save a snapshot",
            "The last attempt failed: no memory to fork, or no room on the volume. Replicas that begin anew need one.",
        ),
        _of_nodes(
            "RedisConnectionsHigh",
            "warning",
            f"{largest('redis_connected_clients / redis_max_clients')} > ${{connectionsUsed}}",
            "10m",
            f"{NODE} has nearly as many clients as it may",
            "{{ $value | humanizePercentage }} of maxclients are connected; further ones will be refused.",
        ),
        _of_nodes(
            "RedisConnectionsRejected",
            "critical",
            f"sum by ({OWNER}) (increase(redis_rejected_connections_total[10m])) > 0",
            "0s",
            f"{WHO} turns clients away",
            "It refused {{ $value | humanize }} connections within ten minutes: maxclients is reached.",
        ),
        _of_nodes(
            "RedisRestarts",
            "warning",
            f"{largest('changes(redis_start_time_seconds[1h])')} > 2",
            "0s",
            f"{NODE} keeps restarting",
            "It began anew {{ $value }} times within an hour.",
        ),
    ),
)

RULES = RuleSet(
    "redis",
    (operator_rules.group("redis", KIND), resource_rules.group("redis", KIND), _RESOURCES, _NODES),
    RedisThresholds(),
)
