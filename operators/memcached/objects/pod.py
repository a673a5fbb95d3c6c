"""Pod template of the servers, the same for both workloads. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from operators.memcached.api.reserved_flags import BY_FIELD, REFUSED_WITH_METRICS
from operators.memcached.api.resource import Memcached
from operators.memcached.api.spec import STOP_SECONDS, Extstore
from operators.memcached.objects.names import Mounts, attestation_secret
from shared.api.podspec import SAFE, restricted
from shared.api.spec import as_object
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.pods import container_of
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY

COMPONENT = "server"
CONTAINER = "memcached"
EXPORTER, METRICS = "exporter", "metrics"
RELOADER, ATTESTATION = "reloader", "attestation"
"""Names of the sidecar of servers without metrics, and of its port."""

USER_ID = 11211
"""User and group ID of memcached's official images; other images need no user of that ID."""

SECRETS = "cache.example.com/secrets"
"""Annotation of pods: digest of the data that servers read only at startup; a new digest replaces the pods."""

AUTH = "/etc/memcached/auth"
TLS = "/etc/memcached/tls"
KEYS = "/etc/memcached/attestation"
ITEMS = "/var/cache/memcached"
EXTERNAL = "/var/lib/memcached"

USERS_KEY, ATTESTATION_KEY = "users", "key"

WATCH = "--watch"
"""Flag of sidecars that attest what their server runs."""

_MEMORY_FILE = f"{ITEMS}/items"

# The shell forwards SIGTERM as SIGUSR1, on which memcached saves its items. A preStop hook would race with SIGTERM.
# memcached starts empty if it stopped within the same second (restart.c compares whole seconds), and cannot start with
# an empty .meta file, which an interrupted stop leaves behind.
_WARM_RESTART = f"""\
if [ -s {_MEMORY_FILE}.meta ]; then sleep 1; else rm -f {_MEMORY_FILE}.meta; fi
trap 'kill -USR1 "$server"' TERM
memcached "$@" &
server=$!
while :; do wait "$server"; ended=$?; kill -0 "$server" 2>/dev/null || exit "$ended"; done
"""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The operator's container in the pod of each server.

    Attributes:
        image: image of the container.
        reloads: whether it makes the server reload a changed users file. Otherwise, a changed file replaces the server.
        attests: whether it attests what the server runs, and ends a server that hangs. Otherwise the kubelet only
            connects to the server.
        has_key: whether it has the key with which it attests the users file.
    """

    image: str
    reloads: bool = False
    attests: bool = False
    has_key: bool = False

    @classmethod
    def of(cls, template: Obj, image: str) -> Sidecar:
        """Return what the sidecar of a template does, with another image."""
        attests = WATCH in _sidecar_flags(template)
        return cls(image, reloads_users(template), attests, attests_users(template))


def _sidecar_flags(pod: Obj) -> list[str]:
    found = (each.get("args", ()) for each in pod["spec"]["containers"] if each["name"] in (EXPORTER, RELOADER))
    return list(next(found, ()))


def attestation_port(pod: Obj) -> int | None:
    """Return the port at which the sidecar of a pod attests what its server runs; None if it attests nothing."""
    flags = _sidecar_flags(pod)
    listens = next((flag.rpartition(":")[2] for flag in flags if flag.startswith("--listen=")), "")
    return int(listens) if WATCH in flags and listens.isdecimal() else None


def attests_users(pod: Obj) -> bool:
    """Return whether the sidecar of a pod has the key by which it attests the users file that its server has loaded."""
    return any(flag.startswith("--attestation-key=") for flag in _sidecar_flags(pod))


def speaks_ascii(pod: Obj) -> bool:
    """Return whether the server of a pod responds to commands of the ASCII protocol, which the operator uses."""
    args = container_of(pod, CONTAINER).get("args") or ()
    values = (*args[1:], "")  # -B binary is two arguments, and so is -B ascii
    found = (re.match(REFUSED_WITH_METRICS, arg) for arg in args)
    return not any(match and value not in ("auto", "ascii") for match, value in zip(found, values, strict=False))


def reloads_users(template: Obj) -> bool:
    """Return whether the servers of a template reload a changed users file."""
    return "--reload-users" in _sidecar_flags(template)


def sidecar_image(workload: Obj) -> str:
    """Return the image of the sidecar in a workload's template; empty if there is none."""
    containers = workload["spec"]["template"]["spec"]["containers"]
    return next((found["image"] for found in containers if found["name"] in (EXPORTER, RELOADER)), "")


def mounted_secrets(template: Obj) -> set[str]:
    """Return all Secrets that the servers of a template mount."""
    volumes = template["spec"].get("volumes", ())
    return {str(each["secret"]["secretName"]) for each in volumes if each.get("secret")}


def mounted_certificate(template: Obj) -> str:
    """Return the Secret with the certificate that the servers of a template mount; empty without TLS."""
    return _mounted(template, "tls")


