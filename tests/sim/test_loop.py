import asyncio
import math
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from tests.sim.loop import FORBIDDEN, Deadlocked, Forbidden, SimulatedLoop, Stuck, run

YEAR_S = 365 * 86_400


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_year_of_sleep_passes_at_once() -> None:
    async def main() -> tuple[float, str]:
        result = await asyncio.sleep(YEAR_S, "rested")
        return now(), result

    assert run(main) == (YEAR_S, "rested")


def test_time_is_exactly_the_instant_of_the_timer_also_late_in_a_long_run() -> None:
    async def main() -> None:
        await asyncio.sleep(50 * YEAR_S)
        for _ in range(100):
            deadline = now() + 1e-6
            await asyncio.sleep(1e-6)
            assert now() == deadline

    run(main)


def test_timers_at_one_instant_run_in_the_order_they_were_scheduled() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(500):
            # Other timers in between make the heap move its entries around.
            loop.call_at(random.Random(number).random(), int)
            loop.call_at(5.0, seen.append, number)
        await asyncio.sleep(6)
        return seen

    assert run(main) == list(range(500))


def test_a_cancelled_timer_neither_runs_nor_moves_time() -> None:
    seen: list[tuple[float, str]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def see(what: str) -> None:
            seen.append((now(), what))
            timers[-1].cancel()

        loop.call_at(1, see, "cancelled before").cancel()
        loop.call_at(2, see, "runs")
        timers.append(loop.call_at(2, see, "cancelled at the same instant"))
        await asyncio.sleep(3)

    run(main)
    assert seen == [(2, "runs")]


def test_a_deadlock_is_an_error_that_names_the_waiting_tasks() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.sleep(3)
        await asyncio.create_task(waits_for_ever(), name="patient")

    with pytest.raises(
        Deadlocked, match=r"at 3\.0 s: nothing is scheduled.*patient in .*waits_for"
    ):
        run(main)


def test_timers_that_never_come_due_do_not_hide_a_deadlock() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(10, int).cancel()
        await asyncio.sleep(math.inf)

    with pytest.raises(Deadlocked, match=r"at 0\.0 s"):
        run(main)


def test_an_endless_loop_at_one_instant_is_an_error() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 -- the mistake that is to be noticed.
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="over 50 steps at one instant"):
        run(main, loop=SimulatedLoop(max_steps=50))


def test_steps_are_counted_per_instant() -> None:
    async def main() -> None:
        for _ in range(100):
            await asyncio.sleep(1)

    run(main, loop=SimulatedLoop(max_steps=10))


@pytest.mark.parametrize("name", " ".join(FORBIDDEN.values()).split())
def test_what_cannot_be_repeated_is_refused_by_name(name: str) -> None:
    async def main() -> None:
        getattr(asyncio.get_running_loop(), name)(1, 2, key=3)

    with pytest.raises(Forbidden, match=rf"refuses {name}: it has no "):
        run(main)


def test_the_usual_ways_to_threads_sockets_processes_and_signals_are_refused() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(Forbidden, match="executors"):
            await asyncio.to_thread(int)
        with pytest.raises(Forbidden, match="sockets"):
            await asyncio.open_connection("localhost", 1)
        with pytest.raises(Forbidden, match="sockets"):
            await asyncio.start_server(lambda _reader, _writer: None, "localhost", 0)
        with socket.socket() as real, pytest.raises(Forbidden, match="sockets"):
            await loop.sock_recv(real, 1)
        with pytest.raises(Forbidden, match="subprocesses"):
            await asyncio.create_subprocess_exec("true")
        with pytest.raises(Forbidden, match="signal handlers"):
            loop.add_signal_handler(signal.SIGTERM, int)

    run(main)


