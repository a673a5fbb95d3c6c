"""Builders of the Kubernetes objects that a RedisCluster owns."""
