"""The crash harness: scenarios, their disturbed runs, and the oracles that check every run."""
