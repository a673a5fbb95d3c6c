"""Chart values, dashboards, alerts and images of the Redis operator. The operator process does not import them."""
