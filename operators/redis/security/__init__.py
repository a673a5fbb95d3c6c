"""Users, Secrets and certificates."""
