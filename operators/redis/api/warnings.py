"""Warnings that kubectl shows when a valid but risky RedisCluster is applied. Pure."""

from __future__ import annotations

import re

from operators.redis.api.catalogue import CATALOGUES, features_of
from operators.redis.api.pod_template import strayed
from operators.redis.api.resource import RedisCluster
from operators.redis.api.spec import SHUTDOWN_GRACE_SECONDS
from shared.api.podspec import warnings_of_size
from shared.api.spec import as_object
from shared.kubernetes.quantity import parse_quantity

SENSIBLE_MEMORY = 64 << 20
"""Memory limit in bytes below which the engine itself, its buffers and a fork leave little for data."""

_CLAIM_NAME = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"


def warnings_for(resource: RedisCluster) -> list[str]:
    """Return a sentence for each risk."""
    return [
        *_of_replicas(resource),
        *_of_slots(resource),
        *_of_data(resource),
        *_of_pods(resource),
        *_of_safety(resource),
        *_of_version(resource),
        *resource.spec.short_stop(SHUTDOWN_GRACE_SECONDS, "writes that it has not replicated or saved may be lost"),
    ]


def notes_for(resource: RedisCluster) -> list[str]:
    """Return a clause for each setting that many plain clusters lack, and for advisories."""
    spec, engine = resource.spec, resource.engine
    no_disk = spec.storage is None and spec.template.volumes is None
    no_limit = spec.pods.resources.limits.get("memory") is None and spec.max_memory is None
    return [
        *(["data only in memory (storage)"] if no_disk else ()),
        *(["no memory limit (resources)"] if no_limit else ()),
        *CATALOGUES[engine.name].notes(str(engine.version), features_of(as_object(spec))),
    ]


def data_loss_of(resource: RedisCluster, before: RedisCluster) -> list[str]:
    """Return a sentence for each protection that a change removes."""
    warnings, spec, was = [], resource.spec, before.spec
    if spec.storage is not None and was.storage is not None:
        warnings += warnings_of_size(spec.storage.size, was.storage.size)
    if resource.engine.name == before.engine.name and resource.engine.version < before.engine.version:
        warnings.append(f"spec.version: {resource.engine} is older than {before.engine}, and lacks its fixes.")
    if was.finalizers and not spec.finalizers:
        warnings.append(
            "spec.finalizers: empty: deleting the resource now leaves its pods running, without an operator."
        )
    return warnings


def _of_replicas(resource: RedisCluster) -> list[str]:
    spec, budget, warnings = resource.spec, resource.spec.pod_disruption_budget, []
    if spec.replicas_per_master == 0:
        warnings.append(
            "spec.replicasPerMaster: with 0, no replica can take over: the slots of an unavailable primary are not "
            "served. Rolling updates interrupt them, or wait for you if their keys are only in memory. Use 1 or more."
        )
    if budget is None:
        return warnings
    if budget.blocks_every_eviction(spec.replicas):
        warnings.append(
            f"spec.podDisruptionBudget: with {spec.replicas} pods it allows no eviction, so their Kubernetes nodes "
            "cannot be drained. Use maxUnavailable: 1."
        )
    elif budget.evictable(spec.replicas) > 1:
        warnings.append(
            f"spec.podDisruptionBudget: it allows {budget.evictable(spec.replicas)} of {spec.replicas} pods to be "
            "evicted at once, possibly a primary and its replica. Use maxUnavailable: 1."
        )
    return warnings


def _of_slots(resource: RedisCluster) -> list[str]:
    given = resource.spec.update_strategy
    if given.type == "AutoReceive" and given.assign_strategies:
        return ["spec.updateStrategy.assignStrategies: type AutoReceive ignores them. Use type AssignReceive."]
    return []


def _of_data(resource: RedisCluster) -> list[str]:
    spec, warnings = resource.spec, []
    volumes, limit = spec.template.volumes, spec.pods.resources.limits.get("memory")
    if volumes is not None and volumes.type == "hostPath":
        warnings.append(
            "spec.pod[0].volumes: hostPath ties data to Kubernetes nodes, and needs a namespace with Pod Security "
            "level privileged. Use spec.storage instead."
        )
    claim = volumes.persistent_volume_claim_name if volumes else None
    if claim is not None and re.fullmatch(_CLAIM_NAME, claim) is None:
        warnings.append(
            f"spec.pod[0].volumes.persistentVolumeClaimName: {claim} is not a valid claim name (lower-case letters, "
            "digits, '-' and '.'), so pods will stay pending. Use the name of an existing claim."
        )
    if limit is not None and (spec.max_memory or 0) > parse_quantity(limit):
        warnings.append(
            f"spec.resources: maxmemory ({spec.max_memory} bytes) exceeds the memory limit, {limit}: the container "
            "would be killed before it rejects a write. Lower maxmemory, or raise the limit."
        )
    if limit is not None and (spec.memory_limit or 0) < SENSIBLE_MEMORY:
        warnings.append(
            f"spec.resources: limits.memory is {limit}: an empty node uses about 15 MiB, and buffers and snapshots "
            f"come in addition. Use at least {SENSIBLE_MEMORY >> 20}Mi."
        )
    appends = spec.config.get("appendonly", "").lower() != "no"
    if not appends and spec.config.get("save") != "":
        warnings.append(
            'spec.config: with appendonly "no", nodes keep snapshots only (save; by default up to 1 hour old). '
            "If all nodes of a shard restart, or it has no replica, writes since the last snapshot are lost. Set "
            'appendonly to "yes", unless that is acceptable.'
        )
    elif not appends:
        warnings.append(
            'spec.config: with appendonly "no" and save "", nodes keep no data on disk. A node that restarts is empty: '
            "writes that its replicas do not have are lost, and without a replica all data of its slots. Set "
            'appendonly to "yes", unless this is a cache.'
        )
    return warnings


def _of_pods(resource: RedisCluster) -> list[str]:
    given = {"spec.affinity": resource.spec.affinity, "spec.pod[0].affinity": resource.spec.template.affinity}
    return [
        f"{at}: {rule} is next to nodeAffinity, and is treated as part of it. Indent it."
        for at, affinity in given.items()
        for rule in strayed(affinity)
    ]


def _of_safety(resource: RedisCluster) -> list[str]:
    spec, tls = resource.spec, resource.spec.tls
    warnings = spec.network.without_effect(has_metrics=bool(spec.exporter_image))
    if spec.auth is not None and tls.mode == "none":
        warnings.append("spec.auth: without spec.tls, passwords are sent unencrypted. Set tls.mode.")
    if spec.users and spec.auth is None:
        warnings.append("spec.users: without spec.auth, clients that name no user have all rights. Set auth: {}.")
    if tls.issuer:
        warnings += tls.issuer.warnings("nodes accept each of them on the cluster bus")
    return warnings


def _of_version(resource: RedisCluster) -> list[str]:
    engine = resource.engine
    return CATALOGUES[engine.name].warnings(str(engine.version), features_of(as_object(resource.spec)))
