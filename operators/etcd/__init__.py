"""The etcd operator: `python -m operators.etcd`."""
