"""Addresses as text. Pure."""

from __future__ import annotations


def host_port(host: str | None, port: int | str) -> str:
    """Return a host with a port, as RFC 3986 writes it: an IPv6 address is in brackets; None means all addresses."""
    return f"[{host}]:{port}" if host and ":" in host else f"{host or ''}:{port}"
