"""Asynchronous completion: an activity ends later, by somebody else's hand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tenure import (
    ApplicationError,
    Client,
    Handle,
    RetryPolicy,
    TaskCancelled,
    TaskFailed,
    TaskTimedOut,
    activity,
)
from tenure.core.task.record import TaskState
from tenure.errors import AttemptMismatch, InvalidToken, TaskAlreadyTerminal
from tenure.testing import TestEngine
from tests.sdk.guideline.scene import lengths_s, outcomes, until_state


class Desk:
    """Takes requests in; ``tokens`` stands for the table where a real system keeps them."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[str]] = {}

    @activity(schedule_to_close="400d", completes_later=True)
    def approve(self, request: str) -> str:
        """Save the token under the business's own id, and leave."""
        self.tokens.setdefault(request, []).append(activity.info().token)
        activity.complete_later()

    async def wait(self, client: Client, *, request: str = "r-1", **options: Any) -> Handle[str]:
        """Ask for one approval, and return when it waits for its answer."""
        handle = await client.enqueue(self.approve.with_options(**options), request)
        await until_state(handle, TaskState.WAITING)
        return handle


@pytest.fixture
def desk() -> Desk:
    return Desk()


# -- How it works


async def test_a_person_approves_with_the_token_that_the_activity_has_saved(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client, request="r-17")
        await client.completion(token=desk.tokens["r-17"][0]).complete("yes")
        assert await handle.result() == "yes"


async def test_the_task_waits_without_holding_a_slot_of_its_worker(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk], max_concurrent=1) as worker:
        handles = [await desk.wait(client, request=f"r-{n}") for n in range(3)]
        assert worker.active_count == 0
        for n in range(3):
            await client.completion(token=desk.tokens[f"r-{n}"][0]).complete(f"answer {n}")
        assert [await each.result() for each in handles] == ["answer 0", "answer 1", "answer 2"]


async def test_the_task_outlives_the_worker_that_took_it_in(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client)
    await engine.advance("30d")
    assert (await handle.describe()).state is TaskState.WAITING
    await client.completion(token=desk.tokens["r-1"][0]).complete("yes")
    assert await handle.result() == "yes"
    assert await outcomes(handle) == ["succeeded"]


async def test_a_webhook_completes_by_the_id_of_the_task(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client)
        await client.completion(task_id=handle.task_id).complete("yes")
        assert await handle.result() == "yes"


async def test_an_external_batch_job_completes_with_a_result_that_is_typed_at_the_caller(
    engine: TestEngine, client: Client
) -> None:
    tokens: list[str] = []

    @activity(schedule_to_close="1d", completes_later=True)
    def submit_job() -> dict[str, list[int]]:
        tokens.append(activity.info().token)
        activity.complete_later()

    async with engine.worker([submit_job]):
        handle = await client.enqueue(submit_job)
        await until_state(handle, TaskState.WAITING)
        await client.completion(token=tokens[0]).complete({"rows": [1, 2]})
        assert await handle.result() == {"rows": [1, 2]}


async def test_an_answer_that_comes_before_the_activity_has_left_counts(
    engine: TestEngine, client: Client
) -> None:
    tokens: asyncio.Queue[str] = asyncio.Queue()
    is_answered = asyncio.Event()

    @activity(schedule_to_close="1d", completes_later=True)
    async def ask() -> str:
        activity.heartbeat()
        tokens.put_nowait(activity.info().token)
        await is_answered.wait()
        activity.complete_later()

    async with engine.worker([ask]):
        handle = await client.enqueue(ask)
        token = await tokens.get()
        await until_state(handle, TaskState.RUNNING)
        await client.completion(token=token).complete("quick")
        is_answered.set()
        assert await handle.result() == "quick"


# -- Design guidelines


async def test_a_token_kept_in_a_file_is_good_for_another_client(
    engine: TestEngine, client: Client, desk: Desk, tmp_path: Path
) -> None:
    """Durable storage with a correlation id: nothing of the process that saved it is needed."""
    inbox = tmp_path / "approvals.txt"
    async with engine.worker([desk]):
        handle = await desk.wait(client, request="order-17")
        inbox.write_text(f"order-17 {desk.tokens['order-17'][0]}\n")
    correlation_id, token = inbox.read_text().split()
    async with engine.client() as other:
        await other.completion(token=token).complete(correlation_id)
    assert await handle.result() == "order-17"


async def test_tokens_do_not_expire(engine: TestEngine, client: Client, desk: Desk) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client)
        await engine.advance("399d")
        await client.completion(token=desk.tokens["r-1"][0]).complete("yes")
        assert await handle.result() == "yes"


