"""Benchmarks of the operators: `make bench`."""
