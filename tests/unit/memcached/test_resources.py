"""The objects of each golden resource, as files to read: golden/<case>/{memcached,objects}.yaml.

After a change that is meant, write them anew with UPDATE_GOLDEN=1 and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from operators.memcached.api import Memcached
from operators.memcached.observe import Observed
from shared.plan import Apply
from tests.unit.memcached.world import plan

GOLDEN = Path(__file__).parent / "golden"


class Plain(yaml.SafeDumper):
    """Writes each part where it stands, without anchors."""

    def ignore_aliases(self, _: object) -> bool:
        return True


CASES = sorted(path.name for path in GOLDEN.iterdir())


@pytest.mark.parametrize("case", CASES)
def test_the_objects_are_as_written(case: str) -> None:
    given = yaml.safe_load((GOLDEN / case / "memcached.yaml").read_text())
    given["metadata"] |= {"namespace": "default", "uid": "11111111-1111-1111-1111-111111111111", "generation": 1}
    made = [action.obj for action in plan(Memcached.parse(given), Observed()).actions if isinstance(action, Apply)]
    file = GOLDEN / case / "objects.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(yaml.dump_all(made, Dumper=Plain, sort_keys=False))
    assert made == list(yaml.safe_load_all(file.read_text()))
