"""Pure builders of the Deployment and the Service of a Greeter."""

from __future__ import annotations

from operators.greeter.api.resource import Greeter
from operators.greeter.objects import config_map
from shared.api.podspec import SAFE, restricted
from shared.kubernetes.kinds import DEPLOYMENT, SERVICE, Obj
from shared.kubernetes.objects import service_port
from shared.kubernetes.ownership import Owner

COMPONENT = "server"
PORT = 8080
PORT_NAME = "http"
USER = 101


def service(resource: Greeter, own: Owner) -> Obj:
    spec = {"selector": own.selector(COMPONENT), "ports": [service_port(PORT_NAME, PORT)]}
    return own.object(SERVICE, resource.name, component=COMPONENT, spec=spec)


def deployment(resource: Greeter, own: Owner, image_repository: str) -> Obj:
    container = {
        "name": "nginx",
        "image": f"{image_repository}:{resource.spec.version}",
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT_NAME}},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": SAFE,
        "volumeMounts": [
            {"name": "text", "mountPath": "/usr/share/nginx/html", "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108 (of the container)
        ],
    }
    text = {"name": config_map.name(resource), "items": [{"key": "text", "path": "index.html"}]}
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": restricted(USER),
        "containers": [container],
        "volumes": [{"name": "text", "configMap": text}, {"name": "scratch", "emptyDir": {}}],
    }
    spec = {
        "replicas": resource.spec.replicas,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "template": {"metadata": {"labels": own.labels(COMPONENT)}, "spec": pod},
    }
    return own.object(DEPLOYMENT, resource.name, component=COMPONENT, spec=spec)
