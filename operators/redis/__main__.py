"""Runs the redis operator: `python -m operators.redis --help`."""

from __future__ import annotations

if __name__ == "__main__":
    import operators
    from operators.redis.operator import OPERATOR
    from shared.cli.main import main

    main(OPERATOR, operators.installed)
