"""Reports about a resource: its status, health and metrics. Pure."""
