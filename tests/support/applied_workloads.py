"""Workloads as an operator applied them, and as a real API server stored them."""

from __future__ import annotations

import json

from shared.kubernetes.kinds import Obj
from tests.support import paths

RECORDED: dict[str, dict[str, Obj]] = json.loads((paths.RECORDED / "kubernetes/applied.json").read_text())


def container(workload: Obj) -> Obj:
    found: Obj = workload["spec"]["template"]["spec"]["containers"][0]
    return found
