"""The Memcached resource: spec, rules and status."""
