"""The metrics exporter that runs beside each memcached server."""
