"""Artifacts of a release: notes, SBOMs, images and charts, for CI and for `make release-dry-run`."""
