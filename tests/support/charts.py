"""The charts as tests take them: by the real Helm, in a copy with its dependencies in place; the tree stays clean."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import binaries
from e2e.cluster.machine.commands import run
from e2e.cluster.paths import REPOSITORY

CHARTS = REPOSITORY / "charts"
OPERATORS = tuple(sorted(path.name for path in CHARTS.glob("*-operator")))
NAMES = tuple(name.removesuffix("-operator") for name in OPERATORS)
NAMESPACE = "platform-system"

Obj = dict[str, Any]
Values = Mapping[str, Any]

EVERYTHING: Obj = {
    "nameOverride": "mine",
    "image": {"digest": "sha256:" + 64 * "0"},
    "imagePullSecrets": [{"name": "registry"}],
    "replicas": 3,
    "watchNamespaces": [NAMESPACE],
    "profiling": True,
    "otlpEndpoint": "http://collector.tracing:4318",
    "serviceAccount": {"annotations": {"example.com/role": "operator"}},
    "webhook": {
        "namespaceSelector": {
            "matchLabels": {"team": "storage"},
            "matchExpressions": [{"key": "stage", "operator": "NotIn", "values": ["trial"]}],
        }
    },
    "certificates": {"source": "certManager"},
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
        "dashboards": {"enabled": True, "labels": {"team": "storage"}},
        "prometheusRule": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "alertLabels": {"team": "storage"},
            "disabled": ["PlatformResourcePaused"],
            "dashboardsUrl": "https://grafana.example.com/",
            "runbooksUrl": "https://git.example.com/platform/",
            "thresholds": {"unreadySeconds": 600},
        },
    },
    "networkPolicy": {"enabled": True},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}]
            }
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}
            ]
        },
    },
    "topologySpread": [{"topologyKey": "kubernetes.io/hostname", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}],
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"example.com/note": "yes"},
    "podLabels": {"team": "storage"},
    "extraEnv": [
        {"name": "TZ", "value": "UTC"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ],
}
"""A value for whatever has none by default."""

LITTLE: Obj = {
    "replicas": 1,
    "webhook": {"enabled": False},
    "metrics": {"enabled": False},
    "rbac": {"create": False},
    "serviceAccount": {"create": False, "name": "theirs"},
    "crds": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
}
"""Without whatever can be left out."""

BROUGHT: Obj = {"certificates": {"source": "secret", "secretName": "mine"}}
PLAIN: Obj = {"metrics": {"secure": False, "serviceMonitor": {"enabled": True}}, "networkPolicy": {"enabled": True}}

VARIANTS: dict[str, Obj] = {
    "defaults": {},
    "everything": EVERYTHING,
    "little": LITTLE,
    "brought": BROUGHT,
    "plain": PLAIN,
}
"""Values of an operator's chart that between them render every object, every field and every branch."""

CHOICES = [dict(zip(NAMES, choice, strict=True)) for choice in itertools.product((True, False), repeat=len(NAMES))]
"""Which operators the umbrella chart brings: every combination."""

COMBINATIONS = {
    "+".join([variant, *(name for name, enabled in choice.items() if enabled)]): {
        name: {"enabled": enabled, **values} for name, enabled in choice.items()
    }
    for choice in CHOICES
    for variant, values in VARIANTS.items()
}
"""Values of the umbrella chart: every combination of operators, each with every variant of values."""


def helm(*arguments: str | Path, values: Values | None = None) -> str:
    """What a helm command says; raises ClusterError with its words where it fails."""
    # As JSON: Go's YAML takes a bare y for a boolean, Python's does not.
    given = ["--values", "-"] if values is not None else []
    return run(binaries.find("helm"), *arguments, *given, stdin=json.dumps(values) if values is not None else None)


def copy_to(directory: Path) -> Path:
    """A copy of all charts, their dependencies in place."""
    charts = directory / "charts"
    shutil.copytree(CHARTS, charts, ignore=shutil.ignore_patterns("*.tgz", "values"))
    for name in (*OPERATORS, "platform"):
        helm("dependency", "update", charts / name)
    return charts


def manifest(
    chart: Path, values: Values | None = None, *, release: str = "platform", namespace: str = NAMESPACE
) -> str:
    """What a chart renders, as text."""
    return helm("template", release, chart, "--namespace", namespace, values=values or {})


@functools.cache
def _rendered(chart: Path, values: str, release: str, namespace: str) -> list[Obj]:
    # C's parser takes a tenth of the time of Python's.
    text = manifest(chart, json.loads(values), release=release, namespace=namespace)
    return [obj for obj in yaml.load_all(text, Loader=yaml.CSafeLoader) if obj]


def render(
    chart: Path, values: Values | None = None, *, release: str = "platform", namespace: str = NAMESPACE
) -> list[Obj]:
    """What a chart renders, as objects of the caller's own; the same chart and values are rendered once."""
    return copy.deepcopy(_rendered(chart, json.dumps(values or {}), release, namespace))


def is_hook(obj: Obj) -> bool:
    """Whether Helm makes the object for `helm test` only."""
    return "helm.sh/hook" in obj["metadata"].get("annotations", {})


def of_kind(objects: list[Obj], kind: str) -> list[Obj]:
    """The objects of a kind that a release holds, hooks aside."""
    return [obj for obj in objects if obj["kind"] == kind and not is_hook(obj)]


def only(objects: list[Obj], kind: str) -> Obj:
    """The one object of a kind that a release holds."""
    (found,) = of_kind(objects, kind)
    return found


def named(objects: list[Obj], kind: str, ending: str) -> Obj:
    """The one object of a kind that a release holds whose name ends so."""
    (found,) = (obj for obj in of_kind(objects, kind) if obj["metadata"]["name"].endswith(ending))
    return found


def pods(objects: list[Obj]) -> list[Obj]:
    """Every pod that would run: those of Deployments, and hooks."""
    found = [obj for obj in objects if obj["kind"] == "Pod"]
    for deployment in of_kind(objects, "Deployment"):
        named = {key: deployment["metadata"][key] for key in ("name", "namespace")}
        template = deployment["spec"]["template"]
        metadata = {**named, **template["metadata"]}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return found
