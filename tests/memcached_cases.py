"""Specs that the Memcached CRD takes and refuses: one refused case for every constraint it has.

The unit tests ask the operator's own validation about them, `tests/api` asks a real API server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """A spec, and what is said of it.

    Attributes:
        name: what it shows.
        spec: the spec; size 1 unless it says otherwise.
        says: words that the API server's refusal holds.
        advises: words that the operator's own refusal holds; empty where only the API server refuses.
        resource: the resource's name.
    """

    name: str
    spec: dict[str, Any] = field(default_factory=dict)
    says: str = ""
    advises: str = ""
    resource: str = "cache"

    def __str__(self) -> str:
        return self.name

    @property
    def whole_spec(self) -> dict[str, Any]:
        return {key: value for key, value in ({"size": 1} | self.spec).items() if value is not ...}


def at_least(path: str, value: int, least: int, **beside: Any) -> Case:
    """A number at a path that is too small; `beside` is what must be given with it."""
    words = f"spec.{path} in body should be greater than or equal to {least}"
    return Case(f"{path} of {value}", _at(path, value, beside), words, f"too small; give at least {least}")


def at_most(path: str, value: int, most: int, **beside: Any) -> Case:
    words = f"spec.{path} in body should be less than or equal to {most}"
    return Case(f"{path} of {value}", _at(path, value, beside), words, f"too large; give at most {most}")


def _at(path: str, value: int, beside: dict[str, Any]) -> dict[str, Any]:
    outer, _, inner = path.partition(".")
    return {outer: {**beside, inner: value}} if inner else {outer: value}


def limit(memory: str | int, **spec: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"memory": memory}}, **spec}


BIG = {"memoryMB": 1048576}
TLS = {"tls": {"secretName": "cache-tls"}}
USERS = {"auth": {"secretName": "users"}}
OLD_WORDS = "1.5.17 is too old for tls, auth and warmRestart, which memcached knows since 1.5.18"
LIMIT_WORDS = "memory is below what memoryMB, maxConnections and threads may need; give at least 147Mi"
ITEM_WORDS = "33 is more than half of memoryMB, the most that memcached takes"
OURS_WORDS = "is a label that the operator sets itself"
NAME_WORDS = "metadata.name names the Service too"

ACCEPTED = (
    Case("the seed's"),
    Case("none", {"size": 0}),
    Case("the most", {"size": 1000}),
    Case("an image with a registry port and a digest", {"image": f"example.com:5000/a/b@sha256:{'0' * 64}"}),
    Case("a registry's address as the image's", {"image": "[::1]:5000/memcached"}),
    Case("a version", {"version": "1.6.18-alpine"}),
    Case("the least memory", {"memoryMB": 8, "maxItemSizeMB": 4}),
    Case("the most memory", {**BIG, "maxItemSizeMB": 1024}),
    Case("bounds of connections and threads", {"maxConnections": 1000000, "threads": 128}),
    Case("the least connections and threads", {"maxConnections": 16, "threads": 1}),
    Case("bounds of the port", {"containerPort": 1024}),
    Case("the highest port", {"containerPort": 65535}),
    Case("a memory limit that just suffices", limit("147Mi")),
    Case("a memory limit as a number of bytes", limit(147 * 2**20)),
    Case("a memory limit with a decimal point", limit("0.15Gi")),
    Case("a limit of CPU alone", {"resources": {"limits": {"cpu": 2}, "requests": {"cpu": "100m", "memory": "96Mi"}}}),
    Case("a request as large as its limit", {"resources": {"limits": {"cpu": 1}, "requests": {"cpu": "1000m"}}}),
    Case("a request of memory above what follows by itself", {"resources": {"requests": {"memory": "1Gi"}}}),
    Case("further arguments", {"extraArgs": ["-v", "--disable-evictions", "-o", "modern,no_lru_crawler", "-R", "40"]}),
    Case(
        "a flag that begins like one of ours", {"extraArgs": ["--protocol=ascii", "--memory-file=/x", "--lock-memory"]}
    ),
    Case(
        "labels, annotations and variables", {"labels": {"a": "b"}, "annotations": {"c": "d"}, "env": [{"name": "E"}]}
    ),
    Case(
        "a variable from a field", {"env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}
    ),
    Case(
        "placement",
        {
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
            "affinity": {"podAntiAffinity": {}},
            "topologySpread": [{"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}],
            "priorityClassName": "high",
        },
    ),
    Case("a toleration of everything", {"tolerations": [{"operator": "Exists"}]}),
    Case("a toleration of a value", {"tolerations": [{"key": "a", "value": "b"}]}),
    Case("a variable without a value beside a source", {"env": [{"name": "E", "value": "", "valueFrom": {}}]}),
    Case("paused", {"paused": True}),
    Case("the longest name", resource="a" * 63),
    Case("names that stay", {"workload": "StatefulSet"}, resource="a" * 52),
    Case("a Deployment, said", {"workload": "Deployment"}),
    Case("warm restart", {"warmRestart": True, "memoryMB": 64}),
    Case("users", {"auth": {"secretName": "users"}}),
    Case("encryption", {"tls": {"secretName": "cache.tls"}}),
    Case("encryption with clients' certificates", {"tls": {"secretName": "a", "clientAuth": "required"}}),
    Case("encryption whose ciphers are given", {**TLS, "extraArgs": ["-o", "ssl_min_version=3,ssl_wbuf_size=16"]}),
    Case("an old version without what it lacks", {"version": "1.4.39"}),
    Case("an image with what its version might lack", {"image": "memcached:1.4.39", **TLS}),
    Case("the first version that knows all", {"version": "1.5.18-alpine", **TLS, **USERS, "warmRestart": True}),
    Case("metrics", {"metrics": {}}),
    Case("metrics elsewhere", {"metrics": {"enabled": True, "port": 1024}}),
    Case("metrics at the highest port", {"metrics": {"enabled": False, "port": 65535}}),
    Case("autoscaling", {"autoscaling": {"maxReplicas": 1}}),
    Case(
        "autoscaling at its bounds",
        {"autoscaling": {"minReplicas": 1000, "maxReplicas": 1000, "targetCPUUtilization": 1000}},
    ),
    Case("autoscaling of nothing", {"autoscaling": {"minReplicas": 1, "maxReplicas": 2, "targetCPUUtilization": 1}}),
    Case("a disruption budget", {"podDisruptionBudget": {}}),
    Case("a budget of a number", {"podDisruptionBudget": {"minAvailable": 0}}),
    Case("a budget of a share", {"podDisruptionBudget": {"maxUnavailable": "100%"}}),
    Case("everything at once", {**TLS, **USERS, "warmRestart": True, "workload": "StatefulSet", "metrics": {}}),
    Case("a memory limit that just suffices with TLS", limit("183Mi", **TLS)),
    Case("as few connections as threads allow", {"threads": 4, "maxConnections": 31}),
)

CHANGES: dict[str, dict[str, Any]] = {
    "size": {"size": 2},
    "image": {"image": "example.com/memcached:1"},
    "version": {"version": "1.6.18"},
    "workload": {"workload": "StatefulSet"},
    "memoryMB": {"memoryMB": 128},
    "maxConnections": {"maxConnections": 512},
    "threads": {"threads": 2},
    "maxItemSizeMB": {"maxItemSizeMB": 2},
    "extraArgs[]": {"extraArgs": ["-v"]},
    "containerPort": {"containerPort": 11311},
    "warmRestart": {"warmRestart": True},
    "auth.secretName": {"auth": {"secretName": "users"}},
    "tls.secretName": TLS,
    "tls.clientAuth": {"tls": {"secretName": "cache-tls", "clientAuth": "required"}},
    "metrics.enabled": {"metrics": {"enabled": True}},
    "metrics.port": {"metrics": {"port": 9151}},
    "autoscaling.minReplicas": {"autoscaling": {"minReplicas": 2, "maxReplicas": 3}},
    "autoscaling.maxReplicas": {"autoscaling": {"maxReplicas": 4}},
    "autoscaling.targetCPUUtilization": {"autoscaling": {"maxReplicas": 3, "targetCPUUtilization": 50}},
    "podDisruptionBudget": {"podDisruptionBudget": {}},
    "podDisruptionBudget.minAvailable": {"podDisruptionBudget": {"minAvailable": 1}},
    "podDisruptionBudget.maxUnavailable": {"podDisruptionBudget": {"maxUnavailable": "50%"}},
    "resources.limits[]": {"resources": {"limits": {"memory": "1Gi"}}},
    "resources.requests[]": {"resources": {"requests": {"cpu": "20m"}}},
    "nodeSelector[]": {"nodeSelector": {"disk": "fast"}},
    "tolerations[].key": {"tolerations": [{"key": "a"}]},
    "tolerations[].operator": {"tolerations": [{"operator": "Exists"}]},
    "tolerations[].value": {"tolerations": [{"key": "a", "value": "b"}]},
    "tolerations[].effect": {"tolerations": [{"key": "a", "effect": "NoExecute"}]},
    "tolerations[].tolerationSeconds": {"tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 5}]},
    "affinity": {"affinity": {"podAntiAffinity": {}}},
    "topologySpread[].topologyKey": {"topologySpread": [{"topologyKey": "zone"}]},
    "topologySpread[].maxSkew": {"topologySpread": [{"topologyKey": "zone", "maxSkew": 2}]},
    "topologySpread[].whenUnsatisfiable": {
        "topologySpread": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    },
    "priorityClassName": {"priorityClassName": "high"},
    "labels[]": {"labels": {"team": "shop"}},
    "annotations[]": {"annotations": {"example.com/contact": "shop"}},
    "env[].name": {"env": [{"name": "E"}]},
    "env[].value": {"env": [{"name": "E", "value": "v"}]},
    "env[].valueFrom": {"env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]},
    "paused": {"paused": True},
}
"""For each leaf of the spec, what sets it; each differs from all others in what becomes of it."""

REFUSED = (
    Case("no size", {"size": ...}, "spec.size: Required value", "spec.size: is missing"),
    Case(
        "a size that is no number",
        {"size": "three"},
        "must be of type integer",
        "is not a whole number; give one, without quotes",
    ),
    at_least("size", -1, 0),
    at_most("size", 1001, 1000),
    Case("an empty image", {"image": ""}, "'' is no image", "spec.image: '' is no image"),
    Case("an image with capital letters", {"image": "a/B:1"}, "'a/B:1' is no image", "'a/B:1' is no image"),
    Case("an endless image", {"image": "a" * 513}, "Too long: may not be more than 512", "at most 512 characters"),
    Case("a version that is no tag", {"version": "1.6 38"}, "'1.6 38' is no image tag", "'1.6 38' is no image tag"),
    Case("an endless version", {"version": "1" * 129}, "may not be more than 128", "at most 128 characters"),
    at_least("memoryMB", 7, 8),
    at_most("memoryMB", 1048577, 1048576),
    at_least("maxConnections", 15, 16),
    at_most("maxConnections", 1000001, 1000000),
    at_least("threads", 0, 1),
    at_most("threads", 129, 128),
    at_least("maxItemSizeMB", 0, 1),
    Case(
        "items above what memcached takes",
        {**BIG, "maxItemSizeMB": 1025},
        "should be less than or equal to 1024",
        "too large; give at most 1024",
    ),
    at_least("containerPort", 1023, 1024),
    at_most("containerPort", 65536, 65535),
    Case("items larger than half of the memory", {"memoryMB": 64, "maxItemSizeMB": 33}, ITEM_WORDS, ITEM_WORDS),
    Case("a memory limit below the need", limit("146Mi"), LIMIT_WORDS, LIMIT_WORDS),
    Case("a memory limit in bytes below the need", limit(147 * 2**20 - 1), LIMIT_WORDS, LIMIT_WORDS),
    Case(
        "a memory limit that more connections outgrow",
        limit("147Mi", maxConnections=4096),
        "give at least 211Mi",
        "give at least 211Mi",
    ),
    Case(
        "a request above its limit",
        {"resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": 1}}},
        "a request is above its limit",
        "spec.resources.requests: a request is above its limit",
    ),
    Case(
        "a negative number", {"resources": {"limits": {"cpu": -1}}}, "greater than or equal to 0", "cannot be negative"
    ),
    Case("a negative whole request", {"resources": {"requests": {"cpu": -1}}}, "or equal to 0", "cannot be negative"),
    Case("a negative request", {"resources": {"requests": {"cpu": "-1"}}}, "should match", "cannot be negative"),
    Case("an endless quantity", {"resources": {"limits": {"cpu": "0" * 33}}}, "may not be more than 32", "at most 32"),
    Case("an endless request", {"resources": {"requests": {"cpu": "0" * 33}}}, "may not be more than 32", "at most 32"),
    Case("a quantity that is none", {"resources": {"limits": {"cpu": "1 core"}}}, "should match", "is not a quantity"),
    Case("a request that is none", {"resources": {"requests": {"cpu": "much"}}}, "should match", "is not a quantity"),
    Case(
        "too many limits",
        {"resources": {"limits": {f"example.com/{number}": 1 for number in range(17)}}},
        "must have at most 16",
        "at most 16",
    ),
    Case(
        "too many requests",
        {"resources": {"requests": {f"example.com/{number}": 1 for number in range(17)}}},
        "must have at most 16",
        "at most 16",
    ),
    *(
        Case(
            f"an argument of ours: {argument}",
            {"extraArgs": ["-v", argument]},
            f"'{argument}' is for another field to set",
            f"spec.extraArgs: '{argument}' is for another field to set",
        )
        for argument in (
            *("-m", "-m64", "-p", "-c", "-t", "-I", "-d", "-u", "-l", "-U", "-P", "-a", "-s", "-h", "-i", "-V"),
            *("-vd", "-vvm5", "-vAZrt2", "--port", "--port=1", "--po", "--m=5", "--memory-limit=9", "--conn-limit"),
            *("--threads", "--max-item-size=2m", "--max-i=2m", "--daemon", "--user=root", "--listen", "--udp-port=1"),
            *("--pidfile", "--unix-socket", "--unix-mask", "--help", "--license", "--version"),
        )
    ),
    Case("an empty argument", {"extraArgs": [""]}, "should be at least 1 chars", "too short"),
    Case("an endless argument", {"extraArgs": ["-v" * 129]}, "may not be more than 256", "at most 256 characters"),
    Case("too many arguments", {"extraArgs": ["-v"] * 33}, "must have at most 32 items", "at most 32"),
    *(
        Case(
            f"a label of ours: {name}",
            {"labels": {"a": "b", f"app.kubernetes.io/{name}": "x"}},
            f"app.kubernetes.io/{name} {OURS_WORDS}",
            f"spec.labels: app.kubernetes.io/{name} {OURS_WORDS}",
        )
        for name in ("name", "instance", "managed-by", "part-of", "component")
    ),
    Case("a label's endless value", {"labels": {"a": "b" * 64}}, "may not be more than 63", "at most 63 characters"),
    Case("a label's wrong value", {"labels": {"a": "b c"}}, "should match", 'spec.labels.a: "b c" does not match'),
    Case("too many labels", {"labels": {f"l{n}": "" for n in range(33)}}, "must have at most 32", "at most 32"),
    Case(
        "too many annotations", {"annotations": {f"a{n}": "" for n in range(65)}}, "must have at most 64", "at most 64"
    ),
    Case(
        "too many node labels", {"nodeSelector": {f"n{n}": "" for n in range(33)}}, "must have at most 32", "at most 32"
    ),
    Case("a node label's endless value", {"nodeSelector": {"a": "b" * 64}}, "may not be more than 63", "at most 63"),
    Case("a node label's wrong value", {"nodeSelector": {"a": "-"}}, "should match", "does not match"),
    Case("an endless priority class", {"priorityClassName": "a" * 254}, "may not be more than 253", "at most 253"),
    Case("a priority class that is no name", {"priorityClassName": "High"}, "should match", "does not match"),
    Case(
        "too many variables", {"env": [{"name": f"E{n}"} for n in range(129)]}, "must have at most 128", "at most 128"
    ),
    Case("a variable without a name", {"env": [{"value": "x"}]}, "name: Required value", "name: is missing"),
    Case("a variable with an empty name", {"env": [{"name": ""}]}, "should match", "does not match"),
    Case("a variable's name with '='", {"env": [{"name": "A=B"}]}, "should match", "does not match"),
    Case("a variable's endless name", {"env": [{"name": "E" * 257}]}, "may not be more than 256", "at most 256"),
    Case(
        "a variable's endless value",
        {"env": [{"name": "E", "value": "v" * 32769}]},
        "may not be more than 32768",
        "at most 32768",
    ),
    Case(
        "a variable with a value and a source",
        {"env": [{"name": "E", "value": "v", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]},
        "value and valueFrom exclude each other",
        "spec.env[0]: value and valueFrom exclude each other",
    ),
    Case("a variable given twice", {"env": [{"name": "E"}, {"name": "E"}]}, "Duplicate value", "E stands there more"),
    Case("too many tolerations", {"tolerations": [{}] * 65}, "must have at most 64", "at most 64"),
    Case("an unknown effect", {"tolerations": [{"effect": "Never"}]}, "Unsupported value", "give 'NoSchedule'"),
    Case("an unknown operator", {"tolerations": [{"operator": "Like"}]}, "Unsupported value", "give 'Exists'"),
    Case(
        "a value that nothing compares",
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        "operator Exists compares no value",
        "spec.tolerations[0].value: operator Exists compares no value",
    ),
    Case(
        "a toleration without a key",
        {"tolerations": [{"operator": "Exists"}, {"effect": "NoSchedule"}]},
        "a toleration without a key tolerates every taint",
        "spec.tolerations[1]: a toleration without a key tolerates every taint",
    ),
    Case(
        "seconds of an effect that does not end",
        {"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]},
        "only effect NoExecute ends after seconds",
        "only effect NoExecute ends after seconds",
    ),
    Case("an endless taint", {"tolerations": [{"key": "a" * 318}]}, "may not be more than 317", "at most 317"),
    Case(
        "a taint's endless value",
        {"tolerations": [{"key": "a", "value": "b" * 64}]},
        "may not be more than 63",
        "at most 63",
    ),
    Case("too many spreads", {"topologySpread": [{"topologyKey": "z"}] * 17}, "must have at most 16", "at most 16"),
    Case("a spread over nothing", {"topologySpread": [{"maxSkew": 1}]}, "Required value", "topologyKey: is missing"),
    Case("a spread over an empty label", {"topologySpread": [{"topologyKey": ""}]}, "at least 1 chars", "too short"),
    Case(
        "a spread over an endless label",
        {"topologySpread": [{"topologyKey": "z" * 318}]},
        "more than 317",
        "at most 317",
    ),
    Case(
        "a skew of nothing",
        {"topologySpread": [{"topologyKey": "z", "maxSkew": 0}]},
        "should be greater than or equal to 1",
        "too small; give at least 1",
    ),
    Case(
        "a skew beyond all sense",
        {"topologySpread": [{"topologyKey": "z", "maxSkew": 1001}]},
        "should be less than or equal to 1000",
        "too large; give at most 1000",
    ),
    Case(
        "an unknown way to spread",
        {"topologySpread": [{"topologyKey": "z", "whenUnsatisfiable": "Panic"}]},
        "Unsupported value",
        "give 'DoNotSchedule'",
    ),
    Case("paused by a word", {"paused": "perhaps"}, "must be of type boolean", "is not a boolean; give true or false"),
    Case("arguments that are no list", {"extraArgs": "-v"}, "must be of type array", "is not a list; give one"),
    Case("a version that is a number", {"version": 1.6}, "must be of type string", "put it into quotes"),
    Case("resources that are no object", {"resources": "64Mi"}, "must be of type object", "is not an object"),
    Case("an unknown workload", {"workload": "DaemonSet"}, "Unsupported value", "give 'Deployment'"),
    Case(
        "a name too long for a StatefulSet",
        {"workload": "StatefulSet"},
        "may then have at most 52 characters",
        "may then have at most 52 characters",
        resource="a" * 53,
    ),
    Case("warm restart by a word", {"warmRestart": "yes"}, "must be of type boolean", "is not a boolean"),
    Case(
        "warm restart of too little memory",
        {"warmRestart": True, "memoryMB": 63},
        "63 is too small for warmRestart",
        "spec.memoryMB: 63 is too small for warmRestart",
    ),
    *(
        Case(
            f"an argument against warm restart: {argument}",
            {"warmRestart": True, "extraArgs": ["-v", argument]},
            f"'{argument}' does not go with spec.warmRestart",
            f"spec.extraArgs: '{argument}' does not go with spec.warmRestart",
        )
        for argument in (
            "-e",
            "-e/x",
            "-ve",
            "--memory-file=/x",
            "--memory-f",
            "-L",
            "--enable-l",
            "ext_path=/x:1G",
            *("-oext_path=/x", "--extended=modern,ext_path=/x:1G,ext_threads=2"),
        )
    ),
    *(
        Case(
            f"an argument against TLS: {argument}",
            {**TLS, "extraArgs": [argument]},
            f"'{argument}' is for spec.tls to set",
            f"spec.extraArgs: '{argument}' is for spec.tls to set",
        )
        for argument in (
            "-Z",
            "-vZ",
            "--enable-ssl",
            "--enable-s",
            "ssl_verify_mode=0",
            *(
                "-ossl_key=/x",
                "--extended=ssl_chain_cert=/x",
                "ssl_ca_cert=/x",
                "ssl_keyformat=2",
                "a,ssl_verify_mode=1",
            ),
        )
    ),
    *(
        Case(
            f"an argument against users: {argument}",
            {**USERS, "extraArgs": [argument]},
            f"'{argument}' does not go with spec.auth",
            f"spec.extraArgs: '{argument}' does not go with spec.auth",
        )
        for argument in ("-Y/x", "--auth-file=/x", "-S", "-vS", "--enable-sasl", "-B", "--protocol=binary")
    ),
    *(
        Case(f"an old version with {name}", {"version": "1.5.17", **given}, OLD_WORDS, f"spec.version: {OLD_WORDS}")
        for name, given in (("TLS", TLS), ("users", USERS), ("warm restart", {"warmRestart": True}))
    ),
    Case("users without a Secret", {"auth": {}}, "secretName: Required value", "secretName: is missing"),
    Case("users of an endless Secret", {"auth": {"secretName": "a" * 254}}, "may not be more than 253", "at most 253"),
    Case("users of a Secret that is no name", {"auth": {"secretName": "A"}}, "should match", "does not match"),
    Case("TLS without a Secret", {"tls": {}}, "secretName: Required value", "secretName: is missing"),
    Case("TLS of an endless Secret", {"tls": {"secretName": "a" * 254}}, "may not be more than 253", "at most 253"),
    Case("TLS of another namespace's Secret", {"tls": {"secretName": "a/b"}}, "should match", "does not match"),
    Case(
        "an unknown demand of clients",
        {"tls": {"secretName": "a", "clientAuth": "maybe"}},
        "Unsupported value",
        "give 'none' or 'required'",
    ),
    at_least("metrics.port", 1023, 1024),
    at_most("metrics.port", 65536, 65535),
    Case("metrics by a word", {"metrics": {"enabled": "on"}}, "must be of type boolean", "is not a boolean"),
    Case(
        "metrics at the servers' port",
        {"metrics": {"port": 11211}},
        "11211 is containerPort too",
        "spec.metrics.port: 11211 is containerPort too",
    ),
    Case("autoscaling without an end", {"autoscaling": {}}, "maxReplicas: Required value", "maxReplicas: is missing"),
    at_least("autoscaling.minReplicas", 0, 1, maxReplicas=2),
    at_most("autoscaling.minReplicas", 1001, 1000, maxReplicas=2),
    at_least("autoscaling.maxReplicas", 0, 1),
    at_most("autoscaling.maxReplicas", 1001, 1000),
    at_least("autoscaling.targetCPUUtilization", 0, 1, maxReplicas=2),
    at_most("autoscaling.targetCPUUtilization", 1001, 1000, maxReplicas=2),
    Case(
        "autoscaling upside down",
        {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}},
        "3 is above maxReplicas",
        "spec.autoscaling.minReplicas: 3 is above maxReplicas",
    ),
    Case(
        "a budget of two kinds",
        {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}},
        "minAvailable and maxUnavailable exclude each other",
        "spec.podDisruptionBudget: minAvailable and maxUnavailable exclude each other",
    ),
    *(
        Case(
            f"a budget with {name} of {value!r}",
            {"podDisruptionBudget": {name: value}},
            words,
            f"{name}: {shown} is wrong",
        )
        for name in ("minAvailable", "maxUnavailable")
        for value, shown, words in (
            (-1, "-1", "greater than or equal to 0"),
            ("101%", '"101%"', "should match"),
            ("00100%", '"00100%"', "may not be more than 4"),
        )
    ),
    Case(
        "too few connections for the threads",
        {"threads": 8, "maxConnections": 50},
        "memcached would not start; give at least 51",
        "spec.maxConnections: too few: threads take of them before any client does",
    ),
    Case("a memory limit that TLS outgrows", limit("182Mi", **TLS), "give at least 183Mi", "give at least 183Mi"),
    Case("a name that starts with a digit", {}, NAME_WORDS, NAME_WORDS, resource="1cache"),
    Case("a name with a dot", {}, NAME_WORDS, NAME_WORDS, resource="a.b"),
    Case("a name too long for a Service", {}, NAME_WORDS, NAME_WORDS, resource="a" * 64),
)