def test_another_thread_cannot_call_into_the_loop() -> None:
    refusals: list[Forbidden] = []

    def intrude(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.call_soon_threadsafe(int)
        except Forbidden as refusal:
            refusals.append(refusal)

    async def main() -> None:
        thread = threading.Thread(target=intrude, args=(asyncio.get_running_loop(),))
        thread.start()
        thread.join()
        await asyncio.sleep(1)

    run(main)
    assert [str(refusal) for refusal in refusals] == [
        "a simulated loop refuses call_soon_threadsafe: it has no other threads"
    ]


def test_the_loops_own_thread_may_use_the_threadsafe_call() -> None:
    async def main() -> None:
        called = asyncio.Event()
        asyncio.get_running_loop().call_soon_threadsafe(called.set)
        await called.wait()

    run(main)


def test_timeouts_end_on_the_instant() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await asyncio.Event().wait()
        async with asyncio.timeout(10):
            await asyncio.sleep(1)
        return now()

    assert run(main) == 3.5


def test_queues_events_and_task_groups_work() -> None:
    async def main() -> list[tuple[float, int]]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        is_open = asyncio.Event()
        taken: list[tuple[float, int]] = []

        async def put() -> None:
            await is_open.wait()
            for number in range(3):
                await queue.put(number)

        async def take() -> None:
            for _ in range(3):
                taken.append((now(), await queue.get()))
                await asyncio.sleep(10)

        async with asyncio.TaskGroup() as group:
            group.create_task(put())
            group.create_task(take())
            await asyncio.sleep(5)
            is_open.set()
        return taken

    assert run(main) == [(0, 0), (15, 1), (25, 2)]


def test_what_main_leaves_behind_is_cancelled_oldest_first() -> None:
    ended: list[int] = []

    async def leftover(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            ended.append(number)

    async def main() -> None:
        for number in range(50):
            asyncio.create_task(leftover(number))  # noqa: RUF006 -- the loop keeps it.
        await asyncio.sleep(1)

    loop = SimulatedLoop()
    run(main, loop=loop)
    assert ended == list(range(50))
    assert loop.is_closed()
    assert loop.pending() == []


def test_async_generators_left_open_are_closed_in_the_order_they_started() -> None:
    closed: list[int] = []

    async def numbers(number: int) -> AsyncIterator[int]:
        try:
            yield number
        finally:
            closed.append(number)

    kept = [numbers(number) for number in range(50)]

    async def main() -> None:
        for generator in kept:
            await anext(generator)

    run(main)
    assert closed == list(range(50))


def test_an_async_generator_that_is_dropped_is_closed_soon() -> None:
    closed: list[float] = []

    async def ticks() -> AsyncIterator[float]:
        try:
            while True:
                await asyncio.sleep(1)
                yield now()
        finally:
            closed.append(now())

    async def main() -> list[float]:
        async for _ in ticks():
            break
        await asyncio.sleep(1)
        return list(closed)

    assert run(main) == [1.0]


def test_an_error_of_main_is_raised_and_the_loop_is_closed() -> None:
    async def main() -> None:
        raise LookupError("of main")

    loop = SimulatedLoop()
    with pytest.raises(LookupError, match="of main"):
        run(main, loop=loop)
    assert loop.is_closed()


def test_a_task_that_outlives_its_cancellation_is_a_deadlock() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async def main() -> None:
        asyncio.create_task(stubborn(), name="stubborn")  # noqa: RUF006 -- the loop keeps it.
        await asyncio.sleep(1)

    with pytest.raises(Deadlocked, match="stubborn"):
        run(main)


def test_a_closed_loop_takes_no_more_work() -> None:
    loop = SimulatedLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, int)


def test_thousands_of_loops_in_a_row_need_no_file_descriptors() -> None:
    async def main() -> float:
        await asyncio.sleep(1)
        return now()

    assert {run(main) for _ in range(2_000)} == {1.0}


def trace() -> list[str]:
    """What a program does whose order asyncio leaves to sets and the machine to addresses."""
    seen: list[str] = []
    chance = random.Random(7)

    def note(what: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        seen.append(f"{now()} {task.get_name()} {what}")

    async def member(number: int) -> None:
        try:
            await asyncio.sleep(chance.choice([0.1, 0.2, 0.3]))
            await asyncio.sleep(chance.choice([0.1, 0.2, 0.3, YEAR_S]))
            note(f"is done {number}")
        except asyncio.CancelledError:
            note(f"was cancelled {number}")
            raise

    async def fail() -> None:
        await asyncio.sleep(0.5)
        raise LookupError

    async def main() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(200):
                    group.create_task(member(number))
                group.create_task(fail())
        except* LookupError:
            note("saw the failure")
        done, _ = await asyncio.wait([asyncio.create_task(member(number)) for number in range(50)])
        for task in done:
            note(f"finds {task.get_name()}")

    run(main)
    return seen


def in_another_process(seed: str) -> list[str]:
    # The seed also moves the addresses of what is allocated later.
    command = [sys.executable, __file__, seed]
    environ = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_same_program_gives_the_same_trace_in_every_process() -> None:
    expected = trace()
    assert any("was cancelled" in line for line in expected)
    assert trace() == expected
    assert in_another_process("1") == expected
    assert in_another_process("4242") == expected


if __name__ == "__main__":
    ballast: list[Callable[[], int]] = [lambda: 1 for _ in range(int(sys.argv[1]))]
    sys.stdout.write("\n".join(trace()))
