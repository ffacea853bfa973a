"""Local activities come with workflows; what holds of code that runs where it is called is here."""

from __future__ import annotations

import pytest

from tenure import Client, activity
from tenure.testing import TestEngine


@activity(start_to_close="5s")
def check_order(item_count: int) -> str:
    """Validation, as a local activity has it: quick, and nothing outside is asked."""
    return "empty" if item_count == 0 else "good"


@activity(start_to_close="5s")
async def convert(cents: int) -> str:
    return f"{cents / 100:.2f}"


async def test_quick_code_is_a_plain_call_of_the_same_function_without_a_server() -> None:
    assert check_order(0) == "empty"
    assert await convert(990) == "9.90"


async def test_the_same_activity_is_queued_when_it_should_be_durable(
    engine: TestEngine, client: Client
) -> None:
    async with engine.worker([check_order, convert]):
        assert await client.run(check_order, 2) == "good"
        assert await client.run(convert, 990) == "9.90"


def test_a_plain_call_has_no_heartbeat_and_says_so() -> None:
    @activity(start_to_close="1h", heartbeat_timeout="10s")
    def export() -> None:
        activity.heartbeat(1)

    with pytest.raises(RuntimeError, match="only inside an activity that a worker runs"):
        export()


def test_a_plain_call_raises_what_the_code_raises_and_is_not_retried() -> None:
    calls: list[int] = []

    @activity(start_to_close="5s")
    def check() -> None:
        calls.append(1)
        raise LookupError("no such item")

    with pytest.raises(LookupError, match="no such item"):
        check()
    assert len(calls) == 1
