"""End-to-end tests and benchmarks: the local cluster, its images, the databases and the scenarios."""
