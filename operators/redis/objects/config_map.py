"""The ConfigMap that holds redis.conf, and the proof of what the operator applied. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from operators.redis.api.resource import RedisCluster
from operators.redis.objects.names import COMPONENT, config_name
from operators.redis.objects.redis_conf import CONFIG_KEY, PERSISTENCE
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
    """Return the annotation APPLIED_CONFIG for a content: its digest, and its lines of persistence.

    Any client may edit, delete or replace the ConfigMap, and a server that starts with another persistence ignores its
    data. So the text counts only with this proof in the StatefulSet; without any, of an earlier build, as it is.
    """
    lines = (line for line in content.get(CONFIG_KEY, "").split("\n") if line.partition(" ")[0] in PERSISTENCE)
    return "\n".join([hashlib.sha256(canonical(dict(content))).hexdigest()[:16], *lines])
