"""Specs that the RedisCluster CRD accepts and rejects, with a rejected one for every constraint.

Unit tests check them with the operator's validation, `tests/platform/api` with a real API server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from operators.redis.api.acl_user import RESERVED_USERS
from operators.redis.api.directives import RESERVED
from tests.support import extension_cases, network_cases, podspec_cases
from tests.support.cases import ADOPTION_REFUSED, Case, at_least, at_most, over

VERSION = "8.0.2"
BASE: dict[str, Any] = {"replicas": 6, "version": VERSION}

ISSUED: dict[str, Any] = {"mode": "certManager", "issuer": {"name": "ours"}}
SECRET: dict[str, Any] = {"mode": "secret", "secretName": "a"}
NFS: dict[str, Any] = {"type": "nfs", "persistentVolumeClaimName": "shared"}
ADOPTED: dict[str, Any] = {"adopt": {"fromUID": "0cee62a4-2b3c-4c3e-8a8f-1e2f3a4b5c6d"}}
GIB = 2**30

SEED_POD: dict[str, Any] = {
    "labels": {"key": "value"},
    "annotations": {"key": "value"},
    "env": [{"name": "tony", "value": "aa"}, {"name": "MAXMEMORY", "value": "2gb"}],
    "affinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "HC_Status", "operator": "In", "values": ["C"]}]}]
        },
        "podAntiAffinity": {},
    },
    "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}},
    "updateStrategy": {"type": "RollingUpdate"},
    "volumes": {"type": "nfs", "persistentVolumeClaimName": "pvcName"},
    "configmap": "name",
    "monitorImage": "string",
    "initImage": "string",
    "middlewareImage": "string",
}
SEED: dict[str, Any] = {
    "replicas": 7,
    "pause": True,
    "finalizers": "foreground",
    "repository": "library/redis",
    "version": "7.0.15",
    "updateStrategy": {
        "type": "AssignReceive",
        "pipeline": "100",
        "assignStrategies": [
            {"slots": 2000, "fromReplicas": "nodeId1"},
            {"slots": 1000, "fromReplicas": "nodeId3,nodeId4"},
        ],
    },
    "pod": [SEED_POD],
}
"""Manifest of the first release, except its version (3.2.8) and an empty nodeAffinity, which YAML makes null."""

NAME_WORDS = "metadata.name is also the name of the StatefulSet"
OLD_WORDS = "is not supported"
ADVICE_WORDS = "Use redis 6.2 to 8.x, or valkey 7.2 to 9.x."
DIRECTIVE_WORDS = "is set by another field or by the operator"
IMAGE_WORDS = "is not an image; use lower-case letters"
TWICE_WORDS = "is also set in pod[0]; remove one of the two"
UNKNOWN_WORDS = "is missing, and pod[0].middlewareImage has no tag with a version"


USERS: list[dict[str, Any]] = [
    {"name": "app", "rules": "~app:* &app:* +@read +@write -@dangerous"},
    {"name": "a-1", "rules": "+ping", "enabled": False, "passwordSecret": {"name": "a", "key": "b.c_D"}},
]


def user(**fields: Any) -> dict[str, Any]:
    return {"users": [{"name": "app", "rules": "+get", **fields}]}


def podded(**pod: Any) -> dict[str, Any]:
    return {"pod": [pod]}


def stored(**storage: Any) -> dict[str, Any]:
    return {"storage": storage}


def assigned(**strategy: Any) -> dict[str, Any]:
    whole = {"slots": 1, "fromReplicas": "a", **strategy}
    strategies = [{key: value for key, value in whole.items() if value is not ...}]
    return {"updateStrategy": {"type": "AssignReceive", "assignStrategies": strategies}}


def imaged(image: str, **fields: Any) -> dict[str, Any]:
    return {"version": ..., **podded(middlewareImage=image), **fields}


def in_pod(case: Case) -> Case:
    """Return a case with the same pod settings in pod[0]."""
    operator_error = case.operator_error.replace("spec.", "spec.pod[0].", 1)
    return replace(case, name=f"{case.name}, in pod[0]", spec={"pod": [case.spec]}, operator_error=operator_error)


def shared(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Return the cases about settings that pod[0] has as well."""
    return tuple(
        case for case in cases if case.spec.keys() <= {"labels", "annotations", "env", "affinity", "resources"}
    )


