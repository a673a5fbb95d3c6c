"""Scaffolding of a new operator or of an additional kind: `make new-operator`, `make new-kind`."""
