"""A case for each alert: its series during a problem and while the system is healthy."""

from __future__ import annotations

from collections.abc import Iterator

from tests.platform.unit.dashboards.promtool import Case, Counter, Gauge

KINDS = {"etcd": "EtcdCluster", "memcached": "Memcached", "redis": "RedisCluster"}
FAR, LATE = 4e9, 1.0
"""Timestamps: far in the future, and long ago."""

Series = dict[str, Gauge | Counter]

POD = {"namespace": "shop", "app_kubernetes_io_instance": "orders", "pod": "orders-0"}
OWNER = {"namespace": "shop", "app_kubernetes_io_instance": "orders"}


def server(metric: str, **labels: str) -> str:
    """Return a series of a server's own metrics."""
    return _series(metric, {**POD, "job": "operands", "instance": "10.0.0.7:1", **labels})


def state(metric: str, kind: str, **labels: str) -> str:
    """Return a series of a resource state, which an operator exports."""
    resource = {"kind": kind, "namespace": "shop", "name": "orders"}
    return _series(metric, {**resource, "pod": "operator-a", "job": "operators", "instance": "10.0.0.1:1", **labels})


def changed(kind: str, name: str, bad: str, good: str, reason: str) -> Series:
    """Return the series of a condition that has the status `bad` during the problem, and then `good`."""
    of_problem = state("platform_resource_condition", kind, type=name, status=bad, reason=reason)
    healthy = state("platform_resource_condition", kind, type=name, status=good, reason="Healthy")
    return {of_problem: Gauge(1, None), healthy: Gauge(None, 1)}


def own(metric: str, pod: str = "a", **labels: str) -> str:
    """Return a series of an operator's replica."""
    replica = {"namespace": "system", "pod": pod, "job": "operators", "instance": f"10.0.0.{ord(pod)}:1"}
    return _series(metric, {**replica, **labels})


def _series(metric: str, labels: dict[str, str]) -> str:
    return metric + "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def resources(kind: str) -> Iterator[Case]:
    """Yield the cases about one kind of resources."""
    labels = {"kind": kind, "namespace": "shop", "name": "orders"}
    since, paused = "platform_resource_unready_since_timestamp_seconds", state("platform_resource_paused", kind)
    for name, condition, bad, good, reason in (
        ("PlatformResourceUnavailable", "Available", "False", "True", "NoQuorum"),
        ("PlatformResourceDegraded", "Degraded", "True", "False", "RedundancyReduced"),
        ("PlatformResourceBadlyPlaced", "Degraded", "True", "False", "PrimariesTogether"),
        ("PlatformResourceNotObserved", "Observed", "False", "True", "Unreachable"),
    ):
        about = {"reason": reason} if name == "PlatformResourceBadlyPlaced" else {}
        yield Case(name=name, series=changed(kind, condition, bad, good, reason), labels={**labels, **about})
    yield Case(
        name="PlatformResourceNotReady",
        series={state(since, kind): Gauge(LATE, None), paused: Gauge(0, 0)},
        labels=labels,
        lead="16m",
    )
    stalled = {"type": "Stalled", "status": "True", "reason": "InvalidSpec"}
    yield Case(
        name="PlatformResourceStalled",
        series={
            state("platform_resource_condition", kind, **stalled): Gauge(1, None),
            state("platform_resource_condition", kind, type="Stalled", status="False", reason="Ready"): Gauge(None, 1),
        },
        labels={**labels, "reason": "InvalidSpec"},
    )
    generation, seen = (state(f"platform_resource_{name}", kind) for name in ("generation", "observed_generation"))
    yield Case(name="PlatformResourceNotSeen", series={generation: Gauge(3, 3), seen: Gauge(2, 3)}, labels=labels)
    yield Case(name="PlatformResourcePaused", series={paused: Gauge(1, 0)}, labels=labels, every="1h")
    yield paused_by_hand(kind, labels)
    secret = {"secret": "orders-server-tls"}
    begins, ends = (
        state(f"platform_resource_certificate_{which}_timestamp_seconds", kind, **secret)
        for which in ("not_before", "not_after")
    )
    ending: Series = {begins: Gauge(-7_000_000, 0), ends: Gauge(776_000, FAR)}
    yield Case(name="PlatformResourceCertificateEnds", series=ending, labels={**labels, **secret})
    advisory = state("platform_resource_advisory", kind, advisory="CVE-2025-49844")
    yield Case(name="PlatformResourceVulnerable", series={advisory: Gauge(1, None)}, labels=labels)
    late: Series = {begins: Gauge(-7_576_000, 0), ends: Gauge(200_000, FAR)}
    yield Case(name="PlatformResourceCertificateExpires", series=late, labels={**labels, **secret})


