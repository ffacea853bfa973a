"""A blocked event loop is noticed, named and reported from the connection's thread."""

from __future__ import annotations

import logging
import time

import pytest

from tenure import activity
from tests.bounds import WAIT_S
from tests.polling import eventually
from tests.sdk.execution.rig import Rig


@activity(start_to_close="30s")
async def block_the_loop() -> None:
    block_until_it_was_noticed()


RIGS: list[Rig] = []


def block_until_it_was_noticed() -> None:
    ends_at_s = time.monotonic() + WAIT_S
    while not RIGS[0].reporter.lags and time.monotonic() < ends_at_s:
        time.sleep(0.01)


async def test_a_blocked_loop_is_reported_with_its_stack_and_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "tenure.worker")
    async with Rig(block_the_loop) as rig:
        RIGS[:] = [rig]
        await rig.run(block_the_loop)
        assert rig.reporter.lags[0] >= 1_000
        await eventually(lambda: rig.reporter.lags[-1] == 0)
        await eventually(lambda: "no longer blocked" in caplog.text)
        (record,) = [each for each in caplog.records if "is blocked" in each.message]
        assert "Running: block_the_loop" in record.message
        assert "block_until_it_was_noticed" in record.message


async def test_other_activities_go_on_while_the_loop_is_blocked() -> None:
    done = list[bool]()

    @activity(start_to_close="30s")
    def in_a_thread() -> None:
        done.append(True)

    async with Rig(in_a_thread) as rig:
        task = rig.task(in_a_thread)
        rig.call_and_block(lambda: rig.executor.start(task))
        ends_at_s = time.monotonic() + WAIT_S
        while not rig.reporter.finishes() and time.monotonic() < ends_at_s:
            time.sleep(0.001)  # noqa: ASYNC251 (the loop is to stand still)
        assert done == [True]
        assert len(rig.reporter.finishes()) == 1


async def test_a_loop_that_keeps_up_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    async with Rig(block_the_loop) as rig:
        assert rig.reporter.lags == []
    assert caplog.text == ""
