"""The controllers, scheduler and kubelets of the in-memory cluster."""
