"""Specs that the RedisCluster CRD takes and refuses, a refused one for every constraint it has.

The unit tests ask the operator's own validation about them, `tests/api` asks a real API server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from operators.redis.api.reserved_directives import RESERVED
from tests.support import podspec_cases
from tests.support.cases import Case, at_least, at_most, over

VERSION = "8.0.2"
BASE: dict[str, Any] = {"replicas": 6, "version": VERSION}

ISSUED: dict[str, Any] = {"mode": "certManager", "issuer": {"name": "ours"}}
SECRET: dict[str, Any] = {"mode": "secret", "secretName": "a"}
NFS: dict[str, Any] = {"type": "nfs", "persistentVolumeClaimName": "shared"}
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
"""What the seed's manifest says, but for its version (3.2.8) and an empty nodeAffinity, which YAML makes null."""

NAME_WORDS = "metadata.name is also the name of the StatefulSet"
OLD_WORDS = "is not supported"
ADVICE_WORDS = "Use redis 6.2 or later, or valkey 7.2 or later."
DIRECTIVE_WORDS = "is set by another field or by the operator"
IMAGE_WORDS = "is not an image; use lower-case letters"
TWICE_WORDS = "is also set in pod[0]; remove one of the two"
UNTOLD_WORDS = "is missing, and pod[0].middlewareImage has no tag with a version"


def podded(**pod: Any) -> dict[str, Any]:
    return {"pod": [pod]}


def stored(**storage: Any) -> dict[str, Any]:
    return {"storage": storage}


def assigned(**strategy: Any) -> dict[str, Any]:
    whole = {"slots": 1, "fromReplicas": "a", **strategy}
    strategies = [{key: value for key, value in whole.items() if value is not ...}]
    return {"updateStrategy": {"type": "AssignReceive", "assignStrategies": strategies}}


def imaged(image: str, **beside: Any) -> dict[str, Any]:
    return {"version": ..., **podded(middlewareImage=image), **beside}


def in_pod(case: Case) -> Case:
    """A case about settings of pods, of the same settings in pod[0]."""
    advises = case.advises.replace("spec.", "spec.pod[0].", 1)
    return replace(case, name=f"{case.name}, in pod[0]", spec={"pod": [case.spec]}, advises=advises)


