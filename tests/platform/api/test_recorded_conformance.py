"""The recorded responses, to which the in-memory API server must conform, match those of this real server."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator

import pytest

from shared.kubernetes.client import Request
from shared.kubernetes.kinds import CRD, Obj
from simulator.api_server.kinds import NAMESPACE
from tests.platform.api.support.live import LiveServer
from tests.support import paths
from tests.support.api_server_scenarios import SCENARIOS, WIDGET, WIDGET_CRD, replay
from tests.support.list_pages import KINDS, OTHER, replay_pages
from tools.local import binaries
from tools.local.controlplane import ControlPlane

RECORD = paths.RECORDED / "kubernetes/kube-apiserver.json"
RECORDED: dict[str, list[Obj]] = json.loads(RECORD.read_text())
PAGES: dict[str, list[Obj]] = json.loads((paths.RECORDED / "kubernetes/list-pages.json").read_text())

SINCE = {"a_pod_is_labelled": 33, "a_stateful_set_with_claims": 34}
"""Minor version of Kubernetes since which responses are as recorded. Before, pods have no metadata.generation, and
templates have a creationTimestamp of null.
"""


@pytest.fixture(scope="module")
def server(plane: ControlPlane) -> Iterator[LiveServer]:
    server = LiveServer(plane, "recorded")
    server.actor("test").apply(CRD, WIDGET_CRD)
    deadline = time.monotonic() + 30
    while server.handle(Request("GET", WIDGET.path("recorded"))).status == 404:
        assert time.monotonic() < deadline, "the API server does not serve the CRD of the scenarios"
        time.sleep(0.2)
    yield server
    server.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_responses_match_the_recording(plane: ControlPlane, server: LiveServer, name: str) -> None:
    minor = binaries.minor_version(plane.kubernetes)
    if minor < SINCE.get(name, 0):
        pytest.skip(f"Kubernetes 1.{minor} has other fields")
    namespace = f"recorded-{name.replace('_', '-')}"
    server.actor("test").create(NAMESPACE, {"metadata": {"name": namespace}})
    assert json.loads(json.dumps(replay(SCENARIOS[name], server.actor, namespace))) == RECORDED[name]


@pytest.mark.parametrize("plural", KINDS)
def test_pages_of_lists_match_the_recording(plane: ControlPlane, server: LiveServer, plural: str) -> None:
    namespace = f"zz-pages-of-{plural}"  # no other namespace follows it in a list
    for name in (namespace, namespace + OTHER):
        server.actor("test").create(NAMESPACE, {"metadata": {"name": name}})
    replayed = replay_pages(server, KINDS[plural], namespace, lambda: compact(plane.etcd_url))
    assert json.loads(json.dumps(replayed)) == PAGES[plural]


def compact(etcd: str) -> None:
    """Remove all former versions from etcd."""
    found = _post(f"{etcd}/v3/kv/range", {"key": "AA=="})
    _post(f"{etcd}/v3/kv/compaction", {"revision": found["header"]["revision"], "physical": True})


def _post(url: str, body: Obj) -> Obj:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: Obj = json.load(answer)
        return found
