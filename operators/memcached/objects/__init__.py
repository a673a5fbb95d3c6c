"""Builders of the Kubernetes objects that a Memcached owns."""
