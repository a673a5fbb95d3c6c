"""Benchmarks of the operators: `make bench`. They use the clusters that they start, and the local one."""

from tools.local.environment import forget_clusters

forget_clusters()  # here, so that no benchmark can omit it
