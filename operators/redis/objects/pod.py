"""The pod template of the nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from operators.redis.api.engine_versions import features
from operators.redis.api.pod_template import HOST_DIRECTORY
from operators.redis.api.resource import RedisCluster
from operators.redis.api.spec import SHUTDOWN_GRACE_SECONDS
from operators.redis.client.server import BUS_PORT, PORT
from operators.redis.objects import names, redis_conf
from operators.redis.objects.names import (
    BUS,
    CERTIFICATE_MARK,
    CLIENT,
    COMPONENT,
    CONFIG_MARK,
    CONTAINER,
    DATA,
    EXPORTER,
    EXPORTER_PASSWORD_KEY,
    EXPORTER_USER,
    LAST_RUN,
    METRICS,
    METRICS_PORT,
    READ_ONCE,
    SERVES,
    USERS_MARK,
)
from operators.redis.objects.redis_conf import (
    CONFIG,
    CONFIG_KEY,
    DELAY,
    HOME,
    TLS,
    USERS,
    USERS_KEY,
    appends,
    awaited_replica,
    delayed_sync,
    loads_bundled_modules,
    persists,
)
from shared.api.podspec import SAFE, restricted
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.pods import container_of, template_digest
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY
from shared.steps.deferred import AFFINITY, Deferred, Digest, without

USER_ID = 65532
"""User and group of the nodes: no user of the host, and also used by images that run as `nobody`."""

TEMPLATE = "redis.middleware.hc.cn/template"
"""Annotation of pods: digest of the template that they were created from."""

START_TIMEOUT_SECONDS = 900
"""Time until a server must listen, which it does before it loads its data."""

POD_IP, POD_NAME, POD_UID = "POD_IP", "POD_NAME", "PLATFORM_POD_UID"
LAST_RUN_VARIABLE = "PLATFORM_LAST_RUN"
"""Variable with the annotation LAST_RUN, as it is when the container starts."""


def pod(
    resource: RedisCluster,
    own: Owner,
    image: str,
    marks: Mapping[str, str],
    config_digest: str,
    template: str = "",
    origin: str = "",
    bus_port: int = BUS_PORT,
) -> Obj:
    """Return the pod template of the nodes.

    Args:
        image: image of the engine.
        marks: annotations for changes that running servers apply without a restart.
        config_digest: digest of the settings that servers read only when they start.
        template: the user's redis.conf.
        origin: UID of the resource that created the volumes, and the number of the files (`fresh_identity`).
        bus_port: port of the cluster bus.
    """
    settings, spec = resource.spec.pods, resource.spec
    annotations = {**settings.annotations, READ_ONCE: config_digest, **marks}
    containers = [_server(resource, image, template, origin, bus_port)]
    if spec.exporter_image:
        containers.append(_exporter(resource, spec.exporter_image))
    pod_spec: Obj = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": SHUTDOWN_GRACE_SECONDS,
        "securityContext": restricted(USER_ID) | {"fsGroup": USER_ID, "fsGroupChangePolicy": "OnRootMismatch"},
        "containers": containers,
        "volumes": _volumes(resource),
        "topologySpreadConstraints": settings.spread(own.selector(COMPONENT)),
        **settings.apart(own.selector(COMPONENT)),
        **settings.placement(),
    }
    if spec.template.init_image:
        pod_spec["initContainers"] = [_preparing(resource, spec.template.init_image)]
    made: Obj = {
        "metadata": {"labels": settings.labels | own.labels(COMPONENT), "annotations": annotations},
        "spec": spec.extended(pod_spec),
    }
    annotations[TEMPLATE] = digest(made)
    return made


def from_spec(resource: RedisCluster) -> tuple[Deferred, ...]:
    """Return the deferred parts that the spec sets: a change of these restarts nodes, a new default exporter none."""
    spec = resource.spec
    return (
        *((EXPORTER_IMAGE,) if spec.exporter_image and not spec.default_exporter else ()),
        *((AFFINITY,) if spec.pods.affinity is not None else ()),
    )


def restarts(before: Obj, after: Obj) -> bool:
    """Return whether a change of a valid spec restarts the nodes.

    Raises:
        InvalidSpec: a field is invalid.
    """
    former, resource = RedisCluster.parse(before), RedisCluster.parse(after)
    return bool(redis_conf.removed(former, resource)) or _lasting(former) != _lasting(resource)


def _lasting(resource: RedisCluster) -> str:
    """Return a digest of what restarts nodes, as far as the spec determines it."""
    own, image = names.owner(resource, ""), resource.image_reference("")
    template = pod(resource, own, image, {}, redis_conf.digest(resource))
    return digest(without(template, {*DEFERRED} - {*from_spec(resource)}))


def digest(template: Obj) -> str:
    """Return a digest of the parts of a template that need a restart.

    Excluded are the label of the client Service, and the markers of changes that running servers apply.
    """
    excluded = (TEMPLATE, USERS_MARK, CERTIFICATE_MARK, CONFIG_MARK)
    return template_digest(template, labels=(SERVES,), annotations=excluded)


DIGEST = Digest(TEMPLATE, digest)
"""Changes of the template that restart nodes."""

STOP_DELAY_SECONDS = 5
"""Seconds from the deletion of a pod until its server gets SIGTERM.

