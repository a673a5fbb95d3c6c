"""Accepted and refused changes of an EtcdCluster's spec, one for every rule that compares with the old spec."""

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
    Change("the same volume size in another unit", of(**stored(size="1Gi")), of(**stored(size="1024Mi"))),
    Change("a larger volume in bytes", of(**stored(size="1Gi")), of(**stored(size=2 * GIB))),
    Change("a smaller size, as far as no volume has grown", of(**stored(size="2Gi")), of(**stored(size="2047Mi"))),
    Change("less memory", of(**stored(medium="Memory", size="1Gi")), of(**stored(medium="Memory", size="512Mi"))),
    Change("defaults made explicit", of(), of(tls={"mode": "none"}, **stored(medium="Volume"))),
    Change("volumes deleted with the resource", of(), of(**stored(retain=False))),
    Change(
        "client certificates required",
        of(tls={"mode": "self", "client": {"auth": "none"}}),
        of(tls={"mode": "self"}),
    ),
    Change("another snapshot before the bootstrap", of(**FROM_BACKUP), of(**restored(backup="tuesday"))),
    Change(
        "another snapshot after a failed restore",
        of(**FROM_BACKUP),
        of(**restored(backup="tuesday")),
        status={"restore": {"source": "a", "phase": "Failed"}},
    ),
    Change("restore removed from the spec", of(**FROM_BACKUP), of(), status=BEGUN),
    Change("the same snapshot with another size", of(**FROM_BACKUP), of(size=1, **FROM_BACKUP), status=BEGUN),
)
"""Accepted changes."""

REFUSED_CHANGES = (
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
        "is immutable and must remain Memory",
        "spec.storage.medium: is immutable and must remain Memory",
    ),
    Change(
        "a storage class where none was given",
        of(),
        of(**stored(storageClassName="fast")),
        "is immutable and must remain",
        "spec.storage.storageClassName: is immutable",
    ),
    Change(
        "another storage class",
        of(**stored(storageClassName="slow")),
        of(**stored(storageClassName="fast")),
        "is immutable and must remain slow",
        "spec.storage.storageClassName: is immutable and must remain slow",
    ),
    Change(
        "TLS enabled on an existing cluster",
        of(),
        of(tls={"mode": "self"}),
        "is immutable and must remain none",
        "spec.tls.mode: is immutable and must remain none",
    ),
    Change(
        "certificates from another source",
        of(tls={"mode": "self"}),
        of(tls=SECRETS),
        "is immutable and must remain self",
        "spec.tls.mode: is immutable and must remain self",
    ),
    *(
        Change(
            f"{words} after the bootstrap",
            old,
            of(**restored(backup="tuesday")),
            "only a new cluster can start from a snapshot",
            "spec.restore: only a new cluster can start from a snapshot",
            status=status,
        )
        for words, old, status in (
            ("a snapshot", of(), BEGUN),
            ("another snapshot", of(**FROM_BACKUP), BEGUN),
            (
                "another snapshot after a completed restore,",
                of(**FROM_BACKUP),
                {"restore": {"source": "a", "phase": "Complete"}},
            ),
        )
    ),
)
