"""Content of Secrets: reading, encoding and digests."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import SECRET, Obj

CERTIFICATE_KEY, PRIVATE_KEY, AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt"
CERTIFICATE_KEYS = (CERTIFICATE_KEY, PRIVATE_KEY, AUTHORITY_KEY)
"""Keys of a Secret with a certificate, as cert-manager uses them."""

PASSWORD_KEY, PREVIOUS_PASSWORD_KEY = "password", "previousPassword"
"""Keys of a Secret with a password."""

SECRETS_RETRY_SECONDS = 15.0
"""Seconds until unusable Secrets are read again."""

MAX_KEYS = 1024
"""Maximum number of keys of a Secret that is read. An API server limits only the size of the values, so that a Secret
may have 100,000 keys; those that operators write have less than 600."""

MAX_CONCURRENT_READS = 4
"""Maximum number of Secrets that are read at once for a resource: each may have 1 MiB."""

MAX_BYTES: Mapping[str, int] = {AUTHORITY_KEY: 256 * 1024, CERTIFICATE_KEY: 64 * 1024, PRIVATE_KEY: 64 * 1024}
"""Maximum size of a value that others provide, by its key (`pki.certs`)."""

MAX_TEXT_BYTES = 4096
"""The same of any other key, such as a password."""

MAX_CONTENT_CHARACTERS = 448 * 1024
"""Maximum length of all values in base64 of a Secret for clients: 256 KiB of authorities, a certificate and its key."""

MAX_MADE_CHARACTERS = 1536 * 1024
"""Maximum length of all different values of the Secrets that the operator makes for a resource: two bundles of 256 KiB,
each whole and by authority, as the copies of a rotation have them."""

REMOVED_DATA = {"": "removed"}
"""Data of a Secret whose content may not be used, and does not stay in memory; no Secret has this key."""

TOO_LONG = "A"
"""Placeholder for a longer value. It cannot be decoded, so that it counts as missing, and `texts` refuses it."""

UNREAD_DATA: Mapping[str, str] = dict.fromkeys(map(str, range(MAX_KEYS + 1)), TOO_LONG)
"""Data of a Secret or ConfigMap that has too many keys, or is too large (`excess`)."""


def used(*uses: tuple[Iterable[str], Iterable[str]]) -> dict[str, set[str]]:
    """Return the keys that are used of each Secret: each use has names of Secrets, and keys."""
    found: dict[str, set[str]] = {}
    for names, keys in uses:
        for name in names:
            found.setdefault(name, set()).update(keys)
    return found


async def find(
    kube: Kube,
    namespace: str,
    provided: Mapping[str, Collection[str]],
    made: Collection[str] = (),
    is_unproven: Callable[[Obj], bool] = lambda _: False,
) -> dict[str, Obj | None]:
    """Return the current Secrets by name; None for one that does not exist.

    Args:
        provided: the keys that are used of each Secret that others provide. Other content does not stay in memory.
        made: names of the Secrets that the operator makes, which are returned whole, also if others provide them, while
            they have at most MAX_KEYS keys each, and are not too large together; else with `UNREAD_DATA`.
        is_unproven: whether the content of such a Secret may not be used. It does not count (`REMOVED_DATA`).
    """
    turn = asyncio.Semaphore(MAX_CONCURRENT_READS)
    texts: dict[str, str] = {}  # copies have the same values

    async def read(name: str) -> Obj | None:
        async with turn:
            secret = await kube.find(SECRET, namespace, name)
            if secret is None:
                return None
            data: Mapping[str, str] = secret.get("data") or {}
            if name not in made:
                reduce(secret, _short(data, provided[name]))
            elif is_unproven(secret):
                secret["data"] = {**REMOVED_DATA}
            elif len(data) > MAX_KEYS or sum(map(len, {*texts, *data.values()})) > MAX_MADE_CHARACTERS:
                reduce(secret, UNREAD_DATA)
            else:
                secret["data"] = {key: texts.setdefault(value, value) for key, value in data.items()}
            return secret

    names = sorted({*provided, *made})
    found = await asyncio.gather(*map(read, names))
    return dict(zip(names, found, strict=True))


def _short(data: Mapping[str, str], keys: Collection[str]) -> dict[str, str]:
    """Return the values that are used; of more than MAX_KEYS keys also `UNREAD_DATA`, so that they are refused."""
    most = {key: -(-MAX_BYTES.get(key, MAX_TEXT_BYTES) // 3) * 4 for key in keys}
    found = {key: data[key] if len(data[key]) <= most[key] else TOO_LONG for key in most if data.get(key)}
    return {**found, **(UNREAD_DATA if len(data) > MAX_KEYS else {})}


def excess(obj: Obj | None, keys: Iterable[str]) -> str:
    """Return why the data of a Secret or ConfigMap is not used, and what to do; empty if it is used.

    Args:
        keys: the keys that are used.
    """
    if len((obj or {}).get("data") or {}) <= MAX_KEYS:
        return ""
    return f"more than {MAX_KEYS:,} keys, or too large. Leave only {', '.join(keys)}, and no long annotations."


def reduce(obj: Obj, data: Mapping[str, str]) -> None:
    """Leave only this data in a Secret or ConfigMap itself: a reconcile remembers what it has read."""
    metadata = {field: obj["metadata"].get(field) for field in ("name", "namespace", "uid", "resourceVersion")}
    kept = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata, "data": {**data}}
    obj.clear()
    obj.update(kept)


def shorten(secret: Obj) -> None:
    """Replace the longest values in the Secret itself, if it has more than any Secret for clients."""
    data, left = secret.get("data") or {}, MAX_CONTENT_CHARACTERS
    for key in sorted(data, key=lambda each: len(data[each])):
        left -= len(data[key])
        if left < 0:
            data[key] = TOO_LONG


def content_of(secret: Obj | None) -> Mapping[str, str]:
    """Return the content of a Secret by key; values that are not text are omitted, and all of more than MAX_KEYS."""
    found: dict[str, str] = {}
    data = (secret or {}).get("data") or {}
    if len(data) > MAX_KEYS:
        return found
    for key, value in data.items():
        try:
            found[key] = binascii.a2b_base64(value).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
    return found


def has_content(secret: Obj | None, content: Mapping[str, str]) -> bool:
    """Whether a Secret has this content; an empty text is a missing key, and further keys do not count."""
    present = content_of(secret)
    return all(present.get(key, "") == text for key, text in content.items())


def encoded(content: Mapping[str, str]) -> dict[str, str]:
    """Return the content as the `data` of a Secret."""
    return {key: base64.b64encode(text.encode()).decode() for key, text in content.items()}


def key_of(secret: Obj | None) -> bytes:
    """Return the UID of the Secret, a key that hides digests from users that can list pods but not read Secrets."""
    return str((secret or {"metadata": {}})["metadata"].get("uid", "")).encode()


def digest(parts: Sequence[tuple[bytes, bytes]]) -> str:
    """Return a digest that changes with the content of Secrets and does not reveal it; empty without parts.

    Args:
        parts: for each Secret, the key (`key_of`) and the relevant content.
    """
    if not parts:
        return ""
    found = hmac.new(b"\0".join(key for key, _ in parts), digestmod=hashlib.sha256)
    for _, part in parts:
        found.update(len(part).to_bytes(4, "big") + part)
    return found.hexdigest()[:32]
