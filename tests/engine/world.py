"""A database, the engines on it, and a clock that stands until the test moves it.

Both stores get the same clock: SQLite takes it as it is, PostgreSQL reads it from a table, because
its search path finds our ``clock_timestamp()`` before its own. No service runs by itself; a test
runs the rounds that it is about. So the same test gives the same result on both stores.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast

import apsw
import asyncpg
from msgspec.structs import replace

from tenure.core.journal.entry import JournalPage
from tenure.core.limits import STREAM_BYTES_MAX
from tenure.core.task.effect import Stop, StopCause
from tenure.core.task.record import NewTask, Spec, Task, TaskKind, TaskState
from tenure.core.task.retry import ErrorCategory, ErrorInfo
from tenure.core.worker.lease import Beat
from tenure.core.worker.record import EndReason, NewWorker, WorkerMode
from tenure.engine.command import TaskRef
from tenure.engine.engine import Engine
from tenure.engine.read import query
from tenure.engine.service import Job, Report
from tenure.engine.services.server_row import ServerTouch
from tenure.engine.settings import Settings
from tenure.engine.task.command import (
    ClaimTasks,
    ConfirmTasks,
    Enqueued,
    EnqueueTasks,
    Finish,
    FinishKind,
    FinishTasks,
    Reported,
    SignalCancels,
)
from tenure.engine.worker.command import (
    Heartbeat,
    OpenSession,
    RegisterWorker,
    Registration,
    Renewed,
    SessionAnswer,
)
from tenure.errors import Rejection
from tenure.store.postgres import PostgresStore
from tenure.store.sqlite import SqliteStore
from tenure.store.transaction import Store
from tenure.testing.clock import START_AT_MS, ManualClock
from tests.postgres import PostgresServer, shared

T = TypeVar("T")
NAMESPACE: Final = "acme/default"
OTHER_NAMESPACE: Final = "other/default"
DEFAULT_NAMESPACE: Final = "default/default"
QUEUE: Final = "default"
DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
NEVER_MS: Final = 10**9
SPEC: Final = Spec(start_to_close_ms=600_000)
RUN_SPEC: Final = Spec(kind=TaskKind.WORKFLOW)
FAULT: Final = ErrorInfo(ErrorCategory.USER_CODE, "boom", type="ValueError")
FATAL: Final = ErrorInfo(ErrorCategory.DATA_QUALITY, "bad row")
TABLES: Final = [
    "namespaces",
    "queues",
    "tasks",
    "history",
    "attempts",
    "journal",
    "groups",
    "closings",
    "idempotency_keys",
    "schedules",
    "schedule_counts",
    "fires",
    "workers",
    "leases",
    "stops",
    "seats",
    "endpoints",
    "servers",
    "secrets",
    "api_keys",
    "audit",
    "worker_changes",
    "statistics",
]
CURSOR_KEY: Final = b"secret of this server"


class Clock(ManualClock):
    """The one clock of a world, and its ids."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        at = f"{self.now_ms():012x}"
        return f"{at[:8]}-{at[8:]}-7000-8000-{next(self._numbers):012x}"

    def jitter(self) -> float:
        return 0.5

    def random_bytes(self, count: int) -> bytes:
        return next(self._numbers).to_bytes(count)