ACCEPTED = over(
    BASE,
    (
        *network_cases.ACCEPTED,
        *podspec_cases.ACCEPTED,
        *extension_cases.ACCEPTED,
        *map(in_pod, shared(podspec_cases.ACCEPTED)),
        Case("three primaries with one replica each"),
        Case("first release", SEED),
        Case("three primaries without replicas", {"replicas": 3, "replicasPerMaster": 0}),
        Case("three primaries with two replicas each", {"replicas": 9, "replicasPerMaster": 2}),
        Case("one extra replica", {"replicas": 7}),
        Case("maximum number of pods", {"replicas": 500}),
        Case("many replicas", {"replicas": 30, "replicasPerMaster": 9}),
        Case("no version", {"version": ...}),
        *(
            Case(f"version {version}", {"version": version})
            for version in ("6.2", "6.2.14", "7.0.15-alpine", "v8.99.1")
        ),
        Case("valkey by repository", {"repository": "valkey/valkey", "version": "7.2"}),
        Case("valkey by engine", {"repository": "example.com:5000/kv", "engine": "valkey", "version": "9.1"}),
        Case("redis in a registry named valkey", {"repository": "valkey.example.com/redis", "version": "6.2.14"}),
        Case("redis by engine", {"repository": "valkey/valkey", "engine": "redis", "version": "6.2.14"}),
        Case("image with version tag", imaged("example.com:5000/a/redis:8.0.2-bookworm")),
        Case("image of a registry whose address looks like a version", imaged("10.0.0.1:5000/redis:8.0.2")),
        Case("image of another such registry", imaged("1.1.1.1/redis:8.0.2")),
        Case("image with version tag and digest", imaged(f"redis:8.0.2@sha256:{'0' * 64}")),
        Case("image without version tag, with version", podded(middlewareImage="redis:stable")),
        Case("image digest, with version", podded(middlewareImage=f"redis@sha256:{'0' * 64}")),
        Case("image without tag", imaged("redis")),
        Case("image tag equal to the version", podded(middlewareImage="redis:8.0.2-alpine")),
        Case("explicit foreground deletion", {"finalizers": "foreground"}),
        Case("deletion keeps all objects", {"finalizers": ""}),
        Case("paused", {"pause": True}),
        Case("hibernation", {"hibernate": True, **stored()}),
        Case("no hibernation without volumes", {"hibernate": False}),
        Case("hibernation with snapshots", {"hibernate": True, **stored(), "config": {"appendonly": "no"}}),
        Case("hibernation with a log alone", {"hibernate": True, **stored(), "config": {"save": ""}}),
        Case("automatic slot assignment", {"updateStrategy": {"type": "AutoReceive", "pipeline": "1"}}),
        Case("maximum pipeline", {"updateStrategy": {"pipeline": "9999"}}),
        Case("manual slot assignment without strategies", {"updateStrategy": {"type": "AssignReceive"}}),
        Case("all slots of several nodes", assigned(slots=16384, fromReplicas=f"{'a' * 40}, {'b' * 40} ,c")),
        Case("no pod", {"pod": []}),
        Case("empty pod", podded()),
        Case("pods that the user replaces", podded(updateStrategy={"type": "OnDelete"})),
        Case("host directories", podded(volumes={"type": "hostPath"})),
        Case("one shared volume", podded(volumes=NFS)),
        Case("affinity with current fields", podded(affinity={"nodeAffinity": {}, "podAffinity": {}})),
        Case("pod settings split between spec and pod[0]", {"labels": {"a": "b"}, **podded(annotations={"c": "d"})}),
        Case("directives", {"config": {"maxmemory-policy": "allkeys-lru", "save": "3600 1 300 100", "hz": "20"}}),
        Case("maxmemory as directive", {"config": {"maxmemory": "100mb"}}),
        Case("maxmemory as environment variable", {"env": [{"name": "MAXMEMORY", "value": "1073741824"}]}),
        Case("default volumes", stored()),
        Case("volume size in bytes", stored(size=GIB)),
        Case("volumes with a class of attributes", stored(volumeAttributesClassName="fast")),
        Case(
            "volumes of a class that are deleted with the resource",
            stored(size="1Ti", storageClassName="fast", retain=False),
        ),
        Case("password", {"auth": {"secretName": "a"}}),
        Case("explicitly without TLS", {"tls": {"mode": "none"}}),
        Case("self-signed TLS", {"tls": {"mode": "self", "clientAuth": "none"}}),
        Case("TLS with certificate of the user", {"tls": SECRET}),
        Case(
            "TLS by cert-manager",
            {"tls": {"mode": "certManager", "issuer": {"name": "a", "kind": "ClusterIssuer"}}},
        ),
        Case("metrics", {"metrics": {}}),
        Case("metrics with another image", {"metrics": {"image": "example.com/exporter:1"}}),
        Case("metrics disabled despite an image", {"metrics": {"enabled": False}, **podded(monitorImage="a")}),
        Case("volumes of a deleted resource", {**ADOPTED, "storage": {"size": "1Gi"}}),
        Case("protection from deletion", {"deletionProtection": True}),
        Case("no connection Secret", {"connectionSecret": False}),
        Case("changes that wait for an approval", {"changes": "Approved"}),
        Case("nodes in conditions as well", {"nodesInConditions": True}),
        Case(
            "nodes not in conditions, despite pod settings", {"nodesInConditions": False, **podded(labels={"a": "b"})}
        ),
        Case("generated password", {"auth": {}}),
        Case("users", {"users": USERS}),
        Case("a user with selectors", user(rules="~a:* +@read -@dangerous (%R~b#on +get)\n")),
        Case("confirmed recovery", {"recovery": {"confirm": "a1b2c3"}}),
        Case("command of an image without an ENTRYPOINT", {"command": ["/usr/bin/redis-server"]}),
        Case("longest name", resource="a" * 52),
    ),
)

