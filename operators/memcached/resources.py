"""Pure builders of the Kubernetes objects a Memcached owns."""

from __future__ import annotations

from operators.memcached.api import API, Memcached
from shared.kube import DEPLOYMENT, SERVICE, Obj
from shared.ownership import Owner

COMPONENT = "server"
CONTAINER = "memcached"
USER = 11211
"""The user and group that memcached's official images run as; it needs no name inside the image."""


def owner(resource: Memcached, operator: str) -> Owner:
    return Owner(API.kind, resource.namespace, resource.name, resource.uid, "memcached", operator)


def service(resource: Memcached, own: Owner) -> Obj:
    """A headless Service: a name for all servers' addresses, never a balancer.

    Servers do not share data: a client must choose the server by the key. So there is no cluster IP.
    """
    ports = [{"name": CONTAINER, "port": resource.spec.container_port, "targetPort": CONTAINER, "protocol": "TCP"}]
    spec = {"clusterIP": "None", "selector": own.selector(COMPONENT), "ports": ports}
    return own.object(SERVICE, resource.name, component=COMPONENT, spec=spec)


def deployment(resource: Memcached, own: Owner, image: str) -> Obj:
    """The servers: as many as spec.size, replaced one by one, the new one first."""
    spec = {
        "replicas": resource.spec.size,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "revisionHistoryLimit": 2,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": _pod(resource, own, image),
    }
    return own.object(DEPLOYMENT, resource.name, component=COMPONENT, spec=spec)


def _pod(resource: Memcached, own: Owner, image: str) -> Obj:
    spec = resource.spec
    metadata: Obj = {"labels": spec.labels | own.labels(COMPONENT)}
    if spec.annotations:
        metadata["annotations"] = spec.annotations
    return {
        "metadata": metadata,
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 30,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(resource, image)],
            "topologySpreadConstraints": _spread(resource, own),
            **spec.placement(),
        },
    }


def _container(resource: Memcached, image: str) -> Obj:
    spec = resource.spec
    listening: Obj = {"tcpSocket": {"port": CONTAINER}}
    container: Obj = {
        "name": CONTAINER,
        "image": image,
        "command": ["memcached"],
        "args": arguments(resource),
        "ports": [{"name": CONTAINER, "containerPort": spec.container_port, "protocol": "TCP"}],
        "resources": spec.container_resources(),
        # The start-up probe asks often, so that a server counts a second after it listens; the others ask seldom. A
        # server at its connection limit still accepts in the kernel: it is not restarted for being busy.
        "startupProbe": {**listening, "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": {**listening, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 3},
        "livenessProbe": {**listening, "periodSeconds": 20, "timeoutSeconds": 5, "failureThreshold": 6},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    if spec.env:
        container["env"] = spec.environment()
    return container


def arguments(resource: Memcached) -> list[str]:
    """Memcached's command line: https://github.com/memcached/memcached/blob/master/doc/memcached.1."""
    spec = resource.spec
    return [
        f"--port={spec.container_port}",
        f"--memory-limit={spec.memory_mb}",
        f"--conn-limit={spec.max_connections}",
        f"--threads={spec.threads}",
        f"--max-item-size={spec.max_item_size_mb}m",
        *spec.extra_args,
    ]


def _spread(resource: Memcached, own: Owner) -> list[Obj]:
    """Where the spec says nothing: over the nodes as evenly as can be, but never at the price of a server."""
    wanted = resource.spec.spread_constraints() or [
        {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    ]
    return [{**constraint, "labelSelector": {"matchLabels": own.selector(COMPONENT)}} for constraint in wanted]