def paused_by_hand(kind: str, labels: dict[str, str]) -> Case:
    """Return the case of an annotation that pauses the reconciliation of a resource."""
    by_hand = {"type": "ReconciliationPaused", "status": "True", "reason": "ReconciliationPaused"}
    series: Series = {state("platform_resource_condition", kind, **by_hand): Gauge(1, None)}
    return Case(name="PlatformReconciliationPaused", series=series, labels=labels)


def pods(operator: str, kind: str) -> Iterator[Case]:
    """Yield the cases about the pods of one kind."""
    info, labels = (
        state("platform_resource_info", kind, version="1"),
        {"kind": kind, "namespace": "shop", "name": "orders"},
    )
    pod = {"pod": "orders-7d9f8b6c5-x2x4z" if operator == "memcached" else "orders-0", "container": operator}
    in_pod = {"namespace": "shop", "job": "kubelet", "instance": "10.0.0.9:10250", **pod}
    exposed = server("up", job=operator)
    yield Case(name="PlatformTargetDown", series={exposed: Gauge(0, 1)}, labels=POD)
    used = _series("container_memory_working_set_bytes", {**in_pod, "id": "/kubepods/1", "name": "1"})
    limit = _series("kube_pod_container_resource_limits", {**in_pod, "resource": "memory", "unit": "byte"})
    memory: Series = {info: Gauge(1, 1), used: Gauge(99, 50), limit: Gauge(100, 100)}
    yield Case(name="PlatformContainerMemoryHigh", series=memory, labels={**labels, **pod})
    killed = _series("kube_pod_container_status_last_terminated_reason", {**in_pod, "reason": "OOMKilled"})
    restarts = _series("kube_pod_container_status_restarts_total", in_pod)
    killing: Series = {info: Gauge(1, 1), killed: Gauge(1, 1), restarts: Counter(1, 0)}
    yield Case(name="PlatformContainerOomKilled", series=killing, labels={**labels, **pod}, window="30m")
    if operator == "memcached":
        return
    claim = {"namespace": "shop", "persistentvolumeclaim": "data-orders-0"}
    available, capacity, taken = (
        _series(f"kubelet_volume_stats_{which}_bytes", {**claim, "job": "kubelet", "instance": "10.0.0.9:10250"})
        for which in ("available", "capacity", "used")
    )
    nearly_full: Series = {info: Gauge(1, 1), available: Gauge(4, 50), capacity: Gauge(100, 100)}
    yield Case(name="PlatformVolumeNearlyFull", series=nearly_full, labels={**labels, **claim})
    filling: Series = {info: Gauge(1, 1), taken: Counter(1, 0), capacity: Gauge(500, 500)}
    yield Case(name="PlatformVolumeFillsUp", series=filling, labels={**labels, **claim}, lead="301m", window="6h")


