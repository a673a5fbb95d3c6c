"""All rules there are, by the operator whose chart brings them."""

from __future__ import annotations

from dashboards.rules import etcd, memcached, redis

RULES = {rules.operator: rules for rules in (etcd.RULES, memcached.RULES, redis.RULES)}
