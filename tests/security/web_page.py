"""Requests exactly as a browser sends them for a page, as bytes."""

from __future__ import annotations

import struct
from typing import Final

EVIL: Final = "https://evil.example"


def request(method: str, path: str, host: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a request over HTTP/1.1; an underscore in a header's name is a dash."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "User-Agent: Mozilla/5.0"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if method != "GET":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


def answered(data: bytes) -> tuple[int, bytes]:
    """Return status and body of an answer over HTTP/1.1."""
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


def _text(value: str) -> bytes:
    raw = value.encode()
    size = bytes([len(raw)]) if len(raw) < 127 else bytes([127, len(raw) - 127])
    return size + raw


def _frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    return len(data).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + data


def rpc_request(path: str, message: bytes, **headers: str) -> bytes:
    """Return a POST over HTTP/2 whose body is a message of gRPC."""
    pseudo = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "evil.example"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    # Literals that are never indexed need no table.
    head = b"".join(b"\0" + _text(name) + _text(value) for name, value in (pseudo | named).items())
    body = b"\0" + struct.pack(">I", len(message)) + message
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"")
    return preface + _frame(1, 4, 1, head) + _frame(0, 1, 1, body)
