"""The platform policy: refused at admission, and by the plan of resources that are older than it or bypassed it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from operators.etcd.api import resource as etcd_resource
from operators.memcached.api import resource as memcached_resource
from operators.redis.api import admission as redis_admission
from shared.api.policy import PlatformPolicy, governed
from shared.api.spec import Admission, Review
from shared.cli.options import parse_options
from shared.kubernetes.kinds import DEPLOYMENT, NETWORK_POLICY, POD, SERVICE, STATEFUL_SET, Obj
from tests.harness.scenario import Subject, lose
from tests.harness.scenario_runner import ScenarioRun, World
from tests.platform.unit.test_network_policies import BUILDS, CASES, KINDS, Case, condition

ADMISSIONS: dict[str, tuple[Admission, Obj]] = {
    "memcached": (memcached_resource.ADMISSION, {"size": 1}),
    "etcd": (etcd_resource.ADMISSION, {"size": 1, "version": "3.6.16"}),
    "redis": (redis_admission.ADMISSION, {"replicas": 6, "version": "8.0.2"}),
}
PROTECTED: dict[str, Obj] = {
    "memcached": {"tls": {"secretName": "a"}, "auth": {"secretName": "b"}},
    "etcd": {"tls": {"mode": "self"}, "auth": {"rootSecretName": "b"}},
    "redis": {"tls": {"mode": "self"}, "auth": {"secretName": "b"}},
}
STRICT = PlatformPolicy(require_tls=True, require_auth=True)


def reviewed(name: str, policy: PlatformPolicy, **spec: Any) -> Review:
    """Return the review of a new resource."""
    admission, base = ADMISSIONS[name]
    metadata = {"name": "cache", "namespace": "default", "uid": "u-1", "generation": 1}
    return governed(admission, policy).review(admission.default({"metadata": metadata, "spec": base | spec}), None)


@KINDS
def test_open_resource_is_refused_at_admission(case: Case) -> None:
    name = case.subject.name
    assert reviewed(name, STRICT).errors == (
        "spec.tls: the platform policy requires TLS. Set it.",
        "spec.auth: the platform policy requires a password of clients. Set it.",
    )
    assert reviewed(name, STRICT, **PROTECTED[name]).errors == ()
    assert reviewed(name, PlatformPolicy()).errors == ()


@KINDS
def test_warning_at_apply_names_everything_that_is_open(case: Case) -> None:
    name = case.subject.name
    (warning,) = reviewed(name, PlatformPolicy()).warnings
    assert warning.startswith("spec: no TLS (tls); no password (auth); open to all (network.allowFrom)")
    closed = reviewed(name, PlatformPolicy(), network={"allowFrom": []}, **PROTECTED[name])
    assert not [text for text in closed.warnings if re.search(r"\((tls|auth|network\.allowFrom)\)", text)]
    disabled = reviewed(name, PlatformPolicy(), network={"enabled": False, "allowFrom": []}, **PROTECTED[name])
    assert [text for text in disabled.warnings if "network.allowFrom" in text]


@pytest.mark.parametrize(
    ("name", "spec", "field"),
    [
        ("memcached", {"network": {"metricsFrom": []}, "metrics": {"enabled": False}}, "spec.network.metricsFrom"),
        ("redis", {"network": {"metricsFrom": []}}, "spec.network.metricsFrom"),
        ("memcached", {"network": {"enabled": False, "metricsFrom": []}, "metrics": {}}, "spec.network.metricsFrom"),
        ("etcd", {"network": {"enabled": False, "allowFrom": []}}, "spec.network.allowFrom"),
        ("redis", {"network": {"enabled": False, "allowFrom": []}}, "spec.network.allowFrom"),
        ("memcached", {"tls": {"mode": "none", "clientAuth": "required"}}, "spec.tls.clientAuth"),
        (
            "redis",
            {"updateStrategy": {"assignStrategies": [{"slots": 1, "fromReplicas": "0"}]}},
            "spec.updateStrategy.assignStrategies",
        ),
    ],
)
def test_accepted_field_without_an_effect_is_named_at_apply(name: str, spec: Obj, field: str) -> None:
    found = reviewed(name, PlatformPolicy(), **spec)
    assert found.errors == ()
    assert [text for text in found.warnings if text.startswith(f"{field}:")]


@pytest.mark.parametrize("name", ["memcached", "etcd", "redis"])
def test_fields_with_an_effect_are_not_named(name: str) -> None:
    spec = {"network": {"metricsFrom": [], "allowFrom": []}, "metrics": {}, **PROTECTED[name]}
    assert not [
        text for text in reviewed(name, PlatformPolicy(), **spec).warnings if "effect" in text or "ignore" in text
    ]


@pytest.mark.parametrize(
    ("name", "field", "spec"),
    [
        ("memcached", "spec.image", {"image": "{}/memcached:1.6.45"}),
        ("memcached", "spec.metrics.image", {"metrics": {"image": "{}/exporter:1"}}),
        ("etcd", "spec.image", {"image": "{}/etcd:v3.6.16"}),
        ("etcd", "spec.extraContainers[0].image", {"extraContainers": [{"name": "log", "image": "{}/log:1"}]}),
        ("redis", "spec.extraInitContainers[0].image", {"extraInitContainers": [{"name": "a", "image": "{}/a:1"}]}),
        ("memcached", "spec.extraContainers[0].image", {"extraContainers": [{"name": "log", "image": "{}/log:1"}]}),
        ("redis", "spec.repository", {"repository": "{}/redis"}),
        ("redis", "spec.pod[0].middlewareImage", {"pod": [{"middlewareImage": "{}/redis:8.0.2"}]}),
        ("redis", "spec.pod[0].monitorImage", {"pod": [{"monitorImage": "{}/exporter:1"}]}),
        ("redis", "spec.pod[0].initImage", {"pod": [{"initImage": "{}/init:1"}]}),
        ("redis", "spec.metrics.image", {"metrics": {"image": "{}/exporter:1"}}),
    ],
)
def test_images_are_from_allowed_registries(name: str, field: str, spec: Obj) -> None:
    policy = PlatformPolicy(allowed_registries=("registry.example.com/team",))

    def errors(prefix: str) -> tuple[str, ...]:
        return reviewed(name, policy, **_formatted(spec, prefix)).errors

    assert errors("registry.example.com/team") == ()
    assert errors("registry.example.com/team/sub") == ()
    for other in ("registry.example.com/teams", "registry.example.com", "evil.example.com/team", "team"):
        (wrong,) = errors(other)
        assert wrong.startswith(f"{field}: the platform policy does not allow {other}/")
        assert wrong.endswith("Use an image of registry.example.com/team.")


def test_registry_that_only_runtimes_see_is_not_docker_hub() -> None:
    """A runtime takes `evil_host.com` for a registry, though no host can have the name."""
    policy = PlatformPolicy(allowed_registries=("docker.io",))
    assert reviewed("memcached", policy, image="team/memcached:1").errors == ()
    assert reviewed("memcached", policy, image="evil_host.com/memcached:1").errors != ()


def _formatted(value: Any, prefix: str) -> Any:
    if isinstance(value, dict):
        return {key: _formatted(part, prefix) for key, part in value.items()}
    if isinstance(value, list):
        return [_formatted(part, prefix) for part in value]
    return value.format(prefix)


def test_default_exporter_is_not_exempt_from_the_allowed_registries() -> None:
    policy = PlatformPolicy(allowed_registries=("registry.example.com",))
    (wrong,) = reviewed("redis", policy, metrics={}).errors
    assert wrong.startswith("spec.metrics.image: the platform policy does not allow oliver006/redis_exporter")


def test_images_without_a_registry_are_from_docker_hub() -> None:
    for allowed, image, accepted in (
        ("docker.io", "memcached:1.6.45", True),
        ("docker.io/library", "memcached:1.6.45", True),
        ("docker.io/library", "bitnami/memcached:1.6.45", False),
        ("docker.io/bitnami", "bitnami/memcached:1.6.45", True),
        ("registry.example.com:5000", "registry.example.com:5000/memcached:1.6.45", True),
        ("registry.example.com", "registry.example.com:5000/memcached:1.6.45", False),
        ("docker.io", "EVIL/memcached:1.6.45", False),
        ("docker.io", "evil:443/memcached:1.6.45", False),
        ("docker.io/library", "docker.io/memcached:1.6.45", True),
        ("docker.io/library", "index.docker.io/memcached:1.6.45", True),
    ):
        found = reviewed("memcached", PlatformPolicy(allowed_registries=(allowed,)), image=image)
        assert (not found.errors) is accepted, (allowed, image)


def test_host_paths_are_refused_unless_they_are_allowed() -> None:
    given = {"pod": [{"volumes": {"type": "hostPath"}}]}
    (wrong,) = reviewed("redis", PlatformPolicy(), **given).errors
    assert wrong.startswith("spec.pod[0].volumes: the platform policy does not allow hostPath volumes.")
    assert reviewed("redis", PlatformPolicy(allow_host_path=True), **given).errors == ()


def test_flags_set_the_policy() -> None:
    flags = ["--require-tls", "--require-auth", "--allowed-registries", "a.example.com,b.example.com/team"]
    options = parse_options("redis-operator", "redis", [*flags, "--allow-host-path"], {})
    assert options.policy == PlatformPolicy(True, True, ("a.example.com", "b.example.com/team"), True)
    assert parse_options("redis-operator", "redis", [], {}).policy == PlatformPolicy()


def strict(subject: Subject) -> Subject:
    """Return the operator with a policy that the scenarios' resources violate."""
    flags = ["--agent-image", "example.com/operator:1", "--require-tls"]
    options = parse_options(f"{subject.name}-operator", subject.name, flags, {})
    return dataclasses.replace(subject, controller=lambda servers: BUILDS[subject.name](options, servers))


