"""The ConfigMap that holds redis.conf, and the record of what the operator applied. Pure.

A server that starts with other directives of persistence ignores its data, and any client may edit, delete or replace
the ConfigMap. So its text counts only with the proof in the StatefulSet; without one (earlier builds) as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from operators.redis.api.resource import RedisCluster
from operators.redis.objects.names import APPLIED_CONFIG, COMPONENT, config_name
from operators.redis.objects.redis_conf import CONFIG_KEY, PERSISTENCE, Kept, present
from shared.kubernetes.accessors import annotation
from shared.kubernetes.encoding import canonical
from shared.kubernetes.kinds import CONFIG_MAP, Obj
from shared.kubernetes.ownership import Owner


def config_map(resource: RedisCluster, own: Owner, content: Mapping[str, str]) -> Obj:
    """Return the ConfigMap that nodes read when they start.

    Args:
        content: redis.conf as rendered by redis_conf.py, by key.
    """
    return own.object(CONFIG_MAP, config_name(resource), component=COMPONENT, data=dict(content))


def proof(content: Mapping[str, str]) -> str:
    """Return the annotation APPLIED_CONFIG for a content: its digest, and its lines of persistence."""
    lines = (line for line in content.get(CONFIG_KEY, "").split("\n") if line.partition(" ")[0] in PERSISTENCE)
    return "\n".join([hashlib.sha256(canonical(dict(content))).hexdigest()[:16], *lines])


def proven(found: Obj | None, stateful_set: Obj | None) -> Obj | None:
    """Return the ConfigMap if it has what the operator applied last; None if another client changed or deleted it."""
    noted = annotation(stateful_set, APPLIED_CONFIG)
    return found if found is None or noted in ("", proof(found.get("data") or {})) else None


def persistence(found: Obj | None, stateful_set: Obj | None) -> Kept:
    """Return the directives of persistence in the file that the operator applied last; none if that is unknown."""
    noted = annotation(stateful_set, APPLIED_CONFIG)
    lines = present({"data": {CONFIG_KEY: noted}} if noted else found)
    return {name: lines[name] for name in PERSISTENCE if name in lines}