def mounted_users(template: Obj) -> str:
    """Return the Secret with the users file that the servers of a template mount; empty without authentication."""
    return _mounted(template, "auth")


def mounts_of(template: Obj) -> Mounts:
    """Return the Secrets that the servers of a template mount."""
    return Mounts(mounted_users(template), mounted_certificate(template))


def _mounted(template: Obj, volume: str) -> str:
    volumes = template["spec"].get("volumes", ())
    return next((str(each["secret"]["secretName"]) for each in volumes if each["name"] == volume), "")


def server_port(template: Obj) -> int | None:
    """Return the port on which the servers of a template listen; None if it is unknown."""
    return _port(template, CONTAINER)


def sidecar_port(template: Obj) -> int | None:
    """Return the port of the sidecars of a template; None if they have none."""
    return _port(template, METRICS) or _port(template, ATTESTATION)


def _port(template: Obj, name: str) -> int | None:
    ports = (port for each in template["spec"]["containers"] for port in each.get("ports", ()))
    return next((int(port["containerPort"]) for port in ports if port.get("name") == name), None)


def pod(resource: Memcached, own: Owner, image: str, sidecar: Sidecar, digest: str, mounts: Mounts) -> Obj:
    """Return the pod template of the servers.

    Args:
        image: image of memcached.
        digest: digest of the data that servers read only at startup; empty if there is none.
        mounts: Secrets to mount.
    """
    spec = resource.spec
    metadata: Obj = {"labels": spec.labels | own.labels(COMPONENT)}
    if annotations := spec.annotations | ({SECRETS: digest} if digest else {}):
        metadata["annotations"] = annotations
    security = restricted(USER_ID)
    if spec.auth or spec.encrypts or spec.extstore:
        security["fsGroup"] = USER_ID  # files of Secrets and new volumes belong to root; this group may use them
    reloads = sidecar.reloads and spec.auth is not None
    has_sidecar = spec.metrics_port is not None or reloads
    attests = sidecar.attests and has_sidecar
    containers = [_server(resource, image, attests=attests)]
    if has_sidecar:
        containers.append(_sidecar(resource, replace(sidecar, reloads=reloads)))
    pod_spec: Obj = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "securityContext": security,
        "containers": containers,
        "topologySpreadConstraints": spec.spread(own.selector(COMPONENT)),
        **spec.apart(own.selector(COMPONENT)),
        **spec.placement(),
    }
    if reloads or attests:
        pod_spec["shareProcessNamespace"] = True  # the sidecar runs as the same user, and may send signals
    if volumes := _volumes(resource, mounts, has_key=reloads and attests and sidecar.has_key):
        pod_spec["volumes"] = volumes
    return {"metadata": metadata, "spec": spec.extended(pod_spec)}


def _server(resource: Memcached, image: str, *, attests: bool) -> Obj:
    spec = resource.spec
    tcp_probe: Obj = {"tcpSocket": {"port": CONTAINER}}
    start: Obj = {"command": ["memcached"], "args": arguments(resource)}
    if spec.warm_restart:
        start["command"] = ["/bin/sh", "-c", _WARM_RESTART, "memcached"]
    container: Obj = {
        "name": CONTAINER,
        "image": image,
        **start,
        "ports": [{"name": CONTAINER, "containerPort": spec.container_port, "protocol": "TCP"}],
        "resources": spec.container_resources(),
        # The startup probe runs every second, so that a server is ready soon after it listens; the others run rarely.
        "startupProbe": {**tcp_probe, "periodSeconds": 1, "failureThreshold": 60 + _warm_start_seconds(resource)},
        "readinessProbe": {**tcp_probe, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 3},
        # At the connection limit the kernel still accepts connections, so that a busy server is not restarted.
        "livenessProbe": {**tcp_probe, "periodSeconds": 20, "timeoutSeconds": 5, "failureThreshold": 6},
        "securityContext": SAFE,
    }
    if attests:  # the sidecar ends a server that hangs; a probe would also end one whose sidecar fails
        probe: Obj = {"httpGet": {"path": "/readyz", "port": spec.sidecar_port}}
        container["readinessProbe"] = {**probe, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 3}
        del container["livenessProbe"]
    if spec.env:
        container["env"] = spec.environment()
    mounts = _secret_mounts(resource)
    if spec.warm_restart:
        mounts.append({"name": "items", "mountPath": ITEMS})
    if spec.extstore:
        mounts.append({"name": "extstore", "mountPath": EXTERNAL})
    if mounts:
        container["volumeMounts"] = mounts
    return container


def _warm_start_seconds(resource: Memcached) -> int:
    """Return the additional time that a server gets to restore its items before it listens.

    Measured: 1.3 s for 7 million items in 1 GiB (1.6.38); the result for 1 GiB is 16 s.
    """
    return resource.spec.memory_mb // 64 if resource.spec.warm_restart else 0


