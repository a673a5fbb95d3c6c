"""What must never be forgotten is written into the status before anything else happens. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.layout import recorded_disk
from operators.etcd.objects import bootstrap
from operators.etcd.observe import Observed
from shared.runtime.plan import PASS, Step


def record_cluster(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """What must never be forgotten is written into the status before anything else happens.

    Which cluster it is: then no seed ever begins another. And where each member's data is: then a member that lost it
    is known from one that is merely away.
    """
    known, found = resource.recorded_cluster_id, seen.cluster_id
    if not found:
        return PASS
    if not known and any(place.member for place in seen.places):
        return Step.wait("Recording", f"Cluster {found:016x} has begun: its id is written down.", requeue=0)
    if known != found and found == bootstrap.successor(resource):
        return Step.wait("Recording", f"The recovery made cluster {found:016x}: its id is written down.", requeue=0)
    if known and known != found:
        return Step.blocked(
            "AnotherCluster",
            f"Members answer as cluster {found:016x}, and this is cluster {known:016x}. Nothing was changed. Somebody "
            "began a new cluster in its place: restore a backup, or bring the volumes of the former members back.",
        )
    if seen.members is None:
        return PASS
    moved = [place for place in seen.places if place.member and recorded_disk(seen, place) != place.recorded]
    if moved:
        names = ", ".join(place.name for place in moved)
        if [place.member for place in moved] == [seen.learner]:
            return Step.wait("Joining", f"{names} joins: where its data will be is written down.", requeue=0)
        return Step.wait("Recording", f"Where the data of {names} is, is written down.", requeue=0)
    return PASS
