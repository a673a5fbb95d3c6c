"""Changes of an EtcdCluster's spec that are taken, and that are refused: one for every rule about what a spec was."""

from __future__ import annotations

from typing import Any

from tests.support.cases import Case, Change
from tests.support.etcd.cases import BASE, FROM_BACKUP, GIB, SECRETS, restored, stored

BEGUN = {"clusterID": "cdf818194e3a8c32"}


def of(**spec: Any) -> Case:
    return Case("", spec, base=BASE)


CHANGES = (
    Change("more members", of(size=1), of(size=9)),
    Change("a larger volume", of(**stored(size="1Gi")), of(**stored(size="1.5Gi"))),
    Change("the same volume in other words", of(**stored(size="1Gi")), of(**stored(size="1024Mi"))),
    Change("a larger volume in bytes", of(**stored(size="1Gi")), of(**stored(size=2 * GIB))),
    Change("less memory", of(**stored(medium="Memory", size="1Gi")), of(**stored(medium="Memory", size="512Mi"))),
    Change("what was the default, said", of(), of(tls={"mode": "none"}, **stored(medium="Volume"))),
    Change("volumes that go with the resource", of(), of(**stored(retain=False))),
    Change(
        "a client's certificate asked for",
        of(tls={"mode": "self", "client": {"auth": "none"}}),
        of(tls={"mode": "self"}),
    ),
    Change("another snapshot, before the cluster began", of(**FROM_BACKUP), of(**restored(backup="tuesday"))),
    Change(
        "another snapshot, where the first could not be had",
        of(**FROM_BACKUP),
        of(**restored(backup="tuesday")),
        status={"restore": {"source": "a", "phase": "Failed"}},
    ),
    Change("no snapshot any more", of(**FROM_BACKUP), of(), status=BEGUN),
    Change("the same snapshot still", of(**FROM_BACKUP), of(size=1, **FROM_BACKUP), status=BEGUN),
)
"""Changes that are taken."""

REFUSED_CHANGES = (
    Change(
        "a smaller volume",
        of(**stored(size="2Gi")),
        of(**stored(size="2047Mi")),
        "is below the 2Gi of the existing volumes",
        "spec.storage.size: is below the 2Gi of the existing volumes",
    ),
    Change(
        "a volume of the default size that shrinks",
        of(),
        of(**stored(size=GIB)),
        "is below the 8Gi of the existing volumes",
        "spec.storage.size: is below the 8Gi of the existing volumes",
    ),
    Change(
        "memory instead of volumes",
        of(),
        of(**stored(medium="Memory")),
        "is immutable and must remain Volume",
        "spec.storage.medium: is immutable and must remain Volume",
    ),
    Change(
        "volumes instead of memory",
        of(**stored(medium="Memory")),
        of(),
        "stays Memory, as it was created",
        "spec.storage.medium: stays Memory, as it was created",
    ),
    Change(
        "a class where there was none",
        of(),
        of(**stored(storageClassName="fast")),
        "as it was created: the class of an existing volume cannot be changed",
        "spec.storage.storageClassName: stays",
    ),
    Change(
        "another class",
        of(**stored(storageClassName="slow")),
        of(**stored(storageClassName="fast")),
        "stays slow, as it was created",
        "spec.storage.storageClassName: stays slow, as it was created",
    ),
    Change(
        "encryption of what had none",
        of(),
        of(tls={"mode": "self"}),
        "stays none, as it was created",
        "spec.tls.mode: stays none, as it was created",
    ),
    Change(
        "certificates of another's making",
        of(tls={"mode": "self"}),
        of(tls=SECRETS),
        "stays self, as it was created",
        "spec.tls.mode: stays self, as it was created",
    ),
    *(
        Change(
            f"{words} once the cluster has begun",
            old,
            of(**restored(backup="tuesday")),
            "only a new cluster can start from a snapshot",
            "spec.restore: only a new cluster can start from a snapshot",
            status=status,
        )
        for words, old, status in (
            ("a snapshot", of(), BEGUN),
            ("another snapshot", of(**FROM_BACKUP), BEGUN),
            ("another snapshot, just restored,", of(**FROM_BACKUP), {"restore": {"source": "a", "phase": "Complete"}}),
        )
    ),
)
