"""What the Redis operator does with real nodes, while clients write."""
