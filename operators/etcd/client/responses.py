"""Parses responses of etcd's JSON gateway; pure.

In these responses, 64-bit numbers are strings, bytes are base64, and zero or empty values are omitted.

Source: https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/, https://etcd.io/docs/v3.6/dev-guide/apispec/

Every parser raises one of `MALFORMED` if the response is not of etcd.
"""

from __future__ import annotations

import base64
import re
import tomllib
from pathlib import Path
from typing import Any

from operators.etcd.client import errors
from operators.etcd.client.errors import EtcdError, Refused, Unreachable, Unsupported
from operators.etcd.client.server import Alarm, EndpointStatus, HashKV, Member, Members, RaftProgress
from shared.kubernetes.encoding import decode

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)

MAX_MEMBERS, MAX_TEXTS, MAX_TEXT = 100, 100, 1024
"""Maximum number of members, of alarms and errors, and length of a text; etcd advises at most seven members."""

MAX_TOKEN = 16 * 1024
"""Maximum length of a token; one of kind jwt has 1 KiB."""

_MESSAGES = tomllib.loads(Path(__file__).with_name("messages.toml").read_text("utf-8"))
_MEANINGS: dict[str, type[EtcdError]] = {words: getattr(errors, name) for words, name in _MESSAGES["meanings"].items()}
"""Errors by a part of etcd's message."""

_UNAVAILABLE = 14
"""gRPC code of the gateway itself; etcd's own messages with this code are in `_MEANINGS`."""

_UNKNOWN_HERE = ("Not Found", "Not Implemented", "404 page not found", "unknown method", "unknown service")


def refusal(body: bytes) -> tuple[type[EtcdError], str]:
    """Return the error class and a description for a response whose HTTP status is not 200."""
    text = _error_text(body)
    hint = next((hint for words, hint in _MESSAGES["hints"].items() if words in text), "")
    shown = f"{text} ({hint})" if hint else text
    if known := next((kind for words, kind in _MEANINGS.items() if words in text), None):
        return known, shown
    if any(text.startswith(words) for words in _UNKNOWN_HERE):
        return Unsupported, shown
    return (Refused if _is_from_etcd(body) else Unreachable), shown or "nothing"


def _is_from_etcd(body: bytes) -> bool:
    """Whether etcd sent the error; otherwise its gateway, which did not reach the server, or another server did."""
    try:
        return bool(decode(body).get("code") != _UNAVAILABLE)
    except (ValueError, AttributeError):
        return False


def _error_text(body: bytes) -> str:
    """Return the message of an error: `message` from 3.6 on, `error` before; one level deeper in a stream."""
    text = body.decode(errors="replace").strip()
    try:
        found = decode(text)
        while isinstance(found, dict):
            found = found.get("message") or found["error"]
    except (ValueError, LookupError):
        found = text
    shown = " ".join(str(found).split())
    return shown if len(shown) <= 300 else f"{shown[:300]}…"


def status(answer: Any) -> EndpointStatus:
    """Parse /v3/maintenance/status."""
    header, downgrade = answer["header"], answer.get("downgradeInfo") or {}
    return EndpointStatus(
        cluster_id=int(header["cluster_id"]),
        member_id=int(header["member_id"]),
        leader=_number(answer, "leader"),
        version=_text(answer["version"]),
        revision=_number(header, "revision"),
        raft_term=_number(answer, "raftTerm"),
        raft_index=_number(answer, "raftIndex"),
        raft_applied=_number(answer, "raftAppliedIndex"),
        db_size=_number(answer, "dbSize"),
        db_in_use=_number(answer, "dbSizeInUse"),
        learner=bool(answer.get("isLearner", False)),
        errors=tuple(map(_text, _few(answer.get("errors", ()), MAX_TEXTS))),
        storage_version=_text(answer.get("storageVersion", "")),
        downgrade_target=_text(downgrade.get("targetVersion", "")) if downgrade.get("enabled") else "",
    )


