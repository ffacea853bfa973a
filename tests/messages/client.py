"""Mistakes of code that enqueues tasks and waits for them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import textwrap
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from tenure import Client, Schedule, SyncClient
from tests.bounds import WAIT_S
from tests.messages.app import greet, nap, price, total, upload
from tests.messages.mistake import logged, mistake, raised
from tests.messages.scene import Scene

_CONNECT = "Connecting"
_SECTION = "Enqueueing and waiting"
_RUN = 'client.run(greet, "Ann")'
_UNKNOWN = str(uuid.UUID(int=7))


def _run(target: str, **options: Any) -> str:
    with SyncClient(target, timeout="1s", **options) as client:
        return raised(lambda: client.run(greet, "Ann"))


@contextmanager
def _something_else(scene: Scene) -> Iterator[str]:
    """Listen, and hang up on everybody, as a program of another kind may do."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def serve() -> None:
            while True:
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                line.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host, port = listening.getsockname()
        yield scene.called(f"{host}:{port}", "127.0.0.1:8080")
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(WAIT_S)


@mistake(_CONNECT, "The server is not running", _RUN)
def no_server(scene: Scene) -> str:
    return _run(scene.silent_port)


@mistake(_CONNECT, "Another program has the port", 'SyncClient("127.0.0.1:8080")')
def wrong_port(scene: Scene) -> str:
    with _something_else(scene) as target:
        return _run(target)


@mistake(_CONNECT, "The HTTP port", 'SyncClient("127.0.0.1:7300")')
def http_port(scene: Scene) -> str:
    return _run(scene.server.http)


@mistake(_CONNECT, "A URL", 'SyncClient("http://127.0.0.1:7300")')
def target_url(_: Scene) -> str:
    return raised(lambda: SyncClient("http://127.0.0.1:7300"))


@mistake(_CONNECT, "No port", 'SyncClient("localhost")')
def no_port(_: Scene) -> str:
    return raised(lambda: SyncClient("localhost"))


@mistake(_CONNECT, "TLS to a server without it", "SyncClient(tls=True)")
def unwanted_tls(scene: Scene) -> str:
    return _run(scene.server.grpc, tls=True)


@mistake(_CONNECT, "`TENURE_API_KEY` is missing", _RUN)
def no_key(scene: Scene) -> str:
    return _run(scene.guarded.grpc)


@mistake(_CONNECT, "`TENURE_API_KEY` is wrong", _RUN)
def wrong_key(scene: Scene) -> str:
    return _run(scene.guarded.grpc, api_key=f"tnr_{_UNKNOWN}_secret")


@mistake(_CONNECT, "The namespace does not exist", 'SyncClient(namespace="shop")')
def wrong_namespace(scene: Scene) -> str:
    return _run(scene.server.grpc, namespace="shop")


@mistake(_SECTION, "A function without `@activity`", "client.run(str.upper, …)")
def no_activity(scene: Scene) -> str:
    run: Any = scene.client.run
    return raised(lambda: run(str.upper, "ann"))


@mistake(_SECTION, "The activity is called", 'client.run(greet("Ann"))')
def called(scene: Scene) -> str:
    run: Any = scene.client.run
    return raised(lambda: run(greet("Ann")))


@mistake(_SECTION, "An argument is missing", "client.run(greet)")
def missing_argument(scene: Scene) -> str:
    run: Any = scene.client.run
    return raised(lambda: run(greet))


@mistake(_SECTION, "An argument of another type", "client.run(greet, 7)")
def wrong_type(scene: Scene) -> str:
    run: Any = scene.client.run
    return raised(lambda: run(greet, 7))


@mistake(_SECTION, "Another type inside of an argument", 'client.run(total, {"tea": "3"})')
def wrong_type_inside(scene: Scene) -> str:
    run: Any = scene.client.run
    return raised(lambda: run(total, {"tea": "3"}))


@mistake(_SECTION, "A value that cannot be made JSON", "client.run(upload, lambda: 1)")
def no_json_value(scene: Scene) -> str:
    return raised(lambda: scene.client.run(upload, lambda: 1))


@mistake(_SECTION, "Too much data", 'client.run(upload, "x" * 3_000_000)')
def too_large(scene: Scene) -> str:
    return raised(lambda: scene.client.run(upload, "x" * 3_000_000))


