"""One server with both edges, three principals of each kind, and casts of two namespaces."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import grpc
import httpx
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tenure.api.http.edge.app import make_app
from tenure.api.readiness import Readiness
from tenure.api.rpc.view import task_view
from tenure.api.setting import ServerSettings
from tenure.core.access.api_key import Role
from tenure.core.endpoint.record import Endpoint, EndpointSpec
from tenure.core.filter import RunFilter, TaskFilter, WorkerFilter
from tenure.core.schedule.record import Rule, ScheduleSpec, Target
from tenure.core.task.record import Spec
from tenure.core.worker.record import WorkerMode
from tenure.engine.access.command import CreateKey, SetQueue
from tenure.engine.command import TaskRef
from tenure.engine.endpoint.command import CreateEndpoint
from tenure.engine.read import query
from tenure.engine.read import run as run_read
from tenure.engine.read import schedule as schedule_read
from tenure.engine.read.endpoint import list_endpoints
from tenure.engine.read.step_attempt import list_steps
from tenure.engine.run.command import StartRun
from tenure.engine.schedule.command import CreateSchedule, PauseSchedule, TriggerSchedule
from tenure.engine.task.command import ConfirmTasks, PauseTask, TerminateTask
from tenure.v1 import task_service_pb2 as task_pb
from tests.api.access.keyed_server import KeyedServer, bearer, key_id
from tests.api.http.site import Site, client_of, serving
from tests.api.rpc.wire import detail, open_wire
from tests.bounds import ANSWER_S
from tests.engine.endpoint.posted import URL, Posted
from tests.engine.run.runs import RUN_SPEC, positions, report, step
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, Clock, World, open_database
from tests.security.row import OK, Answer, Cast, Row, Where, answer, dumped
from tests.wire.call import LOCAL_FAULT

ABSENT_NAMESPACE: Final = "nobody/here"
# A session answers each of the three reports that its worker has no right to.
REPORTS: Final = 3
_COMMITS_SQL: Final = "PRAGMA data_version"
_TABLES: Final = (
    *("queues", "tasks", "history", "attempts", "idempotency_keys", "workers", "leases"),
    *("schedules", "fires"),
)
EVENTS: Final = "text/event-stream"


class Who(NamedTuple):
    """A principal: what it sends, and what is known of it."""

    name: str
    authorization: str
    role: str = ""
    namespaces: tuple[str, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": self.authorization} if self.authorization else {}


def expected(row: Row, who: Who) -> str:
    """Return the code that a principal gets for a request about the first namespace."""
    if row.where in {Where.OPEN, Where.TASK_TOKEN}:
        return row.answer
    if not who.role:
        return "unauthenticated"
    if who.role not in row.roles.split() or (row.where is Where.WHOLE and who.namespaces):
        return "permission_denied"
    if row.where is Where.NAMESPACE and who.namespaces == (OTHER_NAMESPACE,):
        return "not_found"
    return row.answer


class Stage:
    """The server, and everybody who calls it."""

    def __init__(self, lobby: KeyedServer, client: httpx.AsyncClient) -> None:
        self.lobby = lobby
        self.world = lobby.world
        self.engine = lobby.engine
        self.client = client
        self.everybody: list[Who] = []
        self._theirs: Cast | None = None
        self._numbers = itertools.count(1)
        # Nothing leaves this machine.
        self.engine.seats.open_endpoints(Posted())

    async def meet(self) -> None:
        """Make the keys; some of them end at once."""
        brief = await self.lobby.make_key("admin", expires_in_ms=1_000)
        await self.world.advance(1_000)
        revoked = await self.lobby.make_key("admin")
        await self.lobby.revoke(revoked)
        for role in Role:
            for where, scope in (
                ("here", (NAMESPACE,)),
                ("elsewhere", (OTHER_NAMESPACE,)),
                ("everywhere", ()),
            ):
                key = await self.lobby.make_key(role, *scope)
                name = f"{role} {where}"
                self.everybody.append(Who(name, bearer(key)["authorization"], role, scope))
        admin = self.who("admin everywhere").authorization
        unknown = admin.replace(key_id(admin), "z" * 16)
        self.everybody += [
            Who("no key", ""),
            Who("wrong secret", admin[:-1] + ("A" if admin[-1] != "A" else "B")),
            Who("unknown key", unknown),
            Who("another scheme", admin.replace("Bearer", "Basic")),
            Who("revoked", bearer(revoked)["authorization"]),
            Who("expired", bearer(brief)["authorization"]),
        ]

    def who(self, name: str) -> Who:
        return next(each for each in self.everybody if each.name == name)

    # -- Casts

    async def cast(self, namespace: str = NAMESPACE, owner: Who | None = None) -> Cast:
        """Make everything that a request can name, in a queue of its own.

        Its workers belong to the key of ``owner``, or to nobody, as on a server without keys.
        """
        world, engine = self.world, self.engine
        number = next(self._numbers)
        queue, new = f"queue-{number}", f"new-{number}"
        here: Any = {"namespace": namespace}
        registered = {**here, "queue": queue, "instance_key": world.clock.new_id()}
        registered["key_id"] = "" if owner is None else key_id(owner.authorization)
        worker = await world.worker(engine, name=f"name-{number}", **registered)
        registered["instance_key"] = world.clock.new_id()
        session_worker = await world.worker(engine, mode=WorkerMode.SESSION, **registered)
        held = await self._enqueue(namespace, queue)
        claim: Any = {**here, "queue": queue, "max_tasks": 1}
        (task,) = await world.claim(engine, worker, **claim)
        assert task.id == held
        await engine.submit(
            ConfirmTasks(namespace=namespace, worker_id=worker, items=(TaskRef(held, 1),))
        )
        stepped_run = await self._stepped_run(worker, claim)
        held_run = await self._start(namespace, queue)
        (run_task,) = await world.claim(engine, worker, **claim)
        assert run_task.id == held_run
        paused, finished, pending = [await self._enqueue(namespace, queue) for _ in range(3)]
        await engine.submit(PauseTask(namespace=namespace, task_id=paused))
        await engine.submit(TerminateTask(namespace=namespace, task_id=finished))
        started = [await self._start(namespace, queue) for _ in range(4)]
        finished_run, run, paused_run, _ = started
        await engine.submit(PauseTask(namespace=namespace, task_id=paused_run))
        await engine.submit(TerminateTask(namespace=namespace, task_id=finished_run))
        command = CreateKey(name="cast", role=Role.VIEWER, namespaces=(namespace,))
        created = await engine.submit(command)
        # Both the first page and the next one have one of them.
        await self._endpoint(namespace, f"{queue}-another")
        endpoint = await self._endpoint(namespace, f"{queue}-endpoint")
        page = query.PageRequest(cursor_key=engine.secrets.cursor_key, size=1)
        tasks = await query.list_tasks(
            engine.store, namespace=namespace, page=page, where=TaskFilter(queue=queue)
        )
        runs = await run_read.list_runs(
            engine.store, namespace=namespace, page=page, where=RunFilter(queue=queue)
        )
        workers = await query.list_workers(
            engine.store, namespace=namespace, page=page, where=WorkerFilter(queue=queue)
        )
        steps = await list_steps(engine.store, namespace=namespace, run_id=stepped_run, page=page)
        # A first page has a next one when there are two of them.
        braked = SetQueue(namespace=namespace, name=f"{queue}-braked", concurrency_max=1)
        await engine.submit(braked)
        queues = await query.list_queues(engine.store, namespace=namespace, page=page)
        schedule, paused_schedule = f"schedule-{number}", f"schedule-{number}-paused"
        await self._schedule(namespace, queue, schedule, paused_schedule)
        schedules = await schedule_read.list_schedules(engine.store, namespace=namespace, page=page)
        fires = await schedule_read.list_fires(
            engine.store, namespace=namespace, schedule_id=schedule, page=page
        )
        endpoints = await list_endpoints(engine.store, namespace=namespace, page=page)
        return Cast(
            namespace=namespace,
            queue=queue,
            pending=pending,
            held=held,
            paused=paused,
            finished=finished,
            run=run,
            paused_run=paused_run,
            finished_run=finished_run,
            stepped_run=stepped_run,
            step_attempt=steps.items[0].id,
            held_run=held_run,
            worker=worker,
            session_worker=session_worker,
            key=created.key.id,
            endpoint=endpoint.name,
            task_token=engine.tokens.sign(task_view.completion_claims(task, engine.tokens.now_ms)),
            task_cursor=tasks.next_page_token,
            run_cursor=runs.next_page_token,
            step_cursor=steps.next_page_token,
            worker_cursor=workers.next_page_token,
            queue_cursor=queues.next_page_token,
            schedule=schedule,
            paused_schedule=paused_schedule,
            schedule_cursor=schedules.next_page_token,
            fire_cursor=fires.next_page_token,
            endpoint_cursor=endpoints.next_page_token,
            new_task=world.clock.new_id(),
            new_idempotency=new,
            new_instance=world.clock.new_id(),
            new_name=new,
            new_schedule=new,
        )

    async def _schedule(self, namespace: str, queue: str, *ids: str) -> None:
        """Make schedules; the first has fired twice, the last is paused."""
        target = Target(type="mail", queue=queue, spec=Spec(start_to_close_ms=600_000))
        spec = ScheduleSpec(rule=Rule(cron="0 0 1 1 *"), target=target)
        here: Any = {"namespace": namespace}
        for each in ids:
            await self.engine.submit(CreateSchedule(**here, schedule_id=each, spec=spec))
        for trigger_id in ("one", "two"):
            command = TriggerSchedule(**here, schedule_id=ids[0], trigger_id=trigger_id)
            await self.engine.submit(command)
        await self.engine.submit(PauseSchedule(**here, schedule_id=ids[-1]))

    async def _endpoint(self, namespace: str, name: str) -> Endpoint:
        """Create an endpoint in a queue in which nothing is."""
        spec = EndpointSpec(url=URL, types=("push",))
        made = await self.engine.submit(
            CreateEndpoint(namespace=namespace, name=name, queue=name, spec=spec)
        )
        return made.endpoint

    async def _enqueue(self, namespace: str, queue: str, **fields: Any) -> str:
        new = self.world.new(queue=queue, **fields)
        await self.world.enqueue(self.engine, new, namespace=namespace)
        return new.id

    async def _start(self, namespace: str, queue: str) -> str:
        new = self.world.new(queue=queue, spec=RUN_SPEC)
        await self.engine.submit(StartRun(namespace=namespace, new=new))
        return new.id

    async def _stepped_run(self, worker: str, claim: Any) -> str:
        """Start a run that a worker holds, and record two steps of it."""
        run_id = await self._start(claim["namespace"], claim["queue"])
        (task,) = await self.world.claim(self.engine, worker, **claim)
        assert task.id == run_id
        item = report(task, step("charge"), step("pack"))
        await positions(self.engine, worker, item, namespace=claim["namespace"])
        return run_id

    async def foreign(self, name: str) -> Cast:
        """Return a cast of the other namespace, in which even what would be new is in use.

        It is one for all: nothing that anybody does here may change it. Only of names that may be
        used here as well each is used once.
        """
        if self._theirs is not None and name != "queue" and not name.startswith("new_"):
            return self._theirs
        made = await self.cast(OTHER_NAMESPACE)
        new_task = await self._enqueue(
            OTHER_NAMESPACE, made.queue, idempotency_key=made.new_idempotency
        )
        await self.world.register(
            self.engine,
            namespace=OTHER_NAMESPACE,
            queue=made.queue,
            instance_key=made.new_instance,
            name=made.new_name,
        )
        await self._endpoint(OTHER_NAMESPACE, made.new_name)
        await self.engine.submit(
            SetQueue(namespace=OTHER_NAMESPACE, name=made.queue, is_paused=True)
        )
        await self._schedule(OTHER_NAMESPACE, made.queue, made.new_schedule)
        self._theirs = replace(made, new_task=new_task)
        return self._theirs

    def absent(self) -> Cast:
        """Return a cast of what nobody has."""
        number = next(self._numbers)
        new_id, cursor = self.world.clock.new_id, "A" * 40
        return Cast(
            namespace=ABSENT_NAMESPACE,
            queue=f"queue-{number}",
            pending=new_id(),
            held=new_id(),
            paused=new_id(),
            finished=new_id(),
            run=new_id(),
            paused_run=new_id(),
            finished_run=new_id(),
            stepped_run=new_id(),
            step_attempt=f"{new_id()}.0.1",
            held_run=new_id(),
            worker=new_id(),
            session_worker=new_id(),
            key="y" * 16,
            endpoint=f"queue-{number}-endpoint",
            task_token=cursor,
            task_cursor=cursor,
            run_cursor=cursor,
            step_cursor=cursor,
            worker_cursor=cursor,
            queue_cursor=cursor,
            schedule=f"schedule-{number}",
            paused_schedule=f"schedule-{number}-paused",
            schedule_cursor=cursor,
            fire_cursor=cursor,
            endpoint_cursor=cursor,
            new_task=new_id(),
            new_idempotency=f"new-{number}",
            new_instance=new_id(),
            new_name=f"new-{number}",
            new_schedule=f"new-{number}",
        )

    # -- What there is

    async def commit_count(self) -> int:
        """Return a number that each commit of the server changes."""
        ((number,),) = [row.values() for row in await self.world.database.rows(_COMMITS_SQL)]
        return int(number)

    async def rows(self, namespace: str) -> dict[str, list[Any]]:
        """Return all rows that belong to a namespace, or to it with others."""
        return {
            name: await self.world.database.rows(f"SELECT * FROM {name} WHERE {where}")
            for name, where in (
                ("namespaces", f"name = '{namespace}'"),
                *((name, f"namespace = '{namespace}'") for name in _TABLES),
                *((name, f"namespaces LIKE '%{namespace}%'") for name in ("api_keys", "audit")),
            )
        }

    # -- Calls

    async def rpc(self, method: MethodDescriptor, request: Any, who: Who) -> Answer:
        """Call a method with a filled template; a stream is read as far as it says something."""
        metadata = tuple(who.headers.items())
        call = self._stream if method.client_streaming else self._unary
        try:
            async with asyncio.timeout(ANSWER_S):
                raw = await call(method, request, metadata)
        except grpc.aio.AioRpcError as failure:
            if LOCAL_FAULT in str(failure):
                # It was ended while it was written to: another one says how.
                return await self.rpc(method, request, who)
            found = detail(failure)
            shown = f"{failure.code().name} {failure.details()} {dumped(MessageToDict(found))}"
            return answer(found.code, shown)
        return answer(OK, raw)

    async def _unary(self, method: MethodDescriptor, request: Any, metadata: Any) -> str:
        call: Any = self.lobby.wire.channel.unary_unary(*_way(method))
        return dumped(MessageToDict(await call(_message(method, request), metadata=metadata)))

    async def _stream(
        self, method: MethodDescriptor, requests: Sequence[Any], metadata: Any
    ) -> str:
        call: Any = self.lobby.wire.channel.stream_stream(*_way(method))(metadata=metadata)
        whole: Any = GetMessageClass(method.output_type)()
        try:
            await call.write(_message(method, requests[0]))
            await _read(call, whole)
            for each in requests[1:]:
                await call.write(_message(method, each))
            while not _is_told(whole, len(requests)):
                await _read(call, whole)
        except asyncio.InvalidStateError:
            # It was ended before all was written: reading says how.
            await call.read()
        finally:
            call.cancel()
        shown = MessageToDict(whole)
        for name in ("acks", "stop"):
            if name in shown:
                shown[name].sort(key=dumped)
        return dumped(shown)

    async def http(
        self, method: str, request: Any, who: Who, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request with a filled template; of a stream only its beginning is read."""
        built = self.client.build_request(
            method,
            request["path"],
            params=request["query"],
            json=request["body"],
            headers={**who.headers, **(headers or {})},
        )
        found = await self.client.send(built, stream=True)
        try:
            if found.status_code == 200 and found.headers["content-type"].startswith(EVENTS):
                return answer(OK, await anext(found.aiter_text()))
            await found.aread()
        finally:
            await found.aclose()
        raw = f"{found.status_code} {found.text}"
        return answer(OK if found.is_success else found.json()["error"], raw)


