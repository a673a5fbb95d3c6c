"""Chart values, dashboards, alerts and images of the etcd operator. The operator process does not import them."""
