"""Run the memcached operator: `python -m operators.memcached --help`.

With `exporter` as the first argument, run the metrics sidecar instead. The sidecar runs in every server's pod, so it
imports none of the operator's dependencies.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["exporter"]:
        from operators.memcached.exporter import program

        sys.exit(program.main(sys.argv[2:]))

    import operators
    from operators.memcached.operator import OPERATOR
    from shared.cli.main import main

    main(OPERATOR, operators.installed)
