"""Alerting and recording rules as plain values; `python -m dashboards.rules` writes the rule files."""
