"""Scenarios of the etcd operator with real members; every acknowledged write of their clients is checked."""
