"""The messages between a worker and its child processes, and their frames.

A frame is a message in msgpack behind its length. Orders go down and reports come up on one socket;
stops go down on a pipe of their own, so that neither has to wait for the other.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, TypeVar

import msgspec

from tenure.core.limits import PAYLOAD_BYTES_MAX

_LENGTH: Final = struct.Struct("!I")
# An input or an output, heartbeat details, and what stands around them.
_FRAME_BYTES_MAX: Final = 4 * PAYLOAD_BYTES_MAX
_CHUNK_BYTES: Final = 256 * 1024

STOP: Final = struct.Struct("!IB")
"""On the pipe: the number of a run and the place of the reason in ``StopReason``."""

T = TypeVar("T")


class Boot(msgspec.Struct, frozen=True, tag="boot"):
    """The first order: where modules are found, and what the environment was."""

    path: list[str]
    python_path: str | None


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Run one attempt. The task is the message of the wire, its payloads out of the codec."""

    number: int
    module: str
    name: str
    task: bytes
    namespace: str
    worker_id: str


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """The run has begun. If the child dies from now on, the attempt has failed."""


class ChildBeat(msgspec.Struct, frozen=True, tag="beat"):
    """A heartbeat of the activity."""

    details: bytes | None = None
    percent: float | None = None
    message: str | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The end of a run: the message of the protocol, or nothing if it was stopped."""

    finish: bytes | None


Order = Boot | Run
Report = Taken | ChildBeat | Done

_encode: Final = msgspec.msgpack.Encoder().encode


class BrokenFrame(Exception):
    """The other side sent something that is not a frame."""


class Frames:
    """Reads frames from a socket that blocks."""

    def __init__(self, connection: socket.socket) -> None:
        """Read from ``connection``."""
        self._connection = connection
        self._buffer = bytearray()

    def read(self, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
        """Return the next message; None when the other side has closed."""
        while (message := self.take(decoder)) is None:
            if not self.fill():
                return None
        return message

    def take(self, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
        """Return the next message if all of it has arrived."""
        buffer = self._buffer
        if len(buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(buffer)
        if length > _FRAME_BYTES_MAX:
            raise BrokenFrame(f"a frame of {length} bytes")
        end = _LENGTH.size + length
        if len(buffer) < end:
            return None
        data = bytes(buffer[_LENGTH.size : end])
        del buffer[:end]
        try:
            return decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BrokenFrame(str(error)) from error

    def fill(self) -> bool:
        """Wait for more bytes; False when the other side has closed."""
        chunk = self._connection.recv(_CHUNK_BYTES)
        self._buffer += chunk
        return bool(chunk)


def write(connection: socket.socket, message: Order | Report) -> None:
    """Send one message; wait until all of it is on its way."""
    data = _encode(message)
    connection.sendall(_LENGTH.pack(len(data)) + data)