class Faults:
    """Raises once at a statement, or at ``before COMMIT`` and ``after COMMIT``."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self._planned: dict[str, list[BaseException]] = {}
        self._hooks: dict[str, list[Callable[[], object]]] = {}

    def raise_at(self, point: str, *errors: BaseException) -> None:
        self._planned.setdefault(point, []).extend(errors)

    def call_at(self, point: str, hook: Callable[[], object]) -> None:
        self._hooks.setdefault(point, []).append(hook)

    def __call__(self, point: str) -> None:
        self.points.append(point)
        if hooks := self._hooks.get(point):
            hooks.pop(0)()
        if planned := self._planned.get(point):
            raise planned.pop(0)


class Sink:
    """A worker's end of a session, or a poll's that somebody else holds."""

    room_bytes = STREAM_BYTES_MAX

    def __init__(self) -> None:
        self.is_open = True
        self.given: list[Task] = []
        self.cancelled: list[TaskRef] = []
        self.stopped: list[Stop] = []
        self.pages: list[tuple[TaskRef, JournalPage]] = []
        self.drained = False
        self.ended: EndReason | None = None

    def give(self, tasks: Sequence[Task]) -> None:
        self.given.extend(tasks)

    def cancel(self, refs: Sequence[TaskRef]) -> None:
        self.cancelled.extend(refs)

    def stop(self, stops: Sequence[Stop]) -> None:
        self.stopped.extend(stops)

    def page(self, ref: TaskRef, page: JournalPage) -> None:
        self.pages.append((ref, page))

    def drain(self) -> None:
        self.drained = True

    def end(self, reason: EndReason) -> None:
        self.ended = reason

    def take(self) -> list[Task]:
        """Return what arrived since the last call."""
        taken, self.given = self.given, []
        return taken


class Database:
    """Where the rows are, behind whatever engine works on them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def store(self, faults: Faults, *, pooled: bool = False) -> Store:
        """Return a new store on this database; one that is pooled cannot listen."""
        raise NotImplementedError

    async def set_time(self) -> None:
        """Let the database know the clock's time."""

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        """Read rows by SQL that both databases understand."""
        raise NotImplementedError

    async def execute(self, sql: str) -> None:
        """Change rows behind the back of every engine."""
        raise NotImplementedError

    async def dump(self, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
        """Return every row of the tables, in an order of its own."""
        found = {}
        for name in tables or TABLES:
            rows = await self.rows(f"SELECT * FROM {name}")
            found[name] = sorted((tuple(row.values()) for row in rows), key=repr)
        return found


class FarSqliteStore(SqliteStore):
    """Lets lone commands take the way that they have on PostgreSQL."""

    @property
    def is_far(self) -> bool:
        return True


class SqliteDatabase(Database):
    """In memory, reachable by a name, as long as one connection is open."""

    dialect = "sqlite"
    _numbers = itertools.count(1)

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._path = f"file:/engine-{next(self._numbers)}?vfs=memdb"
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        self._connection = apsw.Connection(self._path, flags=flags)

    def store(self, faults: Faults, *, pooled: bool = False) -> Store:
        del pooled
        return FarSqliteStore(self._path, clock=self.clock.now_ms, inline=True, probe=faults)

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        cursor = self._connection.cursor()
        names: list[str] = []
        found = []
        for row in cursor.execute(sql):
            names = names or [name for name, *_ in cursor.get_description()]
            found.append(dict(zip(names, row, strict=True)))
        return found

    async def execute(self, sql: str) -> None:
        self._connection.execute(sql)

    async def close(self) -> None:
        self._connection.close()


# The clock of the tests, in public, comes before the real one.
SEARCH_PATH: Final = "&search_path=tenure,public,pg_catalog"
NAMESPACES_SQL: Final = f"""
INSERT INTO namespaces (name, created_at_ms)
VALUES ('{NAMESPACE}', 0), ('{OTHER_NAMESPACE}', 0), ('{DEFAULT_NAMESPACE}', 0)
ON CONFLICT (name) DO UPDATE SET created_at_ms = 0;
"""
CLOCK_SQL: Final = f"""
CREATE TABLE test_clock (now_ms bigint NOT NULL);
INSERT INTO test_clock VALUES ({START_AT_MS});
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT to_timestamp(now_ms / 1000.0) FROM public.test_clock';
"""
FILL_SQL: Final = f"""
{NAMESPACES_SQL}
SELECT ensure_day_partitions(day)
    FROM generate_series({START_AT_MS // DAY_MS}, {START_AT_MS // DAY_MS + 2}) AS day;
"""
PARTITIONS_SQL: Final = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'history'::regclass"
PARTITIONS_COUNT: Final = 4
CONNECTIONS_SQL: Final = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state IS NOT NULL"
)
CLEAN_SQL: Final = f"""
{"".join(f"DELETE FROM {name};" for name in TABLES)}
{NAMESPACES_SQL}
UPDATE test_clock SET now_ms = {START_AT_MS};
"""


