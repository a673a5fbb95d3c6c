"""Replay of recorded writes, and the audit log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.bench.audit import Audit, Call
from e2e.bench.bare import replay

APPLY = "/apis/apps/v1/namespaces/default/deployments/a?fieldManager=op&force=true"
STATUS = "/apis/cache.example.com/v1alpha1/namespaces/default/memcacheds/a/status?fieldManager=op"


def call(verb: str, uri: str, body: Any) -> Call:
    return Call(verb, uri, "", "a", body, 200, 0.0, 1.0)


def test_replayed_apply_names_the_new_owner_and_keeps_its_precondition() -> None:
    metadata = {"ownerReferences": [{"name": "a", "uid": "old"}], "resourceVersion": "1"}
    sent = replay(call("patch", APPLY, {"metadata": metadata}), {"old": "new"})
    assert (sent.method, sent.uri, sent.content_type) == ("PATCH", APPLY, "application/apply-patch+yaml")
    expected = {"metadata": {"ownerReferences": [{"name": "a", "uid": "new"}], "resourceVersion": "1"}}
    assert json.loads(sent.body) == expected


def test_replayed_status_has_no_resource_version() -> None:
    body = {"metadata": {"resourceVersion": "77"}, "status": {"phase": "Creating"}}
    sent = replay(call("patch", STATUS, body), {})
    assert sent.content_type == "application/merge-patch+json"
    assert json.loads(sent.body) == {"metadata": {}, "status": {"phase": "Creating"}}


def test_replayed_event_refers_to_the_new_object() -> None:
    uri = "/api/v1/namespaces/default/events?fieldManager=op"
    sent = replay(call("create", uri, {"involvedObject": {"name": "a", "uid": "old"}}), {"old": "new"})
    assert (sent.method, sent.content_type) == ("POST", "application/json")
    assert json.loads(sent.body) == {"involvedObject": {"name": "a", "uid": "new"}}


def entry(verb: str, stage: str = "ResponseComplete") -> bytes:
    content = {
        "verb": verb,
        "stage": stage,
        "requestURI": f"/{verb}",
        "objectRef": {"resource": "things", "subresource": "status", "name": "a"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": "2030-01-01T00:00:00.250000Z",
        "stageTimestamp": "2030-01-01T00:00:01.000000Z",
    }
    return json.dumps(content).encode() + b"\n"


def test_log_is_read_incrementally(tmp_path: Path) -> None:
    audit = Audit(tmp_path, "op", bodies=False)
    assert audit.new_calls() == []
    log = tmp_path / "audit.log"
    half = entry("patch")[:40]
    log.write_bytes(entry("list") + half)
    (listed,) = audit.new_calls()
    assert (listed.verb, listed.resource, listed.is_write) == ("list", "things/status", False)
    assert listed.ended - listed.began == 0.75
    log.write_bytes(entry("list") + entry("patch"))
    assert [(found.verb, found.is_write) for found in audit.new_calls()] == [("patch", True)]


def test_watch_is_counted_once_at_its_start(tmp_path: Path) -> None:
    audit = Audit(tmp_path, "op", bodies=False)
    (tmp_path / "audit.log").write_bytes(entry("watch", "ResponseStarted") + entry("watch"))
    assert len(audit.new_calls()) == 1
