"""A process in which a secret takes every way that leads near a log; the test reads its logs.

Run as ``python -m tests.api.log_canary FORMAT DSN``.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import tempfile
from pathlib import Path
from typing import Final

import asyncpg
import structlog

from tenure.api.log import Format, configure_logging
from tenure.core.access import api_key
from tenure.core.access.api_key import Role
from tenure.core.task.record import NewTask, Spec
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import NewWorker
from tenure.engine.access.command import CreatedKey, CreateKey, CreateNamespace, RevokeKey
from tenure.engine.clock import SystemClock
from tenure.engine.command import AnyCommand
from tenure.engine.engine import Engine
from tenure.engine.task.command import ClaimTasks, EnqueueTasks, Finish, FinishKind, FinishTasks
from tenure.engine.worker.command import Heartbeat, RegisterWorker, Registration
from tenure.errors import TenureError
from tenure.store.failure import StoreError
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.transaction import Store
from tests.secret_scan import CANARY

KEY: Final = f"tnr_{'k' * 16}_{'S3cret_-' * 5}abc"
TOKEN: Final = 918_273_645_546
NAMESPACE: Final = "default/default"
secrets: list[str] = []
SPEC: Final = Spec(start_to_close_ms=60_000)
log = structlog.get_logger("tenure.canary")


class Faults:
    """Raises once at a statement."""

    def __init__(self) -> None:
        self.planned: dict[str, Exception] = {}

    def __call__(self, point: str) -> None:
        if point in self.planned:
            raise self.planned.pop(point)


async def attempt(engine: Engine, command: AnyCommand) -> object:
    """Submit a command, and log how it was refused as an edge would."""
    try:
        return await engine.submit(command)
    except TenureError as error:
        log.warning("request.refused", command=type(command).__name__, error=error)
        return None


def enqueue(engine: Engine, **changes: object) -> EnqueueTasks:
    fields: dict[str, object] = {"id": engine.clock.new_id(), "input": CANARY.encode(), **changes}
    task = NewTask(type="mail", queue="default", spec=SPEC, **fields)  # type: ignore[arg-type]  # also bad ones
    return EnqueueTasks(namespace=NAMESPACE, tasks=(task,))


async def use(engine: Engine, faults: Faults) -> None:
    """Let requests with the secret succeed, be refused, and fail in the store."""
    await attempt(engine, CreateNamespace(name=NAMESPACE))
    await use_keys(engine, faults)
    first = enqueue(engine, labels={"mark": CANARY}, idempotency_key="order-7")
    await attempt(engine, first)
    await attempt(engine, first)
    await attempt(engine, enqueue(engine, idempotency_key="order-7", input=CANARY.encode() * 2))
    await attempt(engine, enqueue(engine, id=CANARY))
    await attempt(engine, enqueue(engine, labels={CANARY + "\0": CANARY}))
    quoting = f"invalid input for query argument $21: {CANARY!r}"
    for error in (asyncpg.DataError(quoting), ValueError(CANARY), OSError(5, "I/O", CANARY)):
        faults.planned["insert_tasks"] = error
        await attempt(engine, enqueue(engine))
    new = NewWorker(engine.clock.new_id(), "default", ("mail",), labels={"mark": CANARY})
    answer = await attempt(engine, RegisterWorker(namespace=NAMESPACE, new=new))
    assert isinstance(answer, Registration)
    worker_id = answer.worker.id
    beat = Beat(token=TOKEN, server_id=engine.server_id)
    heartbeat = Heartbeat(namespace=NAMESPACE, worker_id=worker_id, beat=beat)
    await attempt(engine, heartbeat)
    log.info("heartbeat.refused", token=TOKEN, worker_id=worker_id)
    faults.planned["beat_leases"] = RuntimeError(CANARY)
    await attempt(engine, heartbeat)
    claim = ClaimTasks(
        namespace=NAMESPACE,
        worker_id=worker_id,
        queue="default",
        types=frozenset({"mail"}),
        wait_ms=0,
    )
    tasks = await attempt(engine, claim)
    assert isinstance(tasks, tuple)
    problem = ErrorInfo(ErrorCategory.USER_CODE, CANARY, details=CANARY.encode())
    done = Finish(
        task_id=tasks[0].id,
        attempt=7,
        kind=FinishKind.FAILED,
        error=problem,
        output=CANARY.encode(),
    )
    finish = FinishTasks(namespace=NAMESPACE, worker_id=worker_id, items=(done,))
    log.info("report.answered", answer=await attempt(engine, finish), command=finish)
    log.info("task.handed_out", task=tasks[0], tasks=list(tasks), task_id=tasks[0].id)


async def use_keys(engine: Engine, faults: Faults) -> None:
    """Make keys and fail to; a secret is in what is answered and nowhere else."""
    command = CreateKey(name="ci", role=Role.ADMIN)
    faults.planned["insert_api_keys"] = ValueError(KEY)
    await attempt(engine, command)
    made = await attempt(engine, command)
    assert isinstance(made, CreatedKey)
    secrets.append(made.text.secret)
    log.info("key.created", key=made.key, answer=made, given=made.text, text=repr(made))
    try:
        api_key.check_id(made.text.reveal())
    except TenureError as error:
        log.warning("key.refused", error=error)
    await attempt(engine, RevokeKey(key_id=made.key.id))


async def use_store(store: Store, faults: Faults) -> None:
    engine = Engine(store, clock=SystemClock())
    await engine.start()
    try:
        await use(engine, faults)
    finally:
        await engine.stop()


async def use_bad_dsn() -> None:
    """Fail to connect in the ways that name the address."""
    for dsn in (
        f"postgresql://tenure:{CANARY}@127.0.0.1:1/tenure",
        f"postgresql://tenure:{CANARY}@127.0.0.1:port/tenure",
        f"postgresql://tenure:{CANARY}/@127.0.0.1:1/tenure",
        f"postgresql://tenure@127.0.0.1:1/tenure?password={CANARY}",
    ):
        try:
            await PostgresStore(dsn).open()
        except StoreError as error:
            log.exception("store.failed", dsn=dsn, address=dsn, error=error, text=str(error))
        except Exception as error:
            log.exception("store.failed", url=dsn, error=error)


async def use_fields_and_libraries() -> None:
    """Name the secret in fields, and let libraries speak of it."""
    log.info(
        "fields",
        input=CANARY,
        output=CANARY.encode(),
        details={"a": CANARY},
        authorization=CANARY,
        headers={"x": CANARY},
        nested={"list": [{"password": CANARY, "task_token": CANARY}], "raw": CANARY.encode()},
        api_key=CANARY,
        text=f"the key {KEY}",
        request_id=KEY,
        names=[KEY],
    )
    library = logging.getLogger("uvicorn.error")
    library.error("refused Authorization: Bearer %s", CANARY)
    library.error("cannot connect to postgresql://tenure:%s@db/tenure", CANARY)
    library.error("bad number of arguments %d", CANARY)
    library.error("refused %s", KEY)

    async def fail() -> None:
        secret = CANARY
        raise ValueError(secret)

    task = asyncio.get_running_loop().create_task(fail())
    await asyncio.wait([task])
    del task
    gc.collect()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
    except ExceptionGroup:
        log.exception("group.failed")


async def main(form: Format, dsn: str) -> None:
    configure_logging(form, "debug")
    with tempfile.TemporaryDirectory() as folder:
        faults = Faults()
        clock = SystemClock()
        path = str(Path(folder) / "tenure.db")
        await use_store(SqliteStore(path, clock=clock.now_ms, probe=faults), faults)
    faults = Faults()
    await use_store(PostgresStore(dsn, probe=faults), faults)
    await use_bad_dsn()
    await use_fields_and_libraries()
    log.info("done")
    # Not a log: the test has to know what to look for.
    sys.stdout.write(f"SECRETS {' '.join(secrets)}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))  # type: ignore[arg-type]  # one of the three
