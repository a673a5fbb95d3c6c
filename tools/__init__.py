"""Developer tools of this project. They connect to no cluster."""

from tools.local.environment import forget_clusters

forget_clusters()  # here, so that no tool can omit it
