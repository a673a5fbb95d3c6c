"""A real Prometheus scrapes the operators and databases with the charts' ServiceMonitors and rules."""
