"""Run the etcd operator: `python -m operators.etcd --help`.

With `snapshot`, `fetch` or `seal` as the first argument, run that work on a snapshot instead, without importing the
operator.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if sys.argv[1:2] in (["snapshot"], ["fetch"], ["seal"]):
        from operators.etcd.backup import program

        sys.exit(program.main(sys.argv[1:]))

    import operators
    from operators.etcd.operator import OPERATOR
    from shared.cli.main import main

    main(OPERATOR, operators.installed)
