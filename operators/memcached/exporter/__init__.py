"""Metrics exporter, a sidecar of each memcached server."""
