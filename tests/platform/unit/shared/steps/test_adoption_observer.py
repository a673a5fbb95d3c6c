"""Reading of the volumes that a resource adopts: every resource can name the UID of any other, or of none."""

from __future__ import annotations

import pytest

from operators.redis.api.resource import API
from operators.redis.objects.names import CLUSTER_UID
from operators.redis.operator import OPERATOR
from shared.cli.options import parse_options
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, Kind, Obj
from shared.kubernetes.ownership import INSTANCE, NAME
from shared.runtime.cache import Cache
from shared.steps.adoption_observer import adopted_volumes
from simulator.harness import NAMESPACE, Harness

FORMER = "00000000-0000-4000-8000-000000000000"


class Bench:
    """An operator with some resources, of which the first one adopts volumes."""

    def __init__(self, uid: str = "", count: int = 1) -> None:
        options = parse_options("redis-operator", "redis", ["--agent-image=operator:1"], {})
        self.harness = Harness(OPERATOR.kinds[0].controller(options))
        self.others = [self.harness.apply(f"other-{number}", replicas=6)["metadata"]["uid"] for number in range(count)]
        self.harness.apply("demo", replicas=6, adopt={"fromUID": uid or self.others[-1]})

    def claim(self, uid: str) -> None:
        labels = {INSTANCE: "demo", NAME: "redis", CLUSTER_UID: uid}
        metadata = {"name": "data-demo-0", "namespace": NAMESPACE, "labels": labels}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}}
        self.harness.user_client.apply(PERSISTENT_VOLUME_CLAIM, body, force=True)

    async def read(self) -> tuple[list[Obj], str]:
        cache = self.harness.cache
        resource = self.harness.controller.resource(self.harness.resource("demo"), cache)
        return await adopted_volumes(resource, API.kind, "redis", CLUSTER_UID, cache, self.harness.reconciler._kube)


async def test_uid_that_no_resource_has_costs_nothing_with_many_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(FORMER, 1_000)
    before = bench.harness.server.log.reads["LIST"]

    def unpacked(_: Cache, kind: Kind, __: object) -> Obj:
        raise AssertionError(f"a {kind} was unpacked")

    monkeypatch.setattr(Cache, "_unpacked", unpacked)
    assert await bench.read() == ([], "")
    assert bench.harness.server.log.reads["LIST"] == before + 1, "only the claims are listed"


async def test_resource_that_exists_is_named() -> None:
    bench = Bench(count=3)
    assert await bench.read() == ([], f"{NAMESPACE}/other-2")
    bench.harness.user_client.delete(API.kind, NAMESPACE, "other-2")
    assert await bench.read() == ([], "")


async def test_resource_that_the_cache_lacks_is_named_once_there_are_claims_to_adopt() -> None:
    bench = Bench(count=3)
    bench.claim(bench.others[-1])
    bench.harness.cache._by_uid.clear()
    (claim,), former = await bench.read()
    assert (claim["metadata"]["name"], former) == ("data-demo-0", f"{NAMESPACE}/other-2")
