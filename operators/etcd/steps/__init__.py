"""The steps of the plan."""
