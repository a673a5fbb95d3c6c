"""Files that docker-compose.yml mounts: configuration of Prometheus and Grafana, and programs of its containers."""
