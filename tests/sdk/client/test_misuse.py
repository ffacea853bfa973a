"""What people hand to a client by mistake, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest

from tenure import Client
from tenure.core.limits import BULK_ENQUEUE_MAX
from tests.sdk.client.stage import ServerStage, double


def plain(number: int) -> int:
    return number


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (plain, r"plain is not an activity. Decorate the function with @activity"),
        ("double", r"not a value of type str. .* do not call it"),
        (double.call(1), "not a value of type Call. Give the activity and its arguments"),
    ],
    ids=["function", "name", "call"],
)
async def test_what_is_no_activity_is_refused_with_what_to_do(
    client: Client, given: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        await client.enqueue(given, 1)
    with pytest.raises(TypeError, match=message):
        await client.run(given, 1)


@pytest.mark.parametrize("given", [double, (double, 1), plain], ids=["activity", "tuple", "plain"])
async def test_many_takes_calls_and_says_how_they_are_written(
    client: Client, stage: ServerStage, given: Any
) -> None:
    with pytest.raises(
        TypeError, match=r"is not the call of an activity. Write \[charge.call\(order\)"
    ):
        await client.enqueue_many([double.call(1), given])
    assert await stage.task_count() == 0


async def test_a_wrong_argument_late_in_a_generator_says_how_many_tasks_were_enqueued(
    client: Client, stage: ServerStage
) -> None:
    numbers: list[Any] = [*range(BULK_ENQUEUE_MAX + 1), "seven"]
    with pytest.raises(TypeError, match="parameter number must be int, not str") as caught:
        await client.enqueue_many(double.call(number) for number in numbers)
    assert caught.value.__notes__ == ["1000 other tasks of this call were enqueued."]
    assert await stage.task_count() == BULK_ENQUEUE_MAX