class PostgresDatabase(Database):
    """A copy of a template that has the schema and the clock."""

    dialect = "postgres"

    def __init__(self, clock: Clock, dsn: str, connection: asyncpg.Connection) -> None:
        super().__init__(clock)
        self.dsn = dsn
        self._connection = connection

    def store(self, faults: Faults, *, pooled: bool = False) -> Store:
        return PostgresStore(self.dsn, pooled=pooled, probe=faults)

    async def set_time(self) -> None:
        await self._connection.execute("UPDATE test_clock SET now_ms = $1", self.clock.now_ms())

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        return [dict(row) for row in await self._connection.fetch(sql)]

    async def execute(self, sql: str) -> None:
        await self._connection.execute(sql)


@functools.cache
def _template(server: PostgresServer) -> str:
    """Make the template once per process, in a loop of its own."""
    name = server.create_database()

    async def fill() -> None:
        dsn = server.dsn(name) + SEARCH_PATH
        connection = await asyncpg.connect(dsn)
        # The clock comes first: the store makes the partitions of its own today.
        await connection.execute(CLOCK_SQL)
        store = PostgresStore(dsn)
        await store.open()
        await store.close()
        await connection.execute(FILL_SQL)
        await connection.close()

    asyncio.run(fill())
    return name


@asynccontextmanager
async def open_database(dialect: str, clock: Clock) -> AsyncIterator[Database]:
    """Give a fresh database of either kind."""
    if dialect == "sqlite":
        database = SqliteDatabase(clock)
        store = database.store(Faults())
        await store.open()
        await database.execute(NAMESPACES_SQL)
        await store.close()
        try:
            yield database
        finally:
            await database.close()
        return
    server = shared()
    name = _idle.pop() if _idle else None
    if name is None:
        name = server.create_database(await asyncio.to_thread(_template, server))
    dsn = server.dsn(name) + SEARCH_PATH
    connection = await asyncpg.connect(dsn)
    made = PostgresDatabase(clock, dsn, connection)
    try:
        yield made
        is_clean = await _clean(connection)
    finally:
        await connection.close()
    if is_clean:
        _idle.append(name)
    else:
        server.drop_database(name)


# A copy of the template takes 0.2 s: one whose rows can be deleted is as good as a fresh one.
_idle: list[str] = []


async def _clean(connection: asyncpg.Connection) -> bool:
    """Empty a database, unless the test changed its partitions or left somebody connected."""
    if await connection.fetchval(PARTITIONS_SQL) != PARTITIONS_COUNT:
        return False
    if await connection.fetchval(CONNECTIONS_SQL) > 1:
        return False
    await connection.execute(CLEAN_SQL)
    return True