def _way(method: MethodDescriptor) -> tuple[str, Any, Any]:
    path = f"/{method.containing_service.full_name}/{method.name}"
    return (
        path,
        GetMessageClass(method.input_type).SerializeToString,
        GetMessageClass(method.output_type).FromString,
    )


def _message(method: MethodDescriptor, template: Any) -> Message:
    return ParseDict(template, GetMessageClass(method.input_type)())


async def _read(call: Any, whole: Message) -> None:
    """Add the next message of a stream to what came before."""
    message = await call.read()
    assert message is not grpc.aio.EOF
    whole.MergeFrom(message)


def _is_told(frame: Any, request_count: int) -> bool:
    """Tell whether a stream has answered all that it was asked."""
    if isinstance(frame, task_pb.WatchTasksResponse):
        return bool(frame.results and frame.answers)
    if request_count == 1:
        return True
    return (frame.HasField("lease") or frame.HasField("end")) and len(frame.acks) == REPORTS


@asynccontextmanager
async def open_stage() -> AsyncIterator[Stage]:
    """Serve on SQLite; nothing is limited but by permission."""
    clock = Clock()
    async with open_database("sqlite", clock) as database:
        world = World(database, clock)
        engine = await world.start()
        free: Any = {"lists_per_s": 0, "registrations_per_s": 0, "enqueues_per_s": 0}
        app = make_app(engine, ServerSettings(**free), Readiness(engine))
        async with (
            open_wire(engine, **free) as wire,
            serving(app) as port,
            client_of(port) as client,
        ):
            lobby = KeyedServer(world, engine, wire, Site(world, engine, client, port))
            stage = Stage(lobby, client)
            await stage.meet()
            yield stage
        await world.close()
