"""Version of this release: images contain no metadata of the package."""

VERSION = "0.2.0"
"""The same as in pyproject.toml and in the charts."""
