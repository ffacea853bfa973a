"""The address of a caller: that of its connection, without the port."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.types import Scope


def http_address(scope: Scope) -> str:
    """Return the address of the client of an HTTP request."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def rpc_address(peer: str) -> str:
    """Return the address in what gRPC calls a peer, such as ``ipv6:%5B::1%5D:5000``."""
    kind, _, place = peer.partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return kind
    return unquote(place).rpartition(":")[0].strip("[]")
