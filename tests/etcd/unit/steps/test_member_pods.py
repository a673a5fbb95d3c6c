"""Which pods receive clients: those of voters, also after they are recreated."""

from __future__ import annotations

from dataclasses import replace

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects.names import CLIENTS, SERVES
from operators.etcd.state.observed import Observed
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Apply, Patch
from tests.etcd.unit.world import DOWN, LEARNER, VOTER, cluster, plan, seen


def template_labels(resource: EtcdCluster, found: Observed) -> Obj:
    """Return the labels of the template that the plan applies."""
    made = plan(resource, found)
    (applied,) = [
        action.obj for action in made.actions if isinstance(action, Apply) and action.kind.name == "StatefulSet"
    ]
    labels: Obj = applied["spec"]["template"]["metadata"]["labels"]
    return labels


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
    pods = {
        action.obj["metadata"]["name"]: action.change["metadata"]["labels"][SERVES]
        for action in plan(resource, found).actions
        if isinstance(action, Patch) and "labels" in action.change["metadata"]
    }
    assert pods == {"demo-0": CLIENTS, "demo-1": None, "demo-2": CLIENTS}
