"""What is reported about a resource: conditions, events, deadlines and metrics."""
