"""Which pods get the label of the client Service (`label_serving_pods`)."""

from __future__ import annotations

from dataclasses import replace

from operators.redis.api.resource import RedisCluster
from operators.redis.objects.names import CLIENTS, SERVES
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from tests.redis.unit.world import At, formed, node_id, of, plan, replica, thirds, world

UNLABELLED = {"app": "redis"}
"""Labels of a pod that was recreated: not those of the client Service."""


def labelled(resource: RedisCluster, found: Observed) -> list[str]:
    """Return the pods that the plan adds to the client Service."""
    return [
        action.obj["metadata"]["name"]
        for action in of(plan(resource, found).actions, "Patch")
        if action.change.get("metadata", {}).get("labels", {}).get(SERVES) == CLIENTS
    ]


def test_members_without_the_label_get_it() -> None:
    primary, *others = formed()
    assert labelled(*world(At(primary.slots, keys=10, labels=UNLABELLED), *others)) == ["demo-0"]


def test_other_shards_serve_clients_while_a_lost_one_waits_for_consent() -> None:
    """A new node never learns the slots of a lost primary, so that the nodes agree only after a recovery."""
    first, *rest = thirds()
    lost = At(first, up=False, failed=True, disk="another")
    members = [At(slots, keys=10, labels=UNLABELLED) for slots in rest]
    replicas = [replica(of, keys=10, labels=UNLABELLED) for of in (1, 2)]
    new = At(incarnation=1, epoch=0, disk="another", labels=UNLABELLED)
    resource, found = world(lost, *members, new, *replicas)
    instances = list(found.instances)
    instances[3] = _unaware_of(instances[3], node_id(0))
    assert labelled(resource, replace(found, instances=tuple(instances))) == ["demo-1", "demo-2", "demo-4", "demo-5"]


def _unaware_of(instance: Instance, owner: str) -> Instance:
    """Let a node report no slots of an owner, whose messages it never received."""
    assert instance.report
    nodes = tuple(replace(node, slots=Slots()) if node.id == owner else node for node in instance.report.nodes)
    return replace(instance, report=replace(instance.report, nodes=nodes))


def test_empty_node_that_answers_alone_does_not_serve_clients() -> None:
    """No other report contradicts it; a client would find no slot there."""
    away = [At(spot.slots, of=spot.of, up=False) for spot in formed()[1:]]
    alone = At(incarnation=1, member=False, knows=False, epoch=0, disk="another", labels=UNLABELLED)
    assert labelled(*world(alone, *away)) == []
