"""The operators, a package each; none imports another."""
