"""Chart values, dashboards, alerts and images of the memcached operator. The operator process does not import them."""
