"""Logs, metrics, traces, profiles, and the endpoints that serve them."""
