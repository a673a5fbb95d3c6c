"""Every claim of the threat model in SECURITY.md has a test: a new claim without one fails here."""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from operators.etcd import operator as etcd_operator
from operators.etcd.client import errors as etcd_errors
from operators.etcd.client import server as etcd_server
from operators.memcached import operator as memcached_operator
from operators.redis import operator as redis_operator
from operators.redis.client import errors as redis_errors
from operators.redis.client import server as redis_server
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import EVENT, SECRET, Obj
from shared.status.conditions import READY
from simulator.harness import NAMESPACE
from tests.harness.scenario import Subject
from tests.harness.scenario_runner import World
from tests.platform.unit.test_secret_provenance import OPERATORS, Operated, play, resource_of, resynced, secrets_of
from tests.support.etcd import scenarios as etcd_scenarios
from tests.support.issuing import issued
from tests.support.memcached import scenarios as memcached_scenarios
from tests.support.redis import scenarios as redis_scenarios
from tools.local.paths import REPOSITORY

UNIT, API = "tests/platform/unit", "tests/platform/api"
ACCESS, RIGHTS = f"{UNIT}/charts/test_access.py", f"{UNIT}/charts/test_compromised_operator.py"
HERE, PROVENANCE, POLICIES = (
    f"{UNIT}/{name}.py" for name in ("test_security_claims", "test_secret_provenance", "test_network_policies")
)
ENDPOINTS, ADMISSION = f"{UNIT}/shared/observability/test_endpoints.py", f"{UNIT}/shared/api/test_admission.py"
CERTIFICATES = "tests/memcached/unit/security/test_certificates.py"
HOST_PATHS = f"{UNIT}/test_platform_policy.py::test_host_paths_are_refused_unless_they_are_allowed"

