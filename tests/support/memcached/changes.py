"""Accepted and rejected changes of a Memcached's spec, with a rejected one for every transition rule."""

from __future__ import annotations

from typing import Any

from tests.support.cases import Case, Change
from tests.support.memcached.cases import ISSUED, TLS

SELF: dict[str, Any] = {"tls": {"mode": "self"}}
CERT_MANAGER: dict[str, Any] = {"tls": ISSUED}
PLAIN: dict[str, Any] = {"tls": {"mode": "none"}}


def change(name: str, old: dict[str, Any], new: dict[str, Any], error: str = "") -> Change:
    return Change(name, Case("", old), Case("", new), error, f"spec.tls.mode: {error}" if error else "")


CHANGES = (
    change("TLS added", {}, SELF),
    change("TLS removed", SELF, {}),
    change("TLS removed explicitly", CERT_MANAGER, PLAIN),
    change("TLS by the operator where it was off", PLAIN, SELF),
    change("TLS by cert-manager where it was off", PLAIN, CERT_MANAGER),
    change("the same mode", SELF, {"tls": {"mode": "self", "clientAuth": "required"}}),
    change("another issuer", CERT_MANAGER, {"tls": {**ISSUED, "issuer": {"name": "theirs"}}}),
    change("certificates of the operator, taken over by the user", SELF, TLS),
    change("certificates of cert-manager, taken over by the user", CERT_MANAGER, TLS),
    change("certificates of the user, taken over by cert-manager", TLS, CERT_MANAGER),
)
"""Changes that are accepted."""

REFUSED_CHANGES = (
    change("from the operator to cert-manager", SELF, CERT_MANAGER, "cannot change from self to certManager directly"),
    change("from cert-manager to the operator", CERT_MANAGER, SELF, "cannot change from certManager to self"),
    change("from the user to the operator", TLS, SELF, "cannot change from secret to self"),
)
"""Changes that are rejected: clients would reject the certificates of another authority."""
