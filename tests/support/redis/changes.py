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
    Change("smaller size, as far as no volume has grown", case(**stored(size="2Gi")), case(**stored(size="2047Mi"))),
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
        "volumes where there were none",
        case(),
        case(**stored()),
        "is immutable and must remain without volumes",
        "spec.storage: is immutable and must remain without volumes",
    ),
    Change(
        "no volumes any more",
        case(**stored()),
        case(),
        "is immutable and must remain of the default class",
        "spec.storage: is immutable and must remain of the default class",
    ),
    Change(
        "a class where there was none",
        case(**stored()),
        case(**stored(storageClassName="fast")),
        "is immutable and must remain of the default class",
        "spec.storage: is immutable and must remain of the default class",
    ),
    Change(
        "another class",
        case(**stored(storageClassName="slow")),
        case(**stored(storageClassName="fast")),
        "is immutable and must remain of class slow",
        "spec.storage: is immutable and must remain of class slow",
    ),
    Change(
        "one volume for all",
        case(),
        case(**podded(volumes=NFS)),
        "is immutable and must remain without volumes",
        "spec.pod: is immutable and must remain without volumes",
    ),
    Change(
        "another volume",
        case(**podded(volumes=NFS)),
        case(**podded(volumes={**NFS, "persistentVolumeClaimName": "other"})),
        "is immutable and must remain with volumes nfs shared",
        "spec.pod: is immutable and must remain with volumes nfs shared",
    ),
    Change(
        "directories no more",
        case(**podded(volumes={"type": "hostPath"})),
        case(**podded()),
        "is immutable and must remain with volumes hostPath",
        "spec.pod: is immutable and must remain with volumes hostPath",
    ),
    Change(
        "encryption of what had none",
        case(),
        case(tls={"mode": "self"}),
        "is immutable and must remain none",
        "spec.tls.mode: is immutable and must remain none",
    ),
    Change(
        "another TLS mode",
        case(tls={"mode": "self"}),
        case(tls=SECRET),
        "is immutable and must remain self",
        "spec.tls.mode: is immutable and must remain self",
    ),
)
"""Changes that are rejected, although either spec may be created."""
