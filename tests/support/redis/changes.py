"""Accepted and rejected changes of a RedisCluster's spec, with a rejected one for every transition rule."""

from __future__ import annotations

from typing import Any

from tests.support.cases import Case, Change
from tests.support.redis.cases import BASE, GIB, NFS, SECRET, SEED, podded, stored


def case(**spec: Any) -> Case:
    return Case("", spec, base=BASE)


CHANGES = (
    Change("more pods", case(), case(replicas=8)),
    Change("fewer pods", case(replicas=12), case(replicas=6)),
    Change("pods without replicas", case(), case(replicasPerMaster=0)),
    Change("larger volume", case(**stored(size="1Gi")), case(**stored(size="1.5Gi"))),
    Change("same volume size in another unit", case(**stored(size="1Gi")), case(**stored(size="1024Mi"))),
    Change("larger volume in bytes", case(**stored(size="1Gi")), case(**stored(size=2 * GIB))),
    Change("volumes that are deleted with the resource", case(**stored()), case(**stored(retain=False))),
    Change("explicit defaults", case(), case(tls={"mode": "none"}, pod=[])),
    Change(
        "another pod template on the same volume",
        case(**podded(volumes=NFS)),
        case(**podded(volumes=NFS, configmap="a")),
    ),
    Change(
        "client certificates required", case(tls={"mode": "self", "clientAuth": "none"}), case(tls={"mode": "self"})
    ),
    Change("another certificate Secret", case(tls=SECRET), case(tls={**SECRET, "secretName": "b"})),
    Change("password added", case(), case(auth={"secretName": "a"})),
    Change("directives", case(config={"hz": "10"}), case(config={"hz": "20", "maxclients": "100"})),
    Change(
        "manifest of the first release resumed",
        Case("", SEED, base=BASE),
        Case("", {**SEED, "pause": False}, base=BASE),
    ),
    Change("upgrade", case(version="7.0.15"), case(version="8.0.2")),
    Change("upgrade to valkey", case(version="7.0.15"), case(version="9.1", repository="valkey/valkey")),
)
"""Changes that are accepted."""

REFUSED_CHANGES = (
    Change(
        "smaller volume",
        case(**stored(size="2Gi")),
        case(**stored(size="2047Mi")),
        "is below the 2Gi that volumes have",
        "spec.storage.size: is below the 2Gi that volumes have",
    ),
    Change(
        "smaller volume than the default",
        case(**stored()),
        case(**stored(size=GIB)),
        "is below the 8Gi that volumes have",
        "spec.storage.size: is below the 8Gi that volumes have",
    ),
    Change(
        "volumes added",
        case(),
        case(**stored()),
        "stays without volumes, as it was created",
        "spec.storage: stays without volumes, as it was created",
    ),
    Change(
        "volumes removed",
        case(**stored()),
        case(),
        "stays of the default class, as it was created",
        "spec.storage: stays of the default class, as it was created",
    ),
    Change(
        "storage class added",
        case(**stored()),
        case(**stored(storageClassName="fast")),
        "stays of the default class, as it was created",
        "spec.storage: stays of the default class",
    ),
    Change(
        "another storage class",
        case(**stored(storageClassName="slow")),
        case(**stored(storageClassName="fast")),
        "stays of class slow, as it was created",
        "spec.storage: stays of class slow, as it was created",
    ),
    Change(
        "shared volume added",
        case(),
        case(**podded(volumes=NFS)),
        "stays without volumes, as it was created",
        "spec.pod: stays without volumes, as it was created",
    ),
    Change(
        "another shared volume",
        case(**podded(volumes=NFS)),
        case(**podded(volumes={**NFS, "persistentVolumeClaimName": "other"})),
        "stays with volumes nfs shared, as it was created",
        "spec.pod: stays with volumes nfs shared, as it was created",
    ),
    Change(
        "host directories removed",
        case(**podded(volumes={"type": "hostPath"})),
        case(**podded()),
        "stays with volumes hostPath, as it was created",
        "spec.pod: stays with volumes hostPath, as it was created",
    ),
    Change(
        "TLS enabled",
        case(),
        case(tls={"mode": "self"}),
        "stays none, as it was created",
        "spec.tls.mode: stays none, as it was created",
    ),
    Change(
        "another TLS mode",
        case(tls={"mode": "self"}),
        case(tls=SECRET),
        "stays self, as it was created",
        "spec.tls.mode: stays self, as it was created",
    ),
)
"""Changes that are rejected, although either spec may be created."""
