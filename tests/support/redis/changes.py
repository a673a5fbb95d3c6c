"""Changes of a RedisCluster's spec that are taken, and that are refused: one for every rule about what a spec was."""

from __future__ import annotations

from typing import Any

from tests.support.cases import Case, Change
from tests.support.redis.cases import BASE, GIB, NFS, SECRET, SEED, podded, stored


def of(**spec: Any) -> Case:
    return Case("", spec, base=BASE)


CHANGES = (
    Change("more pods", of(), of(replicas=8)),
    Change("fewer pods", of(replicas=12), of(replicas=6)),
    Change("pods without replicas", of(), of(replicasPerMaster=0)),
    Change("a larger volume", of(**stored(size="1Gi")), of(**stored(size="1.5Gi"))),
    Change("the same volume in other words", of(**stored(size="1Gi")), of(**stored(size="1024Mi"))),
    Change("a larger volume in bytes", of(**stored(size="1Gi")), of(**stored(size=2 * GIB))),
    Change("volumes that go with the resource", of(**stored()), of(**stored(retain=False))),
    Change("what was the default, said", of(), of(tls={"mode": "none"}, pod=[])),
    Change(
        "pods of another kind on the same volume", of(**podded(volumes=NFS)), of(**podded(volumes=NFS, configmap="a"))
    ),
    Change(
        "a certificate that clients must show", of(tls={"mode": "self", "clientAuth": "none"}), of(tls={"mode": "self"})
    ),
    Change("another certificate", of(tls=SECRET), of(tls={**SECRET, "secretName": "b"})),
    Change("a password", of(), of(auth={"secretName": "a"})),
    Change("directives", of(config={"hz": "10"}), of(config={"hz": "20", "maxclients": "100"})),
    Change("the seed's, at work", Case("", SEED, base=BASE), Case("", {**SEED, "pause": False}, base=BASE)),
    Change("an upgrade", of(version="7.0.15"), of(version="8.0.2")),
    Change("an upgrade to valkey", of(version="7.0.15"), of(version="9.1", repository="valkey/valkey")),
)
"""Changes that are taken."""

REFUSED_CHANGES = (
    Change(
        "a smaller volume",
        of(**stored(size="2Gi")),
        of(**stored(size="2047Mi")),
        "is smaller than the present 2Gi",
        "spec.storage.size: is smaller than the present 2Gi",
    ),
    Change(
        "a volume of the default size that shrinks",
        of(**stored()),
        of(**stored(size=GIB)),
        "is smaller than the present 8Gi",
        "spec.storage.size: is smaller than the present 8Gi",
    ),
    Change(
        "volumes where there were none",
        of(),
        of(**stored()),
        "is immutable and must remain without volumes",
        "spec.storage: is immutable and must remain without volumes",
    ),
    Change(
        "no volumes any more",
        of(**stored()),
        of(),
        "is immutable and must remain of the default class",
        "spec.storage: is immutable and must remain of the default class",
    ),
    Change(
        "a class where there was none",
        of(**stored()),
        of(**stored(storageClassName="fast")),
        "is immutable and must remain of the default class",
        "spec.storage: is immutable and must remain of the default class",
    ),
    Change(
        "another class",
        of(**stored(storageClassName="slow")),
        of(**stored(storageClassName="fast")),
        "is immutable and must remain of class slow",
        "spec.storage: is immutable and must remain of class slow",
    ),
    Change(
        "one volume for all",
        of(),
        of(**podded(volumes=NFS)),
        "is immutable and must remain without volumes",
        "spec.pod: is immutable and must remain without volumes",
    ),
    Change(
        "another volume",
        of(**podded(volumes=NFS)),
        of(**podded(volumes={**NFS, "persistentVolumeClaimName": "other"})),
        "is immutable and must remain with volumes nfs shared",
        "spec.pod: is immutable and must remain with volumes nfs shared",
    ),
    Change(
        "directories no more",
        of(**podded(volumes={"type": "hostPath"})),
        of(**podded()),
        "is immutable and must remain with volumes hostPath",
        "spec.pod: is immutable and must remain with volumes hostPath",
    ),
    Change(
        "encryption of what had none",
        of(),
        of(tls={"mode": "self"}),
        "is immutable and must remain none",
        "spec.tls.mode: is immutable and must remain none",
    ),
    Change(
        "a certificate of another's making",
        of(tls={"mode": "self"}),
        of(tls=SECRET),
        "is immutable and must remain self",
        "spec.tls.mode: is immutable and must remain self",
    ),
)
"""Changes that are not, though either spec may be created."""
