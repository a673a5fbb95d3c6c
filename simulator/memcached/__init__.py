"""Simulated memcached."""
