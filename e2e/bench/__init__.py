"""How fast and how small an operator is, against the API server it writes to: `make bench`."""