CLAIMS: dict[str, list[str]] = {
    "The data of the databases": [f"{POLICIES}::test_clients_are_restricted_to_those_that_the_spec_admits"],
    "Servers of a Memcached mount": [
        "tests/memcached/simulation/test_users.py"
        "::test_operator_that_may_no_longer_write_the_copy_returns_to_the_original"
    ],
    "Their credentials": [f"{HERE}::test_resource_contains_no_credentials"],
    "The Kubernetes cluster": [f"{HERE}::test_spec_has_no_field_that_gives_a_pod_rights_on_its_node"],
    "author of a resource | operator": [
        f"{ADMISSION}::test_invalid_resource_is_denied_with_every_error_as_a_cause",
        f"{UNIT}/test_platform_policy.py::test_nothing_is_created_for_a_resource_that_bypassed_admission",
    ],
    "A name in a spec": [f"{HERE}::test_spec_names_no_namespace_of_an_object"],
    "other clients of a namespace | operator": [
        f"{PROVENANCE}::test_seeded_secrets_are_refused_until_they_are_deleted_or_adopted",
        f"{PROVENANCE}::test_secret_that_names_the_resource_as_its_owner_is_no_proof",
    ],
    "one namespace | other namespaces": [
        f"{UNIT}/test_hostile_content.py::test_reconciles_at_once_keep_only_what_they_use_of_secrets",
        f"{UNIT}/test_hostile_replies.py::test_hostile_replies_of_many_servers_at_once_cost_little",
        f"{UNIT}/shared/steps/test_adoption_observer.py::test_uid_that_no_resource_has_costs_nothing_with_many_resources",
        f"{UNIT}/shared/runtime/test_dependencies.py::test_copies_of_one_namespace_do_not_displace_those_of_others",
    ],
    "Namespaces take turns": [
        f"{UNIT}/shared/kubernetes/test_fair_queue.py"
        "::test_namespace_that_keeps_changing_specs_leaves_every_second_turn_to_others",
        f"{UNIT}/shared/kubernetes/test_fair_queue.py::test_slow_namespaces_leave_quick_slots_to_any_number_of_others",
    ],
    "A reconcile that servers prolong": [
        "tests/redis/unit/client/test_connection.py::test_server_cannot_prolong_an_exchange",
        f"{UNIT}/shared/runtime/test_convergence.py::test_reconcile_that_servers_prolong_is_stopped_and_reported",
    ],
    "operator | API server": [
        f"{API}/charts/test_rights.py::test_chart_grants_all_permissions_that_the_operator_uses",
        f"{RIGHTS}::test_operator_has_exactly_the_documented_rights_in_the_namespaces_that_it_serves",
    ],
    "API server | webhook": [
        f"{UNIT}/shared/pki/test_trust_watch.py::test_recreated_configurations_are_trusted_again_within_seconds",
        f"{API}/test_webhooks.py::test_operator_owns_only_the_ca_bundle_and_restores_it",
    ],
    "Any pod that reaches the": [
        f"{ADMISSION}::test_defaults_are_returned_as_a_patch_once",
        f"{ADMISSION}::test_long_values_of_a_bad_request_are_not_repeated",
    ],
    "Prometheus | metrics of the operator": [
        f"{ENDPOINTS}::test_unknown_token_is_rejected",
        f"{ENDPOINTS}::test_missing_permission_is_named_in_the_response",
    ],
    "operator | database": [
        f"{HERE}::test_no_password_leaves_without_a_verified_server",
        "tests/etcd/unit/security/test_secrets.py::test_password_is_not_used_before_the_certificates_exist",
        f"{CERTIFICATES}::test_certificate_of_the_same_ca_without_a_name_of_the_resource_gets_no_password",
    ],
    "With both": [
        f"{HERE}::test_no_password_leaves_without_a_verified_server",
        f"{CERTIFICATES}::test_certificate_of_the_same_ca_without_a_name_of_the_resource_gets_no_password",
        "tests/etcd/containers/test_access.py::test_client_and_server_authenticate_each_other",
        "tests/redis/containers/test_connection.py::test_both_ends_verify_the_certificate_of_the_other",
    ],
    "clients | database": [f"{POLICIES}::test_clients_are_restricted_to_those_that_the_spec_admits"],
    "`network": [f"{POLICIES}::test_clients_are_restricted_to_those_that_the_spec_admits"],
    "Applications of an EtcdCluster get": [
        "tests/etcd/simulation/test_client_user.py::test_applications_get_a_user_that_only_reads_and_writes_keys",
        "tests/etcd/simulation/test_client_user.py::test_applications_get_root_only_if_the_spec_requests_it",
        "tests/etcd/containers/test_access.py::test_user_for_applications_reads_and_writes_keys_and_nothing_else",
    ],
    "node | node": [f"{POLICIES}::test_peer_ports_admit_only_the_pods_of_the_resource_and_the_operator"],
    "Replicas of Redis authenticate with": [
        "tests/redis/simulation/test_replication_links.py"
        "::test_replica_at_the_address_of_a_foreign_server_keeps_its_keys",
        "tests/redis/containers/test_replication_user.py::test_replica_with_its_user_keeps_its_keys_and_comes_back",
    ],
    "Without `tls`": [
        "tests/redis/unit/facts/test_bus_port.py::test_new_clusters_have_ports_of_their_own",
        "tests/redis/simulation/test_merging.py::test_pod_with_the_former_address_of_another_cluster_does_not_join_it",
        "tests/redis/containers/test_merging.py::test_clusters_merge_only_if_their_bus_has_the_same_port",
    ],
    "snapshot pod | store of snapshots": [
        "tests/etcd/unit/backup/test_program.py::test_bucket_is_accessed_with_the_keys_of_the_secret"
    ],
    "image registries | pods": [f"{UNIT}/test_platform_policy.py::test_images_are_from_allowed_registries"],
    "author of a resource in a namespace": [
        f"{HERE}::test_spec_has_no_field_that_gives_a_pod_rights_on_its_node",
        f"{HERE}::test_no_user_of_a_container_is_root",
    ],
    "Name anything in other namespaces": [f"{HERE}::test_spec_names_no_namespace_of_an_object"],
    "Mount host paths (unless `policy": [HOST_PATHS],
    "reader of a resource": [f"{HERE}::test_resource_contains_no_credentials"],
    "creator of Secrets in a namespace": [
        f"{PROVENANCE}::test_seeded_secrets_are_refused_until_they_are_deleted_or_adopted"
    ],
    **{
        operator: [f"{RIGHTS}::test_operator_has_exactly_the_documented_rights_in_the_namespaces_that_it_serves"]
        for operator in ("all", "etcd", "redis", "memcached")
    },
    "It cannot change roles": [f"{RIGHTS}::test_operator_can_change_no_roles_read_no_logs_and_execute_no_commands"],
    "Cluster-scoped": [f"{RIGHTS}::test_operator_has_exactly_the_documented_rights_in_the_cluster"],
    "The operator changes only the": [
        f"{API}/test_webhooks.py::test_operator_owns_only_the_ca_bundle_and_restores_it",
        f"{RIGHTS}::test_webhook_configurations_are_limited_to_those_of_the_operator",
    ],
    "`certificates": [f"{RIGHTS}::test_right_to_change_webhook_configurations_can_be_taken_away"],
    "`watchNamespaces`": [f"{ACCESS}::test_permissions_are_limited_to_the_watched_namespaces"],
    "One installation for each tenant": [f"{ACCESS}::test_operator_in_one_namespace_needs_no_rights_in_the_cluster"],
    "Install only the operators that": [f"{ACCESS}::test_bindings_connect_roles_and_service_accounts_of_the_chart"],
    "`rbac": [f"{RIGHTS}::test_right_to_write_secrets_can_be_taken_away"],
    "There are then no connection": [
        "tests/etcd/unit/steps/test_connection_secret.py::test_operator_without_the_right_to_write_secrets_writes_none",
        "tests/etcd/unit/steps/test_generated_password.py::test_operator_without_the_right_refuses",
        "tests/memcached/unit/steps/test_issuing.py::test_operator_that_may_not_write_secrets_refuses_to_issue",
    ],
    "Images and charts of a": [
        f"{UNIT}/tools/test_workflows.py::test_release_signs_every_artifact_with_provenance_and_sbom",
        f"{UNIT}/tools/test_release.py::test_sbom_of_each_operator_is_complete_and_reproducible",
        f"{UNIT}/tools/test_release.py::test_every_chart_is_packaged_with_version_and_digest_the_umbrella_last",
        f"{UNIT}/charts/test_deployment.py::test_pods_run_with_the_restricted_profile_by_default",
    ],
}
"""Tests of each claim, by its beginning: the first cells of a row, or the first words of a sentence."""

