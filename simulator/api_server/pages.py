"""Lists, whole or in pages, as a real API server reads them from etcd.

All pages of a list show the collection at the version of its first page: what changes in the meantime is not seen. The
version is in the token that continues the list. After it was compacted, the answer is 410 with another token, which
continues after the same object in the present collection.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import NamedTuple

from shared.kubernetes.encoding import decode
from shared.kubernetes.kinds import Obj
from simulator.api_server.requests import Failure, TargetedRequest, selects
from simulator.api_server.store import Store

EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
PRESENT = -1
"""Version in a token that continues a list in the present collection."""


class Token(NamedTuple):
    """Where a list continues.

    Attributes:
        version: version of the list; `PRESENT` for the present one.
        start: key after which the next page begins.
    """

    version: int
    start: str

    @classmethod
    def parse(cls, text: str) -> Token:
        """Parse the value of the parameter `continue`.

        Raises:
            Failure: the text is no token of this server.
        """
        try:
            found = decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            return cls(int(found["rv"]), str(found["start"]))
        except (binascii.Error, ValueError, TypeError, KeyError) as error:
            message = f"invalid continue token: continue key is not valid: {error}"
            raise Failure(400, "BadRequest", message) from None

    def __str__(self) -> str:
        content = {"v": "meta.k8s.io/v1", "rv": self.version, "start": self.start}
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def read(store: Store, target: TargetedRequest) -> tuple[list[Obj], Obj]:
    """Return the objects of a page, or of a whole list, and the metadata of the list.

    Raises:
        Failure: the token of the page is invalid or too old.
    """
    query = target.request.query
    matches, limit = selects(query.get("labelSelector", "")), int(query.get("limit") or 0)
    token = Token.parse(query["continue"]) if query.get("continue") else None
    if token and query.get("resourceVersion"):
        raise Failure(400, "BadRequest", "specifying resource version is not allowed when using continue")
    version = store.version if token is None or token.version == PRESENT else token.version
    if token and version != store.version and (target.kind, version) not in store.former:
        raise Failure(410, "Expired", EXPIRED, metadata={"continue": str(Token(PRESENT, token.start))})
    found = store.former.get((target.kind, version))
    if found is None:
        found = store.list(target.kind)
    rest = [obj for obj in found if target.namespace in ("", obj["metadata"].get("namespace", ""))]
    rest = [obj for obj in sorted(rest, key=_key) if token is None or _key(obj) > token.start]
    page: list[Obj] = []
    for number, obj in enumerate(rest, 1):
        if matches(obj["metadata"].get("labels") or {}):
            page.append(obj)
        if limit and len(page) == limit and number < len(rest):
            store.former[target.kind, version] = found
            metadata = {"resourceVersion": str(version), "continue": str(Token(version, _key(obj)))}
            left = {} if query.get("labelSelector") else {"remainingItemCount": len(rest) - number}
            return page, metadata | left
    return page, {"resourceVersion": str(version)}


def _key(obj: Obj) -> str:
    """Return the key of an object in etcd: the order of a list, in which `a-b/x` precedes `a/x`."""
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
