"""What the platform does with real pods."""