def operators(operator: str, kind: str) -> Iterator[Case]:
    """Yield the cases about an operator itself."""
    controller, name = kind.lower(), f"{operator}-operator"
    leads: Series = {own("leader_election_master_status", name=name): Gauge(1, 1)}
    reconciles, of_controller = "controller_runtime_reconcile_total", {"controller": controller}
    yield Case(
        name="PlatformOperatorNoLeader",
        series={own("leader_election_master_status", name=name): Gauge(0, 1)},
        without=True,
    )
    yield Case(
        name="PlatformOperatorTargetDown",
        series={own("up"): Gauge(0, 1), own("leader_election_master_status", name=name): Gauge(1, 1)},
        labels={"namespace": "system", "pod": "a"},
    )
    yield Case(
        name="PlatformOperatorManyLeaders",
        series={**leads, own("leader_election_master_status", "b", name=name): Gauge(1, 0)},
        labels={"namespace": "system", "name": name},
    )
    for window, every in (("1h", "2m"), ("6h", "10m"), ("1d", "30m"), ("3d", "1h")):
        yield Case(
            name="PlatformOperatorErrorBudgetBurn",
            series={
                state("platform_resource_info", kind, version="1"): Gauge(1, 1),
                **changed(kind, "Ready", "False", "True", "Forbidden"),
            },
            labels={"kind": kind},
            window=window,
            every=every,
            alert_labels={"window": window},
        )
    yield Case(
        name="PlatformOperatorNotReconciling",
        series={
            own(reconciles, controller=controller, result="error"): Counter(10, 1),
            own(reconciles, controller=controller, result="requeue_after"): Counter(0, 1),
            own(reconciles, controller=controller, result="success"): Counter(0, 1),
            own("platform_cached_objects", controller=controller, kind=kind): Gauge(3, 3),
        },
        labels=of_controller,
        window="30m",
    )
    panics = own("controller_runtime_reconcile_panics_total", controller=controller)
    yield Case(name="PlatformOperatorPanics", series={panics: Counter(1, 0)}, labels=of_controller, window="10m")
    oldest = own("workqueue_longest_running_processor_seconds", name=controller, controller=controller)
    yield Case(name="PlatformOperatorWorkStuck", series={oldest: Gauge(900, 2)}, labels=of_controller)
    queue: Series = {
        own("workqueue_queue_duration_seconds_bucket", name=controller, controller=controller, le=le): rate
        for le, rate in (("1", Counter(0, 10)), ("30", Counter(10, 10)), ("+Inf", Counter(10, 10)))
    }
    yield Case(name="PlatformOperatorQueueSlow", series=queue, labels=of_controller, window="10m")
    requests: Series = {
        own("rest_client_requests_total", code=code, method="GET", host="api"): rate
        for code, rate in (("200", Counter(10, 10)), ("500", Counter(5, 0)), ("429", Counter(5, 0)))
    }
    system = {"namespace": "system"}
    yield Case(name="PlatformOperatorApiErrors", series={**leads, **requests}, labels=system, window="10m")
    collection = {"kind": "Pod", "watched_namespace": "shop"}
    synced = {own("platform_watch_synced", pod, **collection): Gauge(0, 1 if pod == "a" else 0) for pod in "ab"}
    second = {own("leader_election_master_status", "b", name=name): Gauge(0, 0)}
    yield Case(
        name="PlatformOperatorNotWatching", series={**leads, **second, **synced}, labels={**system, **collection}
    )
    last_event = own("platform_watch_last_event_timestamp_seconds", **collection)
    yield Case(
        name="PlatformOperatorWatchStalled",
        series={**leads, last_event: Gauge(-100_000, FAR)},
        labels={**system, **collection},
    )
    webhooks: Series = {
        own("controller_runtime_webhook_requests_total", webhook="/validate", code="500"): Counter(1, 0),
        own("controller_runtime_webhook_requests_total", webhook="/validate", code="200"): Counter(1, 1),
        own("controller_runtime_webhook_panics_total"): Counter(0, 0),
    }
    yield Case(name="PlatformOperatorWebhookFails", series={**leads, **webhooks}, labels=system, window="10m")
    begins, ends = (
        own(f"platform_certificate_{which}_timestamp_seconds", name="serving") for which in ("not_before", "expiry")
    )
    yield Case(
        name="PlatformOperatorCertificateEnds",
        series={**leads, begins: Gauge(-6_776_000, 0), ends: Gauge(1_000_000, FAR)},
        labels={**system, "name": "serving"},
    )
    renewals = own("platform_certificate_renewal_errors_total")
    yield Case(
        name="PlatformOperatorCertificateNotRenewed",
        series={**leads, renewals: Counter(1, 0)},
        labels=system,
        window="1h",
    )


def memcached() -> Iterator[Case]:
    """Yield the cases about memcached servers."""
    late = server("memcached_exporter_errors_total", reason="TimedOut")
    hanging: Series = {server("memcached_up"): Gauge(0, 1), late: Counter(2, 0)}
    yield Case(name="MemcachedTimesOut", series=hanging, labels=POD)
    yield Case(name="MemcachedDoesNotAnswer", series={server("memcached_up"): Gauge(0, 1)}, labels=POD)
    evicted = server("memcached_items_evicted_total")
    yield Case(name="MemcachedFull", series={evicted: Counter(6_000, 60)}, labels=OWNER)
    refused = server("memcached_item_no_memory_total")
    yield Case(name="MemcachedOutOfMemory", series={refused: Counter(5, 0)}, labels=OWNER, window="10m")
    connected, most = server("memcached_current_connections"), server("memcached_max_connections")
    yield Case(name="MemcachedConnectionsHigh", series={connected: Gauge(990, 20), most: Gauge(1024, 1024)}, labels=POD)
    rejected = server("memcached_connections_rejected_total")
    yield Case(name="MemcachedConnectionsRejected", series={rejected: Counter(3, 0)}, labels=OWNER)
    hits, misses = (server("memcached_commands_total", command="get", status=each) for each in ("hit", "miss"))
    gets: Series = {hits: Counter(60, 600), misses: Counter(600, 60)}
    yield Case(name="MemcachedHitRatioLow", series=gets, labels=OWNER, lead="1m", window="30m")
    uptime = server("memcached_uptime_seconds")
    yield Case(name="MemcachedRestarts", series={uptime: Counter(-1, 60)}, labels=POD, lead="5m", window="1h")


