"""Scenarios of memcached."""
