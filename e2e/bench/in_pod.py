"""Run an operator as in a pod: python -m e2e.bench.in_pod DIRECTORY HOST PORT OPERATOR [FLAGS].

The directory has the files of a service account, which the kubelet would mount at a fixed path. Host and port are those
of the API server: this package removes the variables that the kubelet would set.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import operators
from shared.cli.main import main
from shared.kubernetes import credentials

if __name__ == "__main__":
    vars(credentials)["SERVICE_ACCOUNT"] = Path(sys.argv.pop(1))
    os.environ |= {f"KUBERNETES_SERVICE_{part}": sys.argv.pop(1) for part in ("HOST", "PORT")}
    main(importlib.import_module(f"operators.{sys.argv.pop(1)}.operator").OPERATOR, operators.installed)