def etcd() -> Iterator[Case]:
    """Yield the cases about etcd members and clusters."""
    kind, labels = "EtcdCluster", {"kind": "EtcdCluster", "namespace": "shop", "name": "orders"}
    leader = server("etcd_server_has_leader")
    yield Case(name="EtcdQuorumLost", series={leader: Gauge(0, 1)}, labels=OWNER)
    yield Case(
        name="EtcdRecoveryWaiting", series={state("platform_etcd_recovery_waiting", kind): Gauge(1, 0)}, labels=labels
    )
    full, corrupt = (state("platform_etcd_alarms", kind, alarm=alarm) for alarm in ("NOSPACE", "CORRUPT"))
    yield Case(name="EtcdOutOfSpace", series={full: Gauge(3, 0), corrupt: Gauge(0, 0)}, labels=labels)
    yield Case(name="EtcdCorrupt", series={full: Gauge(0, 0), corrupt: Gauge(1, 0)}, labels=labels)
    due = state("platform_etcd_snapshot_next_timestamp_seconds", kind)
    yield Case(name="EtcdSnapshotLate", series={due: Gauge(LATE, FAR)}, labels=labels, lead="61m")
    last = state("platform_etcd_snapshot_last_success_timestamp_seconds", kind)
    yield Case(name="EtcdBackupTooOld", series={last: Gauge(-1_000_000, FAR)}, labels=labels)
    info = state("platform_resource_info", kind, version="3.6.16")
    completed = state("platform_etcd_backup_completed_timestamp_seconds", "EtcdBackup", etcdcluster="orders")
    by_another_tool: Series = {info: Gauge(1, 1), completed: Gauge(-1_000_000, FAR)}
    yield Case(name="EtcdBackupTooOld", series=by_another_tool, labels=labels)
    unscheduled: Series = {info: Gauge(1, 1), due: Gauge(None, FAR)}
    yield Case(name="EtcdNoBackupScheduled", series=unscheduled, labels=labels, every="1h", window="1h")
    failed: Series = {
        state("platform_resource_phase", "EtcdBackup", phase="Failed"): Gauge(1, None),
        state("platform_resource_phase", "EtcdBackup", phase="Complete"): Gauge(None, 1),
        state("platform_resource_unready_since_timestamp_seconds", "EtcdBackup"): Gauge(LATE, None),
    }
    yield Case(name="EtcdBackupFailed", series=failed, labels={**labels, "kind": "EtcdBackup"})
    yield paused_by_hand("EtcdBackup", {**labels, "kind": "EtcdBackup"})
    yield Case(name="EtcdNoLeader", series={leader: Gauge(0, 1)}, labels=POD)
    changes = server("etcd_server_leader_changes_seen_total")
    yield Case(name="EtcdLeaderChanges", series={changes: Counter(1, 0)}, labels=OWNER, lead="6m", window="15m")
    lost = server("etcd_server_proposals_failed_total")
    yield Case(name="EtcdProposalsFail", series={lost: Counter(10, 0)}, labels=OWNER, window="15m")
    size, in_use = server("etcd_mvcc_db_total_size_in_bytes"), server("etcd_mvcc_db_total_size_in_use_in_bytes")
    quota = server("etcd_server_quota_backend_bytes")
    yield Case(name="EtcdDatabaseNearQuota", series={size: Gauge(85, 40), quota: Gauge(100, 100)}, labels=OWNER)
    yield Case(
        name="EtcdDatabaseFillsUp",
        series={size: Counter(1, 0), quota: Gauge(100, 100)},
        labels=OWNER,
        lead="51m",
        window="4h",
    )
    fragmented: Series = {size: Gauge(200e6, 200e6), in_use: Gauge(50e6, 150e6)}
    yield Case(name="EtcdFragmented", series=fragmented, labels=POD)
    for name, metric, peer in (
        ("EtcdLogSlow", "etcd_disk_wal_fsync_duration_seconds", {}),
        ("EtcdDatabaseSlow", "etcd_disk_backend_commit_duration_seconds", {}),
        ("EtcdPeersSlow", "etcd_network_peer_round_trip_time_seconds", {"To": "6c95a7e4e9d307cb"}),
    ):
        slow: Series = {
            server(f"{metric}_bucket", le=le, **peer): rate
            for le, rate in (("0.008", Counter(0, 60)), ("2.048", Counter(60, 60)), ("+Inf", Counter(60, 60)))
        }
        yield Case(name=name, series=slow, labels=POD)
    handled: Series = {
        server("grpc_server_handled_total", grpc_type="unary", grpc_code=code): rate
        for code, rate in (("OK", Counter(60, 60)), ("Unavailable", Counter(30, 0)), ("NotFound", Counter(30, 30)))
    }
    yield Case(name="EtcdRequestsFail", series=handled, labels=OWNER, window="10m")


