"""The table of past defects: every id has a case, and tests/README.md has the rows."""

from __future__ import annotations

from tests.etcd.simulation import past_defects as etcd
from tests.redis.simulation import past_defects as redis
from tests.support import paths
from tests.support.past_defects import IDS, row_of

TABLE = (*redis.DEFECTS, *etcd.DEFECTS)


def test_every_defect_that_lost_data_has_a_case() -> None:
    assert {defect.id for defect in TABLE} == {*IDS}


def test_page_has_the_table() -> None:
    page = (paths.REPOSITORY / "tests/README.md").read_text()
    assert "\n".join(map(row_of, TABLE)) in page
