"""Members: layout, bootstrap, quorum arithmetic and changes."""
