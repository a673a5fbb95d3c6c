"""Paging: only evidence of the data plane. Each scenario plays all rules of an operator with promtool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import operators
from dashboards.contract import metrics_of
from dashboards.rules.catalogue import RULES
from dashboards.rules.model import Alert, filled
from dashboards.rules.operator_rules import FAILURES
from dashboards.rules.resource_rules import NEW, PLANNED, RENEWING
from shared.status.reasons import COMMON
from tests.platform.unit.dashboards.alert_cases import KINDS, own, server, state
from tests.platform.unit.dashboards.promtool import promtool, written

EVIDENCE = ("container_", "etcd_", "grpc_", "kube_", "kubelet_", "memcached_", "redis_", "resource:", "server:")
"""Prefixes of what databases, the kubelet and Kubernetes report, including recording rules of these."""

EXCEPTIONS = {
    "EtcdCorrupt": "members report alarms and hashes themselves; the operator passes them on",
    "EtcdOutOfSpace": "members report the alarm themselves; the operator passes it on",
    "EtcdRecoveryWaiting": "volumes are lost, and nothing continues without a user",
    "RedisRecoveryWaiting": "volumes are lost, and nothing continues without a user",
    "PlatformResourceCertificateExpires": "TLS connections of clients fail at a known time",
    "PlatformOperatorManyLeaders": "two leaders may change the same cluster, which puts data at risk",
    "PlatformOperatorNoLeader": "no other Platform alert can fire, so clusters without exporter are not watched",
}
"""Alerts that page on something else, with the reason."""


def firing(
    tmp_path: Path,
    operator: str,
    series: Mapping[str, str],
    expected: Sequence[tuple[int, str, Sequence[str]]],
    *,
    minutes: int = 1,
) -> None:
    """Play the rules of an operator, and compare the names of the firing alerts.

    Args:
        series: values in promtool's notation, by series.
        expected: minute, matchers of ALERTS, and the names of the alerts that fire then.
        minutes: time between two samples.
    """
    tests: list[dict[str, Any]] = [
        {
            "interval": f"{minutes}m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count by (alertname) (ALERTS{{alertstate="firing",{matchers}}})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names],
                }
                for minute, matchers, names in expected
            ],
        }
    ]
    done = promtool("test", "rules", written(tmp_path, operator, RULES[operator], tests))
    assert done.returncode == 0, done.stdout + done.stderr


def condition(kind: str, name: str, status: str, reason: str) -> str:
    """Return the series of a condition."""
    return state("platform_resource_condition", kind, type=name, status=status, reason=reason)


CRITICAL = [
    (rules.operator, alert) for rules in RULES.values() for alert in rules.alerts if alert.severity == "critical"
]


@pytest.mark.parametrize(("operator", "alert"), CRITICAL, ids=lambda value: getattr(value, "name", value))
def test_critical_alerts_rest_on_evidence_of_the_data_plane(operator: str, alert: Alert) -> None:
    if alert.name in EXCEPTIONS:
        return
    queried = metrics_of(filled(alert.expr, RULES[operator].defaults))
    for metric in queried:
        types = {matcher.value for matcher in metric.matchers if matcher.name == "type"}
        available = metric.name == "platform_resource_condition" and types == {"Available"}
        excludes = metric.name in ("platform_resource_condition", "platform_resource_info")
        assert available or excludes or metric.name.startswith(EVIDENCE), f"{alert.name} pages on {metric.name}"
    judged = [metric for metric in queried if metric.name.startswith(EVIDENCE)]
    assert judged or 'type="Available"' in alert.expr, f"{alert.name} has no evidence of the data plane"


def test_exceptions_are_critical_alerts() -> None:
    assert set(EXCEPTIONS) <= {alert.name for _, alert in CRITICAL}


BLIND = {
    "platform_resource_ready_replicas": "0",
    "platform_resource_desired_replicas": "6",
    "platform_redis_masters": "0",
    "platform_etcd_has_leader": "0",
}
"""Values that an operator of release 0.1 reported when it alone could not reach the servers."""


@pytest.mark.parametrize("operator", RULES)
def test_blindness_of_the_operator_does_not_page(operator: str, tmp_path: Path) -> None:
    kind = KINDS[operator]
    reports = {state(metric, kind): f"{value}x60" for metric, value in BLIND.items()}
    nodes = {
        server("redis_cluster_state"): "1x60",
        server("redis_cluster_slots_ok"): "16384x60",
        server("redis_cluster_slots_assigned"): "16384x60",
        server("etcd_server_has_leader"): "1x60",
        server("memcached_up"): "1x60",
    }
    series = {
        **reports,
        **nodes,
        state("platform_redis_slots", kind, state="unserved"): "16384x60",
        state("platform_etcd_members", kind, role="voter"): "3x60",
        condition(kind, "Ready", "False", "RedisUnreachable"): "1x60",
        condition(kind, "Observed", "False", "Unreachable"): "1x60",
        condition(kind, "Available", "Unknown", "NotObserved"): "1x60",
        own("leader_election_master_status", name=f"{operator}-operator"): "1x60",
    }
    firing(
        tmp_path,
        operator,
        series,
        [(30, 'severity="critical"', []), (30, 'name="orders"', ["PlatformResourceNotObserved"])],
    )


HOURS_ASLEEP = 72


def hibernated(kind: str, available: str, ready: str) -> dict[str, str]:
    """Return the series of a resource without pods, for reasons of Available and Ready."""
    constant = f"x{HOURS_ASLEEP}"
    return {
        condition(kind, "Ready", "False", ready): f"1{constant}",
        condition(kind, "Available", "False", available): f"1{constant}",
        condition(kind, "Degraded", "False", available): f"1{constant}",
        state("platform_resource_unready_since_timestamp_seconds", kind): f"0{constant}",
        state("platform_resource_paused", kind): f"0{constant}",
        state("platform_resource_ready_replicas", kind): f"0{constant}",
        state("platform_resource_desired_replicas", kind): f"0{constant}",
        state("platform_redis_masters", kind): f"0{constant}",
        state("platform_etcd_snapshot_next_timestamp_seconds", kind): f"0{constant}",
        state("platform_etcd_snapshot_last_success_timestamp_seconds", kind): f"-1000000{constant}",
        own("leader_election_master_status", name=f"{OPERATORS[kind]}-operator"): f"1{constant}",
    }


OPERATORS = {"EtcdCluster": "etcd", "RedisCluster": "redis"}


@pytest.mark.parametrize(("kind", "operator"), OPERATORS.items())
def test_hibernated_resource_fires_nothing(kind: str, operator: str, tmp_path: Path) -> None:
    series = hibernated(kind, "Hibernated", "Hibernated")
    firing(tmp_path, operator, series, [(60 * (HOURS_ASLEEP - 1), 'name="orders"', [])], minutes=60)


@pytest.mark.parametrize(("kind", "operator"), OPERATORS.items())
def test_pods_that_do_not_stop_are_a_warning_and_no_page(kind: str, operator: str, tmp_path: Path) -> None:
    series = hibernated(kind, "Hibernating", "Hibernating")
    expected = ["PlatformResourceNotReady", *(["EtcdBackupTooOld", "EtcdSnapshotLate"] if operator == "etcd" else [])]
    minute = 60 * (HOURS_ASLEEP - 1)
    firing(
        tmp_path,
        operator,
        series,
        [(minute, 'name="orders"', expected), (minute, 'severity="critical"', [])],
        minutes=60,
    )


@pytest.mark.parametrize(("kind", "operator"), OPERATORS.items())
def test_wake_up_that_lasts_pages(kind: str, operator: str, tmp_path: Path) -> None:
    series = hibernated(kind, "NotServed", "WakingUp")
    page = [(60, 'severity="critical"', ["PlatformResourceUnavailable"])]
    firing(tmp_path, operator, series, page, minutes=60)


@pytest.mark.parametrize("operator", RULES)
def test_unavailable_resource_pages_once_although_the_operator_has_no_numbers(operator: str, tmp_path: Path) -> None:
    kind = KINDS[operator]
    series = {
        condition(kind, "Available", "False", "NotServed"): "_x5 1x60",
        own("leader_election_master_status", name=f"{operator}-operator"): "1x60",
    }
    expected = [(8, 'severity="critical"', []), (15, 'severity="critical"', ["PlatformResourceUnavailable"])]
    firing(tmp_path, operator, series, expected)


@pytest.mark.parametrize("operator", RULES)
def test_resource_that_is_being_created_does_not_page(operator: str, tmp_path: Path) -> None:
    kind = KINDS[operator]
    series = {
        condition(kind, "Available", "False", "NotServed"): "1x60",
        condition(kind, "Ready", "False", "Creating"): "1x60",
        own("leader_election_master_status", name=f"{operator}-operator"): "1x60",
    }
    firing(tmp_path, operator, series, [(15, 'severity="critical"', [])])


def reconciles(operator: str, errors: float, others: float, minutes: int) -> dict[str, str]:
    """Return the series of reconciles, by their rates per minute."""
    kind = KINDS[operator].lower()
    return {
        own("controller_runtime_reconcile_total", controller=kind, result="error"): f"0+{errors:g}x{minutes}",
        own("controller_runtime_reconcile_total", controller=kind, result="success"): f"0+{others:g}x{minutes}",
    }


def resource(operator: str, name: str, status: str, reason: str) -> dict[str, str]:
    """Return the series of a resource with a Ready condition."""
    labels = f'kind="{KINDS[operator]}",namespace="shop",name="{name}",job="operators",pod="operator-a"'
    return {
        f'platform_resource_info{{{labels},version="1"}}': "1x800",
        f'platform_resource_condition{{{labels},type="Ready",status="{status}",reason="{reason}"}}': "1x800",
    }


BURN = 'alertname="PlatformOperatorErrorBudgetBurn"'


@pytest.mark.nightly
@pytest.mark.parametrize("operator", RULES)
def test_single_failing_resource_of_59_burns_no_budget_quickly(operator: str, tmp_path: Path) -> None:
    """The failing one is retried each minute, and the healthy ones are reconciled every ten minutes."""
    series = reconciles(operator, 1.0, 5.8, 800)
    series |= resource(operator, "failing", "False", "InternalError")
    for number in range(58):
        series |= resource(operator, f"healthy-{number}", "True", "Ready")
    series[own("leader_election_master_status", name=f"{operator}-operator")] = "1x800"
    expected: list[tuple[int, str, list[str]]] = [
        (780, f'{BURN},window=~"1h|6h"', []),
        (780, 'severity="critical"', []),
    ]
    firing(tmp_path, operator, series, expected)


@pytest.mark.nightly
@pytest.mark.parametrize("operator", RULES)
def test_many_failing_resources_burn_the_budget_although_healthy_ones_are_reconciled_often(
    operator: str, tmp_path: Path
) -> None:
    """A third of the resources fails. Of the reconciles it is a small share, because healthy ones are polled."""
    series = reconciles(operator, 1.0, 1000, 180)
    for number in range(30):
        failing = number < 10
        series |= resource(operator, f"r-{number}", *(("False", "Forbidden") if failing else ("True", "Ready")))
    firing(tmp_path, operator, series, [(120, f'{BURN},window="1h"', ["PlatformOperatorErrorBudgetBurn"])])


@pytest.mark.nightly
@pytest.mark.parametrize("operator", RULES)
def test_conflicts_burn_no_budget(operator: str, tmp_path: Path) -> None:
    """Another client writes the same objects: each reconcile ends with 409, and the status reports Conflict."""
    series = reconciles(operator, 5.0, 1.0, 180)
    for number in range(10):
        series |= resource(operator, f"r-{number}", "False", "Conflict")
    firing(tmp_path, operator, series, [(120, BURN, [])])


HOUR, DAY = 3600, 86_400
WARNS, PAGES = "PlatformResourceCertificateEnds", "PlatformResourceCertificateExpires"

CERTIFICATES = {
    "24h, new": (24 * HOUR, 23 * HOUR, "", []),
    "24h, due": (24 * HOUR, 7 * HOUR, "", []),
    "24h, not renewed": (24 * HOUR, 5 * HOUR, "", [WARNS]),
    "24h, late": (24 * HOUR, 2 * HOUR, "", [WARNS, PAGES]),
    "90d, half": (90 * DAY, 45 * DAY, "", []),
    "90d, due": (90 * DAY, 29 * DAY, "", []),
    "90d, not renewed": (90 * DAY, 22 * DAY, "", [WARNS]),
    "90d, not renewed for long": (90 * DAY, 10 * DAY, "", [WARNS]),
    "90d, late": (90 * DAY, 6 * DAY, "", [WARNS, PAGES]),
    "90d, late and stalled": (90 * DAY, 6 * DAY, "ForeignObject", [WARNS, PAGES]),
    "90d, late and being issued": (90 * DAY, 6 * DAY, "IssuingCertificates", [WARNS]),
    "90d, late and being loaded": (90 * DAY, 6 * DAY, "RefreshingCertificates", [WARNS]),
    "90d, its renewal hangs": (90 * DAY, 4 * DAY, "ReplacingCertificates", [WARNS, PAGES]),
    "90d, expired": (90 * DAY, -DAY, "CertificateExpired", [WARNS, PAGES]),
    "10y, less than a quarter left": (3650 * DAY, 900 * DAY, "", []),
    "10y, less than a tenth left": (3650 * DAY, 200 * DAY, "", []),
    "10y, two months left": (3650 * DAY, 59 * DAY, "", [WARNS]),
    "10y, eight days left": (3650 * DAY, 8 * DAY, "", [WARNS]),
    "10y, six days left": (3650 * DAY, 6 * DAY, "", [WARNS, PAGES]),
}
"""Lifetime and remaining time of a certificate, the reason of Ready, and the alerts that fire."""


@pytest.mark.parametrize("operator", RULES)
def test_certificates_warn_and_page_by_the_share_of_their_lifetime(operator: str, tmp_path: Path) -> None:
    kind, minute = KINDS[operator], 20
    metric = "platform_resource_certificate"
    series, expected = {}, []
    for name, (life, left, reason, alerts) in CERTIFICATES.items():
        labels = f'kind="{kind}",namespace="shop",name="{name}",job="operators",pod="operator-a"'
        ends = minute * 60 + left
        series[f'{metric}_not_before_timestamp_seconds{{{labels},secret="tls"}}'] = f"{ends - life}x60"
        series[f'{metric}_not_after_timestamp_seconds{{{labels},secret="tls"}}'] = f"{ends}x60"
        series[f"{metric}_expiry_timestamp_seconds{{{labels}}}"] = f"{ends}x60"
        if reason:
            ready = f'type="Ready",status="True",reason="{reason}"'
            series[f"platform_resource_condition{{{labels},{ready}}}"] = "1x60"
        expected.append((minute, f'name="{name}"', alerts))
    firing(tmp_path, operator, series, expected)


@pytest.mark.parametrize("operator", RULES)
def test_alert_names_the_certificate_of_which_the_smallest_share_is_left(operator: str, tmp_path: Path) -> None:
    """One of 24 hours ends first and is renewed in time; one of 90 days was not renewed."""
    kind, metric = KINDS[operator], "platform_resource_certificate"
    series = {}
    for secret, life, left in (("client", 24 * HOUR, 20 * HOUR), ("server", 90 * DAY, 20 * DAY)):
        series[state(f"{metric}_not_before_timestamp_seconds", kind, secret=secret)] = f"{left - life}x60"
        series[state(f"{metric}_not_after_timestamp_seconds", kind, secret=secret)] = f"{left}x60"
    firing(tmp_path, operator, series, [(20, 'secret="server"', [WARNS]), (20, 'secret="client"', [])])


def test_serving_certificates_warn_by_the_share_of_their_lifetime(tmp_path: Path) -> None:
    minute = 20
    series = {own("leader_election_master_status", pod, name="etcd-operator"): "1x60" for pod in "ab"}
    expected = []
    for name, (life, left, _, alerts) in CERTIFICATES.items():
        ends = minute * 60 + left
        for pod, begins in (("a", ends - life), ("b", ends)):  # the other replica has loaded a new certificate
            series[own("platform_certificate_not_before_timestamp_seconds", pod, name=name)] = f"{begins}x60"
            series[own("platform_certificate_expiry_timestamp_seconds", pod, name=name)] = f"{begins + life}x60"
        warnings = ["PlatformOperatorCertificateEnds"] if WARNS in alerts else []
        expected.append((minute, f'name="{name}"', warnings))
    firing(tmp_path, "etcd", series, expected)


@pytest.mark.parametrize(
    ("operator", "metric"),
    [("memcached", "memcached_connections_rejected_total"), ("redis", "redis_rejected_connections_total")],
)
def test_single_rejected_connection_fires_no_alert(operator: str, metric: str, tmp_path: Path) -> None:
    leads = {own("leader_election_master_status", name=f"{operator}-operator"): "1x60"}
    series = {server(metric): "0x20 1x40", **leads}
    firing(tmp_path, operator, series, [(minute, 'alertname=~".+"', []) for minute in (21, 25, 29, 31)])


def test_node_whose_start_time_is_rounded_differently_each_time_has_not_restarted(tmp_path: Path) -> None:
    """redis_exporter subtracts whole seconds of uptime from the present time, so that the result varies by one."""
    series = {
        server("redis_start_time_seconds"): " ".join(str(1000 + minute % 2) for minute in range(60)),
        server("redis_uptime_in_seconds"): "100+60x60",
        own("leader_election_master_status", name="redis-operator"): "1x60",
    }
    firing(tmp_path, "redis", series, [(minute, 'alertname=~".+"', []) for minute in (10, 50)])


@pytest.mark.parametrize(("nodes", "alerts"), [(3, []), (6, ["RedisPrimaryWithoutReplica"])])
def test_primary_lacks_a_replica_only_if_the_spec_requests_some_although_another_primary_is_down(
    nodes: int, alerts: list[str], tmp_path: Path
) -> None:
    """While one of three primaries is down, there are more nodes than primaries, also in a cluster without replicas."""
    kind = KINDS["redis"]
    series = {
        state("platform_resource_desired_replicas", kind): f"{nodes}x60",
        state("platform_redis_masters", kind): "3x10 2x50",
        server("redis_connected_slaves"): "0x60",
        server("redis_instance_info", role="master"): "1x60",
        own("leader_election_master_status", name="redis-operator"): "1x60",
    }
    firing(tmp_path, "redis", series, [(40, 'alertname="RedisPrimaryWithoutReplica"', alerts)])


def test_reasons_in_rules_are_declared() -> None:
    catalogues = [operator.reasons for operator in operators.installed()]
    declared = {str(reason) for catalogue in (COMMON, *catalogues) for reason in catalogue}
    assert set(f"{PLANNED}|{NEW}|{FAILURES}|{RENEWING}".split("|")) <= declared


PLANNED_HOURS = 3


def test_planned_rebalance_does_not_fire_not_ready_while_slots_move(tmp_path: Path) -> None:
    minutes, kind = PLANNED_HOURS * 60, KINDS["redis"]
    series = {
        state("platform_resource_unready_since_timestamp_seconds", kind): f"1x{minutes}",
        state("platform_redis_migration_slots_left", kind): f"8000-10x{minutes}",
        condition(kind, "Ready", "False", "Scaling"): f"1x{minutes}",
        condition(kind, "Available", "True", "Served"): f"1x{minutes}",
        own("leader_election_master_status", name="redis-operator"): f"1x{minutes}",
    }
    firing(tmp_path, "redis", series, [(30, 'alertname=~".+"', []), (minutes - 1, 'alertname=~".+"', [])])


def test_node_that_joins_a_cluster_does_not_page(tmp_path: Path) -> None:
    """A new node reports cluster_state:fail until it knows the owners of the slots, and has no clients."""
    state_of, knows = server("redis_cluster_state"), server("redis_cluster_known_nodes")
    series = {state_of: "0x3 1x5", knows: "1x2 7x6"}
    times: list[tuple[int, str, list[str]]] = [(minute, 'alertname="RedisClusterDown"', []) for minute in (1, 2, 3, 5)]
    firing(tmp_path, "redis", series, times)


def test_end_of_a_long_scale_down_does_not_fire_not_ready(tmp_path: Path) -> None:
    """Removed nodes are forgotten after the last slot has moved, which takes a minute and more."""
    kind, moved = KINDS["redis"], 60
    series = {
        state("platform_resource_unready_since_timestamp_seconds", kind): f"1x{moved + 10}",
        state("platform_redis_migration_slots_left", kind): f"8000-10x{moved} 0x10",
        condition(kind, "Ready", "False", "Scaling"): f"1x{moved} _x10",
        condition(kind, "Ready", "False", "Forgetting"): f"_x{moved} 1x10",
        condition(kind, "Available", "True", "Served"): f"1x{moved + 10}",
        own("leader_election_master_status", name="redis-operator"): f"1x{moved + 10}",
    }
    firing(tmp_path, "redis", series, [(moved + 8, 'alertname=~".+"', [])])


@pytest.mark.parametrize("operator", RULES)
def test_planned_change_without_progress_fires_not_ready(operator: str, tmp_path: Path) -> None:
    minutes, kind = PLANNED_HOURS * 60, KINDS[operator]
    series = {
        state("platform_resource_unready_since_timestamp_seconds", kind): f"1x{minutes}",
        state("platform_resource_ready_replicas", kind): f"2x{minutes}",
        condition(kind, "Ready", "False", "Scaling"): f"1x{minutes}",
        own("leader_election_master_status", name=f"{operator}-operator"): f"1x{minutes}",
    }
    alert = 'alertname="PlatformResourceNotReady"'
    firing(tmp_path, operator, series, [(30, alert, []), (minutes - 1, alert, ["PlatformResourceNotReady"])])
