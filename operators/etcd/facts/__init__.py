"""Facts that follow from the observed state, and that several steps need. Pure."""