@mistake(
    _SECTION,
    "An idempotency key is used for something else",
    'client.enqueue(greet.with_options(idempotency_key="order-7"), "Bob")',
)
def key_conflict(scene: Scene) -> str:
    keyed = greet.with_options(idempotency_key="order-7")
    scene.client.enqueue(keyed, "Ann")
    return raised(lambda: scene.client.enqueue(keyed, "Bob"))


@mistake(_SECTION, "The activity raises an exception", 'client.run(price, "coffee")')
def raising(scene: Scene) -> str:
    scene.started_worker()
    return raised(lambda: scene.client.run(price, "coffee"))


@mistake(_SECTION, "The activity takes longer than its timeout", "client.run(nap)")
def timed_out(scene: Scene) -> str:
    scene.started_worker()
    return raised(lambda: scene.client.run(nap))


@mistake(_SECTION, "The wait is over before the task", 'handle.result(timeout="1s")')
def wait_timeout(scene: Scene) -> str:
    handle = scene.client.enqueue(greet.with_options(queue="nobody"), "Ann")
    return raised(lambda: handle.result(timeout="1s"))


@mistake(_SECTION, "A task that no worker takes is waited for (in the log)", _RUN)
def stalled(scene: Scene) -> str:
    program = f"""
    import logging
    from app import greet
    from tenure import SyncClient

    logging.basicConfig(format="%(levelname)s:%(name)s:%(message)s")
    with SyncClient("{scene.server.grpc}") as client:
        client.run(greet.with_options(queue="nobody"), "Ann")
    """
    # It offers greet, on another queue.
    scene.started_worker()
    waiting = scene.start(command=(sys.executable, "-c", textwrap.dedent(program)))
    line = waiting.until("Waiting for task")
    waiting.kill()
    return line


@mistake(_SECTION, "An unknown id", 'client.handle("…").describe()')
def unknown_task(scene: Scene) -> str:
    return raised(lambda: scene.client.handle(_UNKNOWN).describe())


@mistake(_SECTION, "A text that is not an id", 'client.handle("order-7")')
def no_id(scene: Scene) -> str:
    return raised(lambda: scene.client.handle("order-7"))


@mistake(_SECTION, "A task that has ended is cancelled", "handle.cancel()")
def cancelled_late(scene: Scene) -> str:
    scene.started_worker()
    handle = scene.client.enqueue(greet, "Ann")
    handle.result(timeout=WAIT_S)
    return raised(handle.cancel)


@mistake(_SECTION, "A schedule without a rule", 'Schedule(zone="Europe/Berlin")')
def schedule_without_rule(_: Scene) -> str:
    return raised(lambda: Schedule(zone="Europe/Berlin"))


@mistake(_SECTION, "A rule with a mistake", 'client.schedules.put("x", "0 25 * * *", greet, "Ann")')
def schedule_with_bad_rule(scene: Scene) -> str:
    return raised(lambda: scene.client.schedules.put("x", "0 25 * * *", greet, "Ann"))


@mistake(_SECTION, "Another schedule has the id", 'client.schedules.create("day", …)')
def schedule_exists(scene: Scene) -> str:
    scene.client.schedules.put("day", "@daily", greet, "Ann")
    return raised(lambda: scene.client.schedules.create("day", "@daily", greet, "Bob"))


@mistake(_SECTION, "The client was closed", _RUN)
def closed(scene: Scene) -> str:
    client = SyncClient(scene.server.grpc)
    client.close()
    return raised(lambda: client.run(greet, "Ann"))


@mistake(_SECTION, "A `SyncClient` in a coroutine (in the log)", _RUN)
def in_a_loop(scene: Scene) -> str:
    scene.started_worker()

    async def main() -> str:
        return logged(lambda: scene.client.run(greet, "Ann"))

    return asyncio.run(main())


@mistake(_SECTION, "One `Client` in two event loops", f"asyncio.run({_RUN}) twice")
def two_loops(scene: Scene) -> str:
    client = Client(scene.server.grpc)
    handle = client.handle(_UNKNOWN)

    async def ask() -> None:
        await handle.describe()

    raised(lambda: asyncio.run(ask()))
    return raised(lambda: asyncio.run(ask()))


@mistake(_SECTION, "Ctrl-C while a result is waited for", "handle.result()")
def interrupted(scene: Scene) -> str:
    handle = scene.client.enqueue(greet.with_options(queue="nobody"), "Ann")
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        handle.result()
    except KeyboardInterrupt as error:
        return f"{type(error).__name__} {error}".strip()
    finally:
        timer.join()
    raise AssertionError("it was not interrupted")
