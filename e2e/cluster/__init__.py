"""A real Kubernetes cluster on one Debian machine, from package registries alone (README.md says how)."""
