"""docker-compose.yml and the files it mounts, checked without pulling images."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.catalogue import DASHBOARDS
from dashboards.compose import operators
from dashboards.contract import SCRAPES, Recorded
from tools.local import debian
from tools.local.paths import REPOSITORY

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PARTS = REPOSITORY / "dashboards/compose"
PROMETHEUS = yaml.safe_load((PARTS / "prometheus.yml").read_text())
RECORDING = SCRAPES / "operators.prom"
UNSET = {
    "platform_resource_advisory",
    "platform_resource_certificate_expiry_timestamp_seconds",
    "platform_resource_certificate_not_after_timestamp_seconds",
    "platform_resource_certificate_not_before_timestamp_seconds",
    "platform_resource_progress_ratio",
    "platform_resource_unready_since_timestamp_seconds",
}
"""Recorded metrics that healthy resources without TLS, and without a change in progress, do not have."""

JOBS = {job["job_name"]: job for job in PROMETHEUS["scrape_configs"]}


def mounts(service: str) -> dict[str, Path]:
    """Return the repository paths that a service mounts, by mount path."""
    parts = [mount.split(":") for mount in SERVICES[service]["volumes"]]
    assert all(mode == "ro" for _, _, mode in parts)
    return {inside: REPOSITORY / outside for outside, inside, _ in parts}


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_and_name_no_registry(name: str) -> None:
    image = SERVICES[name]["image"]
    first = image.split("/")[0]
    assert "/" not in image or not re.search(r"[.:]", first), "a registry's host"
    if "build" in SERVICES[name]:
        begins = re.findall(r"^FROM (\S+)", SERVICES[name]["build"]["dockerfile_inline"], re.MULTILINE)
        assert begins == ["debian:trixie-slim"]
    else:
        assert re.search(r":v?\d+\.\d+\.\d+(-slim)?$", image), image


def test_ports_are_published_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("service", [name for name, service in SERVICES.items() if "volumes" in service])
def test_mounted_files_exist(service: str) -> None:
    for inside, outside in mounts(service).items():
        assert outside.exists(), f"{outside}, for {inside}"


def test_depends_on_names_existing_services() -> None:
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", ())) <= set(SERVICES), name


def test_grafana_provisions_the_generated_dashboards_and_prometheus() -> None:
    found = mounts("grafana")
    for inside, outside in found.items():
        if outside.suffix == ".yml":
            assert inside.startswith("/etc/grafana/provisioning/")
    [provider] = yaml.safe_load((PARTS / "grafana/dashboards.yml").read_text())["providers"]
    assert found[provider["options"]["path"]] == REPOSITORY / "dashboards/generated"
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.stem in {page.uid for page in DASHBOARDS}
    assert found[str(home.parent)] == REPOSITORY / "dashboards/generated"
    [source] = yaml.safe_load((PARTS / "grafana/datasources.yml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")


def test_prometheus_scrapes_existing_services() -> None:
    hosts = set()
    for job in JOBS.values():
        rules = job.get("relabel_configs", ())
        replaced = [rule["replacement"] for rule in rules if rule.get("target_label") == "__address__"]
        targets = [target for static in job["static_configs"] for target in static["targets"]]
        for target in [*replaced, *targets]:
            hosts.add(re.sub(r"^\w+://", "", target).split(":")[0])
    given = {entry.split(":")[0] for entry in SERVICES["prometheus"]["extra_hosts"]}
    assert hosts - given <= set(SERVICES)
    assert {"memcached-exporter", "etcd-2", "redis-exporter", "redis-5", "operators"} <= hosts


def test_targets_have_the_labels_that_dashboards_select() -> None:
    for name in ("memcached", "etcd", "redis"):
        for static in JOBS[name]["static_configs"]:
            made = {rule.get("target_label") for rule in JOBS[name].get("relabel_configs", ())}
            assert {"namespace", "app_kubernetes_io_instance", "pod"} <= set(static["labels"]) | made
    assert JOBS["operators"]["honor_labels"] is True


def test_redis_cluster_is_formed_of_every_node_that_prometheus_scrapes() -> None:
    nodes = [name for name in SERVICES if re.fullmatch(r"redis-\d", name)]
    [targets] = [static["targets"] for static in JOBS["redis"]["static_configs"]]
    assert [f"{name}:6379" for name in nodes] == SERVICES["redis-cluster"]["command"]
    assert [f"redis://{name}:6379" for name in nodes] == targets
    assert all("--cluster-enabled" in SERVICES[name]["command"] for name in nodes)


def test_served_resources_have_the_names_sizes_and_versions_of_the_containers() -> None:
    of_jobs = {"Memcached": "memcached", "EtcdCluster": "etcd", "RedisCluster": "redis"}
    for kind, name, size, version in operators.RESOURCES:
        [static] = JOBS[of_jobs[kind]]["static_configs"]
        assert static["labels"]["namespace"] == operators.NAMESPACE
        assert static["labels"]["app_kubernetes_io_instance"] == name
        assert len(static["targets"]) == size
        image = SERVICES.get("memcached" if kind == "Memcached" else "redis-0", {})["image"]
        assert kind == "EtcdCluster" or image.endswith(f":{version}"), "etcd is Debian's"


def test_served_states_are_series_that_real_operators_expose() -> None:
    real = Recorded.of([RECORDING.read_text()]).series
    for name, labels, _ in operators.states(time.time()):
        assert labels.keys() == real[name].keys(), name
    assert (
        set(real) - {"ALERTS", "up"} - {name for name, _, _ in operators.states(0)}
        == {
            series.partition("{")[0]
            for line in operators.exposition(RECORDING.read_text(), 0, 0).splitlines()
            if not operators.OF_RESOURCES.match(series := line.rpartition(" ")[0])
        }
        | UNSET
    )


def test_times_count_from_now_and_counters_of_successful_work_grow() -> None:
    recording = "\n".join(
        (
            'platform_watch_last_event_timestamp_seconds{kind="a"} 1000',
            "platform_certificate_expiry_timestamp_seconds 1500",
            'controller_runtime_reconcile_total{controller="a",result="success"} 5',
            'controller_runtime_reconcile_total{controller="a",result="error"} 7',
        )
    )
    lines = operators.exposition(recording, 2000, 2100).splitlines()
    assert [float(line.rpartition(" ")[2]) for line in lines[:4]] == [2100, 2600, 15, 7]


def test_prometheus_configuration_is_valid_and_loads_the_rules() -> None:
    promtool = debian.program("promtool", "prometheus")
    check = [str(promtool), "check", "config", "--syntax-only", str(PARTS / "prometheus.yml")]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [pattern] = PROMETHEUS["rule_files"]
    rules = mounts("prometheus")[str(Path(pattern).parent)]
    assert list(rules.glob(Path(pattern).name))


def test_etcd_members_list_each_other_in_initial_cluster() -> None:
    members = sorted(name for name in SERVICES if name.startswith("etcd-"))
    assert len(members) == 3
    for name in members:
        assert SERVICES[name]["hostname"] == name, "the member advertises this name"
        [cluster] = re.findall(r"--initial-cluster=(\S+)", " ".join(SERVICES[name]["command"]))
        assert cluster == ",".join(f"{member}=http://{member}:2380" for member in members)
