"""Developer tools of this project."""
