"""Extensions of pods that every CRD accepts or rejects, and a change of each of their fields.

The refused values are derived from the schema: one for each keyword of each part of `FULL`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from shared.api.crd import structural
from shared.api.pod_extensions import PodExtensions
from shared.kubernetes.kinds import Obj
from tests.support.cases import Case

SHIPPER: Obj = {
    "name": "shipper",
    "image": "example.com/shipper:1",
    "command": ["/bin/ship"],
    "args": ["--all"],
    "env": [{"name": "E", "value": "v"}],
    "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "10m"}},
    "volumeMounts": [{"name": "logs", "mountPath": "/logs", "subPath": "one/two", "readOnly": True}],
    "securityContext": {"readOnlyRootFilesystem": False, "runAsUser": 1000, "runAsGroup": 1000},
}
FULL: Obj = {
    "imagePullSecrets": [{"name": "registry"}],
    "imagePullPolicy": "Always",
    "serviceAccountName": "shop",
    "terminationGracePeriodSeconds": 600,
    "podSecurityContext": {
        "runAs": "Operator",
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "Always",
        "supplementalGroups": [2000],
        "seLinuxOptions": {"level": "s0:c1,c2"},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "profiles/one.json"},
    },
    "containerSecurityContext": {"readOnlyRootFilesystem": False},
    "extraContainers": [{**SHIPPER, "ports": [{"containerPort": 8080, "name": "logs"}]}],
    "extraInitContainers": [{**copy.deepcopy(SHIPPER), "name": "prepare", "restartPolicy": "Always"}],
    "extraVolumes": [
        {"name": "logs", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "keys", "secret": {"secretName": "keys"}},
        {"name": "shared", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}},
        {
            "name": "token",
            "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "vault"}}]},
        },
        {"name": "driver", "csi": {"driver": "example.com", "readOnly": True, "volumeAttributes": {"a": "b"}}},
    ],
    "extraVolumeMounts": [{"name": "logs", "mountPath": "/logs", "subPath": "one/two", "readOnly": True}],
}
"""Every extension."""

ACCEPTED = (
    Case("all extensions", FULL),
    Case("identity from the platform", {"podSecurityContext": {"runAs": "Platform"}}),
    Case("the smallest extra container", {"extraContainers": [{"name": "a", "image": "a:1"}]}),
    Case("an empty directory", {"extraVolumes": [{"name": "a", "emptyDir": {}}]}),
    Case(
        "a writable volume",
        {"extraVolumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a", "readOnly": False}}]},
    ),
)


def _refusals(schema: Obj, value: Any, path: str) -> Iterator[tuple[str, Any, str, str]]:
    """Yield a description, a value and the messages for each keyword of a schema that a value can violate."""
    most, least = schema.get("maxLength"), schema.get("minimum")
    if most is not None:
        yield "too long", "a" * (most + 1), f"may not be more than {most}", f"at most {most}"
    if "pattern" in schema:
        is_quantity = schema.get("x-kubernetes-int-or-string")
        yield "malformed", "=", "should match", "is not a quantity" if is_quantity else "does not match"
    if least is not None:
        given = (least - 1, f"greater than or equal to {least}")
        yield (
            "too small",
            *given,
            "cannot be negative" if schema.get("x-kubernetes-int-or-string") else f"use at least {least}",
        )
    if "maximum" in schema:
        most = schema["maximum"]
        yield "too large", most + 1, f"less than or equal to {most}", f"use at most {most}"
    if "enum" in schema:
        yield "unknown", "Never mind", "Unsupported value", "use '"
    if "maxItems" in schema and isinstance(value, list):
        most = schema["maxItems"]
        yield (
            "too many",
            [_numbered(value[0], number) for number in range(most + 1)],
            f"must have at most {most}",
            f"at most {most}",
        )
    if "maxProperties" in schema:
        most = schema["maxProperties"]
        yield (
            "too many",
            {f"k{number}": 1 for number in range(most + 1)},
            f"must have at most {most}",
            f"at most {most}",
        )
    for name in schema.get("required", ()):
        yield (
            f"without {name}",
            {key: part for key, part in value.items() if key != name},
            f"{name}: Required value",
            f"{name}: is required",
        )


def _numbered(item: Any, number: int) -> Any:
    """Return an item that differs from the others."""
    if isinstance(item, dict):
        keys = [key for key in ("mountPath", "containerPort", "name") if key in item]
        return item | {
            keys[0]: item[keys[0]] + number if isinstance(item[keys[0]], int) else f"{item[keys[0]]}{number}"
        }
    return item


def _walk(schema: Obj, value: Any, path: str) -> Iterator[tuple[str, Any, str, str]]:
    """Yield each refusal with the whole value in which it occurs."""
    for what, wrong, api_error, operator_error in _refusals(schema, value, path):
        yield f"{path}: {what}", wrong, api_error, operator_error
    if isinstance(value, list):
        for number, item in enumerate(value):
            for what, wrong, api_error, operator_error in _walk(schema["items"], item, f"{path}[]"):
                yield what, [*value[:number], wrong, *value[number + 1 :]], api_error, operator_error
    elif isinstance(value, dict):
        for key, part in value.items():
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if inner:
                for what, wrong, api_error, operator_error in _walk(inner, part, f"{path}.{key}"):
                    yield what, value | {key: wrong}, api_error, operator_error


def _derived() -> Iterator[Case]:
    seen = set()
    for what, spec, api_error, operator_error in _walk(structural(PodExtensions), FULL, "spec"):
        if what not in seen:
            seen.add(what)
            yield Case(what, spec, api_error, operator_error)


def container(name: str = "a", **given: Any) -> Obj:
    return {"name": name, "image": "a:1", **given}


def extra(**given: Any) -> dict[str, Any]:
    return {"extraContainers": [container(**given)]}


_LOGS: Obj = {"extraVolumes": [{"name": "logs", "emptyDir": {}}]}
_UNKNOWN = "names no volume of extraVolumes"


def _both(name: str, spec: dict[str, Any], words: str) -> Case:
    return Case(name, spec, words, words)


_LISTS = {
    "imagePullSecrets": {"name": "a"},
    "extraContainers": container(),
    "extraInitContainers": container(),
    "extraVolumes": {"name": "a", "emptyDir": {}},
}

REFUSED = (
    *_derived(),
    *(
        Case(f"an item of {field} twice", {field: [item, item]}, "Duplicate value", "a is listed more than once")
        for field, item in _LISTS.items()
    ),
    Case(
        "two volumes in one directory",
        {**_LOGS, "extraVolumeMounts": [{"name": "logs", "mountPath": "/a"}] * 2},
        "Duplicate value",
        "/a is listed more than once",
    ),
    Case(
        "a port twice", extra(ports=[{"containerPort": 9000}] * 2), "Duplicate value", "9000 is listed more than once"
    ),
    _both(
        "a user of the spec with that of the platform",
        {"podSecurityContext": {"runAs": "Platform", "runAsUser": 1}},
        "the platform assigns runAsUser",
    ),
    _both(
        "a profile without a file",
        {"podSecurityContext": {"seccompProfile": {"type": "Localhost"}}},
        "localhostProfile is required",
    ),
    _both("an extra image with a space", extra(image="a b"), "'a b' is not a valid image"),
    _both(
        "an init image with a space", {"extraInitContainers": [container(image="a b")]}, "'a b' is not a valid image"
    ),
    _both("a volume without a source", {"extraVolumes": [{"name": "a"}]}, "set exactly one of emptyDir"),
    _both(
        "a volume with two sources",
        {"extraVolumes": [{"name": "a", "emptyDir": {}, "secret": {"secretName": "a"}}]},
        "set exactly one of emptyDir",
    ),
    _both(
        "an extra variable with a value and a source",
        extra(env=[{"name": "E", "value": "v", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]),
        "value and valueFrom are mutually exclusive",
    ),
    _both(
        "a variable of an init container with a value and a source",
        {
            "extraInitContainers": [
                container(env=[{"name": "E", "value": "v", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])
            ]
        },
        "value and valueFrom are mutually exclusive",
    ),
    _both(
        "an extra variable without a source",
        extra(env=[{"name": "E", "valueFrom": {}}]),
        "set exactly one of secretKeyRef",
    ),
    _both(
        "an init container named as an extra one",
        {**extra(), "extraInitContainers": [container()]},
        "has the name of one in extraContainers",
    ),
    _both("a mount without a volume", {"extraVolumeMounts": [{"name": "a", "mountPath": "/a"}]}, _UNKNOWN),
    _both("an extra mount without a volume", extra(volumeMounts=[{"name": "a", "mountPath": "/a"}]), _UNKNOWN),
    _both(
        "an init mount without a volume",
        {"extraInitContainers": [container(volumeMounts=[{"name": "a", "mountPath": "/a"}])]},
        _UNKNOWN,
    ),
    _both(
        "a port of two containers",
        {"extraContainers": [container(name, ports=[{"containerPort": 9000}]) for name in ("a", "b")]},
        "cannot listen on the same port",
    ),
)


def reserved(*, containers: str, volume: str, path: str, port: int, port_name: str) -> tuple[Case, ...]:
    """Return cases that collide with the pods of a kind."""
    return (
        _both("a reserved container", extra(name=containers), f"{containers} is a name that the operator uses"),
        _both(
            "a reserved init container",
            {"extraInitContainers": [container(containers)]},
            f"{containers} is a name that the operator uses",
        ),
        _both(
            "a reserved volume",
            {"extraVolumes": [{"name": volume, "emptyDir": {}}]},
            f"{volume} is a name that the operator uses",
        ),
        *(
            _both(
                f"a volume {where} a reserved directory",
                {**_LOGS, "extraVolumeMounts": [{"name": "logs", "mountPath": given}]},
                "hides or changes a directory of the operator",
            )
            for where, given in (("at", path), ("in", f"{path}/a"), ("around", path.rpartition("/")[0] or path))
        ),
        _both("a reserved port", extra(ports=[{"containerPort": port}]), "a number or a name that the operator"),
        _both(
            "a reserved port name",
            extra(ports=[{"containerPort": 9000, "name": port_name}]),
            "a number or a name that the operator",
        ),
    )


VARIABLES: dict[str, Any] = {
    "env[].name": {"env": [{"name": "E"}]},
    "env[].value": {"env": [{"name": "E", "value": "v"}]},
    **{
        f"env[].valueFrom.{source}": {"env": [{"name": "E", "valueFrom": {source: values}}]}
        for source, values in {
            "secretKeyRef": {"name": "users", "key": "a"},
            "configMapKeyRef": {"name": "settings", "key": "a"},
            "fieldRef": {"fieldPath": "spec.nodeName"},
            "resourceFieldRef": {"resource": "limits.cpu"},
        }.items()
    },
}
_SHIPPER: dict[str, Any] = {
    "name": {"name": "b"},
    "image": {"image": "b:2"},
    "command[]": {"command": ["/bin/a"]},
    "args[]": {"args": ["--all"]},
    **VARIABLES,
    "resources.limits[]": {"resources": {"limits": {"memory": "64Mi"}}},
    "resources.requests[]": {"resources": {"requests": {"memory": "64Mi"}}},
    "securityContext.readOnlyRootFilesystem": {"securityContext": {"readOnlyRootFilesystem": False}},
    "securityContext.runAsUser": {"securityContext": {"runAsUser": 1000}},
    "securityContext.runAsGroup": {"securityContext": {"runAsGroup": 1000}},
}
_MOUNT: dict[str, Any] = {
    "name": {},
    "mountPath": {"mountPath": "/mnt/other"},
    "subPath": {"subPath": "one"},
    "readOnly": {"readOnly": True},
}


def _mounts(values: Obj) -> list[Obj]:
    return [{"name": "logs", "mountPath": "/mnt/logs", **values}]


def _changes() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in FULL.items():
        if not isinstance(value, (dict, list)):
            yield name, {name: value}
    yield "imagePullSecrets[].name", {"imagePullSecrets": [{"name": "registry"}]}
    yield "podSecurityContext.runAs", {"podSecurityContext": {"runAs": "Platform"}}
    security = FULL["podSecurityContext"]
    for name in ("runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy"):
        yield f"podSecurityContext.{name}", {"podSecurityContext": {name: security[name]}}
    yield "podSecurityContext.supplementalGroups[]", {"podSecurityContext": {"supplementalGroups": [2000]}}
    yield "podSecurityContext.seLinuxOptions.level", {"podSecurityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}}}
    profile = security["seccompProfile"]
    yield "podSecurityContext.seccompProfile.type", {"podSecurityContext": {"seccompProfile": profile}}
    other = profile | {"localhostProfile": "b.json"}
    yield "podSecurityContext.seccompProfile.localhostProfile", {"podSecurityContext": {"seccompProfile": other}}
    yield (
        "containerSecurityContext.readOnlyRootFilesystem",
        {"containerSecurityContext": {"readOnlyRootFilesystem": False}},
    )
    for field in ("extraContainers", "extraInitContainers"):
        for leaf, given in _SHIPPER.items():
            yield f"{field}[].{leaf}", {field: [container() | given]}
        for leaf, given in _MOUNT.items():
            yield f"{field}[].volumeMounts[].{leaf}", {**_LOGS, field: [container(volumeMounts=_mounts(given))]}
    yield "extraContainers[].ports[].containerPort", extra(ports=[{"containerPort": 9000}])
    yield "extraContainers[].ports[].name", extra(ports=[{"containerPort": 9000, "name": "a"}])
    yield "extraInitContainers[].restartPolicy", {"extraInitContainers": [container(restartPolicy="Always")]}
    for leaf, given in _MOUNT.items():
        yield f"extraVolumeMounts[].{leaf}", {**_LOGS, "extraVolumeMounts": _mounts(given)}
    volumes: dict[str, Obj] = {
        "name": {"name": "other", "emptyDir": {}},
        "emptyDir.medium": {"emptyDir": {"medium": "Memory"}},
        "emptyDir.sizeLimit": {"emptyDir": {"sizeLimit": "64Mi"}},
        "configMap.name": {"configMap": {"name": "settings"}},
        "secret.secretName": {"secret": {"secretName": "keys"}},
        "persistentVolumeClaim.claimName": {"persistentVolumeClaim": {"claimName": "shared"}},
        "persistentVolumeClaim.readOnly": {"persistentVolumeClaim": {"claimName": "shared", "readOnly": True}},
        "projected": FULL["extraVolumes"][4],
        "csi": FULL["extraVolumes"][5],
    }
    for leaf, given in volumes.items():
        yield f"extraVolumes[].{leaf}", {"extraVolumes": [{"name": "a", **given}]}


CHANGES = dict(_changes())
"""A change for each leaf of the extensions; each change gives different objects."""