class World:
    """What a test works with: a database, engines, and shorthands for common commands."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self.faults = Faults()
        self._engines: list[Engine] = []

    @property
    def dialect(self) -> str:
        return cast("str", self.database.dialect)  # type: ignore[attr-defined]

    # -- Engines and time ----------------------------------------------------------------------

    async def start(
        self,
        *,
        faults: Faults | None = None,
        services: Sequence[Job] = (),
        pooled: bool = False,
        **settings: Any,
    ) -> Engine:
        """Start an engine of its own on the database."""
        quiet: dict[str, Any] = {
            "lease_least_ms": 1,
            "fallback_poll_ms": NEVER_MS,
            "news_poll_ms": NEVER_MS,
        }
        engine = Engine(
            self.database.store(self.faults if faults is None else faults, pooled=pooled),
            clock=self.clock,
            settings=Settings(**{**quiet, **settings}),
            services=services,
        )
        await engine.start()
        self._engines.append(engine)
        return engine

    async def kill(self, engine: Engine) -> None:
        """End an engine like a process that dies; nothing of its memory is left."""
        self._engines.remove(engine)
        engine.kill()
        await asyncio.sleep(0)
        await engine.store.close()

    async def stop(self, engine: Engine) -> None:
        self._engines.remove(engine)
        await engine.stop()

    async def close(self) -> None:
        for engine in self._engines:
            await engine.stop()

    async def advance(self, ms: int) -> None:
        """Let time pass for everybody at once."""
        self.clock.advance(ms)
        await self.database.set_time()

    async def jump(self, ms: int) -> None:
        """Move the store's time alone."""
        self.clock.jump(ms)
        await self.database.set_time()

    async def watch(self, engine: Engine, ms: int) -> None:
        """Let time pass while the engine proves each half second that it can hear."""
        left = ms
        await ServerTouch().run_once(engine)
        while left > 0:
            await self.advance(min(500, left))
            left -= 500
            await ServerTouch().run_once(engine)

    async def settle(self, engine: Engine) -> None:
        """Wait until everything that was asked for, and what followed from it, has been done."""
        for _ in range(4):
            await engine.submit(SignalCancels(namespace=NAMESPACE, items=()))
        while engine.waiting_count:
            await engine.submit(SignalCancels(namespace=NAMESPACE, items=()))

    async def round(self, job: Job, engine: Engine) -> Report:
        """Run one round of a service and what follows from it."""
        report = await job.run_once(engine)
        await self.settle(engine)
        return report

    # -- Commands ------------------------------------------------------------------------------

    def new(self, type: str = "mail", **changes: Any) -> NewTask:
        fields = {"queue": QUEUE, "spec": SPEC, **changes}
        return NewTask(id=self.clock.new_id(), type=type, **fields)

    async def enqueue(self, engine: Engine, *new: NewTask, **options: Any) -> tuple[Enqueued, ...]:
        command = EnqueueTasks(**{"namespace": NAMESPACE, "tasks": new, **options})
        return await engine.submit(command)

    async def add(self, engine: Engine, count: int = 1, **changes: Any) -> list[str]:
        """Enqueue tasks in one command and return their ids."""
        new = [self.new(**changes) for _ in range(count)]
        return [each.task_id for each in await self.enqueue(engine, *new)]

    async def register(self, engine: Engine, *types: str, **changes: Any) -> Registration:
        namespace = changes.pop("namespace", NAMESPACE)
        speaker = changes.pop("speaker", None)
        if changes.get("mode") is WorkerMode.SERVED:
            changes.setdefault("address", "127.0.0.1:7310")
        new = NewWorker(
            **{
                "instance_key": self.clock.new_id(),
                "queue": QUEUE,
                "types": types or ("mail",),
                "mode": WorkerMode.POLL,
                **changes,
            }
        )
        command = RegisterWorker(namespace=namespace, new=new, speaker=speaker)
        return await engine.submit(command)

    async def worker(self, engine: Engine, *types: str, **changes: Any) -> str:
        """Register a worker and return its id."""
        return (await self.register(engine, *types, **changes)).worker.id

    def poll(self, engine: Engine, worker_id: str, **changes: Any) -> asyncio.Future[Any]:
        """Ask for work and return the future of the answer."""
        fields = {
            "namespace": NAMESPACE,
            "worker_id": worker_id,
            "queue": QUEUE,
            "types": frozenset({"mail"}),
            **changes,
        }
        return engine.submit(ClaimTasks(**fields))

    async def claim(self, engine: Engine, worker_id: str, **changes: Any) -> tuple[Task, ...]:
        """Ask for work that is there now."""
        fields = {"max_tasks": 10, "wait_ms": 0, **changes}
        return cast("tuple[Task, ...]", await self.poll(engine, worker_id, **fields))

    async def held(self, engine: Engine, worker_id: str, **changes: Any) -> Task:
        """Enqueue a task and let a worker claim it."""
        types = frozenset({changes.get("type", "mail")})
        (task_id,) = await self.add(engine, **changes)
        (task,) = await self.claim(engine, worker_id, types=types)
        assert task.id == task_id
        return task

    async def running(self, engine: Engine, worker_id: str, **changes: Any) -> Task:
        """Enqueue a task, let a worker claim and confirm it."""
        task = await self.held(engine, worker_id, **changes)
        await self.confirm(engine, worker_id, task)
        return await self.task(task.id)

    async def confirm(self, engine: Engine, worker_id: str | None, *tasks: Task) -> list[Any]:
        refs = tuple(ref(task) for task in tasks)
        command = ConfirmTasks(namespace=NAMESPACE, worker_id=worker_id, items=refs)
        return list(await engine.submit(command))

    async def finish(
        self,
        engine: Engine,
        worker_id: str | None,
        task: Task,
        kind: FinishKind = FinishKind.SUCCEEDED,
        **fields: Any,
    ) -> Reported | Rejection:
        command = FinishTasks(
            namespace=NAMESPACE, worker_id=worker_id, items=(finish(task, kind, **fields),)
        )
        (answer,) = await engine.submit(command)
        return answer

    async def session(
        self, engine: Engine, worker_id: str, *held: TaskRef, window: int = 10
    ) -> tuple[Sink, SessionAnswer]:
        """Open a session and let it get what is there."""
        sink = Sink()
        command = OpenSession(
            namespace=NAMESPACE, worker_id=worker_id, held=held, window=window, sink=sink
        )
        answer = await engine.submit(command)
        await self.settle(engine)
        return sink, answer

    async def beat(self, engine: Engine, worker_id: str, token: int, **fields: Any) -> Renewed:
        """Send a plain heartbeat."""
        command = heartbeat(engine, worker_id, token, **fields)
        return await engine.submit(command)

    # -- Reads ---------------------------------------------------------------------------------

    async def task(self, task_id: str, engine: Engine | None = None) -> Task:
        """Return a task as the store has it."""
        store = (engine or self._engines[0]).store
        return await query.get_task(store, namespace=NAMESPACE, task_id=task_id)

    async def state(self, task_id: str) -> TaskState:
        return (await self.task(task_id)).state

    async def view(self, worker_id: str) -> query.WorkerView:
        store = self._engines[0].store
        return await query.get_worker(store, namespace=NAMESPACE, worker_id=worker_id)

    async def dump(self, *tables: str) -> dict[str, list[tuple[Any, ...]]]:
        return await self.database.dump(*tables)