def shared(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Those about settings that pod[0] has, too."""
    return tuple(
        case for case in cases if case.spec.keys() <= {"labels", "annotations", "env", "affinity", "resources"}
    )


ACCEPTED = over(
    BASE,
    (
        *podspec_cases.ACCEPTED,
        *map(in_pod, shared(podspec_cases.ACCEPTED)),
        Case("three masters with a replica each"),
        Case("the seed's", SEED),
        Case("three masters alone", {"replicas": 3, "replicasPerMaster": 0}),
        Case("three masters with two replicas each", {"replicas": 9, "replicasPerMaster": 2}),
        Case("one replica more", {"replicas": 7}),
        Case("the most", {"replicas": 500}),
        Case("many replicas", {"replicas": 30, "replicasPerMaster": 9}),
        Case("no version", {"version": ...}),
        *(
            Case(f"version {version}", {"version": version})
            for version in ("6.2", "6.2.14", "7.0.15-alpine", "v10.0.1")
        ),
        Case("valkey by its name", {"repository": "valkey/valkey", "version": "7.2"}),
        Case("valkey said", {"repository": "example.com:5000/kv", "engine": "valkey", "version": "9.1"}),
        Case("redis in a registry of that name", {"repository": "valkey.example.com/redis", "version": "6.2.14"}),
        Case("redis said", {"repository": "valkey/valkey", "engine": "redis", "version": "6.2.14"}),
        Case("an image that tells its version", imaged("example.com:5000/a/redis:8.0.2-bookworm")),
        Case("an image that tells its version before a digest", imaged(f"redis:8.0.2@sha256:{'0' * 64}")),
        Case("an image whose tag tells nothing, with the version", podded(middlewareImage="redis:stable")),
        Case("a digest, with the version", podded(middlewareImage=f"redis@sha256:{'0' * 64}")),
        Case("an image that is pulled by the version", imaged("redis")),
        Case("an image that tells what the version tells", podded(middlewareImage="redis:8.0.2-alpine")),
        Case("deletion of everything, said", {"finalizers": "foreground"}),
        Case("deletion of nothing", {"finalizers": ""}),
        Case("paused", {"pause": True}),
        Case("balanced", {"updateStrategy": {"type": "AutoReceive", "pipeline": "1"}}),
        Case("the most keys at once", {"updateStrategy": {"pipeline": "9999"}}),
        Case("assigned, and not how", {"updateStrategy": {"type": "AssignReceive"}}),
        Case("all slots of several", assigned(slots=16384, fromReplicas=f"{'a' * 40}, {'b' * 40} ,c")),
        Case("no pod", {"pod": []}),
        Case("an empty pod", podded()),
        Case("pods that a person replaces", podded(updateStrategy={"type": "OnDelete"})),
        Case("directories of the nodes", podded(volumes={"type": "hostPath"})),
        Case("one volume for all", podded(volumes=NFS)),
        Case("affinity in place", podded(affinity={"nodeAffinity": {}, "podAffinity": {}})),
        Case("settings in both places, each in one", {"labels": {"a": "b"}, **podded(annotations={"c": "d"})}),
        Case("directives", {"config": {"maxmemory-policy": "allkeys-lru", "save": "3600 1 300 100", "appendonly": ""}}),
        Case("memory as a directive", {"config": {"maxmemory": "100mb"}}),
        Case("memory as a variable", {"env": [{"name": "MAXMEMORY", "value": "1073741824"}]}),
        Case("volumes", stored()),
        Case("volumes in bytes", stored(size=GIB)),
        Case(
            "volumes of a class, that go with the resource", stored(size="1Ti", storageClassName="fast", retain=False)
        ),
        Case("a password", {"auth": {"secretName": "a"}}),
        Case("no encryption, said", {"tls": {"mode": "none"}}),
        Case("encryption by itself", {"tls": {"mode": "self", "clientAuth": "none"}}),
        Case("encryption with a certificate of others", {"tls": SECRET}),
        Case(
            "encryption by cert-manager",
            {"tls": {"mode": "certManager", "issuer": {"name": "a", "kind": "ClusterIssuer"}}},
        ),
        Case("metrics", {"metrics": {}}),
        Case("metrics by another image", {"metrics": {"image": "example.com/exporter:1"}}),
        Case("no metrics, though an image is there", {"metrics": {"enabled": False}, **podded(monitorImage="a")}),
        Case("what a person allows", {"recovery": {"confirm": "a1b2c3"}}),
        Case("the longest name", resource="a" * 52),
    ),
)

REFUSED = over(
    BASE,
    (
        *podspec_cases.REFUSED,
        *map(in_pod, shared(podspec_cases.REFUSED)),
        Case("no replicas", {"replicas": ...}, "spec.replicas: Required value", "spec.replicas: is required"),
        at_least("replicas", 2, 3),
        at_most("replicas", 501, 500),
        at_least("replicasPerMaster", -1, 0),
        Case(
            "more replicas than anybody needs",
            {"replicas": 500, "replicasPerMaster": 10},
            "should be less than or equal to 9",
            "too large; use at most 9",
        ),
        *(
            Case(
                f"{count} pods for three masters with {each} replicas each",
                {"replicas": count, "replicasPerMaster": each},
                f"three masters at least, with replicasPerMaster replicas each; give at least {least}",
                "spec.replicas: is too small",
            )
            for count, each, least in ((3, 1, 6), (5, 1, 6), (8, 2, 9))
        ),
        Case("deletion of another kind", {"finalizers": "background"}, "Unsupported value", "use 'foreground' or ''"),
        Case(
            "a repository with a tag",
            {"repository": "library/redis:7"},
            "'library/redis:7' is not an image without a tag",
            "spec.repository: 'library/redis:7' is not an image without a tag",
        ),
        Case("an endless repository", {"repository": "a" * 513}, "may not be more than 512", "at most 512 characters"),
        Case(
            "a version that is none",
            {"version": "three"},
            "'three' is not a version of redis or valkey",
            "spec.version: 'three' is not a version",
        ),
        Case(
            "a version without a minor",
            {"version": "7"},
            "'7' is not a version",
            "spec.version: '7' is not a version of redis",
        ),
        Case(
            "an endless version",
            {"version": "8.0.2-" + "1" * 123},
            "may not be more than 128",
            "at most 128 characters",
        ),
        Case("an engine of another's", {"engine": "keydb"}, "Unsupported value", "use 'redis' or 'valkey'"),
        Case(
            "valkey of the operator's own image",
            {"engine": "valkey"},
            "valkey is not in the operator's own image",
            "spec.repository: is required with engine valkey",
        ),
        *(
            Case(
                f"version {version}, as the seed has it" if version == "3.2.8" else f"version {version}",
                {"version": version},
                f"redis {version} {OLD_WORDS}",
                f"spec.version: redis {version} {OLD_WORDS}",
            )
            for version in ("3.2.8", "5.0.14", "6.0.20", "6.1.0-rc1", "v4.0.14", "2.8", "0.1.0")
        ),
        Case("the seed's own", {**SEED, "version": "3.2.8"}, ADVICE_WORDS, f"spec.version: redis 3.2.8 {OLD_WORDS}"),
        *(
            Case(
                f"valkey {version}",
                {"repository": "valkey/valkey", "version": version},
                f"valkey {version} {OLD_WORDS}",
                f"spec.version: valkey {version} {OLD_WORDS}",
            )
            for version in ("7.1.0", "6.2.14")
        ),
        Case(
            "an image of an old version",
            imaged("redis:5.0.14"),
            f"redis redis:5.0.14 {OLD_WORDS}",
            f"spec.version: redis redis:5.0.14 {OLD_WORDS}",
        ),
        Case("an image whose tag tells nothing", imaged("redis:latest"), UNTOLD_WORDS, f"spec.version: {UNTOLD_WORDS}"),
        Case(
            "an image by its digest alone",
            imaged(f"redis@sha256:{'0' * 64}"),
            UNTOLD_WORDS,
            f"spec.version: {UNTOLD_WORDS}",
        ),
        Case(
            "an unknown way to receive slots",
            {"updateStrategy": {"type": "TakeAll"}},
            "Unsupported value",
            "use 'AutoReceive' or 'AssignReceive'",
        ),
        *(
            Case(
                f"a pipeline of {given!r}",
                {"updateStrategy": {"pipeline": given}},
                f"'{given}' is no number of keys",
                f"spec.updateStrategy.pipeline: '{given}' is not a number of keys; use 1 to 9999",
            )
            for given in ("0", "-1", "many", "", "10000", "1.5", "010")
        ),
        Case(
            "a pipeline that is no text",
            {"updateStrategy": {"pipeline": 100}},
            "must be of type string",
            "is not a string",
        ),
        Case(
            "an endless pipeline", {"updateStrategy": {"pipeline": "1" * 17}}, "more than 16", "at most 16 characters"
        ),
        Case("no slots", assigned(slots=0), "greater than or equal to 1", "too small; use at least 1"),
        Case("more slots than there are", assigned(slots=16385), "less than or equal to 16384", "at most 16384"),
        Case("slots, and not how many", assigned(slots=...), "slots: Required value", "slots: is required"),
        Case(
            "slots of nobody", assigned(fromReplicas=...), "fromReplicas: Required value", "fromReplicas: is required"
        ),
        *(
            Case(f"slots of {given!r}", assigned(fromReplicas=given), "should match", "does not match")
            for given in ("", "a,,b", "a b", "cache-0")
        ),
        Case("slots of an endless list", assigned(fromReplicas="a," * 2048 + "a"), "more than 4096", "at most 4096"),
        Case(
            "endless strategies",
            {"updateStrategy": {"assignStrategies": [{"slots": 1, "fromReplicas": "a"}] * 65}},
            "must have at most 64",
            "at most 64",
        ),
        Case("two kinds of pods", {"pod": [{}, {}]}, "must have at most 1", "at most 1"),
        Case(
            "an unknown way to replace pods",
            podded(updateStrategy={"type": "Recreate"}),
            "Unsupported value",
            "use 'RollingUpdate' or 'OnDelete'",
        ),
        Case("volumes of no type", podded(volumes={}), "type: Required value", "type: is required"),
        Case(
            "volumes of an unknown type",
            podded(volumes={"type": "tape"}),
            "Unsupported value",
            "use 'hostPath' or 'nfs'",
        ),
        Case(
            "one volume, and not which",
            podded(volumes={"type": "nfs"}),
            "is missing: with type nfs it names the volume",
            "spec.pod[0].volumes.persistentVolumeClaimName: is required with type nfs",
        ),
        Case(
            "a claim for directories",
            podded(volumes={**NFS, "type": "hostPath"}),
            "type hostPath takes directories of the nodes and no claim",
            "spec.pod[0].volumes.persistentVolumeClaimName: is not allowed with type hostPath",
        ),
        Case(
            "a claim without a name",
            podded(volumes={**NFS, "persistentVolumeClaimName": ""}),
            "at least 1 chars",
            "too short; use at least 1",
        ),
        Case(
            "a claim with an endless name",
            podded(volumes={**NFS, "persistentVolumeClaimName": "a" * 254}),
            "more than 253",
            "at most 253",
        ),
        Case("a template that is no name", podded(configmap="Redis Conf"), "should match", "does not match"),
        Case("a template with an endless name", podded(configmap="a" * 254), "more than 253", "at most 253"),
        *(
            case
            for field in ("monitorImage", "initImage", "middlewareImage")
            for case in (
                Case(
                    f"a {field} that is none",
                    podded(**{field: "Redis Exporter"}),
                    f"'Redis Exporter' {IMAGE_WORDS}",
                    f"spec.pod[0].{field}: 'Redis Exporter' {IMAGE_WORDS}",
                ),
                Case(f"an endless {field}", podded(**{field: "a" * 513}), "more than 512", "at most 512 characters"),
            )
        ),
        *(
            Case(
                f"{field} in both places",
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
                    f"{field} of ours",
                    {field: {"a": "b", "redis.middleware.hc.cn/serves": "clients"}},
                    "keys that begin with redis.middleware.hc.cn/ are reserved for the operator",
                    f"spec.{field}: keys that begin with redis.middleware.hc.cn/ are reserved for the operator",
                ),
                Case(
                    f"{field} of ours in pod[0]",
                    podded(**{field: {"redis.middleware.hc.cn/serves": "clients"}}),
                    "keys that begin with redis.middleware.hc.cn/ are reserved for the operator",
                    f"spec.pod[0].{field}: keys that begin with redis.middleware.hc.cn/ are reserved for the operator",
                ),
            )
        ),
        *(
            Case(
                f"a variable of ours{where}",
                spec,
                "are set by the operator",
                "POD_IP and POD_NAME are set by the operator",
            )
            for where, spec in (
                ("", {"env": [{"name": "POD_IP", "value": "a"}]}),
                (" in pod[0]", podded(env=[{"name": "POD_NAME", "value": "a"}])),
            )
        ),
        *(
            Case(
                f"a directive of ours: {directive}",
                {"config": {"hz": "10", directive: "a"}},
                f"{directive} {DIRECTIVE_WORDS}",
                f"spec.config: {directive} {DIRECTIVE_WORDS}",
            )
            for directive in RESERVED
        ),
        *(
            Case(
                f"no directive: {directive!r}",
                {"config": {directive: "a"}},
                f"'{directive}' is not a directive of redis.conf",
                f"spec.config: '{directive}' is not a directive of redis.conf",
            )
            for directive in ("Port", "max memory", "-hz", "1st")
        ),
        Case("a directive with a second line", {"config": {"hz": "10\nport 1"}}, "should match", "does not match"),
        Case(
            "a directive that is no text", {"config": {"appendonly": True}}, "must be of type string", "is not a string"
        ),
        Case("a directive without end", {"config": {"hz": "1" * 1025}}, "more than 1024", "at most 1024"),
        Case(
            "endless directives", {"config": {f"a{n}": "b" for n in range(129)}}, "must have at most 128", "at most 128"
        ),
        Case("volumes of less than nothing", stored(size=-1), "greater than or equal to 0", "cannot be negative"),
        Case("volumes of much", stored(size="much"), "should match", "is not a quantity"),
        Case("an endless size", stored(size="1" * 33), "may not be more than 32", "at most 32"),
        Case("a class that is no name", stored(storageClassName="Fast"), "should match", "does not match"),
        Case("an endless class", stored(storageClassName="a" * 254), "may not be more than 253", "at most 253"),
        Case(
            "volumes of two kinds",
            {**stored(), **podded(volumes=NFS)},
            "cannot be combined with pod[0].volumes",
            "spec.storage: cannot be combined with pod[0].volumes",
        ),
        Case("a password of nobody", {"auth": {}}, "secretName: Required value", "secretName: is required"),
        Case("a password that is no name", {"auth": {"secretName": "A"}}, "should match", "does not match"),
        Case("a password with an endless name", {"auth": {"secretName": "a" * 254}}, "more than 253", "at most 253"),
        Case("encryption of an unknown kind", {"tls": {"mode": "rot13"}}, "Unsupported value", "use 'none', 'self'"),
        Case(
            "a certificate of others, and not which",
            {"tls": {"mode": "secret"}},
            "is required with mode secret",
            "spec.tls.secretName: is required with mode secret",
        ),
        *(
            Case(
                f"a certificate of others in mode {given['mode']}",
                {"tls": {**given, "secretName": "a"}},
                f"is not allowed with mode {given['mode']}",
                f"spec.tls.secretName: is not allowed with mode {given['mode']}",
            )
            for given in ({"mode": "none"}, {"mode": "self"}, ISSUED)
        ),
        Case("a certificate that is no name", {"tls": {**SECRET, "secretName": "A"}}, "should match", "does not match"),
        Case("an endless certificate", {"tls": {**SECRET, "secretName": "a" * 254}}, "more than 253", "at most 253"),
        Case(
            "cert-manager without an issuer",
            {"tls": {"mode": "certManager"}},
            "is required in mode certManager",
            "spec.tls.issuer: is required in mode certManager",
        ),
        Case(
            "an issuer for nothing",
            {"tls": {**ISSUED, "mode": "self"}},
            "is used only in mode certManager",
            "spec.tls.issuer: is used only in mode certManager",
        ),
        Case(
            "an issuer without a name", {"tls": {**ISSUED, "issuer": {}}}, "name: Required value", "name: is required"
        ),
        Case(
            "an issuer that is no name", {"tls": {**ISSUED, "issuer": {"name": "A"}}}, "should match", "does not match"
        ),
        Case("an endless issuer", {"tls": {**ISSUED, "issuer": {"name": "a" * 254}}}, "more than 253", "at most 253"),
        Case(
            "an issuer of another kind",
            {"tls": {**ISSUED, "issuer": {"name": "a", "kind": "Vault"}}},
            "Unsupported value",
            "use 'Issuer' or 'ClusterIssuer'",
        ),
        Case(
            "clients asked now and then",
            {"tls": {"mode": "self", "clientAuth": "optional"}},
            "Unsupported value",
            "use 'none' or 'required'",
        ),
        Case(
            "an exporter that is none",
            {"metrics": {"image": "Redis Exporter"}},
            f"'Redis Exporter' {IMAGE_WORDS}",
            f"spec.metrics.image: 'Redis Exporter' {IMAGE_WORDS}",
        ),
        Case("an endless exporter", {"metrics": {"image": "a" * 513}}, "more than 512", "at most 512 characters"),
        Case(
            "two exporters",
            {"metrics": {"image": "a"}, **podded(monitorImage="b")},
            "is also set in pod[0].monitorImage",
            "spec.metrics.image: is also set in pod[0].monitorImage",
        ),
        Case("a recovery of nothing", {"recovery": {}}, "confirm: Required value", "confirm: is required"),
        Case("an endless token", {"recovery": {"confirm": "a" * 65}}, "more than 64", "at most 64"),
        Case("a name that starts with a digit", {}, NAME_WORDS, NAME_WORDS, resource="1cache"),
        Case("a name with a dot", {}, NAME_WORDS, NAME_WORDS, resource="a.b"),
        Case("a name too long for a StatefulSet's pods", {}, NAME_WORDS, NAME_WORDS, resource="a" * 53),
    ),
)

ONLY_HERE = over(
    BASE,
    (
        Case(
            "an image that tells another version",
            podded(middlewareImage="redis:7.0.15"),
            advises="spec.version: 8.0.2 differs from the tag of pod[0].middlewareImage, 7.0.15",
        ),
        Case(
            "memory from elsewhere",
            podded(env=[{"name": "MAXMEMORY", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]),
            advises="spec.pod[0].env: MAXMEMORY needs a value",
        ),
        Case(
            "memory given twice",
            {"env": [{"name": "MAXMEMORY", "value": "1gb"}], "config": {"maxmemory": "1gb"}},
            advises="spec.config: maxmemory is also set in spec.env (MAXMEMORY)",
        ),
        Case(
            "memory in words of Kubernetes",
            podded(env=[{"name": "MAXMEMORY", "value": "2Gi"}]),
            advises="MAXMEMORY: '2Gi' is not an amount of memory; use the format of redis.conf, such as 2gb",
        ),
        Case(
            "memory that is none, as a directive",
            {"config": {"maxmemory": "50%"}},
            advises="spec.config.maxmemory: '50%' is not an amount of memory",
        ),
        Case(
            "affinity of an unknown kind",
            {"affinity": {"nodeAffinities": {}}},
            advises="spec.affinity: nodeAffinities is not an affinity; use nodeAffinity",
        ),
        Case(
            "affinity for nodes in two places",
            podded(affinity={**SEED_POD["affinity"], "nodeAffinity": SEED_POD["affinity"]}),
            advises="spec.pod[0].affinity: requiredDuringSchedulingIgnoredDuringExecution is set both under",
        ),
    ),
)
"""What no schema can say: the operator's own validation refuses it, at admission and in the reconcile."""
