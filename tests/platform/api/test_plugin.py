"""kubectl platform against a real API server: kubeconfig, pages of lists, a stale consent, the server's time."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from plugin import session
from shared.kubernetes import client
from shared.kubernetes.kinds import Obj
from shared.status.reconciliation_pause import PAUSE
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, REDIS_CLUSTER, World
from tools.local.controlplane import ControlPlane
from tools.local.paths import REPOSITORY

Platform = Callable[..., str]


class Refused(Exception):
    """A command failed; the message is its output."""


@pytest.fixture
def platform(plane: ControlPlane, world: World) -> Platform:
    """Return `kubectl platform` in the namespace of the test."""

    def run(*words: str) -> str:
        where = ["--kubeconfig", str(plane.kubeconfig), "--namespace", world.namespace]
        command = [sys.executable, "-m", "plugin", *words, *where]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=60)
        if done.returncode:
            raise Refused(done.stderr)
        return done.stdout

    return run


def test_status_and_why_show_a_resource_and_its_servers(world: World, operator: Operator, platform: Platform) -> None:
    world.create(size=2)
    world.eventually(world.is_ready)
    assert "Memcached/cache" in platform("status")
    found = json.loads(platform("status", "memcached/cache", "-o", "json"))
    assert [server["status"] for server in found["servers"]] == ["True", "True"]
    facts = json.loads(platform("why", "mc/cache", "-o", "json"))
    assert "is Ready" in facts[0]["text"]
    assert "wrote the spec last" in " ".join(fact["text"] for fact in facts if fact["source"] == "managedFields")


def test_all_namespaces_are_listed_in_pages(
    world: World, platform: Platform, monkeypatch: pytest.MonkeyPatch, plane: ControlPlane
) -> None:
    names = [f"cache-{number}" for number in range(7)]
    for name in names:
        world.create(name)
    for name, items in (("FIRST_PAGE_ITEMS", 2), ("MAX_PAGE_ITEMS", 3)):
        monkeypatch.setattr(client, name, items)

    async def listed() -> list[Obj]:
        target = session.Target(kubeconfig=str(plane.kubeconfig), namespace=world.namespace)
        async with session.connected(target) as found:
            return await found.objects(MEMCACHED, world.namespace)

    assert sorted(each["metadata"]["name"] for each in asyncio.run(listed())) == names


def test_pause_and_resume(world: World, platform: Platform) -> None:
    world.create(size=1)
    platform("pause", "memcached/cache")
    assert world.get(MEMCACHED)["metadata"]["annotations"][PAUSE] == "true"
    platform("resume", "memcached/cache")
    assert PAUSE not in (world.get(MEMCACHED)["metadata"].get("annotations") or {})


def test_consent_is_for_what_was_shown(world: World, platform: Platform) -> None:
    recovery: Obj = {
        "token": "abcde",
        "slots": "0-5460",
        "nodes": [],
        "message": "All keys of the slots 0-5460 are lost.",
    }
    world.user_client.create(
        REDIS_CLUSTER,
        {
            "apiVersion": REDIS_CLUSTER.api_version,
            "kind": REDIS_CLUSTER.name,
            "metadata": world.metadata(),
            "spec": {"replicas": 6},
        },
    )
    world.user_client.merge(
        REDIS_CLUSTER, world.namespace, "cache", {"status": {"recovery": recovery}}, subresource="status"
    )
    with pytest.raises(Refused, match="it is another loss"):
        platform("confirm", "rediscluster/cache", "--token", "fedcba")
    assert recovery["message"] in platform("confirm", "rediscluster/cache", "--token", "abcde")
    assert world.user_client.get(REDIS_CLUSTER, world.namespace, "cache")["spec"]["recovery"] == {"confirm": "abcde"}


def test_doctor_sees_version_kinds_and_time(platform: Platform) -> None:
    findings = {each["check"]: each for each in json.loads(platform("doctor", "-o", "json"))}
    expected = ["Kubernetes", "kind RedisCluster", "kind EtcdCluster", "kind EtcdBackup", "kind Memcached", "time"]
    assert {check: findings[check]["state"] for check in expected} == dict.fromkeys(expected, "ok")
    assert findings["storage"]["text"] == "No StorageClass is the default (classes: none)."
    assert findings["redis operator"]["state"] == "warning"


def test_cluster_that_cannot_be_reached_is_an_error_with_a_fix(platform: Platform) -> None:
    with pytest.raises(Refused, match=r"error: cannot read the kubeconfig .*\n  fix: set KUBECONFIG"):
        platform("status", "--context", "none")
