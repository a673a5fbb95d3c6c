"""What works and is yet unwise in a RedisCluster: warnings that kubectl shows when it is applied. Pure."""

from __future__ import annotations

import re

from operators.redis.api.pod_template import strayed
from operators.redis.api.resource import RedisCluster
from shared.kubernetes.quantity import parse_quantity

_CLAIM_NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"


def warnings_for(resource: RedisCluster) -> list[str]:
    """A sentence for each."""
    return [
        *_of_replicas(resource),
        *_of_slots(resource),
        *_of_data(resource),
        *_of_pods(resource),
        *_of_safety(resource),
    ]


def data_loss_of(resource: RedisCluster, before: RedisCluster) -> list[str]:
    """A sentence for each thing that a change gives up."""
    warnings, spec, was = [], resource.spec, before.spec
    if resource.engine.name == before.engine.name and resource.engine.version < before.engine.version:
        warnings.append(
            f"spec.version: {resource.engine} is older than {before.engine}: its defects come back with it."
        )
    if was.finalizers and not spec.finalizers:
        warnings.append(
            "spec.finalizers: empty: from now on, deleting the resource leaves its pods running, and nobody sees to "
            "them."
        )
    return warnings


def _of_replicas(resource: RedisCluster) -> list[str]:
    spec, budget, warnings = resource.spec, resource.spec.pod_disruption_budget, []
    if spec.replicas_per_master == 0:
        warnings.append(
            "spec.replicasPerMaster: with 0, a master that is away takes its slots along, and a change of the pods "
            "must wait: nobody can take over. Give 1."
        )
    if budget is None:
        return warnings
    if budget.keeps_all(spec.replicas):
        warnings.append(
            f"spec.podDisruptionBudget: with {spec.replicas} pods it lets none be evicted, so that no node of theirs "
            "can be drained. Give maxUnavailable: 1."
        )
    elif budget.evictable(spec.replicas) > 1:
        warnings.append(
            f"spec.podDisruptionBudget: it lets {budget.evictable(spec.replicas)} of {spec.replicas} pods be evicted "
            "at once, and a master and its replica may be among them. Give maxUnavailable: 1."
        )
    return warnings


def _of_slots(resource: RedisCluster) -> list[str]:
    given = resource.spec.update_strategy
    if given.type == "AutoReceive" and given.assign_strategies:
        return ["spec.updateStrategy.assignStrategies: type AutoReceive has no use for them. Give AssignReceive."]
    return []


def _of_data(resource: RedisCluster) -> list[str]:
    spec, warnings = resource.spec, []
    volumes, limit = spec.template.volumes, spec.pods.resources.limits.get("memory")
    if spec.storage is None and volumes is None:
        warnings.append(
            "spec.storage: not given, and so a pod that is replaced comes back empty, and with all pods all data is "
            "gone. Give it, unless this is a cache."
        )
    if volumes is not None and volumes.type == "hostPath":
        warnings.append(
            "spec.pod[0].volumes: hostPath ties data to nodes of Kubernetes, and only a namespace of Pod Security's "
            "level privileged allows it. Give spec.storage instead."
        )
    claim = volumes.persistent_volume_claim_name if volumes else None
    if claim is not None and re.fullmatch(_CLAIM_NAME, claim) is None:
        warnings.append(
            f"spec.pod[0].volumes.persistentVolumeClaimName: no claim can be named {claim}: names have small letters. "
            "Pods will wait for it. Give that of a claim."
        )
    if limit is None and spec.max_memory is None:
        warnings.append(
            "spec.resources: without a limit of memory, or maxmemory, a node takes keys until its pod is evicted. "
            "Give resources.limits.memory."
        )
    elif limit is not None and (spec.max_memory or 0) > parse_quantity(limit):
        warnings.append(
            f"spec.resources: {spec.max_memory} bytes of data (maxmemory) are more than the limit of memory, {limit}: "
            "the container would be killed before it refuses a key. Lower one, or raise the other."
        )
    return warnings


def _of_pods(resource: RedisCluster) -> list[str]:
    given = {"spec.affinity": resource.spec.affinity, "spec.pod[0].affinity": resource.spec.template.affinity}
    return [
        f"{at}: {rule} stands beside nodeAffinity, and is taken as if under it. Indent it."
        for at, affinity in given.items()
        for rule in strayed(affinity)
    ]


def _of_safety(resource: RedisCluster) -> list[str]:
    if resource.spec.auth is not None and resource.spec.tls.mode == "none":
        return ["spec.auth: without spec.tls, passwords cross the network in the clear. Give tls.mode."]
    return []
