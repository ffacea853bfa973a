"""Idempotency: activities run more than once, and what they do happens once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenure import Client, Handle, Info, activity
from tenure.errors import IdempotencyConflict
from tenure.testing import TestEngine, run_activity
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.sdk.guideline import program
from tests.sdk.guideline.outside_world import OutsideWorld
from tests.sdk.guideline.scene import outcomes
from tests.sdk.guideline.world import open_world


@dataclass
class Crash:
    """What is left of four tasks whose worker was killed after they had had their effect."""

    outside: OutsideWorld
    results: dict[str, Any]
    outcomes: dict[str, list[str]]


@pytest.fixture(scope="module")
def crash(tmp_path_factory: pytest.TempPathFactory) -> Crash:
    return asyncio.run(_crash(tmp_path_factory.mktemp("crash")))


async def _crash(folder: Path) -> Crash:
    outside, place = OutsideWorld(folder), str(folder)
    async with open_world(folder) as world, Client(world.target) as client:
        first = await world.worker()
        handles: dict[str, Handle[Any]] = {
            "send_invoice": await client.enqueue(program.send_invoice, place, "i-17"),
            "save_balance": await client.enqueue(program.save_balance, place, 91),
            "charge": await client.enqueue(program.charge, place),
            "book_trip": await client.enqueue(program.book_trip, place),
        }
        await eventually(lambda: outside.rows() and outside.has("invoice", "i-17"))
        await eventually(lambda: outside.count("charge") == 1 and outside.count("outcome") == 1)
        await world.worker()
        await first.kill()
        return Crash(
            outside,
            {name: await each.result(timeout=WAIT_S) for name, each in handles.items()},
            {name: await outcomes(each) for name, each in handles.items()},
        )


# -- Why it is critical


def test_a_killed_worker_makes_an_activity_run_twice(crash: Crash) -> None:
    for name, found in crash.outcomes.items():
        assert found == ["worker_lost", "succeeded"]
        (one, first_pid), (two, second_pid) = crash.outside.runs(name)
        assert (one, two) == (1, 2)
        assert first_pid != second_pid


async def test_the_retry_policy_makes_an_activity_run_twice(
    engine: TestEngine, client: Client
) -> None:
    runs: list[int] = []

    @activity(start_to_close="10s")
    def send() -> None:
        runs.append(activity.info().attempt)
        if len(runs) == 1:
            raise ConnectionError("sent, but the answer was lost")

    async with engine.worker([send]):
        await engine.advance_until(client.run(send))
    assert runs == [1, 2]


async def test_retrying_a_finished_task_by_hand_keeps_the_key_that_its_user_gave(
    engine: TestEngine, client: Client
) -> None:
    keys: list[str] = []

    @activity(start_to_close="10s")
    def send() -> None:
        keys.append(activity.info().idempotency_key)

    async with engine.worker([send]):
        for asked in (send, send.with_options(idempotency_key="order-17")):
            handle = await client.enqueue(asked)
            await handle.result()
            again = await handle.retry()
            await again.result()
            assert again.task_id != handle.task_id
    assert keys[2:] == ["order-17", "order-17"]
    # Without one, the new task is another piece of work.
    assert keys[0] != keys[1]


# -- Sources of keys


async def _infos(engine: TestEngine, client: Client, **options: Any) -> list[Info]:
    """Return what three attempts of one task, and one attempt of another, are told."""
    infos: list[Info] = []

    @activity(start_to_close="10s")
    def look(failures: int) -> None:
        infos.append(activity.info())
        if activity.info().failure_count < failures:
            raise ConnectionError("again")

    async with engine.worker([look]):
        await engine.advance_until(client.run(look.with_options(**options), 2))
        await client.run(look, 0)
    return infos


async def test_the_key_of_the_task_is_the_same_in_every_attempt_and_of_no_other_task(
    engine: TestEngine, client: Client
) -> None:
    *same, other = await _infos(engine, client)
    assert [each.attempt for each in same] == [1, 2, 3]
    assert [each.failure_count for each in same] == [0, 1, 2]
    assert len({each.idempotency_key for each in same}) == 1
    assert other.idempotency_key != same[0].idempotency_key


async def test_the_key_of_the_attempt_tells_attempts_apart(
    engine: TestEngine, client: Client
) -> None:
    found = await _infos(engine, client)
    assert len({each.attempt_key for each in found}) == 4
    assert all(each.attempt_key.startswith(each.task_id) for each in found)


async def test_a_business_key_given_by_the_caller_is_the_key_inside(
    engine: TestEngine, client: Client
) -> None:
    *same, _ = await _infos(engine, client, idempotency_key="order-17")
    assert {each.idempotency_key for each in same} == {"order-17"}


async def test_a_business_key_makes_the_same_request_the_same_task(
    engine: TestEngine, client: Client
) -> None:
    charged: list[int] = []

    @activity(start_to_close="10s")
    def charge(cents: int) -> int:
        charged.append(cents)
        return len(charged)

    keyed = charge.with_options(idempotency_key="order-17")
    async with engine.worker([charge]):
        first, second = await asyncio.gather(client.enqueue(keyed, 990), client.enqueue(keyed, 990))
        assert first.task_id == second.task_id
        assert await first.result() == 1
        # Also when it has ended.
        assert await client.run(keyed, 990) == 1
    assert charged == [990]


# -- Patterns; the worker was killed between the effect and the report


def test_check_then_execute_asks_before_it_acts(crash: Crash) -> None:
    assert crash.results["send_invoice"] == "i-17"
    assert crash.outside.count("invoice") == 1


def test_an_upsert_written_twice_is_one_row(crash: Crash) -> None:
    assert crash.results["save_balance"] == 1
    assert crash.outside.rows() == {91: 2}


def test_a_service_that_takes_the_idempotency_key_acts_once(crash: Crash) -> None:
    assert crash.outside.has("charge", crash.results["charge"])
    assert crash.outside.count("charge") == 1


def test_recorded_outcomes_let_a_later_attempt_do_only_what_is_missing(crash: Crash) -> None:
    """Partial completion: the flight was booked by the first attempt, the hotel by the second."""
    assert crash.results["book_trip"] == ["hotel"]
    assert crash.outside.count("booking") == 2


# -- Guidelines


async def test_the_same_key_for_another_request_is_refused_instead_of_answered_with_the_first(
    engine: TestEngine, client: Client
) -> None:
    """What "the same" means is checked: a key that is reused by mistake is no silent success."""

    @activity(start_to_close="10s")
    def charge(cents: int) -> int:
        return cents

    keyed = charge.with_options(idempotency_key="order-17")
    async with engine.worker([charge]):
        assert await client.run(keyed, 990) == 990
        with pytest.raises(IdempotencyConflict):
            await client.enqueue(keyed, 1_990)


async def test_a_chain_made_by_hand_enqueues_its_next_step_once_by_its_key(
    engine: TestEngine, client: Client
) -> None:
    published: list[str] = []

    @activity(start_to_close="10s")
    def publish(path: str) -> None:
        published.append(path)

    @activity(start_to_close="10s")
    async def resize(path: str) -> None:
        key = f"{activity.info().idempotency_key}:publish"
        await client.enqueue(publish.with_options(idempotency_key=key), path)
        if activity.info().attempt == 1:
            raise OSError("lost after the next step was enqueued")

    async with engine.worker([resize, publish]):
        await engine.advance_until(client.run(resize, "a.png"))
        await engine.advance("1m")
    assert published == ["a.png"]


def test_retries_are_tested_explicitly_without_a_server() -> None:
    """The second attempt of an activity, alone, in a test of its own."""
    sent: set[str] = set()

    @activity(start_to_close="10s")
    def send() -> str:
        key = activity.info().idempotency_key
        answer = "known" if key in sent else "sent"
        sent.add(key)
        return answer

    assert run_activity(send) == "sent"
    assert run_activity(send, attempt=2) == "known"
    assert len(sent) == 1
