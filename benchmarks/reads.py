"""What lists, counts and looks cost with a million waiting tasks, and what they cost the others.

Two stores are filled: a million tasks in ten queues beside a million finished ones and 10,000
workers, and as many tasks in 10,000 queues. ``…_ms`` is the median of some requests to an idle
server, or of a command with its start. ``result_…_ms``: from the call to the result, one task at a
time, while six readers ask for lists as fast as they are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

import apsw
import grpc

from benchmarks.context import Context
from benchmarks.database import PostgresDatabase, SqliteDatabase
from benchmarks.load import CLOCK, INPUT, SPEC, open_engine
from benchmarks.server import QUEUE, TYPE, Client
from benchmarks.statement import read_statements
from tenure.core.worker.record import NewWorker, WorkerMode
from tenure.engine.engine import Engine
from tenure.engine.read.sample import take_sample
from tenure.engine.worker import command as c
from tenure.store.table import codec

NAMESPACE = "default/default"
FEW_QUEUES, MANY_QUEUES = 10, 10_000
ROUNDS = 5
READERS = 6
PROBED_TASKS = 100
REGISTERED_AT_ONCE = 500
# Below the ids of new tasks, so that those of the probes are the newest.
NEWEST, OLDEST = "01900000-0000-7000-8000-{:012x}", "01900000-0000-7000-8000-000000000001"

READS = {
    "tasks": "/v1/tasks",
    "tasks_pending": "/v1/tasks?state=PENDING",
    "tasks_pending_total": "/v1/tasks?state=PENDING&totalCount=true",
    "tasks_type": "/v1/tasks?state=PENDING&type=type-1",
    "tasks_queue_rare": "/v1/tasks?state=PENDING&queue=rare",
    "tasks_queue_rare_total": "/v1/tasks?queue=rare&totalCount=true",
    "tasks_no_such_type": "/v1/tasks?type=none&totalCount=true",
    "tasks_running": "/v1/tasks?state=RUNNING",
    "tasks_succeeded_total": "/v1/tasks?state=SUCCEEDED&totalCount=true",
    "tasks_failed": "/v1/tasks?state=FAILED&queue=queue-000000",
    "queues": "/v1/queues",
    "queue": "/v1/queues/queue-000001",
    "explain": f"/v1/tasks/{OLDEST}/explain",
    "explain_newest": "/v1/tasks/{newest}/explain",
    "diagnosis": "/v1/diagnosis",
    "workers": "/v1/workers?totalCount=true",
    "workers_draining": "/v1/workers?status=DRAINING",
    "workers_label": "/v1/workers?label=zone%3Dnone&totalCount=true",
}
HEAVY = ("tasks_queue_rare_total", "tasks_no_such_type", "queues", "tasks_pending_total")
COMMANDS = {"top": ("top", "--once", "-o", "json"), "queues_ls": ("queues", "ls")}

Database = SqliteDatabase | PostgresDatabase


class Served(NamedTuple):
    """A server under measurement."""

    http: str
    grpc: str
    client: Client


async def run(context: Context) -> dict[str, float]:
    """Measure both stores, each with few queues and with many."""
    numbers: dict[str, float] = {}
    for name in ("sqlite", "postgres"):
        for kind, queue_count in (("few", FEW_QUEUES), ("many", MANY_QUEUES)):
            database: Database = context.sqlite() if name == "sqlite" else context.postgres()
            found = await _measure(context, database, queue_count)
            for measure, value in found.items():
                numbers[f"{name}.{kind}.{measure}"] = value
                context.report(f"{name}.{kind}.{measure}", value)
            context.remove_databases()
    return numbers


async def _measure(context: Context, database: Database, queue_count: int) -> dict[str, float]:
    scale = context.scale
    has_all = queue_count == FEW_QUEUES
    engine = await open_engine(database.store(), services=())
    await _fill(database, "insert_pending", scale.row_count, queue_count)
    if has_all:
        await _fill(database, "insert_finished", scale.row_count, queue_count)
        await _register(engine, scale.worker_count)
    numbers = {"sample_ms": await _timed(lambda: take_sample(engine.store, deaf=()))}
    await engine.stop()
    url = f"sqlite:///{database.path}" if isinstance(database, SqliteDatabase) else database.dsn
    async with _open(url) as served:
        wanted = READS if has_all else {name: READS[name] for name in ("queues", "queue")}
        for name, path in wanted.items():
            filled = path.replace("{newest}", NEWEST.format(scale.row_count))
            numbers[f"{name}_ms"] = await _timed(
                lambda path=filled: asyncio.to_thread(_get, served.http, path)  # type: ignore[misc]  # bound early
            )
        for name, words in COMMANDS.items():
            numbers[f"{name}_ms"] = await _timed(
                lambda words=words: _command(served, words),  # type: ignore[misc]  # bound early
                rounds=2,
            )
        if has_all:
            numbers |= await _probe(served)
    return numbers


async def _timed(read: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median of some rounds in milliseconds; the first, which warms up, counts not."""
    took = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        await read()  # type: ignore[misc]  # coroutines of any result
        took.append((time.perf_counter() - began) * 1000)
        if took[-1] > 5_000:
            break
    return statistics.median(took[1:] or took)


