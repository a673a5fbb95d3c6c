"""In-memory Secrets, written as the executor writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from shared.kubernetes.kinds import Obj
from shared.kubernetes.secrets import encoded
from shared.pki import ca
from shared.runtime.plan import WriteSecret


@dataclass(kw_only=True)
class Drawer:
    """In-memory store of Secrets.

    Attributes:
        found: Secrets by name; None for a Secret that does not exist.
        written: number of writes.
    """

    found: dict[str, Obj | None] = field(default_factory=dict)
    written: int = 0

    def write(self, write: WriteSecret) -> None:
        """Write a Secret and issue its certificate; fail if the Secret changed since it was observed."""
        secret = json.loads(json.dumps(write.obj))
        name = secret["metadata"]["name"]
        assert write.seen == self.found.get(name), "a write that the API server would refuse"
        self.written += 1
        if write.order is not None:
            issued = ca.fulfil(write.order)
            pair = issued.serving or issued.authority
            assert pair is not None
            secret["data"] |= encoded(dict(zip(write.under, pair, strict=True)))
        if write.token:
            secret["data"] |= encoded({write.token: f"at random {self.written}"})
        uid = write.seen["metadata"]["uid"] if write.seen else f"uid-{self.written}"
        secret["metadata"] |= {"uid": uid, "resourceVersion": str(self.written)}
        self.found[name] = secret

    def put(self, name: str, content: dict[str, str]) -> None:
        """Write a Secret as a user would."""
        self.written += 1
        before = self.found.get(name)
        uid = before["metadata"]["uid"] if before else f"uid-{self.written}"
        metadata = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(self.written)}
        self.found[name] = {"kind": "Secret", "metadata": metadata, "data": encoded(content)}
