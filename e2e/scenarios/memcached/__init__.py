"""Scenarios of the memcached operator."""