Until then a replica takes over from a primary (`steps.handover`): the operator learns of the deletion in milliseconds,
and may be busy with another action of this cluster for seconds. And the kernel discards a signal for the first process
of a container (PID 1) that has no handler for it yet. So a server that is deleted just after its start would never stop
by itself, and hang for its whole grace period. The kubelet sleeps, without a program in the image (enabled since
Kubernetes 1.30, the oldest supported version; KEP-3960).
"""


def stop_delay(pod: Obj) -> int:
    """Return the seconds from the deletion of a pod until its server gets SIGTERM; pods of earlier builds have none."""
    hook = (container_of(pod, CONTAINER).get("lifecycle") or {}).get("preStop") or {}
    return int((hook.get("sleep") or {}).get("seconds") or 0)


EXPORTER_IMAGE = Deferred(EXPORTER, "image")
DEFERRED = (EXPORTER_IMAGE, Deferred(EXPORTER, "env"), Deferred(CONTAINER, "lifecycle"), AFFINITY)
"""Parts of the template that do not restart nodes by themselves, unless the spec sets them."""

EXPORTER_TIMEOUT_SECONDS = 2
"""Time limit of the node's answers to the exporter. The exporter's default, 15 s, exceeds the scrape timeout of
Prometheus (10 s by default): of a node that hangs, there would be no metrics, and so no `redis_up` of 0."""


def starts_afresh(resource: RedisCluster, template: str = "") -> bool:
    """Return whether each process is a new node: its data is lost with the process, but a replica has a copy.

    Without replicas, the node keeps its id: nothing has a copy of its keys, and it serves its slots again at once.

    Args:
        template: the user's redis.conf.
    """
    return resource.spec.replicas_per_master > 0 and not persists(resource, template)


def starts_waiting(resource: RedisCluster, template: str = "") -> bool:
    """Return whether each process keeps its replicas waiting, because they may have newer keys (steps/old_snapshot.py).

    Args:
        template: the user's redis.conf.
    """
    return resource.spec.replicas_per_master > 0 and not appends(resource, template)


def is_started_waiting(pod_obj: Obj | None) -> bool:
    """Return whether each process of a pod keeps its replicas waiting, by the template that it was made of."""
    return f"--{DELAY}" in (container_of(pod_obj, CONTAINER).get("args") or ())


def is_started_afresh(pod_obj: Obj | None) -> bool:
    """Return whether each process of a pod is a new node (`starts_afresh`), by the template that it was made of."""
    return any(variable["name"] == LAST_RUN_VARIABLE for variable in container_of(pod_obj, CONTAINER).get("env") or ())


def arguments(resource: RedisCluster, template: str = "", origin: str = "", bus_port: int = BUS_PORT) -> list[str]:
    """Return the command line of the server: its file, and arguments of the pod, which the kubelet fills in.

    A server contacts the nodes in its nodes.conf as soon as it starts. With the origin in the name of that file, a copy
    of a volume in another cluster is a node without an identity, which contacts no node.

    Args:
        template: the user's redis.conf.
        origin, bus_port: see `pod`.
    """
    found = [f"{CONFIG}/{CONFIG_KEY}", "--cluster-announce-ip", f"$({POD_IP})"]
    if features(resource.engine).hostnames:
        found += ["--cluster-announce-hostname", names.host(resource, f"$({POD_NAME})")]
    if bus_port != BUS_PORT:
        found += ["--cluster-port", str(bus_port)]
    if starts_afresh(resource, template):  # see steps/fresh_identity.py
        process = f"$({POD_UID})-$({LAST_RUN_VARIABLE})"
        found += ["--cluster-config-file", f"nodes-{process}.conf", "--dbfilename", f"dump-{process}.rdb"]
        found += ["--appendonly", "no"]  # the file has other values while a pod keeps its identity
    elif origin:
        found += ["--cluster-config-file", f"nodes-{origin}.conf"]
        found += ["--dbfilename", f"dump-{origin}.rdb"] if "." in origin else []  # not the snapshot of former files
    if starts_waiting(resource, template):
        waiting = dict(delayed_sync(resource, template))
        if not starts_afresh(resource, template):
            waiting |= awaited_replica(resource, template)
        found += [word for name, value in waiting.items() for word in (f"--{name}", value)]
    return found


def _start(resource: RedisCluster, template: str, origin: str, bus_port: int) -> Obj:
    """Return command and arguments of the server's container.

    The ENTRYPOINT of official images executes its arguments. If the first one is redis-server, that of Redis 8 adds
    --loadmodule for each bundled module. An image without an ENTRYPOINT executes the arguments themselves.
    Source: debian/docker-entrypoint.sh in redis/docker-library-redis (release/8.0) and valkey-io/valkey-container.
    """
    command, given = resource.spec.command, arguments(resource, template, origin, bus_port)
    if not command and loads_bundled_modules(resource, template):
        command = [resource.engine.program]  # a server that loads a module twice does not start
    return {"command": command, "args": given} if command else {"args": [resource.engine.program, *given]}


def _server(resource: RedisCluster, image: str, template: str, origin: str, bus_port: int) -> Obj:
    listening: Obj = {"tcpSocket": {"port": CLIENT}}
    return {
        "name": CONTAINER,
        "image": image,
        **_start(resource, template, origin, bus_port),
        "env": _process_variables(resource, template) + _environment(resource),
        "ports": [_port(CLIENT, PORT), _port(BUS, bus_port)],
        "resources": amounts(resource),
        # Without a program in the image, the kubelet can only check that a server listens. The operator checks whether
        # a node is in sync: only such pods are behind the client Service and count for evictions (SERVES).
        "startupProbe": {
            **listening,
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": START_TIMEOUT_SECONDS,
        },
        "readinessProbe": {**listening, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {**listening, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 9},
        **_stop(resource),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SAFE,
        "volumeMounts": _mounts(resource),
    }


def _stop(resource: RedisCluster) -> Obj:
    """Return the delay of SIGTERM: Kubernetes refuses one that is not shorter than the grace period."""
    given = resource.spec.termination_grace_period_seconds
    seconds = STOP_DELAY_SECONDS if given is None else min(STOP_DELAY_SECONDS, given - 1)
    return {"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}} if seconds > 0 else {}


def _port(name: str, number: int) -> Obj:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _environment(resource: RedisCluster) -> list[Obj]:
    return _fields({POD_IP: "status.podIP", POD_NAME: "metadata.name"}) + resource.spec.pods.environment()


def _process_variables(resource: RedisCluster, template: str) -> list[Obj]:
    if not starts_afresh(resource, template):
        return []
    return _fields({POD_UID: "metadata.uid", LAST_RUN_VARIABLE: f"metadata.annotations['{LAST_RUN}']"})


def _fields(paths: Mapping[str, str]) -> list[Obj]:
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": at}}} for name, at in paths.items()]


def amounts(resource: RedisCluster) -> Obj:
    """Return the resources of the container: small requests by default, no limits; values of the spec override them."""
    limits, requests = resource.spec.pods.resources.limits, resource.spec.pods.resources.requests
    little = {name: value for name, value in {"cpu": "100m", "memory": "128Mi"}.items() if name not in limits}
    found: Obj = {"requests": little | requests, "limits": dict(limits)}
    return {name: amounts for name, amounts in found.items() if amounts}


def _preparing(resource: RedisCluster, image: str) -> Obj:
    """Return the init container of the user."""
    return {
        "name": "init",
        "image": image,
        "env": _environment(resource),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SAFE,
        "volumeMounts": [_data_mount(resource)],
    }


def _exporter(resource: RedisCluster, image: str) -> Obj:
    """Return the exporter. It has no probe, because a node must not depend on its metrics.

    It is configured by environment variables, because images use different names for the program. Its user may only
    read metrics; CONFIG, which would reveal the password of replicas, is disabled.
    """
    secure = resource.spec.tls.mode != "none"
    password: Obj = {"secretKeyRef": {"name": names.users_secret(resource), "key": EXPORTER_PASSWORD_KEY}}
    variables = {
        "REDIS_ADDR": f"redis{'s' if secure else ''}://localhost:{PORT}",
        "REDIS_USER": EXPORTER_USER,
        "REDIS_EXPORTER_WEB_LISTEN_ADDRESS": f":{METRICS_PORT}",
        "REDIS_EXPORTER_CONFIG_COMMAND": "-",
        "REDIS_EXPORTER_CONNECTION_TIMEOUT": f"{EXPORTER_TIMEOUT_SECONDS}s",
    }
    if secure:
        variables |= {
            "REDIS_EXPORTER_TLS_CA_CERT_FILE": f"{TLS}/{AUTHORITY_KEY}",
            "REDIS_EXPORTER_TLS_CLIENT_CERT_FILE": f"{TLS}/{CERTIFICATE_KEY}",
            "REDIS_EXPORTER_TLS_CLIENT_KEY_FILE": f"{TLS}/{PRIVATE_KEY}",
        }
    made: Obj = {
        "name": EXPORTER,
        "image": image,
        "env": [
            *({"name": name, "value": value} for name, value in variables.items()),
            {"name": "REDIS_PASSWORD", "valueFrom": password},
        ],
        "ports": [_port(METRICS, METRICS_PORT)],
        "resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": SAFE,
    }
    if secure:
        made["volumeMounts"] = [{"name": "tls", "mountPath": TLS, "readOnly": True}]
    return made


def _mounts(resource: RedisCluster) -> list[Obj]:
    paths = {"config": CONFIG, "users": USERS} | ({"tls": TLS} if resource.spec.tls.mode != "none" else {})
    return [
        _data_mount(resource),
        *({"name": name, "mountPath": path, "readOnly": True} for name, path in paths.items()),
    ]


def _data_mount(resource: RedisCluster) -> Obj:
    mount: Obj = {"name": DATA, "mountPath": HOME}
    if resource.spec.template.volumes is not None:
        # The UID separates the data from that of an earlier cluster with the same name.
        mount["subPathExpr"] = f"{resource.namespace}/{resource.name}-{resource.uid}/$({POD_NAME})"
    return mount


def _volumes(resource: RedisCluster) -> list[Obj]:
    volumes: list[Obj] = []
    given = resource.spec.template.volumes
    if given is not None and given.type == "hostPath":
        volumes.append({"name": DATA, "hostPath": {"path": HOST_DIRECTORY, "type": "Directory"}})
    elif given is not None:
        volumes.append({"name": DATA, "persistentVolumeClaim": {"claimName": given.persistent_volume_claim_name}})
    elif resource.spec.storage is None:
        volumes.append({"name": DATA, "emptyDir": {}})
    config: Obj = {"name": names.config_name(resource), "defaultMode": 0o444, "items": [_item(CONFIG_KEY)]}
    users: Obj = {"secretName": names.users_secret(resource), "defaultMode": 0o440, "items": [_item(USERS_KEY)]}
    volumes += [{"name": "config", "configMap": config}, {"name": "users", "secret": users}]
    if resource.spec.tls.mode != "none":
        # All keys: the key of the authorities changes with their content.
        volumes.append({"name": "tls", "secret": {"secretName": names.tls_secret(resource), "defaultMode": 0o440}})
    return volumes


def _item(key: str) -> Obj:
    return {"key": key, "path": key}
