"""The check of `helm test`, run from the operator's own image: `python -m operators.etcd.check …`.

It creates an EtcdCluster with one member and storage in memory, which leaves nothing behind. It writes a value at one
endpoint of the status, reads it at every endpoint, and deletes it.
"""

from __future__ import annotations

import base64
import secrets
from typing import Any

import aiohttp

from operators.etcd.api.resource import API
from shared.cli import check
from shared.cli.check import Check, Failed, NotYet
from shared.kubernetes.kinds import Obj

KEY = "platform-check"

SPEC: Obj = {
    "size": 1,
    "storage": {"medium": "Memory", "size": "256Mi"},
    "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
}

REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=10)
"""Timeout of a request to a member."""


async def use(cluster: Obj) -> str:
    """Write a value at one member, and read it at every member.

    Raises:
        Failed: a member rejected the request, or returned another value.
        NotYet: a member is unreachable: its DNS name may not be propagated yet.
    """
    endpoints = cluster["status"]["endpoints"]
    value = secrets.token_hex(8)
    async with aiohttp.ClientSession(timeout=REQUEST_TIMEOUT) as session:
        await _request(session, endpoints[0], "put", key=_coded(KEY), value=_coded(value))
        for endpoint in endpoints:
            answer = await _request(session, endpoint, "range", key=_coded(KEY))
            found = [each.get("value") for each in answer.get("kvs", ())]
            if found != [_coded(value)]:
                raise Failed(f"{endpoint} returned {found} instead of {_coded(value)}")
        await _request(session, endpoints[0], "deleterange", key=_coded(KEY))
    return f"all {len(endpoints)} endpoints returned the value written at one of them"


async def _request(session: aiohttp.ClientSession, endpoint: str, method: str, **body: str) -> dict[str, Any]:
    """Return the response of a member's JSON gateway."""
    try:
        async with session.post(f"{endpoint}/v3/kv/{method}", json=body) as answer:
            if answer.status != 200:
                raise Failed(f"{endpoint} answered {method} with {answer.status}: {(await answer.text())[:200]}")
            found: dict[str, Any] = await answer.json(content_type=None)
            return found
    except (aiohttp.ClientError, TimeoutError) as error:
        raise NotYet(f"{endpoint} does not answer: {str(error) or type(error).__name__}.") from None


def _coded(text: str) -> str:
    """Encode text as bytes for the gateway."""
    return base64.b64encode(text.encode()).decode()


CHECK = Check(API.kind, SPEC, use)

if __name__ == "__main__":
    check.main(CHECK, "python -m operators.etcd.check")
