"""Faults that the crash harness injects."""
