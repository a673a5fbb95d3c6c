"""Alerts and recording rules as values; `python -m dashboards.rules` writes what Prometheus and the charts take."""