def redis() -> Iterator[Case]:
    """Yield the cases about Redis nodes and clusters."""
    kind, labels = "RedisCluster", {"kind": "RedisCluster", "namespace": "shop", "name": "orders"}
    working, assigned = server("redis_cluster_slots_ok"), server("redis_cluster_slots_assigned")
    slots: Series = {working: Gauge(10923, 16384), assigned: Gauge(16384, 16384)}
    yield Case(name="RedisSlotsUnserved", series=slots, labels=OWNER)
    yield Case(
        name="RedisRecoveryWaiting", series={state("platform_redis_recovery_waiting", kind): Gauge(1, 0)}, labels=labels
    )
    yield Case(name="RedisSplitView", series=changed(kind, "Ready", "False", "True", "Settling"), labels=labels)
    left = state("platform_redis_migration_slots_left", kind)
    yield Case(name="RedisMigrationStuck", series={left: Gauge(100, 0)}, labels=labels, window="30m")
    yield Case(name="RedisDoesNotAnswer", series={server("redis_up"): Gauge(0, 1)}, labels=POD)
    fails, knows = server("redis_cluster_state"), server("redis_cluster_known_nodes")
    yield Case(name="RedisClusterDown", series={fails: Gauge(0, 1), knows: Gauge(6, 6)}, labels=POD)
    used, most = server("redis_memory_used_bytes"), server("redis_memory_max_bytes")
    yield Case(name="RedisMemoryHigh", series={used: Gauge(95, 50), most: Gauge(100, 100)}, labels=POD)
    yield Case(name="RedisEvicting", series={server("redis_evicted_keys_total"): Counter(6000, 60)}, labels=OWNER)
    link = server("redis_master_link_up", master_host="10.0.0.8", master_port="6379")
    yield Case(name="RedisReplicaCutOff", series={link: Gauge(0, 1)}, labels=POD)
    alone: Series = {
        server("redis_connected_slaves"): Gauge(0, 1),
        server("redis_instance_info", role="master"): Gauge(1, 1),
        state("platform_resource_desired_replicas", kind): Gauge(6, 6),
        state("platform_redis_masters", kind): Gauge(3, 3),
    }
    yield Case(name="RedisPrimaryWithoutReplica", series=alone, labels=POD)
    lag = server("redis_connected_slave_lag_seconds", slave_ip="10.0.0.8", slave_port="6379", slave_state="online")
    yield Case(name="RedisReplicaLags", series={lag: Gauge(60, 0)}, labels=POD)
    yield Case(name="RedisLogNotWritten", series={server("redis_aof_last_write_status"): Gauge(0, 1)}, labels=POD)
    yield Case(name="RedisSnapshotFails", series={server("redis_rdb_last_bgsave_status"): Gauge(0, 1)}, labels=POD)
    clients, limit = server("redis_connected_clients"), server("redis_max_clients")
    yield Case(
        name="RedisConnectionsHigh", series={clients: Gauge(9_500, 20), limit: Gauge(10_000, 10_000)}, labels=POD
    )
    rejected = server("redis_rejected_connections_total")
    yield Case(name="RedisConnectionsRejected", series={rejected: Counter(3, 0)}, labels=OWNER)
    uptime = server("redis_uptime_in_seconds")
    yield Case(name="RedisRestarts", series={uptime: Counter(-1, 60)}, labels=POD, lead="5m", window="1h")


def cases(operator: str) -> list[Case]:
    """Return all cases of an operator's rules."""
    servers = {"etcd": etcd, "memcached": memcached, "redis": redis}[operator]
    kind = KINDS[operator]
    return [*operators(operator, kind), *resources(kind), *pods(operator, kind), *servers()]
