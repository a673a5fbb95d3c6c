"""Sets of hash slots, moves of slots, and the placement of primaries and replicas. Pure."""
