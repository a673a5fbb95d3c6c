"""Render the charts with the real Helm, in a copy with its dependencies, so that the source tree stays clean."""

from __future__ import annotations

import copy
import functools
import gzip
import itertools
import json
import os
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from charts.values.metadata import with_release
from tools.local import binaries
from tools.local.images import digest
from tools.local.machine.commands import run
from tools.local.paths import CACHE, REPOSITORY
from tools.local.release import CHARTS, charts_digest, update_charts

OPERATORS = tuple(sorted(path.name for path in CHARTS.glob("*-operator")))
NAMES = tuple(name.removesuffix("-operator") for name in OPERATORS)
NAMESPACE = "platform-system"
VERSION: str = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
IMAGES = {name: f"registry.example.com/platform/{name}-operator" for name in NAMES}
"""Images that the tests' charts name, as those of a release do."""

KEPT_RENDERINGS = 16
"""Charts whose renderings stay in the cache: the copies of a test run, for three versions of the charts."""

Obj = dict[str, Any]
Values = Mapping[str, Any]

RELABELING: Obj = {"sourceLabels": ["__name__"], "regex": "go_.*", "action": "drop"}

EVERYTHING: Obj = {
    "nameOverride": "mine",
    "image": {"digest": "sha256:" + 64 * "0"},
    "imagePullSecrets": [{"name": "registry"}],
    "replicaCount": 3,
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
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "interval": "30s",
            "tokenSecret": {"name": "prometheus-token"},
            "relabelings": [RELABELING],
            "metricRelabelings": [RELABELING],
            "operands": {"relabelings": [RELABELING], "metricRelabelings": [RELABELING]},
        },
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
    "networkPolicy": {"restrictEgress": True},
    "hostNetwork": True,
    "probePort": 8082,
    "operatorPeers": [{"ipBlock": {"cidr": "10.0.0.0/16"}}],
    "policy": {
        "requireTLS": True,
        "requireAuth": True,
        "allowedRegistries": ["registry.example.com/team", "docker.io"],
        "allowHostPath": True,
    },
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
    "topologySpreadConstraints": [
        {"topologyKey": "kubernetes.io/hostname", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"example.com/note": "yes"},
    "podLabels": {"team": "storage"},
    "deploymentAnnotations": {"example.com/reload": "true"},
    "deploymentLabels": {"team": "storage"},
    "extraArgs": ["--certificate-lifetime=864000"],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "company-ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ssl/company", "readOnly": True}],
    "podSecurityContext": {"supplementalGroups": [7]},
    "extraEnv": [
        {"name": "TZ", "value": "UTC"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ],
}
"""A value for every key that is empty or disabled by default."""

MINIMAL: Obj = {
    "replicaCount": 1,
    "webhook": {"enabled": False},
    "metrics": {"enabled": False},
    "rbac": {"create": False},
    "serviceAccount": {"create": False, "name": "external"},
    "crds": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
}
"""Everything optional disabled."""

PROVIDED_CERTIFICATE: Obj = {"certificates": {"source": "secret", "secretName": "mine"}}
PLAIN_HTTP: Obj = {
    "metrics": {"secure": False, "serviceMonitor": {"enabled": True}},
    "networkPolicy": {"restrictEgress": True},
}

VARIANTS: dict[str, Obj] = {
    "defaults": {},
    "everything": EVERYTHING,
    "minimal": MINIMAL,
    "provided-certificate": PROVIDED_CERTIFICATE,
    "plain-http": PLAIN_HTTP,
}
"""Values of an operator's chart that together render every object, field and branch."""

CHOICES = [dict(zip(NAMES, choice, strict=True)) for choice in itertools.product((True, False), repeat=len(NAMES))]
"""Every combination of enabled operators in the umbrella chart."""

COMBINATIONS = {
    "+".join([variant, *(name for name, enabled in choice.items() if enabled)]): {
        name: {"enabled": enabled, **values} for name, enabled in choice.items()
    }
    for choice in CHOICES
    for variant, values in VARIANTS.items()
}
"""Values of the umbrella chart: every combination of operators with every variant of values."""


