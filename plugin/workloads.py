"""The workload of a resource with its former templates, read with the user's rights."""

from __future__ import annotations

from plugin.databases import ETCD, MEMCACHED, REDIS, Database
from plugin.session import Session
from plugin.templates import CONTROLLER_REVISION, History, templates
from shared.kubernetes import accessors
from shared.kubernetes.errors import Forbidden
from shared.kubernetes.kinds import DEPLOYMENT, REPLICA_SET, STATEFUL_SET, Kind, Obj
from shared.kubernetes.ownership import INSTANCE, controller_of


def kind_of(database: Database, resource: Obj) -> Kind:
    """Return the kind of the workload with the servers of a resource."""
    is_deployment = database == MEMCACHED and accessors.status_of(resource).get("workload") == DEPLOYMENT.name
    return DEPLOYMENT if is_deployment else STATEFUL_SET


async def history_of(session: Session, database: Database, resource: Obj) -> History:
    """Return the workload of a resource and its templates; why they are not known, if the user may not read them."""
    if database not in (MEMCACHED, ETCD, REDIS):
        return History()
    kind, metadata = kind_of(database, resource), resource["metadata"]
    workload: Obj | None = None
    try:
        found = await session.kube.find(kind, metadata["namespace"], metadata["name"])
        owner = controller_of(found) if found is not None else None
        if found is None or (owner is not None and owner.get("uid") != metadata["uid"]):
            return History()
        workload = {"apiVersion": kind.api_version, "kind": kind.name} | found
        labels = f"{INSTANCE}={metadata['name']}"
        keeps = REPLICA_SET if kind == DEPLOYMENT else CONTROLLER_REVISION
        kept = await session.objects(keeps, metadata["namespace"], labels)
    except Forbidden as error:
        return History(workload, unread=str(error))
    return History(workload, templates(workload, kept, resource))
