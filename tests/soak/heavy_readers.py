"""Readers that ask for lists as fast as they are answered do not hold up whoever has work to do.

Hundreds of thousands of tasks wait for workers that do not exist. One task after the other is
enqueued and done beside them, first alone, then while six readers in another process go through
lists, counts and queues.

``python -m tests.soak.heavy_readers ADDRESS STOP FOUND`` are the readers; a file stops them.
"""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Final

import apsw
import asyncpg
import msgspec

from tests.bounds import WORK_S
from tests.polling import eventually
from tests.soak.result import Result
from tests.soak.scene import SCALES, Scale, on_both_stores
from tests.wire.client import Client, make_task
from tests.wire.process import Process
from tests.wire.stage import Stage

READERS: Final = 6
PROMISED_MS: Final = 100.0
NAMESPACE: Final = "default/default"
# Few match and many have to be looked at, there is much to count, or there are many queues.
PATHS: Final = (
    "/v1/tasks?queue=rare&totalCount=true&pageSize=100",
    "/v1/tasks?type=none&totalCount=true",
    "/v1/tasks?state=PENDING&totalCount=true&pageSize=100",
    "/v1/tasks?state=FAILED&totalCount=true",
    "/v1/queues?pageSize=100",
    "/v1/workers?totalCount=true",
    "/v1/diagnosis",
)
COLUMNS: Final = """
INSERT INTO tasks (id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms,
    attempt, version, handed_at_ms, session_no, is_guarded, spec)
"""
FILL: Final = {
    "sqlite": "WITH RECURSIVE made (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM made WHERE n < ?1)"
    + COLUMNS
    + """
    SELECT printf('01900000-0000-7000-8000-%012x', n), ?2, 'queue-' || (n % 1000), 'alien',
        'pending', 1, 5, 1, 1, 0, 0, 0, 0, 0, x'80'
    FROM made
    """,
    "postgres": COLUMNS
    + """
    SELECT CAST('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid), $2,
        'queue-' || (n % 1000), 'alien', 'pending', 1, 5, 1, 1, 0, 0, 0, 0, false, '\\x80'
    FROM generate_series(1, CAST($1 AS bigint)) AS made (n)
    """,
}


class Size(msgspec.Struct, frozen=True):
    """How many tasks wait, and how many are done beside them."""

    waiting: int
    tasks: int
    scale: Scale


SIZES: Final = {False: Size(1_000_000, 300, SCALES[False]), True: Size(20_000, 15, SCALES[True])}


async def run(small: bool) -> list[Result]:
    """Play the scene on both stores."""
    size = SIZES[small]

    async def scene(stage: Stage, dialect: str) -> list[Result]:
        return await _play(stage, dialect, size, small=small)

    return await on_both_stores(size.scale, scene)


async def _play(stage: Stage, dialect: str, size: Size, *, small: bool) -> list[Result]:
    # A server has to make the tables.
    await (await stage.server()).kill()
    await _fill(stage.store, dialect, size.waiting)
    server = await stage.server("--list-rate", "0")
    await stage.worker(server.grpc)
    client = await stage.client(server.grpc)
    quiet_ms = await _measure(client, size.tasks)
    found = stage.folder / "found.json"
    stop = stage.folder / "stop"
    readers = await Process.spawn(
        ("-m", "tests.soak.heavy_readers", server.http, str(stop), str(found)),
        stage.folder / "readers.log",
    )
    stage.adopt(readers)
    await eventually(found.exists, "the readers", within_s=WORK_S)
    beside_ms = await _measure(client, size.tasks)
    stop.touch()
    code = await readers.wait(WORK_S)
    assert code == 0, (stage.folder / "readers.log").read_text()
    answers: dict[str, int] = json.loads(found.read_text())
    late_ms = max(beside_ms) - max(quiet_ms)
    name = f"heavy readers, {dialect}, {size.waiting:,} waiting tasks"
    return [
        Result(
            f"{name}: answers",
            "all good, and some",
            ", ".join(f"{count:,} with {status}" for status, count in sorted(answers.items())),
            held=list(answers) == ["200"],
        ),
        Result(
            f"{name}: from the call to the result",
            f"at most {PROMISED_MS:.0f} ms later than without readers",
            f"longest {max(beside_ms):.1f} ms, median {statistics.median(beside_ms):.1f} ms; "
            f"without readers {max(quiet_ms):.1f} and {statistics.median(quiet_ms):.1f} ms",
            # How fast a machine is that does other things says nothing.
            held=None if small else late_ms <= PROMISED_MS,
        ),
    ]


async def _measure(client: Client, count: int) -> list[float]:
    """Do tasks one after the other; return how long each took."""
    took_ms = []
    for _ in range(count):
        began_s = time.monotonic()
        ids = await client.enqueue([make_task()])
        await client.wait_all(ids, WORK_S)
        took_ms.append(1_000 * (time.monotonic() - began_s))
    return took_ms


async def _fill(store: str, dialect: str, count: int) -> None:
    if dialect == "sqlite":
        file = apsw.Connection(store.removeprefix("sqlite:///"))
        file.execute(FILL[dialect], (count, NAMESPACE)).fetchall()
        file.close()
        return
    connection = await asyncpg.connect(store)
    await connection.execute(FILL[dialect], count, NAMESPACE)
    await connection.close()


def main() -> None:
    """Read until a file is there, and write how often each status was answered."""
    address, stop, found = sys.argv[1:]
    counts: dict[str, int] = {}
    lock = threading.Lock()

    def read(number: int) -> None:
        connection = http.client.HTTPConnection(address, timeout=60)
        while not Path(stop).exists():
            connection.request("GET", PATHS[number % len(PATHS)])
            answer = connection.getresponse()
            answer.read()
            with lock:
                counts[str(answer.status)] = counts.get(str(answer.status), 0) + 1
                Path(found).touch()
            number += 1
        connection.close()

    threads = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Path(found).write_text(json.dumps(counts))


if __name__ == "__main__":
    main()