def helm(*arguments: str | Path, values: Values | None = None) -> str:
    """Run helm and return its output; raises ClusterError with its error message."""
    # As JSON, because Go's YAML parser reads a bare y as a boolean, and Python's does not quote it.
    given = ["--values", "-"] if values is not None else []
    return run(binaries.find("helm"), *arguments, *given, stdin=json.dumps(values) if values is not None else None)


def copy_to(directory: Path, images: Mapping[str, str] | None = IMAGES) -> Path:
    """Copy all charts and download their dependencies into the copy.

    Args:
        directory: parent of the copy.
        images: images that the charts name, as those of a release do; None for charts as in the source tree.
    """
    charts = directory / "charts"
    shutil.copytree(CHARTS, charts, ignore=shutil.ignore_patterns("*.tgz", "values"))
    if images is not None:
        for chart in (path.parent for path in charts.glob("*/Chart.yaml")):
            with_release(chart, VERSION, images)
    update_charts(charts, helm)
    return charts


def manifest(
    chart: Path, values: Values | None = None, *, release: str = "platform", namespace: str = NAMESPACE
) -> str:
    """Render a chart to text."""
    return helm("template", release, chart, "--namespace", namespace, values=values or {})


@functools.cache
def _rendered(chart: Path, values: str, release: str, namespace: str) -> list[Obj]:
    """Return the objects of a chart; Helm renders the same charts with the same values once for all processes."""
    name = digest((), salt=json.dumps([chart.name, values, release, namespace]))
    kept = _renderings(chart.parent) / f"{name}.json.gz"
    if not kept.exists():
        text = manifest(chart, json.loads(values), release=release, namespace=namespace)
        # The C parser takes a tenth of the time of the Python parser.
        objects = [obj for obj in yaml.load_all(text, Loader=yaml.CSafeLoader) if obj]
        unfinished = kept.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(gzip.compress(json.dumps(objects).encode(), compresslevel=1))
        unfinished.rename(kept)
    found: list[Obj] = json.loads(gzip.decompress(kept.read_bytes()))
    return found


@functools.cache
def _renderings(charts: Path) -> Path:
    """Return the directory of what Helm rendered from charts with this content, and remove the oldest directories."""
    found = CACHE / "renderings" / charts_digest(charts, salt=str(binaries.find("helm")))
    found.mkdir(parents=True, exist_ok=True)
    os.utime(found)
    for old in sorted(found.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT_RENDERINGS]:
        shutil.rmtree(old, ignore_errors=True)  # another process may remove it too
    return found


def render(
    chart: Path, values: Values | None = None, *, release: str = "platform", namespace: str = NAMESPACE
) -> list[Obj]:
    """Render a chart to objects that the caller may modify; results are cached by chart and values."""
    return copy.deepcopy(_rendered(chart, json.dumps(values or {}), release, namespace))


def is_hook(obj: Obj) -> bool:
    """Return whether the object is a Helm hook, created only for `helm test`."""
    return "helm.sh/hook" in obj["metadata"].get("annotations", {})


def of_kind(objects: list[Obj], kind: str) -> list[Obj]:
    """Return the objects of a kind, without hooks."""
    return [obj for obj in objects if obj["kind"] == kind and not is_hook(obj)]


def only(objects: list[Obj], kind: str) -> Obj:
    """Return the only object of a kind, ignoring hooks."""
    (found,) = of_kind(objects, kind)
    return found


def named(objects: list[Obj], kind: str, ending: str) -> Obj:
    """Return the only object of a kind with a name suffix, ignoring hooks."""
    (found,) = (obj for obj in of_kind(objects, kind) if obj["metadata"]["name"].endswith(ending))
    return found


def pods(objects: list[Obj]) -> list[Obj]:
    """Return the pods that would run: those of Deployments and of hooks."""
    found = [obj for obj in objects if obj["kind"] == "Pod"]
    for deployment in of_kind(objects, "Deployment"):
        named = {key: deployment["metadata"][key] for key in ("name", "namespace")}
        template = deployment["spec"]["template"]
        metadata = {**named, **template["metadata"]}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    return found
