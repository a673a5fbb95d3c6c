"""Status of a resource: conditions, reasons, events, deadlines and metrics."""
