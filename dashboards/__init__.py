"""Grafana dashboards and Prometheus rules as code, for the databases and their operators.

`python -m dashboards` writes the generated files. Operator images do not contain this package.
"""
