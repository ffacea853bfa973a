"""The shape of a journal: runs of equal shape fit the same code."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from tenure.v1 import task_pb2

# A body does not hear of them.
_UNHEARD: Final = frozenset(
    {task_pb2.ENTRY_KIND_RETRY, task_pb2.ENTRY_KIND_BEGUN, task_pb2.ENTRY_KIND_NOTE}
)
_DIGEST_BYTES: Final = 16


class ShapeDigest:
    """Takes a journal entry by entry, and returns what is equal for journals of one shape.

    That is the type of the run and, in their order, the keys, kinds, indexes and patch markers, and
    whether each call failed; then what is open. Values do not count.
    """

    def __init__(self, type: str) -> None:
        """Begin with the type of the run."""
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self._add(type)

    def add(self, entry: task_pb2.Entry) -> None:
        """Take the next entry."""
        content = entry.content
        if content.kind not in _UNHEARD:
            has_failed = content.HasField("error")
            self._add(content.kind, content.key, content.index, has_failed, entry.child.type)

    def add_open(self, call: task_pb2.OpenChild | task_pb2.OpenGroup) -> None:
        """Take a child or a group that has not ended."""
        self._add("open", call.key, call.index, call.type)

    def digest(self) -> bytes:
        """Return the shape."""
        return self._hash.digest()

    def _add(self, *parts: object) -> None:
        # No key has a zero byte in it.
        self._hash.update("\0".join(map(str, parts)).encode() + b"\0\n")
