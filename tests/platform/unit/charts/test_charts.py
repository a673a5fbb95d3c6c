"""Rendered charts: enabled operators, deterministic output, names, labels, flags and scheduling."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest
import yaml
from pydantic.alias_generators import to_camel

from operators import installed
from shared.api.policy import PlatformPolicy
from shared.cli.options import parse_options, seconds
from shared.runtime.options import Options
from tests.support.charts import (
    CHOICES,
    COMBINATIONS,
    EVERYTHING,
    NAMES,
    OPERATORS,
    VARIANTS,
    VERSION,
    Obj,
    Values,
    helm,
    is_hook,
    manifest,
    of_kind,
    only,
    pods,
    render,
)
from tests.support.network_policies import selects
from tools.local.errors import ClusterError
from tools.local.release import CHARTS


def options_of(objects: list[Obj]) -> Options:
    """Return the operator's options, parsed from the flags of its Deployment."""
    container = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    (operator,) = (each for each in installed() if f"--operator-name={each.process_name}" in container["args"])
    return parse_options("not-the-default", "not-the-default", container["args"], {}, flags=operator.flags)


@pytest.fixture(params=OPERATORS)
def operator_chart(request: pytest.FixtureRequest, charts: Path) -> Path:
    return charts / str(request.param)


def test_helm_lint_passes(charts: Path) -> None:
    helm("lint", "--strict", *sorted(path.parent for path in charts.glob("*/Chart.yaml")))


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_umbrella_renders_exactly_the_enabled_operators(charts: Path, choice: dict[str, bool]) -> None:
    objects = render(charts / "platform", {name: {"enabled": enabled} for name, enabled in choice.items()})
    deployed = {obj["metadata"]["name"] for obj in objects if obj["kind"] == "Deployment"}
    assert deployed == {f"platform-{name}-operator" for name, enabled in choice.items() if enabled}
    assert bool(objects) == bool(deployed)


@pytest.mark.nightly
@pytest.mark.parametrize("values", COMBINATIONS.values(), ids=COMBINATIONS)
def test_rendering_is_deterministic(charts: Path, values: Values) -> None:
    assert manifest(charts / "platform", values) == manifest(charts / "platform", values)


@pytest.mark.parametrize("variant", VARIANTS)
def test_umbrella_and_standalone_chart_render_the_same_objects(charts: Path, variant: str) -> None:
    for name in NAMES:
        values = {other: {"enabled": other == name, **VARIANTS[variant]} for other in NAMES}
        together, alone = (
            [obj for obj in objects if obj["kind"] != "ConfigMap"]  # see test_dashboards_charts.py
            for objects in (
                render(charts / "platform", values),
                render(charts / f"{name}-operator", VARIANTS[variant]),
            )
        )
        assert together == alone


def test_crds_are_the_generated_ones_and_have_the_keep_policy(operator_chart: Path) -> None:
    generated = [
        yaml.safe_load(path.read_text()) for path in sorted((CHARTS / operator_chart.name / "files/crds").iterdir())
    ]
    rendered = of_kind(render(operator_chart), "CustomResourceDefinition")
    assert [obj["spec"] for obj in rendered] == [obj["spec"] for obj in generated]
    assert [obj["metadata"]["name"] for obj in rendered] == [obj["metadata"]["name"] for obj in generated]
    assert {obj["metadata"]["annotations"]["helm.sh/resource-policy"] for obj in rendered} == {"keep"}


def test_crds_can_be_disabled(operator_chart: Path) -> None:
    assert not of_kind(render(operator_chart, {"crds": {"enabled": False}}), "CustomResourceDefinition")