ADVICE = {
    "reader of Secrets in a namespace",
    "creator of pods in a namespace",
    "operator",
    "Its containers can read **every",
    "Give the right to create",
    "Keep the namespace of the",
}
"""Warnings and advice, which promise nothing."""


def claims() -> Iterator[str]:
    """Yield the beginning of each row, and of each sentence outside the tables and after the first one of a cell."""
    text = (REPOSITORY / "SECURITY.md").read_text()
    model = text.partition("## Threat model")[2].partition("### Out of scope")[0]
    for section in model.split("### ")[1:]:
        title, _, body = section.partition("\n")
        blocks = re.split(r"\n\s*\n|\n(?=- )", body)
        for block in (each.strip() for each in blocks):
            if block.startswith("|"):
                cells = 2 if title == "Trust boundaries" else 1
                for row in block.splitlines()[2:]:
                    found = [cell.strip() for cell in row.strip("|").split(" | ")]
                    yield " | ".join(re.sub(r" \(.*", "", cell) for cell in found[:cells])
                    yield from (_beginning(sentence) for cell in found for sentence in _sentences(cell)[1:])
            elif block and not block.endswith(":"):
                yield from (_beginning(sentence) for sentence in _sentences(block))


def _sentences(block: str) -> list[str]:
    return re.split(r"(?<=\.) (?=[A-Z`])", " ".join(block.split()).removeprefix("- "))


def _beginning(sentence: str) -> str:
    return " ".join(re.split(r"[:,.=]", sentence)[0].split()[:5])


def test_every_claim_has_a_test() -> None:
    found = list(claims())
    assert len(found) > 25
    assert [claim for claim in found if claim not in CLAIMS.keys() | ADVICE] == [], "add a test, and its id to CLAIMS"
    assert sorted((CLAIMS.keys() | ADVICE) - {*found}) == [], "SECURITY.md does not claim this any more"


