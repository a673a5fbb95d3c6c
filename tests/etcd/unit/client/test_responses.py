"""Parsing of the replies of etcd's gateway in every supported version."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from operators.etcd.client import responses
from operators.etcd.client.errors import (
    Denied,
    EtcdError,
    NoLeader,
    NoSpace,
    NoSuchMember,
    NotInSync,
    Refused,
    Unauthenticated,
    Unhealthy,
    Unreachable,
    Unsupported,
)
from operators.etcd.client.server import Alarm, EndpointStatus, HashKV, Member, Members, RaftProgress

HEADER = {"cluster_id": "18446744073709551615", "member_id": "9223372036854775808", "revision": "7", "raft_term": "2"}
STATUS = {
    "header": HEADER,
    "version": "3.6.16",
    "dbSize": "8589934592",
    "dbSizeInUse": "4096",
    "leader": "9223372036854775808",
    "raftIndex": "12",
    "raftAppliedIndex": "11",
    "raftTerm": "2",
}
METRICS = """# TYPE etcd_server_id gauge
etcd_server_id{server_id="2e1259d415f2a040"} 1
etcd_server_proposals_applied_total 1.6777217e+07
etcd_debugging_mvcc_current_revision 407
"""


def v3(text: str, code: int = 9) -> bytes:
    """Encode an error as etcd 3.6 and 3.7 do."""
    return json.dumps({"code": code, "message": text, "details": []}).encode()


def v1(text: str, code: int = 9) -> bytes:
    """Encode an error as etcd 3.4 and 3.5 do."""
    return json.dumps({"error": text, "code": code, "message": text}).encode()


def streamed(text: str) -> bytes:
    return json.dumps({"error": {"grpc_code": 16, "http_code": 401, "message": text, "http_status": "x"}}).encode()


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("etcdserver: unhealthy cluster", 14, Unhealthy),
        ("etcdserver: re-configuration failed due to not enough started members", 2, Unhealthy),
        ("etcdserver: can only promote a learner member which is in sync with leader", 9, NotInSync),
        ("etcdserver: can only promote a learner member", 9, Refused),
        ("etcdserver: member not found", 5, NoSuchMember),
        ("etcdserver: mvcc: database space exceeded", 8, NoSpace),
        ("etcdserver: no leader", 14, NoLeader),
        ("etcdserver: leader changed", 14, NoLeader),
        ("etcdserver: request timed out, possibly due to connection lost", 14, NoLeader),
        ("etcdserver: request timed out, leader transfer took too long", 2, NoLeader),
        ("context deadline exceeded", 4, NoLeader),
        ("etcdserver: server stopped", 14, Unreachable),
        ("etcdserver: user name is empty", 3, Unauthenticated),
        ("auth: user name is empty", 2, Unauthenticated),
        ("etcdserver: invalid auth token", 16, Unauthenticated),
        ("etcdserver: revision of auth store is old", 3, Unauthenticated),
        ("etcdserver: authentication failed, invalid user ID or password", 3, Denied),
        ("etcdserver: permission denied", 7, Denied),
        ("etcdserver: rpc not supported for learner", 14, Refused),
        ("etcdserver: rpc not supported for learner", 9, Refused),
        ("etcdserver: Peer URLs already exists", 9, Refused),
        ("etcdserver: mvcc: required revision has been compacted", 11, Refused),
        ("Not Found", 5, Unsupported),
        ("unknown method AuthStatus for service etcdserverpb.Auth", 12, Unsupported),
        ('connection error: desc = "transport: error while dialing"', 14, Unreachable),
        ("connection closed", 14, Unreachable),
    ],
)
def test_error_has_the_same_type_in_every_version(text: str, code: int, kind: type[EtcdError]) -> None:
    for body in (v1(text, code), v3(text, code)):
        found, message = responses.refusal(body)
        assert found is kind
        assert message.startswith(text)


def test_error_in_a_stream_is_parsed() -> None:
    assert responses.refusal(streamed("etcdserver: invalid auth token"))[0] is Unauthenticated


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"Client sent an HTTP request to an HTTPS server.\n", Unreachable, "it requires TLS"),
        (b"404 page not found\n", Unsupported, "--enable-grpc-gateway"),
        (b"CommonName of client sending a request against gateway will be ignored", Denied, "issue one without it"),
        (b"<html>\n<h1>502 Bad\n Gateway</h1></html>", Unreachable, "<html> <h1>502 Bad Gateway</h1></html>"),
        (b"", Unreachable, "nothing"),
        (b"\xff\xfe", Unreachable, "�"),
        (b"x" * 5000, Unreachable, "x" * 300 + "…"),
        (b"[]", Unreachable, "[]"),
        (b'{"error": {"message": ', Unreachable, '{"error"'),
        (v3('connection error: desc = "remote error: tls: bad certificate"', 14), Unreachable, "client auth"),
    ],
)
def test_error_that_is_not_etcds_is_reported_with_advice(body: bytes, kind: type[EtcdError], expected: str) -> None:
    found, message = responses.refusal(body)
    assert found is kind
    assert expected in message


def test_64_bit_numbers_are_strings_and_zeros_are_omitted() -> None:
    assert responses.status(STATUS) == EndpointStatus(
        cluster_id=2**64 - 1,
        member_id=2**63,
        leader=2**63,
        version="3.6.16",
        revision=7,
        raft_term=2,
        raft_index=12,
        raft_applied=11,
        db_size=8 * 2**30,
        db_in_use=4096,
    )
    learner = responses.status(
        {"header": HEADER, "version": "3.4.13", "isLearner": True, "errors": ["etcdserver: no leader"]}
    )
    assert (learner.leader, learner.db_size, learner.learner) == (0, 0, True)
    assert (learner.errors, learner.alarms) == (("etcdserver: no leader",), ())
    target = {"enabled": True, "targetVersion": "3.5.0"}
    downgraded = responses.status({**STATUS, "storageVersion": "3.6.0", "downgradeInfo": target})
    assert (downgraded.storage_version, downgraded.downgrade_target) == ("3.6.0", "3.5.0")
    assert responses.status({**STATUS, "downgradeInfo": {}}).downgrade_target == ""


def test_alarms_are_read_from_the_list_and_from_status_errors() -> None:
    listed = {"alarms": [{"memberID": "9223372036854775808", "alarm": "NOSPACE"}, {"alarm": "CORRUPT"}]}
    assert responses.alarms(listed) == (Alarm(2**63, "NOSPACE"), Alarm(0, "CORRUPT"))
    assert responses.alarms({"header": HEADER}) == ()
    errors = ["memberID:9223372036854775808 alarm:NOSPACE ", "memberID:2  alarm:CORRUPT", "etcdserver: no leader"]
    assert responses.status({**STATUS, "errors": errors}).alarms == (Alarm(2**63, "NOSPACE"), Alarm(2, "CORRUPT"))


def test_member_that_has_not_started_has_no_name() -> None:
    started = {"ID": "1", "name": "demo-0", "peerURLs": ["http://a:2380"], "clientURLs": ["http://a:2379"]}
    added = {"ID": "18446744073709551615", "peerURLs": ["http://b:2380", "http://c:2380"], "isLearner": True}
    learner = Member(2**64 - 1, "", ("http://b:2380", "http://c:2380"), learner=True)
    found = responses.members({"header": HEADER, "members": [started, added]})
    assert found == Members(2**64 - 1, (Member(1, "demo-0", ("http://a:2380",)), learner))
    assert responses.added({"header": HEADER, "member": added}) == learner


def test_hash_revision_defaults_to_the_requested_or_current_revision() -> None:
    answer = {"header": HEADER, "hash": 4294967295, "compact_revision": "-1"}
    assert responses.hash_kv({**answer, "hash_revision": "5"}, 0) == HashKV(4294967295, 5, -1)
    assert responses.hash_kv(answer, 6) == HashKV(4294967295, 6, -1)
    assert responses.hash_kv(answer, 0) == HashKV(4294967295, 7, -1)


def test_progress_is_read_from_metrics() -> None:
    assert responses.progress(METRICS) == RaftProgress(0x2E1259D415F2A040, 16777217, 407)


@pytest.mark.parametrize(
    ("line", "receiving"),
    [
        ('etcd_network_snapshot_receive_inflights_total{From="16ebe2cff55b9142"} 1', True),
        ('etcd_network_snapshot_receive_inflights_total{From="16ebe2cff55b9142"} 0', False),
        ("etcd_server_snapshot_apply_in_progress_total 1", True),
        ("etcd_server_snapshot_apply_in_progress_total 0", False),
        ('etcd_network_snapshot_receive_success{From="16ebe2cff55b9142"} 1', False),
    ],
)
def test_snapshot_in_flight_is_read_from_metrics(line: str, *, receiving: bool) -> None:
    """The lines of a learner of 3.5, 3.6 and 3.7 that receives a snapshot, and afterwards."""
    assert responses.progress(f"{METRICS}{line}\n").receiving is receiving


def test_snapshot_piece_has_the_number_of_remaining_bytes() -> None:
    line = json.dumps({"result": {"remaining_bytes": "5", "blob": base64.b64encode(b"abc").decode()}}).encode()
    assert responses.piece(line + b"\n") == (b"abc", 5)
    assert responses.piece(b'{"result":{}}') == (b"", 0)


@pytest.mark.parametrize(
    ("read", "answer"),
    [
        (responses.status, {}),
        (responses.status, []),
        (responses.status, "ok"),
        (responses.status, None),
        (responses.status, {**STATUS, "header": {}}),
        (responses.status, {**STATUS, "dbSize": "many"}),
        (responses.status, {**STATUS, "raftTerm": {}}),
        (responses.members, {"header": HEADER}),
        (responses.members, {"header": HEADER, "members": []}),
        (responses.members, {"header": HEADER, "members": [{"name": "demo-0"}]}),
        (responses.members, {"members": [{"ID": "1", "peerURLs": []}]}),
        (responses.added, {"header": HEADER}),
        (responses.alarms, {"alarms": [{}]}),
        (responses.alarms, {"alarms": 1}),
        (responses.versions, {"etcdserver": "3.6.16"}),
        (responses.progress, METRICS.replace("etcd_server_id", "etcd_id")),
        (responses.progress, METRICS.replace("407", "many")),
        (responses.piece, b'{"result":{"blob":"%%%"}}'),
        (responses.piece, b'{"result":{"blob":"QUJ'),
        (responses.piece, b'{"error":{"message":"x"}}'),
        (responses.piece, b"[]"),
    ],
)
def test_malformed_reply_is_refused(read: Any, answer: Any) -> None:
    with pytest.raises(responses.MALFORMED):
        read(answer)
