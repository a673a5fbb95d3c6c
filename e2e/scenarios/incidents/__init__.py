"""A catalogue of incidents: which alerts page and warn, which conditions and tiles show it, and that it ends."""
