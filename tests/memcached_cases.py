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
LIMIT_WORDS = "resources.limits.memory is below what memcached may use"
ITEM_WORDS = "maxItemSizeMB must be at most half of memoryMB"
EXTRA_WORDS = "extraArgs holds a flag that the operator sets"
LABEL_WORDS = "labels holds a label that the operator sets itself"
NAME_WORDS = "metadata.name names the Service too"

ACCEPTED = (
    Case("the seed's"),
    Case("none", {"size": 0}),
    Case("the most", {"size": 1000}),
    Case("an image with a registry port and a digest", {"image": f"example.com:5000/a/b@sha256:{'0' * 64}"}),
    Case("a version", {"version": "1.6.18-alpine"}),
    Case("the least memory", {"memoryMB": 8, "maxItemSizeMB": 4}),
    Case("the most memory", {**BIG, "maxItemSizeMB": 1024}),
    Case("bounds of connections and threads", {"maxConnections": 1000000, "threads": 128}),
    Case("the least connections and threads", {"maxConnections": 16, "threads": 1}),
    Case("bounds of the port", {"containerPort": 1024}),
    Case("the highest port", {"containerPort": 65535}),
    Case("a memory limit that just suffices", limit("96Mi")),
    Case("a memory limit as a number of bytes", limit(96 * 2**20)),
    Case("a memory limit with a decimal point", limit("0.1Gi")),
    Case("a limit of CPU alone", {"resources": {"limits": {"cpu": 2}, "requests": {"cpu": "100m", "memory": "96Mi"}}}),
    Case("further arguments", {"extraArgs": ["-v", "--disable-evictions", "-o", "modern,no_lru_crawler", "-R", "40"]}),
    Case("an extra argument that begins like one of ours", {"extraArgs": ["--portable"]}),
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
    Case("paused", {"paused": True}),
    Case("the longest name", resource="a" * 63),
)

REFUSED = (
    Case("no size", {"size": ...}, "spec.size: Required value", "spec.size: is missing"),
    Case("a size that is no number", {"size": "three"}, "must be of type integer", "spec.size: 'three'"),
    at_least("size", -1, 0),
    at_most("size", 1001, 1000),
    Case("an empty image", {"image": ""}, "spec.image in body should be at least 1 chars", "too short"),
    Case("an endless image", {"image": "a" * 513}, "Too long: may not be more than 512", "at most 512 characters"),
    Case("a version that is no tag", {"version": "1.6 38"}, "spec.version in body should match", "does not match"),
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
    Case("a memory limit below the need", limit("95Mi"), LIMIT_WORDS, "95Mi is below 96Mi"),
    Case("a memory limit in bytes below the need", limit(96 * 2**20 - 1), LIMIT_WORDS, "is below 96Mi"),
    Case(
        "a memory limit that more connections outgrow", limit("96Mi", maxConnections=4096), LIMIT_WORDS, "below 108Mi"
    ),
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
        Case(f"an argument of ours: {argument}", {"extraArgs": [argument]}, EXTRA_WORDS, EXTRA_WORDS)
        for argument in (
            "-m",
            "-m64",
            "-p",
            "-c",
            "-t",
            "-I",
            "-d",
            "-u",
            "-l",
            "-U",
            "-P",
            "-a",
            "-s",
            "-vd",
            "-vvm5",
            "--port",
            "--port=1",
            "--memory-limit=9",
            "--conn-limit",
            "--threads",
            "--max-item-size=2m",
            "--daemon",
            "--user=root",
            "--listen",
            "--udp-port=1",
            "--pidfile",
            "--unix-socket",
            "--unix-mask",
        )
    ),
    Case("an empty argument", {"extraArgs": [""]}, "should be at least 1 chars", "too short"),
    Case("an endless argument", {"extraArgs": ["-v" * 129]}, "may not be more than 256", "at most 256 characters"),
    Case("too many arguments", {"extraArgs": ["-v"] * 33}, "must have at most 32 items", "at most 32"),
    *(
        Case(
            f"a label of ours: {name}",
            {"labels": {f"app.kubernetes.io/{name}": "x"}},
            LABEL_WORDS,
            "is set by the operator",
        )
        for name in ("name", "instance", "managed-by", "part-of", "component")
    ),
    Case("a label's endless value", {"labels": {"a": "b" * 64}}, "may not be more than 63", "at most 63 characters"),
    Case("too many labels", {"labels": {f"l{n}": "" for n in range(33)}}, "must have at most 32", "at most 32"),
    Case(
        "too many annotations", {"annotations": {f"a{n}": "" for n in range(65)}}, "must have at most 64", "at most 64"
    ),
    Case(
        "too many node labels", {"nodeSelector": {f"n{n}": "" for n in range(33)}}, "must have at most 32", "at most 32"
    ),
    Case(
        "too many variables", {"env": [{"name": f"E{n}"} for n in range(129)]}, "must have at most 128", "at most 128"
    ),
    Case("a variable without a name", {"env": [{"value": "x"}]}, "name: Required value", "name: is missing"),
    Case("a variable with an empty name", {"env": [{"name": ""}]}, "should be at least 1 chars", "too short"),
    Case("a variable given twice", {"env": [{"name": "E"}, {"name": "E"}]}, "Duplicate value"),
    Case("too many tolerations", {"tolerations": [{}] * 65}, "must have at most 64", "at most 64"),
    Case("an unknown effect", {"tolerations": [{"effect": "Never"}]}, "Unsupported value", "give 'NoSchedule'"),
    Case("an unknown operator", {"tolerations": [{"operator": "Like"}]}, "Unsupported value", "give 'Exists'"),
    Case("too many spreads", {"topologySpread": [{"topologyKey": "z"}] * 17}, "must have at most 16", "at most 16"),
    Case("a spread over nothing", {"topologySpread": [{"maxSkew": 1}]}, "Required value", "topologyKey: is missing"),
    Case("a spread over an empty label", {"topologySpread": [{"topologyKey": ""}]}, "at least 1 chars", "too short"),
    Case(
        "a spread over an endless label",
        {"topologySpread": [{"topologyKey": "z" * 317}]},
        "more than 316",
        "at most 316",
    ),
    Case(
        "a skew of nothing",
        {"topologySpread": [{"topologyKey": "z", "maxSkew": 0}]},
        "should be greater than or equal to 1",
        "too small; give at least 1",
    ),
    Case(
        "an unknown way to spread",
        {"topologySpread": [{"topologyKey": "z", "whenUnsatisfiable": "Panic"}]},
        "Unsupported value",
        "give 'DoNotSchedule'",
    ),
    Case("paused by a word", {"paused": "perhaps"}, "must be of type boolean", "spec.paused: 'perhaps'"),
    Case("a name that starts with a digit", {}, NAME_WORDS, NAME_WORDS, resource="1cache"),
    Case("a name with a dot", {}, NAME_WORDS, NAME_WORDS, resource="a.b"),
    Case("a name too long for a Service", {}, NAME_WORDS, NAME_WORDS, resource="a" * 64),
)
