"""Draws dashboards as pictures: what their JSON says, of what a Prometheus answers, without Grafana."""