@KINDS
async def test_nothing_is_created_for_a_resource_that_bypassed_admission(case: Case) -> None:
    world = World(strict(case.subject))
    await ScenarioRun(world).run_steps((case.create(),))
    for kind in (STATEFUL_SET, DEPLOYMENT, SERVICE, NETWORK_POLICY, POD):
        assert not world.server.objects(kind)
    assert condition(world)["reason"] == "PolicyViolated"
    assert condition(world, "Stalled")["status"] == "True"
    assert condition(world)["message"] == (
        "spec.tls: the platform policy requires TLS. Set it. Nothing was created or changed; what runs is kept running."
    )


@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: case.subject.name)
async def test_cluster_that_is_older_than_the_policy_is_not_changed_but_healed(case: Case) -> None:
    world = World(case.subject)
    await ScenarioRun(world).run_steps((case.create(),))
    [(_, before)] = world.server.objects(STATEFUL_SET)
    pods = {obj["metadata"]["uid"] for _, obj in world.server.objects(POD)}
    world.subject = strict(case.subject)
    await ScenarioRun(world).run_steps((case.create(labels={"team": "storage"}), lose(POD)))
    [(_, after)] = world.server.objects(STATEFUL_SET)
    assert after["spec"]["template"] == before["spec"]["template"]
    now = [obj for _, obj in world.server.objects(POD)]
    assert len(now) == len(pods)
    assert len(pods & {obj["metadata"]["uid"] for obj in now}) == len(pods) - 1
    assert condition(world)["reason"] == "PolicyViolated"
