"""Code that the operators share; it knows none of them (see docs/architecture.md)."""
