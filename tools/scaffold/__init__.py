"""Writes the skeleton of an operator, or of a further kind of one: `make new-operator`, `make new-kind`."""
