"""Results of the benchmark of scale: how metrics are read, and which goals are missed."""

from __future__ import annotations

import dataclasses

from e2e.bench.measures import KIB, quantile
from e2e.bench.scale_measures import Changes, Scale
from e2e.bench.scale_replicas import Scrape

TEXT = """\
# TYPE controller_runtime_reconcile_total counter
controller_runtime_reconcile_total{controller="etcdcluster",result="success"} 5.0
controller_runtime_reconcile_total{controller="etcdbackup",result="success"} 2.0
workqueue_queue_duration_seconds_bucket{controller="etcdcluster",le="0.1",name="etcdcluster"} 90.0
workqueue_queue_duration_seconds_bucket{controller="etcdcluster",le="1.0",name="etcdcluster"} 100.0
workqueue_queue_duration_seconds_bucket{controller="etcdcluster",le="+Inf",name="etcdcluster"} 100.0
bench_longest_block_seconds 0.04
"""

QUIET = (0.01, 0.01)
CHANGES = Changes(
    count=600,
    queue_p99=0.1,
    reconcile_p99=0.2,
    reported_p50=0.05,
    reported_p99=0.3,
    blocks=QUIET,
    scraped=1.0,
    scrape_blocks=QUIET,
)
SCALE = Scale(
    operator="memcached",
    count=10_000,
    loaded=100.0,
    rested=150.0,
    memory=12 * KIB,
    restarted=12 * KIB,
    changes=CHANGES,
    synced=5.0,
    reconciled=20.0,
    handover=1.5,
    crash=16.0,
    load_blocks=QUIET,
    start_blocks=QUIET,
    takeover_blocks=QUIET,
)


def test_samples_of_several_controllers_are_summed() -> None:
    scrape = Scrape(TEXT)
    assert scrape.total("controller_runtime_reconcile_total") == 7
    assert scrape.total("controller_runtime_reconcile_total", 'controller="etcdbackup"') == 2
    assert scrape.total("bench_longest_block_seconds") == 0.04
    assert 0.9 < quantile(scrape.histogram("workqueue_queue_duration_seconds"), 0.99) < 1


def test_missed_goals_are_those_of_the_measures_that_exceed_their_bound() -> None:
    assert all(goal.met for goal in SCALE.goals)
    worse = dataclasses.replace(
        SCALE, restarted=21 * KIB, crash=21.0, changes=dataclasses.replace(CHANGES, blocks=(0.11, 0.05))
    )
    missed = [goal.name.removeprefix("10000 × memcached: ") for goal in worse.goals if not goal.met]
    assert missed == ["longest block during changes, ms", "memory per resource, KiB", "handover after a crash, s"]
