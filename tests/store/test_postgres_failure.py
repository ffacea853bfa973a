"""What errors of the PostgreSQL driver mean."""

from __future__ import annotations

from asyncpg.exceptions._base import InternalClientError

from tenure.store.failure import Lost, Refused
from tenure.store.postgres.failure import translated


def test_a_connection_that_was_closed_while_it_was_opened_is_lost() -> None:
    # Seen when PostgreSQL was stopped while connections were made.
    text = "cannot switch to state 12; another operation (2) is in progress"
    failure = translated(InternalClientError(text))
    assert isinstance(failure, Lost)
    assert failure.reason == "store_unreachable"


def test_what_the_driver_cannot_send_is_refused() -> None:
    assert isinstance(translated(InternalClientError("unexpected number of values")), Refused)
