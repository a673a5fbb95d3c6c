"""What `helm test` runs, from the operator's own image: `python -m operators.etcd.check …`.

It makes an EtcdCluster of one member that keeps its data in memory, for nothing is left of that; puts a value at an
address that the status names, gets it again at each of them, and deletes it.
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
"""Time that a member may take to answer."""


async def use(cluster: Obj) -> str:
    """Put a value at one member, and get it at each.

    Raises:
        Failed: a member refused it, or did not give it back.
        NotYet: one cannot be reached: its name may not be known everywhere yet.
    """
    endpoints = cluster["status"]["endpoints"]
    value = secrets.token_hex(8)
    async with aiohttp.ClientSession(timeout=REQUEST_TIMEOUT) as session:
        await _request(session, endpoints[0], "put", key=_coded(KEY), value=_coded(value))
        for endpoint in endpoints:
            answer = await _request(session, endpoint, "range", key=_coded(KEY))
            found = [each.get("value") for each in answer.get("kvs", ())]
            if found != [_coded(value)]:
                raise Failed(f"{endpoint} was to give back {_coded(value)}, and gave {found}")
        await _request(session, endpoints[0], "deleterange", key=_coded(KEY))
    return f"each of its {len(endpoints)} endpoints gave back what one took"


async def _request(session: aiohttp.ClientSession, endpoint: str, what: str, **body: str) -> dict[str, Any]:
    """Answer of a member, through its JSON gateway."""
    try:
        async with session.post(f"{endpoint}/v3/kv/{what}", json=body) as answer:
            if answer.status != 200:
                raise Failed(f"{endpoint} answers {what} with {answer.status}: {(await answer.text())[:200]}")
            found: dict[str, Any] = await answer.json(content_type=None)
            return found
    except (aiohttp.ClientError, TimeoutError) as error:
        raise NotYet(f"{endpoint} does not answer: {str(error) or type(error).__name__}.") from None


def _coded(text: str) -> str:
    """As the gateway takes bytes."""
    return base64.b64encode(text.encode()).decode()


CHECK = Check(API.kind, SPEC, use)

if __name__ == "__main__":
    check.main(CHECK, "python -m operators.etcd.check")