@pytest.mark.parametrize("test", sorted({test for tests in CLAIMS.values() for test in tests}))
def test_named_test_exists(test: str) -> None:
    path, _, name = test.partition("::")
    assert name in _functions(REPOSITORY / path)


@cache
def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


# Claims about specs.


CRDS = sorted((REPOSITORY / "charts").glob("*/files/crds/*.yaml"))

NODE_RIGHTS = re.compile(
    r"privileged|allowPrivilegeEscalation|capabilities|host(Network|PID|IPC|Port|Path|Users)|procMount|sysctls|"
    r"nodeName|windowsOptions|appArmorProfile|volumeDevices"
)
"""Names of fields by which a pod gets rights on its Kubernetes node, or takes it without the scheduler."""


def fields(crd: Path, kind: str = "spec") -> Iterator[tuple[str, Obj]]:
    """Yield path and schema of each field of a CRD."""
    for version in yaml.safe_load(crd.read_text())["spec"]["versions"]:
        yield from _fields(version["schema"]["openAPIV3Schema"]["properties"][kind], kind)


def _fields(schema: Obj, at: str) -> Iterator[tuple[str, Obj]]:
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{at}.{name}", inner
        yield from _fields(inner, f"{at}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            yield from _fields(schema[key], at + mark)


def _name(path: str) -> str:
    return re.sub(r"[\[\]{}]", "", path.rpartition(".")[2])


@pytest.mark.parametrize("crd", CRDS, ids=lambda path: path.stem)
def test_spec_has_no_field_that_gives_a_pod_rights_on_its_node(crd: Path) -> None:
    found = {path for path, _ in fields(crd) if NODE_RIGHTS.fullmatch(_name(path))}
    refused = {path for path in found if path.endswith(".volumes.hostPath")}  # unless policy.allowHostPath is set
    assert found == refused
    for path, schema in fields(crd):
        if _name(path) == "seLinuxOptions":  # another type or user may be unconfined
            assert schema["properties"].keys() == {"level"}, path


@pytest.mark.parametrize("crd", CRDS, ids=lambda path: path.stem)
def test_no_user_of_a_container_is_root(crd: Path) -> None:
    for path, schema in fields(crd):
        if _name(path) in ("runAsUser", "runAs"):
            assert schema.get("minimum", 0) >= 1 or "enum" in schema, path


@pytest.mark.parametrize("crd", CRDS, ids=lambda path: path.stem)
def test_spec_names_no_namespace_of_an_object(crd: Path) -> None:
    found = {_name(path) for path, _ in fields(crd) if "namespace" in _name(path).lower()}
    assert found <= {"namespaceSelector"}, "of clients that a NetworkPolicy admits"


@pytest.mark.parametrize("operated", list(OPERATORS.values()), ids=list(OPERATORS))
async def test_resource_contains_no_credentials(operated: Operated) -> None:
    world = World(operated.subject)
    await play(world, operated.plain(**operated.secure))
    shown = json.dumps([resource_of(world), *_others(world)])
    for secret in secrets_of(world).values():
        for key, encoded in secret["data"].items():
            text = base64.b64decode(encoded).decode()
            if key.endswith((".key", "assword", "users")) or "password" in key:
                hidden = [line.rpartition(":")[2] for line in text.splitlines() if len(line) > 20]
                assert not [each for each in hidden if each in shown], f"{secret['metadata']['name']}: {key}"


def _others(world: World) -> list[Any]:
    """Return all objects that are no Secrets, events too."""
    return [obj for kind, obj in world.outcome.objects if kind != SECRET] + [
        obj for _, obj in world.server.objects(EVENT)
    ]


# Claims about passwords.


@dataclass
class Sent:
    """Passwords that an operator sent over connections without TLS.

    Another server may answer there, on the network or at the address of a former pod. It requires a password.
    """

    passwords: list[str] = field(default_factory=list)

    def note(self, at: str, password: str, *, verifies: bool) -> bool:
        """Return whether the connection is not protected, so that a foreign server answers."""
        if password and not verifies:
            self.passwords.append(f"{at} gets {password}")
        return not verifies


class ForeignServer:
    """A server that denies each request that has not authenticated."""

    def __init__(self, denied: Exception) -> None:
        self._denied = denied

    async def aclose(self) -> None: ...

    def __getattr__(self, _: str) -> Any:
        async def deny(*_: object, **__: object) -> None:
            raise self._denied

        return deny


def redis_that_notes(sent: Sent) -> Subject:
    def connects(redis: Any) -> Any:
        def connect(at: Any, access: redis_server.Access) -> Any:
            is_open = sent.note(at.name, access.password, verifies=access.authority is not None)
            return (
                ForeignServer(redis_errors.Denied("NOAUTH Authentication required.")) if is_open else real(at, access)
            )

        real = redis.connect
        return redis_operator.clusters(redis_scenarios.OPTIONS, connect)

    return replace(redis_scenarios.REDIS, controller=lambda redis: replace(connects(redis), issue=issued))


def etcd_that_notes(sent: Sent) -> Subject:
    def connects(etcd: Any) -> Any:
        def connect(at: Any, access: etcd_server.Access) -> Any:
            is_open = sent.note(at.name, access.password, verifies=access.authority is not None)
            return (
                ForeignServer(etcd_errors.Unauthenticated("user name is empty"))
                if is_open
                else etcd.connect(at, access)
            )

        return etcd_operator.clusters(etcd_scenarios.OPTIONS, connect)

    return replace(etcd_scenarios.ETCD, controller=lambda etcd: replace(connects(etcd), issue=issued))


def memcached_that_notes(sent: Sent) -> Subject:
    def connects(servers: Any) -> Any:
        async def connect(host: str, port: int, **options: Any) -> Any:
            verifies = options.get("tls") is not None and options.get("trusts") is not None
            sent.note(host, ":".join(options.get("auth") or ()), verifies=verifies)
            return await servers.connect(host, port, **options)

        return memcached_operator.controller(memcached_scenarios.OPTIONS, connect, servers.attest)

    return replace(memcached_scenarios.MEMCACHED, controller=lambda servers: replace(connects(servers), issue=issued))


NOTING = {"memcached": memcached_that_notes, "etcd": etcd_that_notes, "redis": redis_that_notes}


def delete_it(world: World, secret: Obj) -> None:
    world.server.actor("user").delete(SECRET, NAMESPACE, secret["metadata"]["name"])


def restore_it(world: World, secret: Obj) -> None:
    """Replace a Secret by one with the same content and another UID, whose origin nothing proves."""
    delete_it(world, secret)
    metadata = {key: secret["metadata"][key] for key in ("name", "namespace", "labels")}
    world.server.actor("user").create(SECRET, {**secret, "metadata": metadata})


def spoil_it(world: World, secret: Obj) -> None:
    data = dict.fromkeys(secret["data"], base64.b64encode(b"no certificate").decode())
    world.server.actor("user").merge(SECRET, NAMESPACE, secret["metadata"]["name"], {"data": data})


@pytest.mark.parametrize("lose", [delete_it, restore_it, spoil_it], ids=["deleted", "unproven", "invalid"])
@pytest.mark.parametrize("operator", OPERATORS)
async def test_no_password_leaves_without_a_verified_server(operator: str, lose: Callable[[World, Obj], None]) -> None:
    """Each Secret with a certificate is lost alone, and all together."""
    sent, operated = Sent(), OPERATORS[operator]
    world = World(NOTING[operator](sent))
    await play(world, operated.plain(**operated.secure))
    assert condition(resource_of(world), READY)["status"] == "True"
    certificates = [secret for secret in secrets_of(world).values() if {"tls.crt", "ca.crt"} & secret["data"].keys()]
    assert len(certificates) > 1
    for lost in ([], *([each] for each in certificates), certificates):
        attacked = world.fork()
        for secret in lost:
            lose(attacked, secret)
        await resynced(attacked)
        assert sent.passwords == [], [each["metadata"]["name"] for each in lost]
