"""Custom resources: models of specs, CRDs, rules, admission and reference pages."""
