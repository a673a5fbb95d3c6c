"""Draw dashboards as pictures from their JSON and a Prometheus server, without Grafana."""