def _get(address: str, path: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read()
        # A read that takes too long is refused, after a time that is measured as well.
        assert answer.status in {200, 503}, text
    finally:
        connection.close()


async def _command(served: Served, words: Sequence[str]) -> None:
    options = ["--target", served.grpc]
    if words[0] == "top":
        options += ["--http", served.http]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenure.cli", *words, *options),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    await process.wait()


async def _probe(served: Served) -> dict[str, float]:
    """Measure enqueue to result without readers, then with them."""
    quiet = await served.client.idle()
    is_over = threading.Event()
    counts = [0] * READERS

    def read(number: int) -> None:
        for name in HEAVY * 1_000_000:
            if is_over.is_set():
                return
            with contextlib.suppress(OSError):
                _get(served.http, READS[name])
                counts[number] += 1

    threads = [threading.Thread(target=read, args=(each,)) for each in range(READERS)]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    beside = await served.client.idle()
    seconds = time.perf_counter() - began
    is_over.set()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    return {
        "result_quiet_p50_ms": statistics.median(quiet),
        "result_quiet_max_ms": max(quiet),
        "result_readers_p50_ms": statistics.median(beside),
        "result_readers_max_ms": max(beside),
        "reads_per_s": sum(counts) / seconds,
    }


async def _fill(database: Database, name: str, count: int, queue_count: int) -> None:
    values = (count, queue_count, CLOCK.now_ms(), NAMESPACE, codec.spec_to(SPEC)[1], INPUT)
    if isinstance(database, PostgresDatabase):
        async with database.connect() as connection:
            await connection.execute(read_statements("fixture_reads_postgres.sql")[name], *values)
        return
    sql = read_statements("fixture_reads_sqlite.sql")[name]
    file = apsw.Connection(str(database.path))
    await asyncio.to_thread(lambda: file.execute(sql, values).fetchall())
    file.close()


async def _register(engine: Engine, count: int) -> None:
    """Register workers of another queue with a lease that outlasts the measurement."""
    requests = [
        c.RegisterWorker(
            namespace=NAMESPACE,
            new=NewWorker(
                instance_key=CLOCK.new_id(),
                queue="elsewhere",
                types=("other",),
                mode=WorkerMode.SESSION,
                lease_ms=600_000,
                slots=10,
                labels={"zone": "some"},
            ),
        )
        for _ in range(count)
    ]
    for at in range(0, count, REGISTERED_AT_ONCE):
        await asyncio.gather(*map(engine.submit, requests[at : at + REGISTERED_AT_ONCE]))


@contextlib.asynccontextmanager
async def _open(url: str) -> AsyncIterator[Served]:
    """Start a server and a worker as processes of their own, and connect to them."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenure.cli", "server", "--store", url, "--log-level", "error"),
        *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--list-rate", "0"),
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    line = (await server.stdout.readline()).decode().strip()
    http_address = line.rpartition("http=")[2].split()[0].removeprefix("http://")
    target = line.rpartition("grpc=")[2].split()[0]
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.server_worker", target, QUEUE, TYPE)
    )
    async with grpc.aio.insecure_channel(target) as channel:
        client = Client(channel, idle_count=PROBED_TASKS)
        reading = asyncio.ensure_future(client.read())
        try:
            yield Served(http_address, target, client)
        finally:
            reading.cancel()
            for process in (worker, server):
                process.terminate()
                await process.wait()