_METRIC = re.compile(
    r'^(?:etcd_server_id\{server_id="(?P<id>[0-9a-f]+)"\} 1|etcd_server_proposals_applied_total (?P<applied>\S+)'
    r"|etcd_debugging_mvcc_current_revision (?P<revision>\S+))$",
    re.MULTILINE,
)
_RECEIVING = re.compile(
    r"^etcd_(?:network_snapshot_receive_inflights_total\{.*\}|server_snapshot_apply_in_progress_total) [1-9]",
    re.MULTILINE,
)
"""Metrics of a member that receives or applies a snapshot."""


def progress(text: str) -> RaftProgress:
    """Parse /metrics, the same from 3.4 to 3.7; large numbers are floating-point."""
    found = {match.lastgroup: match[match.lastgroup] for match in _METRIC.finditer(text) if match.lastgroup}
    applied, revision = (int(float(found[name])) for name in ("applied", "revision"))
    return RaftProgress(int(found["id"], 16), applied, revision, receiving=bool(_RECEIVING.search(text)))


def has_alarm(answer: Any) -> bool:
    """Parse /health; 3.4 gives no reason."""
    return answer["health"] != "true" and "ALARM" in answer.get("reason", "ALARM")


def members(answer: Any) -> Members:
    """Parse /v3/cluster/member/list."""
    found = tuple(map(_member, _few(answer["members"], MAX_MEMBERS)))
    if not found:
        raise ValueError("a list without members")
    return Members(int(answer["header"]["cluster_id"]), found)


def added(answer: Any) -> Member:
    """Parse /v3/cluster/member/add."""
    return _member(answer["member"])


def _member(found: Any) -> Member:
    return Member(
        id=int(found["ID"]),
        name=_text(found.get("name", "")),
        peer_urls=tuple(map(_text, _few(found["peerURLs"], MAX_TEXTS))),
        learner=bool(found.get("isLearner", False)),
    )


def versions(answer: Any) -> dict[str, str]:
    """Parse /version: `etcdserver` of the server, and `etcdcluster` of all members together, or `not_decided`."""
    return {name: _text(answer[name]) for name in ("etcdserver", "etcdcluster")}


def alarms(answer: Any) -> tuple[Alarm, ...]:
    """Parse /v3/maintenance/alarm."""
    found = _few(answer.get("alarms", ()), MAX_TEXTS * MAX_MEMBERS)
    return tuple(Alarm(_number(alarm, "memberID"), _text(alarm["alarm"])) for alarm in found)


def hash_kv(answer: Any, requested: int) -> HashKV:
    """Parse /v3/maintenance/hashkv; only 3.6 reports the hashed revision."""
    upto = _number(answer, "hash_revision") or requested or _number(answer["header"], "revision")
    return HashKV(_number(answer, "hash"), upto, _number(answer, "compact_revision"))


def token(answer: Any) -> str:
    """Parse /v3/auth/authenticate."""
    found: str = answer["token"]
    if len(found) > MAX_TOKEN:
        raise ValueError("a token that is too long")
    return found


def roles(answer: Any) -> tuple[str, ...]:
    """Parse /v3/auth/user/get."""
    return tuple(map(_text, _few(answer.get("roles", ()), MAX_TEXTS)))


def piece(line: bytes) -> tuple[bytes, int]:
    """Parse a line of /v3/maintenance/snapshot: some bytes, and the number of remaining bytes."""
    result = decode(line)["result"]
    return base64.b64decode(result.get("blob", ""), validate=True), _number(result, "remaining_bytes")


def _text(found: Any) -> str:
    """Return a text; raise ValueError if it is longer than any of etcd."""
    if not isinstance(found, str) or len(found) > MAX_TEXT:
        raise ValueError("no text, or a very long one")
    return found


def _few(found: Any, most: int) -> Any:
    """Return a list; raise ValueError if it has more items than any of etcd."""
    if len(found) > most:
        raise ValueError(f"{len(found):,} items instead of at most {most:,}")
    return found


def _number(found: Any, name: str) -> int:
    return int(found.get(name, 0))
