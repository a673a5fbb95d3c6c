"""etcd's command line, and what of its environment follows from the spec. Pure.

Every flag stands in one place of a fixed order, for a template that changes without a change of the spec restarts
everybody's members. What a version lacks is not given (versions.py).

Source: etcdmain/config.go and embed/config.go of 3.4 to 3.7; https://etcd.io/docs/v3.6/op-guide/configuration/
"""

from __future__ import annotations

import math

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.versions import Version, features
from operators.etcd.objects import bootstrap, names
from operators.etcd.objects.names import CLIENT_PORT, CONTAINER, DATA, METRICS_PORT, PEER_PORT
from shared.kubernetes.kinds import Obj
from shared.kubernetes.quantity import parse_quantity
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY

HOME = "/var/lib/etcd"
"""Where the volume is mounted; the data directory is one below it, which etcd makes for itself alone (0700)."""

DATA_DIRECTORY = f"{HOME}/{DATA}"

CLIENT_TLS, PEER_TLS = "/etc/etcd/tls/client", "/etc/etcd/tls/peer"
"""Where the Secrets' files are: tls.crt, tls.key, and in ca.crt what vouches for the other side."""

POD_NAME = "POD_NAME"

EVERYWHERE = "0.0.0.0"  # noqa: S104 - a pod has its addresses for this
"""What members listen on: Go takes it for IPv6, too, where there is any; "[::]" would fail where there is none."""

GO_HEAP_SHARE = 0.9
"""Part of a memory limit that Go's heap may take before it collects harder: the rest is for what is not heap."""


QUOTA = "--quota-backend-bytes="
SNAPSHOT_COUNT = "--snapshot-count="


def arguments(resource: EtcdCluster, quota: int | None = None) -> list[str]:
    """Arguments of etcd, as the pod template has them: $(POD_NAME) is replaced by Kubernetes in each pod.

    Args:
        quota: bytes of the database; None for what the spec says.
    """
    member = f"$({POD_NAME})"
    scheme, spec = names.scheme(resource), resource.spec
    found = [
        f"--name={member}",
        f"--data-dir={DATA_DIRECTORY}",
        f"--listen-peer-urls={scheme}://{EVERYWHERE}:{PEER_PORT}",
        f"--listen-client-urls={scheme}://{EVERYWHERE}:{CLIENT_PORT}",
        # Plain, and on a port of its own: probes and Prometheus have no certificate, and see no keys there.
        f"--listen-metrics-urls=http://{EVERYWHERE}:{METRICS_PORT}",
        # By names, for addresses change with each pod.
        f"--initial-advertise-peer-urls={names.peer_url_of(resource, member)}",
        f"--advertise-client-urls={names.client_url_of(resource, member)}",
        *bootstrap.flags(resource),
        "--strict-reconfig-check=true",  # etcd itself refuses a change of members that would cost the quorum
        "--pre-vote=true",  # a member that comes back disturbs nobody's leader; the default since 3.5 alone
        f"--heartbeat-interval={spec.heartbeat_interval}",
        f"--election-timeout={spec.election_timeout}",
        f"{QUOTA}{spec.quota if quota is None else quota}",
    ]
    if spec.snapshot_count is not None:
        found.append(f"{SNAPSHOT_COUNT}{spec.snapshot_count}")
    if spec.auto_compaction is not None:
        found += [
            f"--auto-compaction-mode={spec.auto_compaction.mode}",
            f"--auto-compaction-retention={spec.auto_compaction.retention}",
        ]
    found += features(resource.version).corruption_checks
    found += _encryption(resource)
    found += ["--logger=zap", "--log-outputs=stderr"]  # JSON; the default since 3.5 alone
    return found + spec.extra_args


def _encryption(resource: EtcdCluster) -> list[str]:
    tls = resource.spec.tls
    if tls.mode == "none":
        return []
    found = [f"--cert-file={CLIENT_TLS}/{CERTIFICATE_KEY}", f"--key-file={CLIENT_TLS}/{PRIVATE_KEY}"]
    if tls.client.auth == "required":
        found += [f"--trusted-ca-file={CLIENT_TLS}/{AUTHORITY_KEY}", "--client-cert-auth=true"]
    skip = "peer" if resource.version >= Version(3, 6, 0) else "experimental-peer"
    return [
        *found,
        f"--peer-cert-file={PEER_TLS}/{CERTIFICATE_KEY}",
        f"--peer-key-file={PEER_TLS}/{PRIVATE_KEY}",
        f"--peer-trusted-ca-file={PEER_TLS}/{AUTHORITY_KEY}",
        "--peer-client-cert-auth=true",
        # A member is known by a certificate for this cluster's names, whoever else the authority signs for. etcd would
        # look up, too, which name the caller's address has: that is DNS's word, which fails or is late when pods move.
        f"--peer-cert-allowed-hostname={names.host(resource, names.member_name(resource, bootstrap.SEED))}",
        f"--{skip}-skip-client-san-verification=true",
    ]


def number_given(pod: Obj | None, flag: str) -> int | None:
    """Return the number that a pod gives etcd with a flag; None if it gives none."""
    containers = ((pod or {}).get("spec") or {}).get("containers") or ()
    arguments = next((each.get("args") or () for each in containers if each["name"] == CONTAINER), ())
    given = [argument.removeprefix(flag) for argument in arguments if argument.startswith(flag)]
    return int(given[-1]) if given else None


def environment(resource: EtcdCluster) -> list[Obj]:
    """Variables of etcd's container: those of the spec last, so that they win over Go's bounds here."""
    given = {variable.name for variable in resource.spec.env}
    limits = resource.spec.resources.limits
    found: list[Obj] = [{"name": POD_NAME, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    found += bootstrap.environment()
    ours = {variable["name"] for variable in found}
    # Before 1.25 Go knows neither limit: it would be throttled for its many threads, and killed before it collected.
    if "cpu" in limits and "GOMAXPROCS" not in given:
        cores = max(1, math.ceil(parse_quantity(limits["cpu"])))
        found.append({"name": "GOMAXPROCS", "value": str(cores)})
    if "memory" in limits and "GOMEMLIMIT" not in given:
        heap = int(float(parse_quantity(limits["memory"])) * GO_HEAP_SHARE)
        found.append({"name": "GOMEMLIMIT", "value": f"{heap}B"})
    # One of ours that is given can hardly be meant to be another.
    return found + [variable for variable in resource.spec.environment() if variable["name"] not in ours]
