"""The cluster as its nodes report it: slots, the merged view, conflicts, placement."""
