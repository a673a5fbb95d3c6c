"""Plans of changes, compared with what then happens on a real cluster."""
