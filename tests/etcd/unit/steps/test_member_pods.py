"""Which pods receive clients: those of voters, also after they are recreated."""

from __future__ import annotations

from dataclasses import replace

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects.names import CLIENTS, KEPT, SERVES
from operators.etcd.state.observed import Observed
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Apply, Patch
from tests.etcd.unit.world import DOWN, LEARNER, VOTER, At, cluster, plan, seen


def template_labels(resource: EtcdCluster, found: Observed) -> Obj:
    """Return the labels of the template that the plan applies."""
    made = plan(resource, found)
    (applied,) = [
        action.obj for action in made.actions if isinstance(action, Apply) and action.kind.name == "StatefulSet"
    ]
    labels: Obj = applied["spec"]["template"]["metadata"]["labels"]
    return labels


def labels_of_pods(resource: EtcdCluster, found: Observed) -> dict[str, str | None]:
    """Return the label that the plan gives to each pod; None removes it."""
    return {
        action.obj["metadata"]["name"]: action.change["metadata"]["labels"][SERVES]
        for action in plan(resource, found).actions
        if isinstance(action, Patch) and "labels" in action.change["metadata"]
    }


def test_pod_of_a_learner_receives_no_clients_when_it_is_recreated() -> None:
    """The learner has started, so that the template permits no pod to join; its pod is recreated from this template."""
    resource = cluster()
    assert template_labels(resource, seen(resource, VOTER, VOTER, VOTER))[SERVES] == CLIENTS
    assert SERVES not in template_labels(resource, seen(resource, VOTER, LEARNER, VOTER))
    assert SERVES not in template_labels(resource, seen(resource, VOTER, replace(LEARNER, up=False, pod=False), VOTER))


def test_operator_that_is_cut_off_keeps_the_label_of_new_pods() -> None:
    resource = cluster()
    unreachable = replace(DOWN, runs=True, ready=True)
    for member, labelled in ((VOTER, True), (LEARNER, False)):
        before = seen(resource, VOTER, member, VOTER).stateful_set
        found = seen(resource, unreachable, unreachable, unreachable, known=False, leader=None)
        assert (SERVES in template_labels(resource, replace(found, stateful_set=before))) == labelled


def test_label_for_clients_is_removed_from_the_pod_of_a_learner() -> None:
    resource = cluster()
    found = seen(resource, VOTER, LEARNER, VOTER)
    assert labels_of_pods(resource, found) == {"demo-0": CLIENTS, "demo-1": None, "demo-2": CLIENTS}


def test_pods_on_volumes_that_a_recovery_kept_receive_no_clients() -> None:
    """The disks may be mounted again, and the pods then have the quorum of the former cluster."""
    resource, former = cluster(3, recorded=(2,)), At(member=False, up=False, ready=True, runs=True)
    found = seen(resource, former, former, VOTER, leader=2)
    for instance in found.instances[:2]:
        assert instance.volume is not None
        instance.volume["metadata"]["annotations"] = {KEPT: "abcdefabcdef"}
    assert labels_of_pods(resource, found) == {"demo-0": None, "demo-1": None, "demo-2": CLIENTS}
    assert SERVES not in template_labels(resource, found)
    starting = replace(found, members=None, cluster_id=0)
    assert SERVES not in template_labels(resource, starting), "while the survivor starts"
    assert labels_of_pods(resource, starting) == {}, "without a list of members, any of them may be one"
