"""Observed state of a resource, as frozen values. Pure."""