REFUSED = over(
    BASE,
    (
        *network_cases.REFUSED,
        *podspec_cases.REFUSED,
        *extension_cases.REFUSED,
        *extension_cases.reserved(containers="redis", volume="data", path="/data", port=16379, port_name="bus"),
        *map(in_pod, shared(podspec_cases.REFUSED)),
        Case("no replicas", {"replicas": ...}, "spec.replicas: Required value", "spec.replicas: is required"),
        at_least("replicas", 2, 3),
        at_most("replicas", 501, 500),
        at_least("replicasPerMaster", -1, 0),
        Case(
            "too many replicas per primary",
            {"replicas": 500, "replicasPerMaster": 10},
            "should be less than or equal to 9",
            "too large; use at most 9",
        ),
        *(
            Case(
                f"{count} pods for three primaries with {each} replicas each",
                {"replicas": count, "replicasPerMaster": each},
                f"at least three primaries with replicasPerMaster replicas each; use {least} or more, "
                "or lower replicasPerMaster. What else there is for fewer pods: docs/concepts/topologies.md.",
                "spec.replicas: is too small",
            )
            for count, each, least in ((3, 1, 6), (5, 1, 6), (8, 2, 9))
        ),
        Case("unknown deletion policy", {"finalizers": "background"}, "Unsupported value", "use 'foreground' or ''"),
        Case(
            "repository with tag",
            {"repository": "library/redis:7"},
            "'library/redis:7' is not an image without a tag",
            "spec.repository: 'library/redis:7' is not an image without a tag",
        ),
        Case(
            "empty command",
            {"command": [""]},
            "spec.command[0] in body should be at least 1 chars long",
            "spec.command",
        ),
        Case("too long command", {"command": ["a" * 1025]}, "may not be more than 1024", "spec.command"),
        Case("too many words of a command", {"command": ["a"] * 17}, "must have at most 16 items", "spec.command"),
        Case("too long repository", {"repository": "a" * 513}, "may not be more than 512", "at most 512 characters"),
        Case(
            "invalid version",
            {"version": "three"},
            "'three' is not a version of redis or valkey",
            "spec.version: 'three' is not a version",
        ),
        Case(
            "version without minor",
            {"version": "7"},
            "'7' is not a version",
            "spec.version: '7' is not a version of redis",
        ),
        Case(
            "too long version",
            {"version": "8.0.2-" + "1" * 123},
            "may not be more than 128",
            "at most 128 characters",
        ),
        Case(
            "an unknown way to apply changes",
            {"changes": "Manual"},
            "Unsupported value",
            "use 'Automatic' or 'Approved'",
        ),
        Case("unknown engine", {"engine": "keydb"}, "Unsupported value", "use 'redis' or 'valkey'"),
        Case(
            "valkey without repository",
            {"engine": "valkey"},
            "is required with engine valkey",
            "spec.repository: is required with engine valkey",
        ),
        *(
            Case(
                f"version {version}, as in the first release" if version == "3.2.8" else f"version {version}",
                {"version": version},
                f"redis {version} {OLD_WORDS}",
                f"spec.version: redis {version} {OLD_WORDS}",
            )
            for version in ("3.2.8", "5.0.14", "6.0.20", "6.1.0-rc1", "v4.0.14", "2.8", "0.1.0", "9.0.0", "99.1.0")
        ),
        Case(
            "unchanged manifest of the first release",
            {**SEED, "version": "3.2.8"},
            ADVICE_WORDS,
            f"spec.version: redis 3.2.8 {OLD_WORDS}",
        ),
        *(
            Case(
                f"valkey {version}",
                {"repository": "valkey/valkey", "version": version},
                f"valkey {version} {OLD_WORDS}",
                f"spec.version: valkey {version} {OLD_WORDS}",
            )
            for version in ("7.1.0", "6.2.14", "10.0.0-alpine")
        ),
        Case(
            "image of an old version",
            imaged("redis:5.0.14"),
            f"redis redis:5.0.14 {OLD_WORDS}",
            f"spec.version: redis redis:5.0.14 {OLD_WORDS}",
        ),
        Case("image without version tag", imaged("redis:latest"), UNKNOWN_WORDS, f"spec.version: {UNKNOWN_WORDS}"),
        Case(
            "image digest without version",
            imaged(f"redis@sha256:{'0' * 64}"),
            UNKNOWN_WORDS,
            f"spec.version: {UNKNOWN_WORDS}",
        ),
        Case(
            "unknown update strategy of slots",
            {"updateStrategy": {"type": "TakeAll"}},
            "Unsupported value",
            "use 'AutoReceive' or 'AssignReceive'",
        ),
        *(
            Case(
                f"pipeline {given!r}",
                {"updateStrategy": {"pipeline": given}},
                f"'{given}' is not a number of keys",
                f"spec.updateStrategy.pipeline: '{given}' is not a number of keys; use 1 to 9999",
            )
            for given in ("0", "-1", "many", "", "10000", "1.5", "010")
        ),
        Case(
            "pipeline is not a string",
            {"updateStrategy": {"pipeline": 100}},
            "must be of type string",
            "is not a string",
        ),
        Case("too long pipeline", {"updateStrategy": {"pipeline": "1" * 17}}, "more than 16", "at most 16 characters"),
        Case("no slots", assigned(slots=0), "greater than or equal to 1", "too small; use at least 1"),
        Case("more slots than a cluster has", assigned(slots=16385), "less than or equal to 16384", "at most 16384"),
        Case("strategy without slots", assigned(slots=...), "slots: Required value", "slots: is required"),
        Case(
            "strategy without source nodes",
            assigned(fromReplicas=...),
            "fromReplicas: Required value",
            "fromReplicas: is required",
        ),
        *(
            Case(f"slots from {given!r}", assigned(fromReplicas=given), "should match", "does not match")
            for given in ("", "a,,b", "a b", "cache-0")
        ),
        Case(
            "too long list of source nodes", assigned(fromReplicas="a," * 2048 + "a"), "more than 4096", "at most 4096"
        ),
        Case(
            "too many strategies",
            {"updateStrategy": {"assignStrategies": [{"slots": 1, "fromReplicas": "a"}] * 65}},
            "must have at most 64",
            "at most 64",
        ),
        Case("two entries in pod", {"pod": [{}, {}]}, "must have at most 1", "at most 1"),
        Case(
            "unknown update strategy of pods",
            podded(updateStrategy={"type": "Recreate"}),
            "Unsupported value",
            "use 'RollingUpdate' or 'OnDelete'",
        ),
        Case("volumes without type", podded(volumes={}), "type: Required value", "type: is required"),
        Case(
            "volumes of unknown type",
            podded(volumes={"type": "tape"}),
            "Unsupported value",
            "use 'hostPath' or 'nfs'",
        ),
        Case(
            "shared volume without claim name",
            podded(volumes={"type": "nfs"}),
            "is required with type nfs",
            "spec.pod[0].volumes.persistentVolumeClaimName: is required with type nfs",
        ),
        Case(
            "claim name for host directories",
            podded(volumes={**NFS, "type": "hostPath"}),
            "hostPath; remove it, or use type nfs",
            "spec.pod[0].volumes.persistentVolumeClaimName: is not allowed with type hostPath",
        ),
        Case(
            "empty claim name",
            podded(volumes={**NFS, "persistentVolumeClaimName": ""}),
            "at least 1 chars",
            "too short; use at least 1",
        ),
        Case(
            "too long claim name",
            podded(volumes={**NFS, "persistentVolumeClaimName": "a" * 254}),
            "more than 253",
            "at most 253",
        ),
        Case("invalid ConfigMap name", podded(configmap="Redis Conf"), "should match", "does not match"),
        Case("too long ConfigMap name", podded(configmap="a" * 254), "more than 253", "at most 253"),
        *(
            case
            for field in ("monitorImage", "initImage", "middlewareImage")
            for case in (
                Case(
                    f"invalid {field}",
                    podded(**{field: "Redis Exporter"}),
                    f"'Redis Exporter' {IMAGE_WORDS}",
                    f"spec.pod[0].{field}: 'Redis Exporter' {IMAGE_WORDS}",
                ),
                Case(f"too long {field}", podded(**{field: "a" * 513}), "more than 512", "at most 512 characters"),
            )
        ),
        *(
            Case(
                f"{field} in spec and pod[0]",
                {field: given, **podded(**{field: given})},
                TWICE_WORDS,
                f"spec.{field}: {TWICE_WORDS}",
            )
            for field, given in (
                ("labels", {"a": "b"}),
                ("annotations", {"a": "b"}),
                ("env", [{"name": "a", "value": "b"}]),
                ("affinity", {"podAntiAffinity": {}}),
                ("resources", {"limits": {"cpu": 1}}),
            )
        ),
        *(
            case
            for field in ("labels", "annotations")
            for case in (
                Case(
                    f"reserved {field}",
                    {field: {"a": "b", "redis.middleware.hc.cn/serves": "clients"}},
                    "keys that begin with redis.middleware.hc.cn/ are reserved for the operator",
                    f"spec.{field}: keys that begin with redis.middleware.hc.cn/ are reserved for the operator",
                ),
                Case(
                    f"reserved {field} in pod[0]",
                    podded(**{field: {"redis.middleware.hc.cn/serves": "clients"}}),
                    "keys that begin with redis.middleware.hc.cn/ are reserved for the operator",
                    f"spec.pod[0].{field}: keys that begin with redis.middleware.hc.cn/ are reserved for the operator",
                ),
            )
        ),
        *(
            Case(
                f"reserved environment variable{where}",
                spec,
                "are set by the operator",
                "PLATFORM_LAST_RUN are set by the operator",
            )
            for where, spec in (
                ("", {"env": [{"name": "POD_IP", "value": "a"}]}),
                (" of nodes without persistence", {"env": [{"name": "PLATFORM_POD_UID", "value": "a"}]}),
                (" in pod[0]", podded(env=[{"name": "POD_NAME", "value": "a"}])),
            )
        ),
        *(
            Case(
                f"reserved directive: {directive}",
                {"config": {"hz": "10", directive: "a"}},
                f"{directive} {DIRECTIVE_WORDS}",
                f"spec.config: {directive} {DIRECTIVE_WORDS}",
            )
            for directive in RESERVED
        ),
        *(
            Case(
                f"invalid directive: {directive!r}",
                {"config": {directive: "a"}},
                f"'{directive}' is not a directive of redis.conf",
                f"spec.config: '{directive}' is not a directive of redis.conf",
            )
            for directive in ("Port", "max memory", "-hz", "1st")
        ),
        Case("directive with line break", {"config": {"hz": "10\nport 1"}}, "should match", "does not match"),
        Case(
            "directive is not a string", {"config": {"appendonly": True}}, "must be of type string", "is not a string"
        ),
        Case("too long directive", {"config": {"hz": "1" * 1025}}, "more than 1024", "at most 1024"),
        Case(
            "too many directives",
            {"config": {f"a{n}": "b" for n in range(129)}},
            "must have at most 128",
            "at most 128",
        ),
        Case("negative volume size", stored(size=-1), "greater than or equal to 0", "cannot be negative"),
        Case("invalid volume size", stored(size="much"), "should match", "is not a quantity"),
        Case("too long volume size", stored(size="1" * 33), "may not be more than 32", "at most 32"),
        Case("invalid storage class name", stored(storageClassName="Fast"), "should match", "does not match"),
        Case("invalid class of attributes", stored(volumeAttributesClassName="Fast"), "should match", "does not match"),
        Case(
            "too long class of attributes",
            stored(volumeAttributesClassName="a" * 254),
            "may not be more than 253",
            "at most 253",
        ),
        Case(
            "too long storage class name", stored(storageClassName="a" * 254), "may not be more than 253", "at most 253"
        ),
        Case(
            "volumes in storage and pod[0]",
            {**stored(), **podded(volumes=NFS)},
            "cannot be combined with pod[0].volumes",
            "spec.storage: cannot be combined with pod[0].volumes",
        ),
        Case("invalid Secret name of auth", {"auth": {"secretName": "A"}}, "should match", "does not match"),
        Case("too long Secret name of auth", {"auth": {"secretName": "a" * 254}}, "more than 253", "at most 253"),
        *(
            Case(f"user with {what}", given, api_error, operator_error)
            for what, given, api_error, operator_error in (
                ("no name", {"users": [{"rules": "+get"}]}, "name: Required value", "name: is required"),
                ("no rules", {"users": [{"name": "app"}]}, "rules: Required value", "rules: is required"),
                ("an invalid name", user(name="App"), "should match", "does not match"),
                ("a long name", user(name="a" * 33), "more than 32", "at most 32"),
                *(
                    (f"the name {name}", user(name=name), "is a user of the operator", "spec.users[0].name: ")
                    for name in RESERVED_USERS
                ),
                ("empty rules", user(rules=""), "at least 1 chars long", "spec.users[0].rules"),
                ("long rules", user(rules="+get " * 500), "more than 2048", "at most 2048"),
                ("a control character", user(rules="+get\t"), "should match", "does not match"),
                *(
                    (f"the word {word}", user(rules=f"+get {word}"), "sets a password", "spec.users[0].rules: have")
                    for word in (">a", "<a", "#a", "!a", "nopass", "ResetPass", "reset", "on", "OFF", "(on +get)")
                ),
                ("an invalid Secret", user(passwordSecret={"name": "A"}), "should match", "does not match"),
                ("a Secret without name", user(passwordSecret={}), "name: Required value", "name: is required"),
                ("a long Secret name", user(passwordSecret={"name": "a" * 254}), "more than 253", "at most 253"),
                ("an invalid key", user(passwordSecret={"name": "a", "key": "/"}), "should match", "does not match"),
                ("a long key", user(passwordSecret={"name": "a", "key": "a" * 254}), "more than 253", "at most 253"),
            )
        ),
        Case("a user twice", {"users": USERS[:1] * 2}, "Duplicate value", "listed more than once"),
        Case(
            "too many users",
            {"users": [{"name": f"u{number}", "rules": "+get"} for number in range(33)]},
            "must have at most 32",
            "at most 32",
        ),
        Case("unknown TLS mode", {"tls": {"mode": "rot13"}}, "Unsupported value", "use 'none', 'self'"),
        Case(
            "TLS mode secret without Secret name",
            {"tls": {"mode": "secret"}},
            "is required with mode secret",
            "spec.tls.secretName: is required with mode secret",
        ),
        *(
            Case(
                f"Secret name in TLS mode {given['mode']}",
                {"tls": {**given, "secretName": "a"}},
                f"is not allowed with mode {given['mode']}",
                f"spec.tls.secretName: is not allowed with mode {given['mode']}",
            )
            for given in ({"mode": "none"}, {"mode": "self"}, ISSUED)
        ),
        Case("invalid Secret name of TLS", {"tls": {**SECRET, "secretName": "A"}}, "should match", "does not match"),
        Case(
            "too long Secret name of TLS", {"tls": {**SECRET, "secretName": "a" * 254}}, "more than 253", "at most 253"
        ),
        Case(
            "cert-manager without issuer",
            {"tls": {"mode": "certManager"}},
            "is required in mode certManager",
            "spec.tls.issuer: is required in mode certManager",
        ),
        Case(
            "issuer in another TLS mode",
            {"tls": {**ISSUED, "mode": "self"}},
            "is used only in mode certManager",
            "spec.tls.issuer: is used only in mode certManager",
        ),
        Case("issuer without name", {"tls": {**ISSUED, "issuer": {}}}, "name: Required value", "name: is required"),
        Case("invalid issuer name", {"tls": {**ISSUED, "issuer": {"name": "A"}}}, "should match", "does not match"),
        Case(
            "too long issuer name", {"tls": {**ISSUED, "issuer": {"name": "a" * 254}}}, "more than 253", "at most 253"
        ),
        Case(
            "unknown issuer kind",
            {"tls": {**ISSUED, "issuer": {"name": "a", "kind": "Vault"}}},
            "Unsupported value",
            "use 'Issuer' or 'ClusterIssuer'",
        ),
        Case(
            "unknown client authentication",
            {"tls": {"mode": "self", "clientAuth": "optional"}},
            "Unsupported value",
            "use 'none' or 'required'",
        ),
        Case(
            "invalid exporter image",
            {"metrics": {"image": "Redis Exporter"}},
            f"'Redis Exporter' {IMAGE_WORDS}",
            f"spec.metrics.image: 'Redis Exporter' {IMAGE_WORDS}",
        ),
        Case("too long exporter image", {"metrics": {"image": "a" * 513}}, "more than 512", "at most 512 characters"),
        Case(
            "exporter image in metrics and pod[0]",
            {"metrics": {"image": "a"}, **podded(monitorImage="b")},
            "is also set in pod[0].monitorImage",
            "spec.metrics.image: is also set in pod[0].monitorImage",
        ),
        Case(
            "hibernation without volumes",
            {"hibernate": True},
            "nodes without storage would lose all data with their pods",
            "spec.hibernate: nodes without storage would lose all data with their pods",
        ),
        Case(
            "hibernation with a volume of the user",
            {"hibernate": True, **podded(volumes=NFS)},
            "nodes without storage would lose all data with their pods",
            "spec.hibernate: nodes without storage would lose all data with their pods",
        ),
        Case(
            "adoption without volumes",
            ADOPTED,
            "nodes without storage have no volumes that could be adopted",
            "spec.adopt: nodes without storage have no volumes that could be adopted",
        ),
        *ADOPTION_REFUSED,
        Case("recovery without token", {"recovery": {}}, "confirm: Required value", "confirm: is required"),
        Case("too long recovery token", {"recovery": {"confirm": "a" * 65}}, "more than 64", "at most 64"),
        Case("name that starts with a digit", {}, NAME_WORDS, NAME_WORDS, resource="1cache"),
        Case("name with a dot", {}, NAME_WORDS, NAME_WORDS, resource="a.b"),
        Case("name too long for pods of a StatefulSet", {}, NAME_WORDS, NAME_WORDS, resource="a" * 53),
    ),
)

