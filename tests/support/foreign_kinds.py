"""CRDs of cert-manager and the Prometheus operator, reduced to the fields that the charts set.

A real API server and kubeconform validate the charts' objects against these schemas. They are written by hand from the
projects' references, with the types and values documented there, and accept no other fields:
https://cert-manager.io/docs/reference/api-docs/, https://prometheus-operator.dev/docs/api-reference/api/
"""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]

TEXT: Obj = {"type": "string", "minLength": 1}
TEXTS: Obj = {"type": "array", "items": TEXT}
LABELS: Obj = {"type": "object", "additionalProperties": {"type": "string"}}


def one_of(*values: str) -> Obj:
    return {"type": "string", "enum": list(values)}


def struct(*required: str, **fields: Obj) -> Obj:
    return {"type": "object", "properties": fields, **({"required": list(required)} if required else {})}


ISSUER = struct(selfSigned=struct())

CERTIFICATE = struct(
    "secretName",
    "issuerRef",
    secretName=TEXT,
    dnsNames=TEXTS,
    issuerRef=struct("name", name=TEXT, kind=TEXT, group=TEXT),
    privateKey=struct(
        algorithm=one_of("RSA", "ECDSA", "Ed25519"),
        size={"type": "integer"},
        rotationPolicy=one_of("Never", "Always"),
    ),
    usages={"type": "array", "items": one_of("digital signature", "key encipherment", "server auth", "client auth")},
)

RELABELINGS: Obj = {
    "type": "array",
    "items": struct(
        sourceLabels=TEXTS,
        separator={"type": "string"},
        targetLabel={"type": "string"},
        regex={"type": "string"},
        modulus={"type": "integer"},
        replacement={"type": "string"},
        action=one_of(
            "replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase"
        ),
    ),
}

SERVICE_MONITOR = struct(
    "selector",
    "endpoints",
    jobLabel={"type": "string"},
    targetLabels=TEXTS,
    namespaceSelector=struct(any={"type": "boolean"}, matchNames=TEXTS),
    selector=struct(matchLabels=LABELS),
    endpoints={
        "type": "array",
        "items": struct(
            port=TEXT,
            path={"type": "string"},
            scheme=one_of("http", "https"),
            honorLabels={"type": "boolean"},
            interval={"type": "string", "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"},
            bearerTokenFile={"type": "string"},
            authorization=struct(type={"type": "string"}, credentials=struct("key", name=TEXT, key=TEXT)),
            relabelings=RELABELINGS,
            metricRelabelings=RELABELINGS,
            tlsConfig=struct(serverName=TEXT, ca=struct(secret=struct("key", name=TEXT, key=TEXT))),
        ),
    },
)

DURATION: Obj = {"type": "string", "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"}

PROMETHEUS_RULE = struct(
    groups={
        "type": "array",
        "items": struct(
            "name",
            name=TEXT,
            rules={
                "type": "array",
                "items": struct(
                    "expr",
                    alert={"type": "string"},
                    record={"type": "string"},
                    expr=TEXT,
                    labels=LABELS,
                    annotations=LABELS,
                    **{"for": DURATION},
                ),
            },
        ),
    },
)


def crd(group: str, version: str, kind: str, spec: Obj) -> Obj:
    plural = f"{kind.lower()}s"
    schema = struct("spec", apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=spec)
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


CRDS = (
    crd("cert-manager.io", "v1", "Issuer", ISSUER),
    crd("cert-manager.io", "v1", "Certificate", CERTIFICATE),
    crd("monitoring.coreos.com", "v1", "ServiceMonitor", SERVICE_MONITOR),
    crd("monitoring.coreos.com", "v1", "PrometheusRule", PROMETHEUS_RULE),
)
