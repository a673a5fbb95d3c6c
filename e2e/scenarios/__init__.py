"""End-to-end scenarios with real pods."""
