"""The crash harness: scenarios, how they are played, and what every run must hold."""
