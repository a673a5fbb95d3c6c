"""Simulated etcd."""
