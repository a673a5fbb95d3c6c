"""The memcached operator: `python -m operators.memcached`."""
