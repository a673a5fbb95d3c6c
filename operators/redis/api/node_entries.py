"""The entries of nodes in a status: in status.nodes, and in status.conditions as the first manifests have them. Pure.

The operator depends on these records to distinguish a node that lost its data from an unreachable one. A status may
lack status.nodes although there are nodes: an earlier build of the operator wrote it, or the CRD of such a build
removed the field. Then the entries in status.conditions count.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.kubernetes.kinds import Obj

PRIMARY_ROLE = "primary"
REPLICA_ROLE = "replica"

_TYPES = {PRIMARY_ROLE: "master", REPLICA_ROLE: "slave"}
_NAMES = {"address": "instance", "host": "hostname"}
"""Fields with another name in status.conditions."""


def recorded_entries(status: Obj) -> list[Obj]:
    """Return the entries of all nodes that a status records, as status.nodes has them."""
    return list(status.get("nodes") or ()) or [
        _from_condition(each) for each in status.get("conditions") or () if is_node(each)
    ]


POD_NOT_READY = "The kubelet does not report the pod as ready."
"""Message of a node that is in sync, or owns slots."""


def out_of_sync_since(entry: Obj) -> str | None:
    """Return since when a replica was not seen in sync; None if it was when last seen, or if that is unknown.

    Earlier builds did not record it: a replica that did not serve may not have been in sync since then.
    """
    serves = entry.get("status") != "False" or entry.get("message") == POD_NOT_READY
    is_known = entry.get("role") != REPLICA_ROLE or "inSync" in entry or serves
    return entry.get("outOfSyncSince") or (None if is_known else entry.get("lastTransitionTime"))


def lacks_nodes(status: Obj) -> bool:
    """Return whether status.nodes is missing, although an operator has written this status from a plan."""
    is_written = "formed" in status or any(map(is_node, status.get("conditions") or ()))
    return is_written and "nodes" not in status


def is_node(condition: Obj) -> bool:
    """Return whether an entry of status.conditions describes a node."""
    return condition.get("type") in _TYPES.values() and bool(condition.get("name"))


def as_conditions(nodes: Iterable[Obj]) -> list[Obj]:
    """Return the entries of status.conditions for entries of status.nodes."""
    return [_as_condition(node) for node in nodes]


def _as_condition(node: Obj) -> Obj:
    primary = node.get("primaryId") or node.get("nodeId")
    kept = {_NAMES.get(key, key): value for key, value in node.items() if key not in ("role", "primaryId", "flags")}
    return kept | {"type": _TYPES[node["role"]]} | ({"masterNodeId": primary} if primary else {})


def _from_condition(condition: Obj) -> Obj:
    names = {former: name for name, former in _NAMES.items()}
    kept = {names.get(key, key): value for key, value in condition.items() if key not in ("type", "masterNodeId")}
    if condition["type"] == _TYPES[PRIMARY_ROLE]:
        return kept | {"role": PRIMARY_ROLE}
    primary = condition.get("masterNodeId")
    return kept | {"role": REPLICA_ROLE} | ({"primaryId": primary} if primary else {})