def test_values_become_flags_of_the_operator(operator_chart: Path) -> None:
    given = {
        "watchNamespaces": ["shop", "search"],
        "resync": 1_200,
        "workers": 4,
        "shards": 3,
        "leaderElection": {"leaseDuration": 60, "renewDeadline": 40, "retryPeriod": 5},
        "createTimeout": 60,
        "upgradeTimeout": 2_000_000,
        "logLevel": "debug",
        "logFormat": "text",
        "profiling": True,
        "otlpEndpoint": "http://collector:4318",
        "operandImageRepository": "registry:5000/library/cache",
        "agentImage": "registry:5000/exporter:1",
        "metrics": {"port": 9090},
        "webhook": {"port": 9090 + 1},
    }
    options = options_of(render(operator_chart, given))
    assert options.namespaces == ("search", "shop")
    assert (options.resync, options.workers, options.shards) == (1_200, 4, 3)
    assert (options.leader_elect, options.leader_elect_namespace) == (True, "platform-system")
    assert (options.lease_duration, options.renew_deadline, options.retry_period) == (60, 40, 5)
    assert (options.create_timeout, options.upgrade_timeout) == (60, 2_000_000)
    assert (options.log_level, options.log_format) == ("debug", "text")
    assert (options.profiling, options.otlp_endpoint) == (True, "http://collector:4318")
    assert options.image_repository == "registry:5000/library/cache"
    assert options.agent_image == "registry:5000/exporter:1"
    assert (options.metrics_address, options.webhook_address, options.probe_address) == (":9090", ":9091", ":8081")
    assert options.metrics_secure
    assert not options.install_crds, "the chart installs the CRDs"


def test_operator_knows_the_peers_that_its_pods_are(operator_chart: Path) -> None:
    for values, namespace in (({}, "platform-system"), ({"namespaceOverride": "operators"}, "operators")):
        objects = render(operator_chart, values)
        (peer,) = options_of(objects).operator_peers
        pod = only(objects, "Deployment")["spec"]["template"]["metadata"]
        assert selects(peer["podSelector"], pod["labels"])
        assert peer["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


def test_operator_on_the_network_of_the_host_has_the_peers_of_the_values(operator_chart: Path) -> None:
    objects = render(operator_chart, {"hostNetwork": True, "probePort": 18081})
    assert options_of(objects).operator_peers == ()
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert {"name": "probes", "containerPort": 18081, "protocol": "TCP"} in pod["containers"][0]["ports"]
    assert options_of(objects).probe_address == ":18081"
    nodes = [{"ipBlock": {"cidr": "10.0.0.0/16"}}]
    assert options_of(render(operator_chart, {"hostNetwork": True, "operatorPeers": nodes})).operator_peers == (*nodes,)


def test_values_set_the_platform_policy(operator_chart: Path) -> None:
    assert options_of(render(operator_chart)).policy == PlatformPolicy()
    given = {
        "requireTLS": True,
        "requireAuth": True,
        "allowedRegistries": ["registry.example.com/team", "docker.io"],
        "allowHostPath": True,
    }
    assert options_of(render(operator_chart, {"policy": given})).policy == PlatformPolicy(
        require_tls=True,
        require_auth=True,
        allowed_registries=("docker.io", "registry.example.com/team"),
        allow_host_path=True,
    )


FLAG_VALUES = {"--default-versions": "redis=8.0.2,valkey=8.1.1"}
"""A value of each flag that is no number of seconds, other than its default."""


def test_values_set_the_flags_of_a_single_operator(charts: Path) -> None:
    for operator in installed():
        chart = charts / operator.process_name
        for flag in operator.flags:
            value = 2_000_000 if flag.parse is seconds else FLAG_VALUES[flag.name]
            assert options_of(render(chart)).option(flag) == flag.parse(flag.default)
            given = {to_camel(flag.key): value}
            assert options_of(render(chart, given)).option(flag) == flag.parse(str(value)) != flag.parse(flag.default)


def test_defaults_match_the_readme(operator_chart: Path) -> None:
    options = options_of(render(operator_chart))
    container = only(render(operator_chart), "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert options.namespaces == ()
    assert options.agent_image == container["image"], "the operator's image contains the exporter"
    assert not options.profiling
    assert options.otlp_endpoint == ""
    assert not options.known_operators


def test_declared_ports_are_exactly_those_that_the_operator_opens(operator_chart: Path) -> None:
    for values, names in (
        ({}, {"probes", "metrics", "webhook"}),
        ({"metrics": {"enabled": False}}, {"probes", "webhook"}),
        ({"webhook": {"enabled": False}}, {"probes", "metrics"}),
    ):
        objects = render(operator_chart, values)
        options = options_of(objects)
        ports = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["ports"]
        opened = {"metrics": options.metrics_address, "webhook": options.webhook_address, "probes": ":8081"}
        assert {port["name"]: f":{port['containerPort']}" for port in ports} == {
            name: address for name, address in opened.items() if address != "0"
        }
        assert {port["name"] for port in ports} == names
        assert {service["spec"]["ports"][0]["targetPort"] for service in of_kind(objects, "Service")} == names - {
            "probes"
        }


@pytest.mark.parametrize("values", [{}, {"nameOverride": "mc"}, {"fullnameOverride": "custom"}], ids=str)
def test_field_manager_is_independent_of_release_and_chart_names(operator_chart: Path, values: Values) -> None:
    options = options_of(render(operator_chart, values, release="green"))
    assert options.operator_name == operator_chart.name


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({"tag": "dev"}, "registry.example.com/platform/{}:dev"),
        ({}, "registry.example.com/platform/{}:{version}"),
        ({"tag": "dev", "digest": "sha256:" + 64 * "a"}, "registry.example.com/platform/{}@sha256:" + 64 * "a"),
    ],
    ids=["tag", "default", "digest"],
)
def test_image_digest_takes_precedence_over_tag_and_tag_over_version(
    operator_chart: Path, image: Obj, reference: str
) -> None:
    for pod in pods(render(operator_chart, {"image": image})):
        expected = reference.format(operator_chart.name, version=VERSION)
        assert pod["spec"]["containers"][0]["image"] == expected


