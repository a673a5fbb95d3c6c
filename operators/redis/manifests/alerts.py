"""Rules about Redis and Valkey, based on oliver006's exporter for nodes and on the operator's states for clusters."""

from __future__ import annotations

from dashboards.rules import operator_rules, resource_rules, workload_rules
from dashboards.rules.expressions import ID, OWNER, SERVER, about_resources, about_servers, largest, state
from dashboards.rules.model import Group, Recording, RuleSet
from operators.redis.api import resource
from operators.redis.manifests.values import RedisThresholds
from operators.redis.slots import hash_slots

KIND = resource.API.kind.name
CLUSTER = "RedisCluster {{ $labels.namespace }}/{{ $labels.app_kubernetes_io_instance }}"
NODE = "{{ $labels.pod }} of " + CLUSTER
RESOURCE = "RedisCluster {{ $labels.namespace }}/{{ $labels.name }}"

_of_nodes, _of_resources = about_servers(KIND).alert, about_resources(KIND).alert

SLOTS = hash_slots.SLOTS
_served = f"max by ({OWNER}) (redis_cluster_slots_ok)"  # a node that is cut off does not see all of them
_primaries = state("platform_redis_masters", KIND)
_most = f'max by ({ID}) (max_over_time(platform_redis_masters{{kind="{KIND}"}}[1d]))'  # some may be down now
_more = f"({state('platform_resource_desired_replicas', KIND)} > {_most}) and {_primaries} > 0"
_replicated = f'label_replace({_more}, "app_kubernetes_io_instance", "$1", "name", "(.+)")'  # spec requests replicas
_primary = 'redis_instance_info{role="master"}'
_alone = f"max by ({SERVER}) (redis_connected_slaves == 0 and on (cluster, job, instance) {_primary})"
_left = state("platform_redis_migration_slots_left", KIND)

