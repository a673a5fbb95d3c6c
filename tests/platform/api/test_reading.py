"""The reads of the end-to-end tests name and select objects as kubectl does."""

from __future__ import annotations

import os

import pytest

from e2e.scenarios.support.commands import Kubectl, Refused
from e2e.scenarios.support.reading import reader
from tests.platform.api.support.world import World
from tools.local.controlplane import ControlPlane


@pytest.fixture
def kubectl(plane: ControlPlane, world: World) -> Kubectl:
    return Kubectl(world.namespace, {**os.environ, "KUBECONFIG": str(plane.kubeconfig)})


def test_kinds_have_the_names_that_kubectl_accepts(kubectl: Kubectl, world: World) -> None:
    world.create("cache", size=1)
    kubectl("create", "configmap", "settings", "--from-literal=a=b")
    for kind in ("memcached", "memcacheds", "Memcached", "memcacheds.cache.example.com"):
        assert kubectl.get(kind, "cache")["spec"]["size"] == 1
    for kind, name in (("cm", "settings"), ("configmaps", "settings"), ("configmap/settings", "")):
        assert kubectl.get(kind, name)["data"] == {"a": "b"}
    path = reader(kubectl.environment["KUBECONFIG"])._collection("events").path
    assert path == "/api/v1", "of two kinds with the same name, the one that kubectl chooses"


def test_lists_have_what_was_selected_of_all_kinds(kubectl: Kubectl, world: World) -> None:
    for name in ("first", "second"):
        kubectl("create", "configmap", name)
        kubectl("label", "configmap", name, f"called={name}")
    kubectl("create", "serviceaccount", "first")
    assert [each["metadata"]["name"] for each in kubectl.items("configmaps", "-l", "called=second")] == ["second"]
    both = kubectl.items("configmaps,serviceaccounts", "--field-selector", "metadata.name=first")
    assert [(each["apiVersion"], each["kind"]) for each in both] == [("v1", "ConfigMap"), ("v1", "ServiceAccount")]
    everywhere = {each["metadata"]["namespace"] for each in kubectl.items("configmaps", "--all-namespaces")}
    assert {world.namespace, "kube-system"} <= everywhere


def test_missing_object_or_kind_is_refused(kubectl: Kubectl) -> None:
    with pytest.raises(Refused, match="404"):
        kubectl.get("configmap", "missing")
    with pytest.raises(Refused, match="no resource type 'unicorns'"):
        kubectl.items("unicorns")
    nowhere = Kubectl("default", {"KUBECONFIG": kubectl.environment["KUBECONFIG"]})
    assert nowhere.items("configmaps", "-l", "called=nothing") == []
