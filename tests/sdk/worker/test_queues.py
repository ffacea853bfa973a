"""A worker of several queues: one registration for each, shared slots, one drain."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tenure.sdk.activity.decorator import activity
from tenure.sdk.failure import WorkerEvicted, WorkerSuperseded
from tenure.sdk.worker.worker import Worker
from tenure.v1 import worker_pb2
from tests.bounds import WORK_S
from tests.polling import eventually
from tests.sdk.worker.queue_program import QUEUES
from tests.sdk.worker.rig import FAST, Rig, messages, open_rig
from tests.wire.process import Process

A, B = QUEUES
MODES: Final = ("session", "poll")


@activity(start_to_close="30s")
async def mail(text: str = "") -> str:
    if text == "wait":
        await asyncio.sleep(60)
    return text.upper()


def said(**arguments: object) -> bytes:
    return json.dumps(arguments).encode()


@asynccontextmanager
async def running(rig: Rig, **fields: Any) -> AsyncIterator[tuple[Worker, asyncio.Task[None]]]:
    """Run a worker of both queues in this process until the test is done with it."""
    worker = Worker(rig.proxy.address, activities=[mail], **{"queues": QUEUES, **fields})
    run = asyncio.get_running_loop().create_task(worker.run())
    await eventually(lambda: worker.is_registered or run.done())
    try:
        yield worker, run
    finally:
        worker.request_shutdown("1ms")
        await asyncio.wait([run])


async def online(rig: Rig) -> list[worker_pb2.Worker]:
    return [each for each in await rig.workers() if each.status == worker_pb2.WORKER_STATUS_ONLINE]


# -- In this process


@pytest.mark.parametrize("mode", MODES)
async def test_tasks_of_every_queue_run(rig: Rig, mode: str) -> None:
    async with running(rig, mode=mode, name="shop") as (worker, _):
        tasks = {each: (await rig.enqueue(queue=each, input=b"{}"))[0] for each in QUEUES}
        for queue, task_id in tasks.items():
            found = await rig.until(task_id, "SUCCEEDED")
            assert found.worker_id == worker.worker_ids[queue]

        known = {each.task_queue: each for each in await online(rig)}
        assert {queue: each.name for queue, each in known.items()} == {
            A: f"shop@{A}",
            B: f"shop@{B}",
        }
        assert {queue: each.worker_id for queue, each in known.items()} == worker.worker_ids
        assert worker.queues == QUEUES
        assert all(each.workflow_types == ["mail"] for each in known.values())


async def test_a_worker_without_a_name_has_none_for_its_queues(rig: Rig) -> None:
    async with running(rig):
        assert [each.name for each in await online(rig)] == ["", ""]


async def test_a_worker_of_one_queue_in_a_list_keeps_its_name(rig: Rig) -> None:
    async with running(rig, queues=["only"], name="shop") as (worker, _):
        assert [each.name for each in await online(rig)] == ["shop"]
        assert worker.worker_ids == {"only": worker.worker_id}


async def test_a_drain_of_one_queue_by_an_operator_drains_the_whole_worker(rig: Rig) -> None:
    async with running(rig) as (worker, run):
        await rig.drain(worker.worker_ids[B])
        await asyncio.wait([run])

        assert run.exception() is None
        assert await online(rig) == []


async def test_an_eviction_at_one_queue_ends_the_worker_and_says_which(rig: Rig) -> None:
    async with running(rig, name="shop") as (worker, run):
        (task_id,) = await rig.enqueue(queue=A, input=said(text="wait"), encoding="json")
        await rig.until(task_id, "RUNNING")
        evicted_id = worker.worker_ids[B]
        await rig.evict(evicted_id)

        with pytest.raises(WorkerEvicted, match=f"'shop@{B}' {evicted_id} of queue {B}"):
            await run
        assert await online(rig) == []
        assert await rig.outcomes(task_id) == ["released"]


async def test_a_name_that_is_taken_over_at_one_queue_ends_the_worker(rig: Rig) -> None:
    later = {"queues": [B, "queue-c"], "name": "shop"}
    async with running(rig, name="shop") as (_, run), running(rig, **later):
        with pytest.raises(WorkerSuperseded, match=f"'shop@{B}'"):
            await run


async def test_the_log_and_the_probe_show_all_queues_together(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="tenure.worker")
    async with running(rig, health="127.0.0.1:0", drain_deadline="1s") as (worker, run):
        for queue in (A, A, B):
            (task_id,) = await rig.enqueue(queue=queue, input=said(text="wait"), encoding="json")
            await rig.until(task_id, "RUNNING")
        assert worker.active_count == 3
        reader, writer = await asyncio.open_connection("127.0.0.1", worker.health_port)
        writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
        shown = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
        writer.close()
        ids = worker.worker_ids
        worker.request_shutdown()
        await run

    assert shown["worker_ids"] == ids
    assert shown["active_count"] == 3
    assert f"Draining: 3 task(s) ({A}: 2, {B}: 1) have 1 s to finish." in messages(caplog)


@pytest.mark.parametrize("mode", MODES)
async def test_a_queue_without_a_slot_says_so_with_its_heartbeats(
    tmp_path: Path, mode: str
) -> None:
    async with (
        open_rig(tmp_path, **FAST) as rig,
        running(rig, mode=mode, max_concurrent=1) as (worker, _),
    ):
        (task_id,) = await rig.enqueue(queue=A, input=said(text="wait"), encoding="json")
        await rig.until(task_id, "RUNNING")
        # What it says counts as a sign that it is not deaf.
        signs = rig.engine.worker_activity
        before = signs.last_mono_ms(worker.worker_ids[B])
        await eventually(lambda: signs.last_mono_ms(worker.worker_ids[B]) != before)


# -- Activities that are declared for another queue


@activity(start_to_close="30s", queue=A)
async def sort() -> None:
    """Is declared for the first queue."""


@activity(start_to_close="30s", queue="elsewhere")
async def print_all() -> None:
    """Is declared for a queue that no worker here serves."""


async def warnings_of(caplog: pytest.LogCaptureFixture, *workers: Worker) -> list[str]:
    """Run workers until they are registered, and return their warnings."""
    runs = [asyncio.get_running_loop().create_task(each.run()) for each in workers]
    await eventually(lambda: all(each.is_registered for each in workers))
    for each in workers:
        each.request_shutdown()
    await asyncio.gather(*runs)
    return [each for each in messages(caplog) if "declared for" in each]


async def test_an_activity_of_a_queue_that_this_process_does_not_serve_is_a_warning(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(rig.proxy.address, queues=QUEUES, activities=[mail, sort, print_all])

    (warning,) = await warnings_of(caplog, worker)
    assert warning == (
        "No worker of this process serves queue elsewhere, which these activities are declared "
        "for: print_all. Their tasks wait for another worker. To run them here: "
        f'queues=["{A}", "{B}", "elsewhere"], or --queue {A} --queue {B} --queue elsewhere'
    )


async def test_a_queue_that_another_worker_of_this_process_serves_is_no_warning(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    one = Worker(rig.proxy.address, queue="default", activities=[print_all])
    two = Worker(rig.proxy.address, queue="elsewhere", activities=[print_all])

    assert await warnings_of(caplog, one, two) == []


# -- What cannot work is said before anything connects


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"queue": "a", "queues": ["b"]},
            r'give either queue="a" or queues=\["a", "b"\], not both',
        ),
        ({"queues": []}, "queues must name 1 to 50 queues, not 0"),
        ({"queues": [f"q{each}" for each in range(51)]}, "queues must name 1 to 50 queues, not 51"),
        ({"queues": ["a", "b", "a"]}, "each queue once, and 'a' is there twice"),
        ({"queues": ["a", "b c"]}, "queue"),
        ({"queues": ["a", ""]}, "queue"),
        ({"queues": ["a", "b"], "name": "n" * 254}, "name@queue must have at most 255"),
        ({"queues": ["a", "b"], "name": "n@a"}, "name"),
    ],
)
def test_bad_queues_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Worker(activities=[mail], **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queues": "a"}, r'queues must be a list such as \["a", "b"\], not str'),
        ({"queues": 3}, r'queues must be a list such as \["a", "b"\], not int'),
        ({"queues": ["a", 3]}, "queues must be a list of texts, and one is int"),
        ({"queue": ["a", "b"]}, r'queue must be a text, not list; several are queues=\["a", "b"\]'),
    ],
)
def test_queues_of_other_types_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Worker(activities=[mail], **fields)


# -- As a process


async def start(rig: Rig, path: Path, mode: str, slots: int) -> Process:
    program = ("-m", "tests.sdk.worker.queue_program", rig.proxy.address, mode, str(slots))
    return await Process.spawn((*program, str(path / "counts")), path / "worker.log")


async def peak(path: Path) -> int:
    text = await asyncio.to_thread((path / "counts").read_text)
    return max(map(int, text.split()))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("slots", [1, 3, 8])
async def test_all_queues_together_never_run_more_than_max_concurrent(
    rig: Rig, tmp_path: Path, mode: str, slots: int
) -> None:
    process = await start(rig, tmp_path, mode, slots)
    gate = tmp_path / "gate"
    tasks = []
    for count in (10, 1, 15):
        for queue in QUEUES:
            work = said(seconds=0.02, gate=str(gate))
            tasks += await rig.enqueue(count, work, queue, encoding="json")

    async def are_all_slots_used() -> bool:
        return (tmp_path / "counts").exists() and await peak(tmp_path) >= slots

    await eventually(are_all_slots_used)
    gate.touch()
    async with asyncio.timeout(WORK_S):
        for task_id in tasks:
            await rig.until(task_id, "SUCCEEDED")
    assert await process.stop() == 0
    assert await peak(tmp_path) == slots


@pytest.mark.parametrize("mode", MODES)
async def test_one_busy_queue_uses_all_slots_and_the_other_one_the_next_that_is_free(
    rig: Rig, tmp_path: Path, mode: str
) -> None:
    process = await start(rig, tmp_path, mode, 4)
    long = said(gate=str(tmp_path / "gate"))
    held = await rig.enqueue(3, long, A, encoding="json")
    for task_id in held:
        await rig.until(task_id, "RUNNING")
    (last,) = await rig.enqueue(1, said(gate=str(tmp_path / "last")), A, encoding="json")
    await rig.until(last, "RUNNING")
    (waiting,) = await rig.enqueue(1, b"{}", B, encoding="json")
    more = await rig.enqueue(20, said(seconds=0.2), A, encoding="json")
    (tmp_path / "last").touch()

    await rig.until(waiting, "SUCCEEDED")
    (tmp_path / "gate").touch()
    for task_id in (*held, last, *more):
        await rig.until(task_id, "SUCCEEDED")
    assert await process.stop() == 0
    assert await peak(tmp_path) == 4


@pytest.mark.parametrize("mode", MODES)
async def test_a_signal_drains_all_queues_and_leaves_no_worker(
    rig: Rig, tmp_path: Path, mode: str
) -> None:
    process = await start(rig, tmp_path, mode, 10)
    gate = tmp_path / "gate"
    tasks = [
        (await rig.enqueue(1, said(gate=str(gate)), queue, encoding="json"))[0] for queue in QUEUES
    ]
    for task_id in tasks:
        await rig.until(task_id, "RUNNING")

    async def is_draining() -> bool:
        return all(each.drain_deadline_at_ms > 0 for each in await rig.workers())

    process.signal(signal.SIGTERM)
    await eventually(is_draining)
    gate.touch()

    assert await process.wait() == 0
    for task_id in tasks:
        await rig.until(task_id, "SUCCEEDED")
        assert await rig.outcomes(task_id) == ["succeeded"]
    known = await rig.workers()
    assert {each.end_reason for each in known} == {"deregistered"}
    assert len(known) == len(QUEUES)
    log = await asyncio.to_thread((tmp_path / "worker.log").read_text)
    assert f"Draining: 2 task(s) ({A}: 1, {B}: 1)" in log


@pytest.mark.parametrize("mode", MODES)
async def test_a_killed_process_gives_back_the_tasks_of_all_queues(
    tmp_path: Path, mode: str
) -> None:
    async with open_rig(tmp_path, **FAST) as fast:
        process = await start(fast, tmp_path, mode, 10)
        tasks = [
            (await fast.enqueue(1, said(seconds=50), queue, encoding="json"))[0] for queue in QUEUES
        ]
        for task_id in tasks:
            await fast.until(task_id, "RUNNING")
        await process.kill()

        for task_id in tasks:
            await fast.until(task_id, "PENDING")
            assert await fast.outcomes(task_id) == ["worker_lost"]
        assert await online(fast) == []
