"""The Redis operator: `python -m operators.redis`."""
