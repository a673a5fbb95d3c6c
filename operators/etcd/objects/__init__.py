"""Builders of the Kubernetes objects that an EtcdCluster owns."""
