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


def at_least(path: str, value: int, least: int) -> Case:
    words = f"should be greater than or equal to {least}"
    return Case(
        f"{path} of {value}", {path: value}, f"spec.{path} in body {words}", f"too small; give at least {least}"
    )


def at_most(path: str, value: int, most: int) -> Case:
    words = f"should be less than or equal to {most}"
    return Case(f"{path} of {value}", {path: value}, f"spec.{path} in body {words}", f"too large; give at most {most}")


def limit(memory: str | int, **spec: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"memory": memory}}, **spec}


BIG = {"memoryMB": 1048576}
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
)

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
    Case("a name that starts with a digit", {}, NAME_WORDS, NAME_WORDS, resource="1cache"),
    Case("a name with a dot", {}, NAME_WORDS, NAME_WORDS, resource="a.b"),
    Case("a name too long for a Service", {}, NAME_WORDS, NAME_WORDS, resource="a" * 64),
)
