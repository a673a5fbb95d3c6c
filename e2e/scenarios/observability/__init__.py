"""A real Prometheus over the operators and what they run, with the charts' own monitors and rules."""
