"""Command line of etcd, and the environment that the spec determines. Pure.

Flags have a fixed order, because a template that changes without a change of the spec restarts all members. Flags that
a version lacks are omitted (versions.py).

Source: etcdmain/config.go and embed/config.go of 3.4 to 3.7; https://etcd.io/docs/v3.6/op-guide/configuration/
"""

from __future__ import annotations

import math
import re

from operators.etcd.api.arguments import argument
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.versions import Version, features
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects.names import CLIENT_PORT, CONTAINER, DATA, METRICS_PORT, PEER_PORT
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import container_of
from shared.kubernetes.quantity import parse_quantity
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY

HOME = "/var/lib/etcd"
"""Mount path of the volume; the data directory below it is created by etcd for itself alone (0700)."""

DATA_DIRECTORY = f"{HOME}/{DATA}"

CLIENT_TLS, PEER_TLS = "/etc/etcd/tls/client", "/etc/etcd/tls/peer"
"""Directories with the files of the Secrets: tls.crt, tls.key, and ca.crt with the authorities to trust."""

POD_NAME = "POD_NAME"

EVERYWHERE = "0.0.0.0"  # noqa: S104 - a pod must listen on its own addresses
"""Listen address. Go includes IPv6 if available; "[::]" would fail without it."""

GO_HEAP_SHARE = 0.9
"""Share of the memory limit for Go's heap, before it collects more often: the rest is for other memory."""

QUOTA, SNAPSHOT_COUNT = argument("quota-backend-bytes", ""), argument("snapshot-count", "")


def arguments(resource: EtcdCluster, quota: int | None = None) -> list[str]:
    """Return the arguments of etcd in the pod template: Kubernetes replaces $(POD_NAME) in each pod.

    Args:
        quota: size of the database in bytes; None for that of the spec.
    """
    member = f"$({POD_NAME})"
    scheme, spec = names.scheme(resource), resource.spec
    found = [
        argument("name", member),
        argument("data-dir", DATA_DIRECTORY),
        argument("listen-peer-urls", f"{scheme}://{EVERYWHERE}:{PEER_PORT}"),
        argument("listen-client-urls", f"{scheme}://{EVERYWHERE}:{CLIENT_PORT}"),
        # Plain HTTP on a separate port: probes and Prometheus have no certificate, and the port serves no keys.
        argument("listen-metrics-urls", f"http://{EVERYWHERE}:{METRICS_PORT}"),
        # Names, because addresses change with each pod.
        argument("initial-advertise-peer-urls", names.peer_url_of(resource, member)),
        argument("advertise-client-urls", names.client_url_of(resource, member)),
        *bootstrap.flags(resource),
        argument("strict-reconfig-check", "true"),  # etcd rejects a change of members that would lose the quorum
        argument("pre-vote", "true"),  # a returning member does not trigger an election; the default since 3.5 only
        argument("heartbeat-interval", spec.heartbeat_interval),
        argument("election-timeout", spec.election_timeout),
        f"{QUOTA}{spec.quota if quota is None else quota}",
    ]
    if spec.snapshot_count is not None:
        found.append(f"{SNAPSHOT_COUNT}{spec.snapshot_count}")
    if spec.auto_compaction is not None:
        found += [
            argument("auto-compaction-mode", spec.auto_compaction.mode),
            argument("auto-compaction-retention", spec.auto_compaction.retention),
        ]
    found += features(resource.version).corruption_checks
    found += _encryption(resource)
    found += [argument("logger", "zap"), argument("log-outputs", "stderr")]  # JSON; the default since 3.5 only
    return found + spec.extra_args


def _encryption(resource: EtcdCluster) -> list[str]:
    tls = resource.spec.tls
    if tls.mode == "none":
        return []
    found = [
        argument("cert-file", f"{CLIENT_TLS}/{CERTIFICATE_KEY}"),
        argument("key-file", f"{CLIENT_TLS}/{PRIVATE_KEY}"),
    ]
    if tls.client.auth == "required":
        found += [argument("trusted-ca-file", f"{CLIENT_TLS}/{AUTHORITY_KEY}"), argument("client-cert-auth", "true")]
    skip = "peer" if resource.version >= Version(3, 6, 0) else "experimental-peer"
    return [
        *found,
        argument("peer-cert-file", f"{PEER_TLS}/{CERTIFICATE_KEY}"),
        argument("peer-key-file", f"{PEER_TLS}/{PRIVATE_KEY}"),
        argument("peer-trusted-ca-file", f"{PEER_TLS}/{AUTHORITY_KEY}"),
        argument("peer-client-cert-auth", "true"),
        # A member is identified by a certificate for this cluster's names, even if the authority signs others. Without
        # the flag below, etcd also resolves the name of the caller's address, which fails or is late when pods move.
        argument("peer-cert-allowed-hostname", names.host(resource, names.member_name(resource, bootstrap.SEED))),
        argument(f"{skip}-skip-client-san-verification", "true"),
    ]


def number_given(pod: Obj | None, flag: str) -> int | None:
    """Return the number that a pod passes to etcd with a flag; None if it passes none, or a text that is no number."""
    arguments = container_of(pod, CONTAINER).get("args") or ()
    given = next((each.removeprefix(flag) for each in reversed(arguments) if each.startswith(flag)), "")
    return int(given) if re.fullmatch("[0-9]{1,18}", given) else None


def environment(resource: EtcdCluster) -> list[Obj]:
    """Return the variables of etcd's container: those of the spec last, so that they override the defaults for Go."""
    given = {variable.name for variable in resource.spec.env}
    limits = resource.spec.resources.limits
    found: list[Obj] = [{"name": POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    found += bootstrap.environment()
    reserved = {variable["name"] for variable in found}
    # Before 1.25, Go ignores both limits: it would be throttled for too many threads, and killed before it collects.
    if "cpu" in limits and "GOMAXPROCS" not in given:
        cores = max(1, math.ceil(parse_quantity(limits["cpu"])))
        found.append({"name": "GOMAXPROCS", "value": str(cores)})
    if "memory" in limits and "GOMEMLIMIT" not in given:
        heap = int(float(parse_quantity(limits["memory"])) * GO_HEAP_SHARE)
        found.append({"name": "GOMEMLIMIT", "value": f"{heap}B"})
    # Variables of the operator cannot be overridden.
    return found + [variable for variable in resource.spec.environment() if variable["name"] not in reserved]
