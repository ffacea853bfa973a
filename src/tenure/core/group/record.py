"""The record of a group."""

from __future__ import annotations

import msgspec


class Group(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A group as it is stored; ``version`` fences every write of its row.

    Items 0 to ``spawned`` - 1 are stored, and ``open_count`` of them are live. One that
    ``has_ended`` has told its run. One that ``is_closed`` takes no more items.
    """

    group_id: str
    namespace: str
    run_id: str
    journal_id: str
    key: str
    call_index: int
    type: str
    fails_fast: bool
    total: int
    has_ended: bool = False
    is_closed: bool = False
    spawned: int = 0
    open_count: int = 0
    failed_count: int = 0
    cancelled_count: int = 0
    version: int = 0

    def __post_init__(self) -> None:
        """Assert what holds for every group."""
        assert 0 <= self.open_count <= self.spawned <= self.total
        assert self.failed_count + self.cancelled_count <= self.spawned - self.open_count

    @property
    def succeeded_count(self) -> int:
        """Return how many items have ended with success."""
        return self.spawned - self.open_count - self.failed_count - self.cancelled_count
