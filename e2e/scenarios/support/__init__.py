"""What scenarios share: clients, load, the operator, the release."""
