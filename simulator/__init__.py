"""Simulated Kubernetes and databases: what the tests and `kubectl platform plan` run an operator in."""
