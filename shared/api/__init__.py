"""Custom resources: models of specs, CRDs, validation rules, admission and reference pages."""
