"""Database servers as processes on this machine, for tests and benchmarks."""
