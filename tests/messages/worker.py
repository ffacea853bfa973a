"""Mistakes of workers."""

from __future__ import annotations

import asyncio
from typing import Any

from tenure import Worker, activity
from tests.bounds import WAIT_S
from tests.messages.app import freeze, greet, price
from tests.messages.mistake import mistake, raised
from tests.messages.scene import Scene
from tests.polling import eventually

_SECTION = "Running workers"
_worker: Any = Worker


@mistake(_SECTION, "No activities", "Worker(activities=[])")
def no_activities(_: Scene) -> str:
    return raised(lambda: Worker(activities=[]))


@mistake(_SECTION, "A function without `@activity`", "Worker(activities=[len])")
def plain_function(_: Scene) -> str:
    return raised(lambda: Worker(activities=[len]))


@mistake(_SECTION, "A class instead of an object", "Worker(activities=[Payments])")
def a_class(_: Scene) -> str:
    class Payments:
        @activity(start_to_close="30s")
        def charge(self, order: str) -> None: ...

    return raised(lambda: Worker(activities=[Payments]))


@mistake(_SECTION, "Two activities with one name", "Worker(activities=[greet, other.greet])")
def one_name(_: Scene) -> str:
    @activity(start_to_close="30s", name="greet")
    def welcome(name: str) -> None: ...

    return raised(lambda: Worker(activities=[greet, welcome]))


@mistake(_SECTION, "A lease that is too short", 'Worker(activities=[greet], lease="1s")')
def short_lease(_: Scene) -> str:
    return raised(lambda: Worker(activities=[greet], lease="1s"))


@mistake(_SECTION, "No slots", "Worker(activities=[greet], max_concurrent=0)")
def no_slots(_: Scene) -> str:
    return raised(lambda: Worker(activities=[greet], max_concurrent=0))


@mistake(_SECTION, "The server is not running (in the log)", "tenure worker app")
def no_server_for_worker(scene: Scene) -> str:
    worker = scene.start("worker", "app", "--target", scene.silent_port)
    line = worker.until("No server answers")
    worker.kill()
    return line


@mistake(_SECTION, "Another process has the name", 'Worker(activities=[greet], name="mail-1")')
def name_taken(scene: Scene) -> str:
    target = scene.server.grpc

    async def both() -> str:
        first, second = (
            Worker(target, activities=[greet], queue="twins", name="mail-1") for _ in range(2)
        )
        running = asyncio.create_task(first.run())
        await eventually(lambda: bool(first.worker_id), within_s=WAIT_S)
        other = asyncio.create_task(second.run())
        await asyncio.wait([running], timeout=WAIT_S)
        await second.shutdown()
        await other
        error = running.exception()
        return f"{type(error).__name__}: {error}"

    return asyncio.run(both())


@mistake(_SECTION, "Code that blocks in an async activity (in the log)", "time.sleep(3)")
def blocking(scene: Scene) -> str:
    scene.started_worker()
    handle = scene.client.enqueue(freeze, 2.5)
    line = scene.worker.until("event loop is blocked")
    handle.result(timeout=WAIT_S)
    return line


@mistake(_SECTION, "The activity raises an exception (in the log)", "tenure worker app")
def raising_in_worker(scene: Scene) -> str:
    scene.started_worker()
    handle = scene.client.enqueue(price, "coffee")
    return scene.worker.until(handle.task_id)