ONLY_HERE = over(
    BASE,
    (
        Case(
            "image tag that differs from the version",
            podded(middlewareImage="redis:7.0.15"),
            operator_error="spec.version: 8.0.2 differs from the tag of pod[0].middlewareImage, 7.0.15",
        ),
        Case(
            "maxmemory from a field reference",
            podded(env=[{"name": "MAXMEMORY", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]),
            operator_error="spec.pod[0].env: MAXMEMORY needs a value",
        ),
        Case(
            "maxmemory as variable and directive",
            {"env": [{"name": "MAXMEMORY", "value": "1gb"}], "config": {"maxmemory": "1gb"}},
            operator_error="spec.config: maxmemory is also set in spec.env (MAXMEMORY)",
        ),
        Case(
            "maxmemory as Kubernetes quantity",
            podded(env=[{"name": "MAXMEMORY", "value": "2Gi"}]),
            operator_error="MAXMEMORY: '2Gi' is not an amount of memory; use the format of redis.conf, such as 2gb",
        ),
        Case(
            "unknown field of affinity",
            {"affinity": {"nodeAffinities": {}}},
            operator_error="spec.affinity: nodeAffinities is not an affinity; use nodeAffinity",
        ),
        Case(
            "node affinity in two fields",
            podded(affinity={**SEED_POD["affinity"], "nodeAffinity": SEED_POD["affinity"]}),
            operator_error="spec.pod[0].affinity: requiredDuringSchedulingIgnoredDuringExecution is set both under",
        ),
    ),
)
"""Specs that no schema can reject: the operator's validation does, at admission and when it reconciles."""
