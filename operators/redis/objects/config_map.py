"""The ConfigMap that holds redis.conf. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from operators.redis.api.resource import RedisCluster
from operators.redis.objects.names import APPLIED_PERSISTENCE, COMPONENT, NODE_ID, config_name
from operators.redis.objects.redis_conf import CONFIG_KEY, PERSISTENCE
from shared.kubernetes import managed_fields
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import CONFIG_MAP, Obj
from shared.kubernetes.ownership import Owner

TEMPLATE_KEY = "template.conf"
"""Key of the last valid version of the user's redis.conf."""

MAX_RECORD_BYTES = 4096
"""Maximum size of the lines of persistence on a volume claim, which any client may write: 400 save points."""


def config_map(resource: RedisCluster, own: Owner, content: Mapping[str, str]) -> Obj:
    """Return the ConfigMap that nodes read when they start.

    Args:
        content: redis.conf as rendered by redis_conf.py, by key.
    """
    return own.object(CONFIG_MAP, config_name(resource), component=COMPONENT, data=dict(content))


def persistence(content: Mapping[str, str]) -> str:
    """Return the lines of persistence of a content: a server that starts with others ignores its data."""
    return "\n".join(line for line in content.get(CONFIG_KEY, "").split("\n") if line.partition(" ")[0] in PERSISTENCE)


def recorded_persistence(claims: Iterable[Obj | None]) -> str:
    """Return the lines that the operator recorded on the claims of all nodes; empty if one lacks or changes them."""

    def is_own(claim: Obj) -> bool:
        return managed_fields.is_applied(claim, "metadata", "annotations", APPLIED_PERSISTENCE, operation="Update")

    of_nodes = (claim for claim in claims if claim and annotation(claim, NODE_ID))
    found = {recorded(claim) if is_own(claim) else "" for claim in of_nodes}
    return found.pop() if len(found) == 1 else ""


def recorded(claim: Obj | None) -> str:
    """Return the lines of persistence that a claim records; empty if it has none, or longer ones."""
    lines = annotation(claim, APPLIED_PERSISTENCE)
    return lines if len(lines) <= MAX_RECORD_BYTES else ""
