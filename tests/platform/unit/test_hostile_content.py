"""Secrets, ConfigMaps and resources of users with any content: the operators refuse what costs too much, in a sentence.

Each Secret that a spec names gets each kind of hostile content, one at a time, and a resource that passed by the
webhook each kind of large value. A reconcile may then occupy the event loop for at most 100 ms, and need at most 20 MiB
(tests/harness/cost.py).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import functools
import json
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
import pytest

import operators
from operators.redis.api.acl_user import MAX_USERS
from shared.cli.options import parse_options
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.encoding import parsed_share
from shared.kubernetes.errors import TooLarge
from shared.kubernetes.kinds import CONFIG_MAP, SECRET, Obj
from shared.kubernetes.ownership import ForeignObject
from shared.kubernetes.secret_provenance import ADOPT
from shared.pki import ca
from shared.pki.certs import Pair
from shared.runtime.dependencies import Dependencies
from shared.runtime.operator import ServedKind
from shared.status.conditions import READY
from simulator.api_server.requests import TargetedRequest
from simulator.api_server.server import ApiServer
from simulator.harness import NAMESPACE, Harness
from simulator.kubelet.workloads import Workloads
from tests.harness import cost
from tests.support.hostile_reviews import QUANTITIES, FieldPath, bombs, replaced

BEGINS, ENDS = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
MIB = 1024 * 1024

Content = dict[str, bytes]


@functools.cache
def authority(number: int = 0, name: str = "team-ca") -> Pair:
    """Return an authority: another number is another key."""
    return ca.authority(name, begins=BEGINS, ends=ENDS)


@functools.cache
def issued(*hosts: str) -> Pair:
    return ca.issue(authority(), "", begins=BEGINS, ends=ENDS, hosts=hosts, client=True)


def certificate(*hosts: str) -> Content:
    pair = issued(*hosts)
    found = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority().certificate}
    return {key: text.encode() for key, text in found.items()}


@dataclass(frozen=True)
class Target:
    """A Secret that a spec names.

    Attributes:
        kind: kind of the resource that names it.
        spec: spec of the resource.
        secrets: valid content of all Secrets, by name.
        name: the Secret that gets other content; of those that items of a list name, the first.
    """

    kind: str
    spec: Obj
    secrets: Mapping[str, Content]
    name: str

    def with_content(self, content: Content) -> Mapping[str, Content]:
        """Return the Secrets with other content: a list names as many as it may, and all of them get it."""
        attacked = USERS if self.name in USERS else (self.name,)
        return {**self.secrets, **dict.fromkeys(attacked, content)}

    @property
    def operator(self) -> str:
        """Name of the operator."""
        return next(operator.name for operator in operators.installed() if self.served in operator.kinds)

    @property
    def served(self) -> ServedKind:
        return SERVED_KINDS[self.kind]

    @property
    def key(self) -> str:
        """The key of the Secret that the operator reads, of several the first."""
        return next(iter(self.secrets[self.name]))

    @property
    def has_certificate(self) -> bool:
        return "tls.crt" in self.secrets[self.name]

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


SERVED = certificate("*.cache.default.svc", "cache.default.svc", "cache-client.default.svc")
STORE: Obj = {"s3": {"bucket": "snapshots", "credentialsSecret": "store"}}
STORED = {"store": {"accessKeyID": b"a", "secretAccessKey": b"b"}}
USERS = tuple(f"user-{number:02}" for number in range(MAX_USERS))
WORLDS: tuple[tuple[str, Obj, Mapping[str, Content]], ...] = (
    (
        "Memcached",
        {"size": 1, "auth": {"secretName": "users"}, "tls": {"secretName": "served", "clientAuth": "required"}},
        {"users": {"users": b"app:secret\n"}, "served": SERVED},
    ),
    (
        "EtcdCluster",
        {
            "size": 1,
            "auth": {"rootSecretName": "root"},
            "tls": {"mode": "secret", "peer": {"secretName": "peers"}, "client": {"secretName": "served"}},
        },
        {"root": {"password": b"secret"}, "peers": SERVED, "served": SERVED},
    ),
    ("EtcdCluster", {"size": 1, "backup": {"schedule": "0 0 * * *", "destination": STORE}}, STORED),
    ("EtcdCluster", {"size": 1, "restore": {"from": {**STORE, "file": "a.db"}}}, STORED),
    ("EtcdBackup", {"clusterName": "source", "destination": STORE}, STORED),
    (
        "RedisCluster",
        {"replicas": 6, "auth": {"secretName": "users"}, "tls": {"mode": "secret", "secretName": "served"}},
        {"users": {"password": b"secret"}, "served": SERVED},
    ),
    (
        "RedisCluster",
        {
            "replicas": 6,
            "users": [{"name": f"a-{name}", "rules": "+@read", "passwordSecret": {"name": name}} for name in USERS],
        },
        {name: {"password": b"secret"} for name in USERS},
    ),
)
SERVED_KINDS = {kind.resource.kind.name: kind for operator in operators.installed() for kind in operator.kinds}
KINDS = {operator.name: operator.kinds for operator in operators.installed()}
TARGETS = [
    Target(kind, spec, secrets, name)
    for kind, spec, secrets in WORLDS
    for name in secrets
    if name not in USERS[1:]  # they get the same content at the same time
]


# Content.


@functools.cache
def _bundle(count: int, *, same_name: bool = False) -> bytes:
    """Return authorities: of 64 keys, so that the test is fast; names repeat after 64 too."""
    names = (f"ca-{number % 64}" if not same_name else "team-ca" for number in range(count))
    return "".join(authority(number % 64 + 1, name).certificate for number, name in enumerate(names)).encode()


@functools.cache
def _with_many_names() -> bytes:
    return ca.issue(
        authority(), "", begins=BEGINS, ends=ENDS, hosts=[f"h{number}.example.com" for number in range(9_000)]
    ).certificate.encode()


_ENCRYPTED = (
    "MIHtMFgGCSqGSIb3DQEFDTBLMCoGCSqGSIb3DQEFDDAdBAgXvP0DKY6PTgIDf///MAwGCCqGSIb3DQIJBQAwHQYJYIZIAWUDBAEq"
    "BBC/6uWnE1Qv6NUJgz9wbPgkBIGQLdi6AcsiOD+5N+Em2nQXF54f1HnVmF4BLLIw1lX3dpURNUnx5z7e08QEfQ2ZxFvomHg1b9Vr"
    "2DTRzY7a7JvEM3sB6ZPczsAqes2Bhy2JfqvRiO/jijysAGis1gfvaIWhPiHEGARvPsKcLbfnWK/tpI/vagsUs4GemZwVlgXxUNIl"
    "tnFr6RuWlRz/UTwMXB9q"
)
"""A key that is encrypted with PBKDF2 and 8,388,607 iterations, which take 5 s; 2,147,483,647 would take 20 minutes."""


def _encrypted_key() -> bytes:
    return f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{_ENCRYPTED}\n-----END ENCRYPTED PRIVATE KEY-----\n".encode()


Change = Callable[[Target], Content]


def _value(value: bytes) -> Change:
    """Replace the value that the operator reads."""
    return lambda target: {**target.secrets[target.name], target.key: value}


ANY: Mapping[str, Change] = {
    "1 MiB of letters": _value(b"x" * MIB),
    "1 MiB of line breaks": _value(b"\n" * MIB),
    "1 MiB of short lines": _value(b"a:b\n" * (MIB // 4)),
    "1 MiB of a long word": _value(b"a:" + b"\xc3\xa4" * (MIB // 2 - 8) + b"\n"),
    "bytes that are not text": _value(b"\xff" * MIB),
    "NUL bytes": _value(b"\0" * MIB),
    "4,000 keys": lambda target: target.secrets[target.name] | {f"k{number}": b"" for number in range(4_000)},
    "21,000 keys": lambda target: target.secrets[target.name] | {f"k{number}": b"" for number in range(21_000)},
    "another value of 1 MiB": lambda target: target.secrets[target.name] | {"other": b"x" * (MIB - 16_384)},
}
CERTIFICATES: Mapping[str, Change] = {
    name: lambda target, change=change: target.secrets[target.name] | change()  # type: ignore[misc]
    for name, change in {
        "1,200 authorities": lambda: {"ca.crt": _bundle(1_200)},
        "256 authorities of the issuer's name": lambda: {"ca.crt": _bundle(256, same_name=True)},
        "16 authorities of the issuer's name": lambda: {
            "ca.crt": authority().certificate.encode() + _bundle(15, same_name=True)
        },
        "240 authorities": lambda: {"ca.crt": authority().certificate.encode() + _bundle(240)},
        "authorities that do not end": lambda: {"ca.crt": b"-----BEGIN CERTIFICATE-----" * 38_000},
        "authority with 9,000 names": lambda: {"ca.crt": _with_many_names()},
        "certificate with 9,000 names": lambda: {"tls.crt": _with_many_names()},
        "chain of 1,200 certificates": lambda: {"tls.crt": _bundle(1_200)},
        "certificate that does not end": lambda: {"tls.crt": b"-----BEGIN CERTIFICATE-----" * 38_000},
        "encrypted key": lambda: {"tls.key": _encrypted_key()},
        "encrypted key with the certificate": lambda: {"tls.crt": _encrypted_key(), "tls.key": b"none"},
        "key of 1 MiB": lambda: {"tls.key": b"-----BEGIN PRIVATE KEY-----\n" + b"A" * (MIB // 2)},
        "DER elements without end": lambda: {
            "ca.crt": ssl.DER_cert_to_PEM_cert(b"\x30\x83\x02\xee\xf0" + b"\x30\x00" * 96_000).encode()
        },
    }.items()
}
ACCEPTED = {"16 authorities of the issuer's name", "240 authorities", "another value of 1 MiB"}
FIRST = {"Memcached: users", "RedisCluster: served", f"RedisCluster: {USERS[0]}"}
"""Secrets with passwords and one with certificates: all content of these for each commit, of the others each night."""

CASES = [
    pytest.param(
        target,
        name,
        id=f"{target} of {'.'.join(target.spec)}, {name}",
        marks=[] if str(target) in FIRST else pytest.mark.nightly,
    )
    for target in TARGETS
    for name in (*ANY, *(CERTIFICATES if target.has_certificate else ()))
    if name != "21,000 keys" or target.name not in USERS  # this server would need a minute for the keys of so many
]


class UncountedServer(ApiServer):
    """An API server whose own work in the event loop does not count; what the operator does with its events does."""

    async def request(self, request: Request) -> Response:
        await asyncio.sleep(0)
        try:
            return await super().request(request)
        finally:
            self.watches.release()

    def handle(self, request: Request) -> Response:
        try:
            return super().handle(request)
        finally:
            self.watches.release()

    def _answer(self, target: TargetedRequest) -> Response:
        self.watches.hold()
        with cost.uncounted():
            return super()._answer(target)


class YieldingServer(UncountedServer):
    """An API server whose answers let other callbacks run, as those of a connection do."""

    async def request(self, request: Request) -> Response:
        try:
            return await super().request(request)
        finally:
            await asyncio.sleep(0)


class DecodingServer(UncountedServer):
    """An API server whose answers are decoded, as those of a connection are: they share nothing with its objects.

    Those that cost too much are not.
    """

    async def request(self, request: Request) -> Response:
        answer = await super().request(request)
        with cost.uncounted():
            text = orjson.dumps(answer.body)
        if parsed_share(text) > 1:
            raise TooLarge(str(request))
        return answer._replace(body=orjson.loads(text))


async def reconciled(
    target: Target, secrets: Mapping[str, Content], config: Mapping[str, str] | None = None
) -> Harness:
    """Let the operator reconcile a resource with these Secrets, and a ConfigMap, once, within the limits."""
    options = parse_options(f"{target.operator}-operator", target.operator, ["--agent-image=operator:1"], {})
    workloads = Workloads(DecodingServer([each.resource.kind for each in KINDS[target.operator]]))
    harness = Harness(target.served.controller(options), workloads=workloads)
    if "clusterName" in target.spec:
        cluster = SERVED_KINDS["EtcdCluster"].resource.kind
        metadata = {"name": target.spec["clusterName"], "namespace": NAMESPACE}
        body = {"apiVersion": cluster.api_version, "kind": cluster.name, "metadata": metadata, "spec": {"size": 1}}
        harness.user_client.apply(cluster, body, force=True)
    for name, content in secrets.items():
        data = {key: base64.b64encode(value).decode() for key, value in content.items()}
        metadata = {"name": name, "namespace": NAMESPACE}
        harness.user_client.apply(
            SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}, force=True
        )
    wishes = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wishes", "namespace": NAMESPACE}}
    harness.user_client.apply(CONFIG_MAP, {**wishes, "data": dict(config or {})}, force=True)
    harness.apply("cache", **target.spec)
    async with cost.bounded():
        results = await harness.run()
    assert not {"error", "terminal_error"} & set(results)
    return harness


@pytest.mark.parametrize("target", TARGETS, ids=str)
async def test_valid_secrets_are_accepted(target: Target) -> None:
    harness = await reconciled(target, target.secrets)
    assert _reason(harness) not in ("SecretInvalid", "SecretMissing")


@pytest.mark.parametrize(("target", "name"), CASES)
async def test_hostile_secret_is_refused_in_a_sentence_and_stops_no_other_resource(target: Target, name: str) -> None:
    content = {**ANY, **CERTIFICATES}[name](target)
    harness = await reconciled(target, target.with_content(content))
    reason, message = _reason(harness), _ready(harness)["message"]
    if target.name in USERS:  # each has one key, so that others do not count; nothing stops a cluster
        reported = [each["message"] for each in harness.resource("cache")["status"]["users"]]
        assert len(reported) == len(USERS)
        if name not in (*ACCEPTED, "4,000 keys"):
            assert all(f"Secret {user}: password " in found for user, found in zip(USERS, reported, strict=True))
        message = max(message, *reported, key=len)
    elif name in ACCEPTED:
        assert reason not in ("SecretInvalid", "SecretMissing")
    elif target.secrets is not STORED:  # of which the operator reads whether it has the keys: a pod uses their values
        assert reason == "SecretInvalid"
        assert f"Secret {target.name}" in message
    assert len(message) <= 1_000
    assert not any(word in message for word in ("xxxx", "a:b", "AAAA", "PRIVATE"))


@pytest.mark.parametrize("size", [330 * 1024, 800 * 1024])
async def test_hostile_content_of_the_secrets_of_clients_costs_little(size: int) -> None:
    """Another client fills the Secrets that the operator makes, one for each user and one for all."""
    target = next(target for target in TARGETS if target.name in USERS)
    made = ("cache-connection", *(f"cache-user-{user['name']}" for user in target.spec["users"]))
    await reconciled(target, {**target.secrets, **{key: {"password": b"x" * size} for key in made}})


OTHER = {"other": b"x" * (MIB - 16_384)}
RESOURCES = 24


@pytest.mark.parametrize("origin", ["given", "made", "proven"])
@pytest.mark.parametrize("target", [each for each in TARGETS if str(each) in FIRST or each.name == "root"], ids=str)
async def test_reconciles_at_once_keep_only_what_they_use_of_secrets(target: Target, origin: str) -> None:
    """All resources name the same Secrets, or Secrets have the names of those that the operator would make or made."""
    options = parse_options(f"{target.operator}-operator", target.operator, ["--agent-image=operator:1"], {})
    server = DecodingServer([each.resource.kind for each in KINDS[target.operator]])
    controller = target.served.controller(options)
    harness = Harness(controller, workloads=Workloads(server))
    data = {"redis.conf": "hz 10\n", "other": "x" * (MIB - 16_384)}
    wishes = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wishes", "namespace": NAMESPACE}}
    harness.user_client.apply(CONFIG_MAP, {**wishes, "data": data}, force=True)
    for number in range(RESOURCES):
        configured = {"pod": [{"configmap": "wishes"}]} if target.kind == "RedisCluster" else {}
        harness.apply(f"cache-{number}", **target.spec, **configured)
    dependencies = Dependencies(controller.reads, lambda _: None)
    kube = Kube(server, manager=controller.operator)

    async def observed() -> set[str]:
        """Observe all resources at once; return the names of the Secrets that were read."""
        read: set[str] = set()
        seen = []
        with contextlib.ExitStack() as stack:
            for key in harness.cache.keys(controller.kind):
                stack.enter_context(dependencies.reconcile(key))
                noting = stack.enter_context(dependencies.noting(key, kube))
                obj = harness.cache.get(controller.kind, *key)
                assert obj is not None
                resource = controller.resource(obj, harness.cache)
                try:
                    seen.append(await controller.observe(resource, harness.cache, noting))
                except ForeignObject as error:
                    refused.append(str(error))
                read |= {name for kind, _, name in dependencies.known(key) if kind == SECRET}
        return read

    refused = list[str]()
    own = {
        name
        for name in await observed() - {*target.secrets}
        if not name.endswith("-connection") and "-user-" not in name
    }
    given = {name: {**content, **OTHER} for name, content in target.secrets.items()}
    different = {name: {"other": name.encode().ljust(len(OTHER["other"]), b"x")} for name in own}
    secrets = given if origin == "given" else different
    for name, content in secrets.items():
        data = {key: base64.b64encode(value).decode() for key, value in content.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}
        harness.user_client.apply(SECRET, body, force=True)
    if origin == "proven":
        uids = ",".join(obj["metadata"]["uid"] for _, obj in server.objects(SECRET))
        for key in harness.cache.keys(controller.kind):
            metadata = {"name": key.name, "namespace": NAMESPACE, "annotations": {ADOPT: uids}}
            body = {"apiVersion": controller.kind.api_version, "kind": controller.kind.name, "metadata": metadata}
            server.actor("consent").apply(controller.kind, body, force=True)
        harness.relist()
    # Of a proven Secret, less than all of its content may not be used: a resource may have two bundles of authorities.
    async with cost.bounded(size=(40 if origin == "proven" else 20) * MIB):
        assert await observed() >= secrets.keys()
    several = len(own) > RESOURCES
    assert len(refused) == (RESOURCES if origin == "proven" and several else 0)
    assert all("Remove the keys that the operator did not write" in each and len(each) < 400 for each in refused)


def _ready(harness: Harness) -> Obj:
    conditions: list[Obj] = harness.resource("cache")["status"]["conditions"]
    return next(found for found in conditions if found["type"] == READY)


def _reason(harness: Harness) -> str:
    return str(_ready(harness)["reason"])


# The user's redis.conf.


REDIS_CONF: Mapping[str, str] = {
    "128 KiB of a quoted word": '"' + "x" * 128 * 1024,
    "1 MiB of a quoted word": '"' + "x" * (MIB - 1),
    "512 KiB of line breaks": "\n" * (MIB // 2),
    "1 MiB of line breaks": "\n" * MIB,
    "60,000 directives": "hz 10\n" * 60_000,
    "8,000 directives of modules": "loadmodule a.so\n" + "".join(f"a.b{number} 1\n" for number in range(8_000)),
    "64 KiB of directives": "".join(f"latency-monitor-threshold {number:0200}\n" for number in range(300)),
    "long line": "proc-title-template " + "x" * 30_000,
}
DIRECTIVES = "loadmodule a.so\n" + "".join(f"a.b{number} '{'x' * 40}'\n" for number in range(500))
"""The maximum number of directives that are accepted, of a module."""


async def with_redis_conf(text: str) -> Obj:
    """Return the condition Ready of a RedisCluster with this redis.conf after a reconcile within the limits."""
    target = next(target for target in TARGETS if target.kind == "RedisCluster")
    spec = {"replicas": 6, "pod": [{"configmap": "wishes"}]}
    harness = await reconciled(dataclasses.replace(target, spec=spec), {}, {"redis.conf": text})
    return _ready(harness)


@pytest.mark.parametrize("name", REDIS_CONF)
async def test_hostile_redis_conf_is_refused_in_a_sentence(name: str) -> None:
    ready = await with_redis_conf(REDIS_CONF[name])
    assert ready["reason"] == "ConfigMapInvalid"
    assert re.search(r"ConfigMap wishes: (redis\.conf has |more than 1,024 keys, or too large)", ready["message"])
    assert len(ready["message"]) <= 1_000
    assert "xxxx" not in ready["message"]


async def test_longest_redis_conf_is_accepted() -> None:
    comments = "# a comment of the documented redis.conf\n" * 2_000
    assert (await with_redis_conf(comments + DIRECTIVES))["reason"] != "ConfigMapInvalid"


# Resources that passed by the webhook.


SPECS: Mapping[str, Obj] = {"memcached": {"size": 1}, "etcd": {"size": 1}, "redis": {"replicas": 6}}
VALUES = ("equal items", "named items", "objects by key", "empty objects", "texts by key", "numbers", "text", "lines")
PREFERENCE = {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}
LARGE: Mapping[str, Obj] = {
    "node affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [PREFERENCE] * 2_000}},
    "affinity of many objects": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}] * 8_000}},
}
"""Values of spec.affinity that are valid, as large as admission permits, or larger."""

AMOUNTS: Mapping[str, Obj] = {quantity: {"cpu": quantity, "memory": quantity} for quantity in QUANTITIES}
"""Values of spec.resources.limits, whose schema in an installed CRD may be older than the operator."""

VALUED = [
    pytest.param(
        operator,
        path,
        name,
        id=f"{operator}: {'.'.join(map(str, path))}, {name}",
        marks=[] if name == "node affinity" or name in QUANTITIES else pytest.mark.nightly,
    )
    for operator in SPECS
    for path in (("spec", "affinity"), ("spec", "resources", "limits"), ("spec", "annotations"), ("spec", "env"))
    for name in (*(LARGE if path[-1] == "affinity" else AMOUNTS if path[-1] == "limits" else ()), *VALUES)
]


@pytest.mark.parametrize(("operator", "path", "name"), VALUED)
async def test_resource_with_a_large_value_costs_a_reconcile_little(operator: str, path: FieldPath, name: str) -> None:
    known = {**LARGE, **AMOUNTS}
    value = known[name] if name in known else json.loads(bombs()[name])
    spec: Obj = replaced({"spec": SPECS[operator]}, path, value)["spec"]
    served = KINDS[operator]
    options = parse_options(f"{operator}-operator", operator, ["--agent-image=operator:1"], {})
    server = YieldingServer([each.resource.kind for each in served])
    harness = Harness(served[0].controller(options), workloads=Workloads(server))
    harness.apply("cache", **spec)
    async with cost.bounded():
        results = await harness.run()
    assert "error" not in results
    assert len(_ready(harness)["message"]) <= 1_000