def ref(task: Task) -> TaskRef:
    return TaskRef(task.id, task.attempt)


def stop(task: Task, cause: StopCause) -> Stop:
    return Stop(task.id, task.attempt, cause)


def finish(task: Task, kind: FinishKind = FinishKind.SUCCEEDED, **fields: Any) -> Finish:
    if kind is FinishKind.FAILED:
        fields = {"error": FAULT, **fields}
    return Finish(**{"task_id": task.id, "attempt": task.attempt, "kind": kind, **fields})


def heartbeat(engine: Engine, worker_id: str, token: int, **fields: Any) -> Heartbeat:
    namespace = fields.pop("namespace", NAMESPACE)
    wants_cancels = fields.pop("wants_cancels", False)
    is_full = fields.pop("is_full", False)
    return Heartbeat(
        namespace=namespace,
        worker_id=worker_id,
        beat=Beat(token=token, server_id=engine.server_id, **fields),
        wants_cancels=wants_cancels,
        is_full=is_full,
    )


def spec(**changes: Any) -> Spec:
    return replace(SPEC, **changes)


def codes(answers: Iterable[object]) -> list[str]:
    """Return the states or refusal codes of item answers."""
    return [
        each.code if isinstance(each, Rejection) else cast("Reported", each).state.value
        for each in answers
    ]
