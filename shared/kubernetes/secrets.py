"""What the Secrets that a spec names hold, and what is said of those that do not serve; never what stands in them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence

from shared.kubernetes.client import Kube
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import SECRET, Obj

CERTIFICATE_KEY, PRIVATE_KEY, AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt"
"""Keys of a Secret with a certificate, as cert-manager and others write them."""

PASSWORD_KEY, PREVIOUS_PASSWORD_KEY = "password", "previousPassword"
"""Keys of a Secret with a password."""

SECRETS_RETRY_SECONDS = 15.0
"""Seconds after which Secrets that nobody can run with are read again: no watch tells of them."""


async def find(kube: Kube, namespace: str, names: Iterable[str]) -> dict[str, Obj | None]:
    """Secrets as they are now, by name; None for one that does not exist."""
    wanted = sorted(set(names))
    found = await asyncio.gather(*(_find(kube, namespace, name) for name in wanted))
    return dict(zip(wanted, found, strict=True))


async def _find(kube: Kube, namespace: str, name: str) -> Obj | None:
    try:
        return await kube.get(SECRET, namespace, name)
    except NotFound:
        return None


def content_of(secret: Obj | None) -> Mapping[str, str]:
    """What a Secret holds, by key; what is no text is left out."""
    found = {}
    for key, value in ((secret or {}).get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
    return found


def encoded(content: Mapping[str, str]) -> dict[str, str]:
    """The same as a Secret's `data`."""
    return {key: base64.b64encode(text.encode()).decode() for key, text in content.items()}


def key_of(secret: Obj | None) -> bytes:
    """The Secret's UID, which those do not know who may see pods but no Secrets: by it no password can be tried."""
    return str((secret or {"metadata": {}})["metadata"].get("uid", "")).encode()


def digest(parts: Sequence[tuple[bytes, bytes]]) -> str:
    """Tells what Secrets hold apart, without telling anything of it; empty for nothing.

    Args:
        parts: the key of each Secret (`key_of`), and what in it counts.
    """
    if not parts:
        return ""
    found = hmac.new(b"\0".join(key for key, _ in parts), digestmod=hashlib.sha256)
    for _, part in parts:
        found.update(len(part).to_bytes(4, "big") + part)
    return found.hexdigest()[:32]