_RESOURCES = Group(
    "platform-redis-clusters",
    (
        _of_resources(
            "RedisRecoveryWaiting",
            "critical",
            f"{state('platform_redis_recovery_waiting', KIND)} == 1",
            "1m",
            f"{RESOURCE} waits for confirmation of a recovery",
            "A primary and all replicas with its newest keys have lost their volumes. The operator changes nothing "
            "until a user confirms the recovery in spec.recovery. status.recovery names the lost slots and the token.",
        ),
        _of_resources(
            "RedisSplitView",
            "warning",
            state("platform_resource_condition", KIND, 'type="Ready"', 'reason="Settling"') + " == 1",
            "5m",
            f"Nodes of {RESOURCE} report different cluster views",
            "The operator performs no operation that could lose data until all nodes agree. Check that the nodes can "
            "reach each other on the cluster bus port.",
        ),
        _of_resources(
            "RedisMigrationStuck",
            "warning",
            f"{_left} > 0 and max by (cluster, kind, namespace, name) "
            f'(changes(platform_redis_migration_slots_left{{kind="{KIND}"}}[30m])) == 0',
            "10m",
            f"The slot migration of {RESOURCE} is stuck",
            "{{ $value }} slots are left, and none has moved for 30 minutes. Clients are still served. The reason of "
            "the Ready condition names the cause.",
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
            f"{NODE} does not respond to its exporter",
            "The exporter runs, but the node does not start, hangs, is loading its data, or rejects the exporter's "
            "password or certificate. The log of the exporter container names the error.",
        ),
        _of_nodes(
            "RedisSlotsUnserved",
            "critical",
            f"({SLOTS} - {_served}) > 0 and max by ({OWNER}) (redis_cluster_slots_assigned) > 0",
            "2m",
            f"{CLUSTER} has {{{{ $value }}}} unserved slots",
            "No node sees a working primary of these slots. Unless cluster-require-full-coverage is no, clients get "
            "CLUSTERDOWN for all keys. Check the pods; do not delete PersistentVolumeClaims.",
        ),
        _of_nodes(
            "RedisClusterDown",
            "critical",
            # A node that joins does not know the slots yet, and has no clients.
            f"{largest('redis_cluster_state')} == 0 and {largest('min_over_time(redis_cluster_known_nodes[1m])')} > 1",
            "1m",
            f"{NODE} reports cluster_state:fail",
            "The node sees a slot without a primary, or cannot reach a majority of the primaries. Its clients get "
            "CLUSTERDOWN. If only this node is affected, check its network.",
        ),
        _of_nodes(
            "RedisMemoryHigh",
            "warning",
            "server:redis_memory_used:ratio > ${memoryUsed}",
            "10m",
            f"{NODE} is close to maxmemory",
            "{{ $value | humanizePercentage }} of maxmemory is in use. At 100 % the node evicts keys or rejects "
            "writes, depending on maxmemory-policy. Increase maxmemory or add primaries.",
        ),
        _of_nodes(
            "RedisEvicting",
            "warning",
            f"sum by ({OWNER}) (rate(redis_evicted_keys_total[5m])) > ${{evictionsPerSecond}}",
            "15m",
            f"{CLUSTER} evicts keys",
            "The nodes evict {{ $value | humanize }} keys per second to stay within maxmemory. If evictions are "
            "expected, raise the threshold evictionsPerSecond; else increase maxmemory or add primaries.",
        ),
        _of_nodes(
            "RedisReplicaCutOff",
            "warning",
            f"{largest('redis_master_link_up')} == 0",
            "5m",
            f"{NODE} has lost the link to its primary",
            "The replica receives no updates. If its primary fails now, the writes since then are lost. Check the "
            "network and the passwords of both nodes.",
        ),
        _of_nodes(
            "RedisPrimaryWithoutReplica",
            "warning",
            f"{_alone} and on ({OWNER}) {_replicated}",
            "15m",
            f"Primary {NODE} has no replica",
            "No replica is connected to this primary. If it fails now, its slots are unserved until it returns, and "
            "with its volume its data is lost. Check the replicas' pods and logs.",
        ),
        _of_nodes(
            "RedisReplicaLags",
            "warning",
            f"{largest('redis_connected_slave_lag_seconds')} > ${{replicaLagSeconds}}",
            "5m",
            f"A replica of {NODE} lags",
            "The replica last acknowledged its primary {{ $value | humanizeDuration }} ago. If the primary fails now, "
            "the writes since then may be lost. Check the network and the CPU usage of both nodes.",
        ),
        _of_nodes(
            "RedisLogNotWritten",
            "critical",
            f"min by ({SERVER}) (redis_aof_last_write_status) == 0",
            "1m",
            f"{NODE} cannot write its append-only file (AOF)",
            "The node rejects writes until the AOF can be written again. Most often its volume is full: increase "
            "spec.storage.size.",
        ),
        _of_nodes(
            "RedisSnapshotFails",
            "warning",
            f"min by ({SERVER}) (redis_rdb_last_bgsave_status) == 0",
            "5m",
            f"{NODE} cannot save an RDB snapshot",
            "The last BGSAVE failed, most often because there was not enough memory to fork or not enough disk space. "
            "Full resynchronizations of replicas need a snapshot. The node's log names the cause.",
        ),
        _of_nodes(
            "RedisConnectionsHigh",
            "warning",
            f"{largest('redis_connected_clients / redis_max_clients')} > ${{connectionsUsed}}",
            "10m",
            f"{NODE} is close to maxclients",
            "{{ $value | humanizePercentage }} of maxclients are connected. At the limit, the node rejects new "
            "connections. Check clients for connection leaks, or increase maxclients.",
        ),
        _of_nodes(
            "RedisConnectionsRejected",
            "warning",
            f"sum by ({OWNER}) (increase(redis_rejected_connections_total[5m])) > 0",
            "10m",
            f"{CLUSTER} keeps rejecting connections",
            "{{ $value | humanize }} connections were rejected in 5 minutes, because maxclients is reached. Check "
            "clients for connection leaks, or increase maxclients.",
        ),
        _of_nodes(
            "RedisRestarts",
            "warning",
            f"{largest('resets(redis_uptime_in_seconds[1h])')} > 2",
            "0s",
            f"{NODE} restarts repeatedly",
            "The node restarted {{ $value }} times in the last hour. The previous container's log and exit code name "
            "the cause.",
        ),
    ),
)

RULES = RuleSet(
    "redis",
    (
        operator_rules.group("redis", KIND),
        resource_rules.group("redis", KIND, "platform_redis_migration_slots_left"),
        workload_rules.group("redis", KIND),
        _RESOURCES,
        _NODES,
    ),
    RedisThresholds(),
)
