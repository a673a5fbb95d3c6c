"""Logs, metrics, traces, profiles, and the HTTP endpoints that serve them."""
