"""Simulated Redis Cluster."""