def test_replicas_roll_one_at_a_time_and_prefer_different_nodes(operator_chart: Path) -> None:
    deployment = only(render(operator_chart), "Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    labels, pod = deployment["template"]["metadata"]["labels"], deployment["template"]["spec"]
    (anti_affinity,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    (spread,) = pod["topologySpreadConstraints"]
    assert anti_affinity["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("topology.kubernetes.io/zone", "ScheduleAnyway")
    for selector in (anti_affinity["podAffinityTerm"]["labelSelector"], spread["labelSelector"]):
        assert selector["matchLabels"].items() <= labels.items()


def test_scheduling_values_replace_the_defaults(operator_chart: Path) -> None:
    pod = only(render(operator_chart, EVERYTHING), "Deployment")["spec"]["template"]["spec"]
    assert pod["affinity"] == EVERYTHING["affinity"]
    (spread,) = pod["topologySpreadConstraints"]
    assert EVERYTHING["topologySpreadConstraints"][0].items() < spread.items()
    assert spread["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "mine"


@pytest.mark.parametrize(("replicas", "budgets"), [(1, 0), (2, 1), (3, 1)])
def test_disruption_budget_requires_several_replicas(operator_chart: Path, replicas: int, budgets: int) -> None:
    objects = render(operator_chart, {"replicaCount": replicas})
    found = of_kind(objects, "PodDisruptionBudget")
    assert [budget["spec"]["maxUnavailable"] for budget in found] == [1] * budgets
    off = render(operator_chart, {"replicaCount": replicas, "podDisruptionBudget": {"enabled": False}})
    assert not of_kind(off, "PodDisruptionBudget")


def test_two_releases_have_disjoint_names_and_selectors(operator_chart: Path) -> None:
    blue, green = (render(operator_chart, EVERYTHING, release=release) for release in ("blue", "green"))
    names = [{(obj["kind"], obj["metadata"]["name"]) for obj in objects} for objects in (blue, green)]
    assert {kind for kind, _ in names[0] & names[1]} == {"CustomResourceDefinition"}
    selectors = [only(objects, "Deployment")["spec"]["selector"]["matchLabels"] for objects in (blue, green)]
    assert selectors[0] != selectors[1]


def test_names_and_labels_stay_within_length_limits(operator_chart: Path) -> None:
    for obj in render(operator_chart, {**EVERYTHING, "fullnameOverride": 52 * "a"}, release=53 * "r"):
        named_by_dns = obj["kind"] in {"Service", "Pod"}
        assert len(obj["metadata"]["name"]) <= (63 if named_by_dns else 253), obj["metadata"]["name"]
        for label in obj["metadata"]["labels"].values():
            assert len(label) <= 63, obj["metadata"]


def test_names_that_resemble_yaml_booleans_or_numbers_stay_strings(operator_chart: Path) -> None:
    values = {**EVERYTHING, "fullnameOverride": "yes", "priorityClassName": "on", "watchNamespaces": ["y", "1"]}
    for obj in render(operator_chart, values, release="1", namespace="0"):
        metadata = obj["metadata"]
        assert all(isinstance(label, str) for label in metadata["labels"].values()), obj["kind"]
        assert isinstance(metadata["name"], str), obj["kind"]
        assert metadata.get("namespace") in (None, "0", "1", "y"), obj["kind"]
        for subject in obj.get("subjects", ()):
            assert subject["namespace"] == "0"
            assert subject["name"] in {"yes", "check-yes"}
        if obj["kind"] == "Deployment":
            pod = obj["spec"]["template"]["spec"]
            assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("yes", "on")


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_objects_are_labelled_and_selectors_match_only_operator_pods(operator_chart: Path, values: Values) -> None:
    custom = {"app.kubernetes.io/instance": "other", "team": "storage"}
    objects = render(operator_chart, {**values, "podLabels": custom})
    for obj in objects:
        labels = obj["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "platform"
        assert labels["app.kubernetes.io/instance"] == "platform", obj["kind"]
    deployment_name = only(objects, "Deployment")["metadata"]["name"]
    deployment = only(objects, "Deployment")["spec"]
    (check,) = (pod for pod in pods(objects) if is_hook(pod))
    pod_labels = deployment["template"]["metadata"]["labels"]
    assert pod_labels["team"] == "storage"
    selectors = [deployment["selector"]["matchLabels"]]
    selectors += [service["spec"]["selector"] for service in of_kind(objects, "Service")]
    selectors += [budget["spec"]["selector"]["matchLabels"] for budget in of_kind(objects, "PodDisruptionBudget")]
    selected = {
        policy["metadata"]["name"]: policy["spec"]["podSelector"]["matchLabels"]
        for policy in of_kind(objects, "NetworkPolicy")
    }
    assert selected.pop(f"{deployment_name}-check", {}).items() <= check["metadata"]["labels"].items()
    for selector in [*selectors, *selected.values()]:
        assert selector.items() <= pod_labels.items()
        assert not selector.items() <= check["metadata"]["labels"].items(), "the test pod is not a replica"


def test_helm_test_creates_a_resource_of_the_operator(operator_chart: Path) -> None:
    chart = yaml.safe_load((CHARTS / operator_chart.name / "Chart.yaml").read_text())
    checked = chart["annotations"]["platform/checked"]
    assert checked in {
        crd["spec"]["names"]["plural"] for crd in of_kind(render(operator_chart), "CustomResourceDefinition")
    }
    for namespaces, namespace in (
        ([], "platform-system"),
        (["shop", "platform-system"], "platform-system"),
        (["b"], "b"),
    ):
        objects = [obj for obj in render(operator_chart, {"watchNamespaces": namespaces}) if is_hook(obj)]
        (pod,) = (obj for obj in objects if obj["kind"] == "Pod")
        (role,) = (obj for obj in objects if obj["kind"] == "Role")
        name = "check-platform-" + operator_chart.name
        assert pod["spec"]["containers"][0]["args"] == [f"--namespace={namespace}", f"--name={name}"]
        assert pod["metadata"]["namespace"] == "platform-system", "Helm reads its logs from there"
        assert {obj["metadata"]["name"] for obj in objects} == {name}, "of the pod with each object's name (--logs)"
        assert role["metadata"]["namespace"] == namespace
        assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
            ([checked], ["create"]),
            ([checked], ["get", "delete"]),
        ]
        module = pod["spec"]["containers"][0]["command"][-1]
        assert importlib.import_module(module).CHECK.kind.plural == checked


def test_hooks_are_deleted_after_success(operator_chart: Path) -> None:
    hooks = [obj for obj in render(operator_chart, EVERYTHING) if is_hook(obj)]
    assert {obj["kind"] for obj in hooks} == {"Pod", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy"}
    for obj in hooks:
        annotations = obj["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
        assert int(annotations["helm.sh/hook-weight"]) < 0 or obj["kind"] == "Pod"


def test_chart_without_crds_fails_to_render(charts: Path, tmp_path: Path) -> None:
    chart = tmp_path / "memcached-operator"
    shutil.copytree(charts / "memcached-operator", chart)
    shutil.rmtree(chart / "files/crds")
    with pytest.raises(ClusterError, match=r"has no CRDs in files/crds\. Run `make manifests`"):
        manifest(chart)


def test_chart_versions_equal_the_project_version() -> None:
    for path in CHARTS.glob("*/Chart.yaml"):
        chart = yaml.safe_load(path.read_text())
        versions = {chart["version"], chart.get("appVersion", chart["version"])}
        versions |= {each["version"] for each in chart.get("dependencies", ())}
        assert versions == {VERSION}, path
