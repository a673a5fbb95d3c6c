"""Scenarios of the Redis operator with real nodes and continuous client load."""
