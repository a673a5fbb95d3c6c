"""The RedisCluster resource: spec, rules, warnings, status and engine versions."""
