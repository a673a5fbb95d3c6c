"""Objects of example resources as golden files: golden/<case>/{memcached,objects}.yaml.

After an intended change, update the files with UPDATE_GOLDEN=1 and review the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from operators.memcached.api.resource import Memcached, workload_kind
from operators.memcached.security.secrets import Secrets
from operators.memcached.state.observed import Observed, Workload
from shared.runtime.plan import Apply
from tests.memcached.unit.world import plan

GOLDEN = Path(__file__).parent / "golden"


class Plain(yaml.SafeDumper):
    """YAML without anchors, and with multi-line strings as blocks."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def _as_it_reads(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Plain.add_representer(str, _as_it_reads)

CASES = sorted(path.name for path in GOLDEN.iterdir())


@pytest.mark.parametrize("case", CASES)
def test_objects_match_the_golden_file(case: str) -> None:
    given = yaml.safe_load((GOLDEN / case / "memcached.yaml").read_text())
    given["metadata"] |= {"namespace": "default", "uid": "11111111-1111-1111-1111-111111111111", "generation": 1}
    resource = Memcached.parse(given)
    secrets = Secrets(
        users="app:one\n" if resource.spec.auth else "",
        authority="ca" if resource.spec.needs_client_certificate and resource.spec.tls_mode != "self" else "",
    )
    seen = Observed(Workload(workload_kind(resource)), secrets=secrets)
    made = [action.obj for action in plan(resource, seen).actions if isinstance(action, Apply)]
    file = GOLDEN / case / "objects.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(yaml.dump_all(made, Dumper=Plain, sort_keys=False))
    assert made == list(yaml.safe_load_all(file.read_text()))


def test_minimal_resource_owns_only_a_network_policy_a_service_and_a_stateful_set() -> None:
    objects = yaml.safe_load_all((GOLDEN / "seed" / "objects.yaml").read_text())
    assert [obj["kind"] for obj in objects] == ["NetworkPolicy", "Service", "StatefulSet"]
