"""The process of an operator imports large libraries only if it uses them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

RARELY_USED = ("cryptography", "kubernetes", "opentelemetry", "requests", "urllib3")
"""Packages that take 2 to 9 MiB each: for certificates of its own, kubeconfigs, traces; none of the others."""

BY_REDIS_PY = ["cryptography", "opentelemetry"]


@pytest.mark.parametrize(("operator", "imported"), [("etcd", []), ("memcached", []), ("redis", BY_REDIS_PY)])
def test_operator_does_not_import_what_it_rarely_uses(operator: str, imported: list[str]) -> None:
    program = (
        f"import json, sys; import shared.cli.main, operators.{operator}.operator\n"
        f"print(json.dumps([name for name in {RARELY_USED} if name in sys.modules]))\n"
        "import kopf, kubernetes.aio.config, shared.pki.ca\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"each can still be imported: {ended.stderr}"
    assert json.loads(ended.stdout) == imported