async def test_a_forged_token_is_refused_and_changes_nothing(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client)
        token = desk.tokens["r-1"][0]
        with pytest.raises(InvalidToken):
            await client.completion(token=token[:-4] + "AAAA").complete("yes")
        assert (await handle.describe()).state is TaskState.WAITING


async def test_completing_with_an_error_follows_the_retry_policy(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client, retry=RetryPolicy(initial_interval="1m"))
        await client.completion(token=desk.tokens["r-1"][0]).fail("nobody is at the desk")
        assert (await handle.describe()).failure_count == 1
        await engine.advance("1m")
        await until_state(handle, TaskState.WAITING)
        # The attempt has its own token; that of the first one is good for nothing any more.
        old, new = desk.tokens["r-1"]
        with pytest.raises(AttemptMismatch):
            await client.completion(token=old).complete("no")
        await client.completion(token=new).complete("yes")
        assert await handle.result() == "yes"


async def test_completing_with_a_final_error_fails_the_task_at_once(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client)
        declined = ApplicationError("too much", 250, type="Declined", non_retryable=True)
        await client.completion(token=desk.tokens["r-1"][0]).fail(declined)
        with pytest.raises(TaskFailed, match="too much") as caught:
            await handle.result()
    assert caught.value.error is not None
    assert caught.value.error.type == "Declined"
    assert caught.value.error.details(int) == (250,)


async def test_a_completion_that_never_arrives_is_ended_by_the_deadline(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client, schedule_to_close="3d")
        with pytest.raises(TaskTimedOut) as caught:
            await engine.advance_until(handle.result())
        assert caught.value.reason == "SCHEDULE_TO_CLOSE"
        assert await lengths_s(handle) == [3 * 86_400]
        with pytest.raises(AttemptMismatch):
            await client.completion(token=desk.tokens["r-1"][0]).complete("yes")


async def test_a_cancelled_task_tells_whoever_tracks_it_and_is_cleaned_up(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client, cancel_grace="10m")
        completion = client.completion(token=desk.tokens["r-1"][0])
        assert not (await completion.heartbeat()).should_cancel
        await handle.cancel("the order was withdrawn")
        answer = await completion.heartbeat()
        assert (answer.should_cancel, answer.cancel_reason) == (True, "the order was withdrawn")
        await completion.cancel()
        with pytest.raises(TaskCancelled, match="the order was withdrawn"):
            await handle.result()


async def test_a_cancelled_task_that_nobody_tracks_ends_by_itself(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client, cancel_grace="10m")
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await engine.advance_until(handle.result())


async def test_the_same_answer_twice_is_one_answer_and_another_one_is_refused(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    """A webhook that is delivered twice is the normal case."""
    async with engine.worker([desk]):
        handle = await desk.wait(client)
        completion = client.completion(token=desk.tokens["r-1"][0])
        assert await completion.complete("yes") is TaskState.SUCCEEDED
        assert await completion.complete("yes") is TaskState.SUCCEEDED
        with pytest.raises(TaskAlreadyTerminal):
            await completion.complete("no")
        assert await handle.result() == "yes"


# -- Heartbeat during the wait


async def test_heartbeats_from_outside_show_that_the_operation_is_still_tracked(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client, heartbeat_timeout="1h")
        completion = client.completion(token=desk.tokens["r-1"][0])
        for hour in range(1, 4):
            await engine.advance("50m")
            await completion.heartbeat(hour, percent=10 * hour, message="asked again")
        shown = await handle.describe()
        assert (shown.state, shown.progress.percent) == (TaskState.WAITING, 30)
        await completion.complete("yes")
        assert await handle.result() == "yes"


async def test_without_heartbeats_the_wait_is_given_up_and_begun_again(
    engine: TestEngine, client: Client, desk: Desk
) -> None:
    async with engine.worker([desk]):
        handle = await desk.wait(client, heartbeat_timeout="1h")
        await engine.advance("1h")
        await engine.advance("1s")
        await until_state(handle, TaskState.WAITING)
        assert len(desk.tokens["r-1"]) == 2
        await client.completion(token=desk.tokens["r-1"][1]).complete("yes")
        assert await handle.result() == "yes"
    assert await outcomes(handle) == ["timed_out", "succeeded"]


async def test_the_token_is_refused_in_an_activity_that_is_not_declared_to_complete_later(
    engine: TestEngine, client: Client
) -> None:
    @activity(start_to_close="10s", retry=RetryPolicy(max_attempts=1))
    def ask() -> None:
        activity.info().token  # noqa: B018 (it is asked for)

    async with engine.worker([ask]):
        with pytest.raises(TaskFailed, match="completes_later=True"):
            await client.run(ask)
