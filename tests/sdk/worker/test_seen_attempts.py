"""Which attempts were delivered before."""

from __future__ import annotations

import pytest

from tenure.sdk.worker.connection import seen_attempts
from tenure.sdk.worker.connection.seen_attempts import SeenAttempts


def test_an_attempt_is_taken_once_and_never_after_a_higher_one() -> None:
    seen = SeenAttempts()
    taken = [seen.take("a", attempt) for attempt in (1, 1, 3, 2, 3, 4)]
    assert taken == [True, False, True, False, False, True]


def test_the_memory_is_bounded_and_keeps_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_attempts, "SEEN_MAX", 3)
    seen = SeenAttempts()
    for name in "abcdefg":
        assert seen.take(name, 1)
    assert [name for name in "defg" if seen.take(name, 1)] == []
    # The first three have made room.
    assert seen.take("a", 1)