def _sidecar(resource: Memcached, sidecar: Sidecar) -> Obj:
    """Return the sidecar, without probes: a server without it still serves."""
    spec, has_metrics = resource.spec, resource.spec.metrics_port is not None
    port = spec.sidecar_port if has_metrics or sidecar.attests else None
    flags = [f"--address=127.0.0.1:{spec.container_port}", f"--listen={'0' if port is None else f':{port}'}"]
    if spec.auth:
        flags.append(f"--auth-file={AUTH}/{USERS_KEY}")
    if sidecar.reloads:
        flags.append("--reload-users")
    if sidecar.attests:
        flags += [WATCH, *(() if has_metrics else ("--no-metrics",))]
    has_key = sidecar.attests and sidecar.reloads and sidecar.has_key
    if has_key:
        flags.append(f"--attestation-key={KEYS}/{ATTESTATION_KEY}")
    if spec.encrypts:
        flags.append("--tls")
    if spec.needs_client_certificate:
        flags += [f"--tls-cert={TLS}/{CERTIFICATE_KEY}", f"--tls-key={TLS}/{PRIVATE_KEY}"]
    container: Obj = {
        "name": EXPORTER if has_metrics else RELOADER,
        "image": sidecar.image,
        "args": ["exporter", *flags],
        # The exporter uses 23 MiB, independent of the scrape interval.
        "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": SAFE,
    }
    if port is not None:
        name = METRICS if has_metrics else ATTESTATION
        container["ports"] = [{"name": name, "containerPort": port, "protocol": "TCP"}]
    mounts = _secret_mounts(resource)
    if has_key:
        mounts.append({"name": "attestation", "mountPath": KEYS, "readOnly": True})
    if mounts:
        container["volumeMounts"] = mounts
    return container


def arguments(resource: Memcached) -> list[str]:
    """Return the arguments of memcached.

    See https://github.com/memcached/memcached/blob/master/doc/memcached.1.
    """
    spec = resource.spec
    settings = as_object(spec)
    flags = [f"--{flag.long}={settings[flag.field]}{flag.unit}" for flag in BY_FIELD]
    if spec.warm_restart:
        flags.append(f"--memory-file={_MEMORY_FILE}")
    if spec.auth:
        flags.append(f"--auth-file={AUTH}/{USERS_KEY}")
    if spec.encrypts:
        options = [f"ssl_chain_cert={TLS}/{CERTIFICATE_KEY}", f"ssl_key={TLS}/{PRIVATE_KEY}"]
        if spec.needs_client_certificate:  # 2 rejects clients without a certificate; the default requests none
            options += ["ssl_verify_mode=2", f"ssl_ca_cert={TLS}/{AUTHORITY_KEY}"]
        flags += ["--enable-ssl", f"--extended={','.join(options)}"]
    if spec.extstore:
        flags.append(f"--extended=ext_path={EXTERNAL}/items:{spec.extstore.size_mb}M")
    return [*flags, *spec.extra_args]


def _volumes(resource: Memcached, mounts: Mounts, *, has_key: bool) -> list[Obj]:
    """Return the volumes.

    Args:
        mounts: Secrets to mount.
        has_key: whether the sidecar has the key of the digests.
    """
    spec, volumes = resource.spec, []
    if spec.auth:
        volumes.append(_secret("auth", mounts.users, USERS_KEY))
    if spec.encrypts:
        authority = (AUTHORITY_KEY,) if spec.needs_client_certificate else ()
        volumes.append(_secret("tls", mounts.certificate, CERTIFICATE_KEY, PRIVATE_KEY, *authority))
    if has_key:
        volumes.append(_secret("attestation", attestation_secret(resource), ATTESTATION_KEY))
    if spec.warm_restart:  # items, and the .meta file that a stop writes
        size = f"{spec.memory_mb + 1}Mi"
        volumes.append({"name": "items", "emptyDir": {"medium": "Memory", "sizeLimit": size}})
    if spec.extstore:
        volumes.append({"name": "extstore", **_external_storage(spec.extstore)})
    return volumes


def _external_storage(given: Extstore) -> Obj:
    """Return the source of the volume of external storage, a tenth larger than the file, for the filesystem."""
    size = f"{given.size_mb + given.size_mb // 10 + 64}Mi"
    if given.storage_class_name is None:
        return {"emptyDir": {"sizeLimit": size}}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": given.storage_class_name,
        "resources": {"requests": {"storage": size}},
    }
    return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}


def _secret(volume: str, name: str, *keys: str) -> Obj:
    items = [{"key": key, "path": key} for key in keys]
    return {"name": volume, "secret": {"secretName": name, "defaultMode": 0o440, "items": items}}


def _secret_mounts(resource: Memcached) -> list[Obj]:
    spec, mounts = resource.spec, []
    if spec.auth:
        mounts.append({"name": "auth", "mountPath": AUTH, "readOnly": True})
    if spec.encrypts:
        mounts.append({"name": "tls", "mountPath": TLS, "readOnly": True})
    return mounts
