"""What errors of the PostgreSQL driver mean."""

from __future__ import annotations

import asyncpg
import pytest
from asyncpg.exceptions._base import InternalClientError

from tenure.store.failure import KeyTaken, Lost, Refused, RuleBroken
from tenure.store.postgres.failure import translated


def test_a_connection_that_was_closed_while_it_was_opened_is_lost() -> None:
    # Seen when PostgreSQL was stopped while connections were made.
    text = "cannot switch to state 12; another operation (2) is in progress"
    failure = translated(InternalClientError(text))
    assert isinstance(failure, Lost)
    assert failure.reason == "store_unreachable"


def test_what_the_driver_cannot_send_is_refused() -> None:
    assert isinstance(translated(InternalClientError("unexpected number of values")), Refused)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncpg.UniqueViolationError, KeyTaken),
        (asyncpg.CheckViolationError, RuleBroken),
        (asyncpg.NotNullViolationError, RuleBroken),
        (asyncpg.ForeignKeyViolationError, RuleBroken),
        (asyncpg.NumericValueOutOfRangeError, Refused),
    ],
)
def test_a_lost_race_and_a_mistake_of_ours_are_not_data_that_do_not_fit(
    error: type[asyncpg.PostgresError], kind: type[Refused]
) -> None:
    assert type(translated(error("no"))) is kind
