"""Dashboards and rules as code: what a person sees of the three databases and of their operators.

`python -m dashboards` writes what it generates; nothing of this is in an operator's image.
"""
