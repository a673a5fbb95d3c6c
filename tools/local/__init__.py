"""A real Kubernetes cluster on one Debian machine, built from package registries only (see README.md)."""
