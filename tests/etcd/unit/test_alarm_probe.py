"""Probe for alarms: a full quota is found between two observations, and a healthy cluster costs one request."""

from __future__ import annotations

from typing import Any

import pytest

from operators.etcd.client.errors import EtcdError, Unreachable
from operators.etcd.client.responses import has_alarm
from operators.etcd.client.server import Access, Endpoint
from operators.etcd.objects import names
from operators.etcd.operator import clusters
from operators.etcd.steps.availability import POLL_SECONDS
from shared.cli.options import parse_options
from shared.kubernetes.kinds import POD, Obj
from shared.runtime.probing import PROBE_INTERVAL_SECONDS
from tests.etcd.simulation.database import FakeEtcd
from tests.etcd.unit.world import SETTINGS, cluster
from tests.harness.scenario import unobserved
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd.scenarios import ETCD, to_etcd
from tests.support.etcd.scenarios import cluster as apply_cluster

OPTIONS = parse_options("etcd-operator", "etcd", [], {})


class Member:
    """Server of one member that has an alarm, or not."""

    def __init__(self, answer: bool | EtcdError) -> None:
        self.answer = answer
        self.requests: list[tuple[str, Access]] = []

    def connect(self, endpoint: Endpoint, access: Access) -> Any:
        self.requests.append((endpoint.name, access))
        return self

    async def has_alarm(self) -> bool:
        if isinstance(self.answer, EtcdError):
            raise self.answer
        return self.answer

    async def aclose(self) -> None:
        self.requests.append(("closed", Access()))


async def probe(member: Member, obj: Obj, *, ready: bool = True) -> bool:
    controller = clusters(OPTIONS, member.connect)
    cache = controller.cache(lambda _: None)
    labels = names.owner(cluster(), SETTINGS.operator).labels(names.COMPONENT)
    for number in range(3):
        metadata = {"name": f"demo-{number}", "namespace": "default", "uid": str(number), "labels": labels}
        status = {"podIP": f"10.0.0.{number}", "conditions": [{"type": "Ready", "status": str(ready)}]}
        status["containerStatuses"] = [{"name": "etcd", "ready": ready, "state": {"running": {}}}]
        cache.put(POD, {"metadata": metadata | {"resourceVersion": "1"}, "status": status})
    assert controller.probe is not None
    return await controller.probe(obj, cache)


async def test_alarm_is_found_with_one_request_without_credentials() -> None:
    member = Member(True)
    assert await probe(member, cluster().obj)
    assert member.requests == [("demo-0", Access()), ("closed", Access())]


@pytest.mark.parametrize("answer", [False, Unreachable("no answer")])
async def test_healthy_or_unreachable_member_needs_no_reconcile(answer: bool | EtcdError) -> None:
    assert not await probe(Member(answer), cluster().obj)


async def test_nothing_is_requested_if_nothing_can_be_new() -> None:
    member = Member(True)
    reported = [{"name": "demo-1", "id": "00000000000000a1", "alarms": ["NOSPACE"]}]
    assert not await probe(member, cluster(status={"members": reported}).obj)
    assert not await probe(member, cluster(recorded=None).obj)
    assert not await probe(member, cluster().obj, ready=False)
    assert member.requests == []


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"health": "true", "reason": ""}, False),
        ({"health": "false", "reason": "ALARM NOSPACE"}, True),
        ({"health": "false"}, True),
        ({"health": "false", "reason": "RAFT NO LEADER"}, False),
    ],
)
def test_health_is_parsed(answer: Obj, found: bool) -> None:
    assert has_alarm(answer) is found


async def test_full_quota_is_reported_and_relieved_within_ten_seconds() -> None:
    """Without the probe, a complete cluster is observed every 30 seconds."""
    assert PROBE_INTERVAL_SECONDS + 2 < 10 < POLL_SECONDS
    run = ScenarioRun(World(ETCD))
    await run.run_steps((apply_cluster(3),))
    etcd = run.world.database
    assert isinstance(etcd, FakeEtcd)
    etcd.fill()
    [found] = run.stage.find()
    assert run.operator is not None
    controller = ETCD.controller(etcd)
    assert controller.probe is not None
    assert await controller.probe(found, run.operator.cache), "the cluster is reconciled at once"
    await run.run_steps((unobserved(to_etcd("nothing", lambda _: None)),))
    assert etcd.cluster().alarms == set()
