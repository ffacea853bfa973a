"""How far a task is: what its activity has told of itself with progress and heartbeats."""

from __future__ import annotations

import msgspec

from tenure.sdk.payload import Converter, PayloadError, UserValue


class TaskProgress(msgspec.Struct, frozen=True):
    """How far a task is, as its activity reported it."""

    percent: float | None = None
    message: str = ""


class HeartbeatDetails:
    """The details of the last heartbeat that the server accepted; false if there are none.

    >>> (line,) = info.heartbeat_details.read(int)
    """

    __slots__ = ("_converter", "_data")

    def __init__(self, data: bytes = b"", converter: Converter | None = None) -> None:
        """Keep what came over the wire until somebody reads it."""
        self._data = data
        self._converter = converter or Converter()

    def __bool__(self) -> bool:
        return bool(self._data)

    def __repr__(self) -> str:
        return f"<HeartbeatDetails of {len(self._data)} bytes>"

    def read(self, *types: UserValue) -> tuple[UserValue, ...]:
        """Return the details, each as the type that is given for it, the rest as plain values."""
        if self._data:
            return self._converter.decode_details(self._data, *types)
        if types:
            message = "There are no heartbeat details."
            raise PayloadError(message)
        return ()
