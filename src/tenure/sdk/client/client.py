"""The asynchronous client."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, ParamSpec, Self, TypeVar, Unpack, cast, overload

from tenure.core import check
from tenure.core.limits import PAGE_SIZE_MAX
from tenure.core.run.external_id import PREFIX, check_id
from tenure.core.run.status import RunStatus
from tenure.core.task.record import TaskState
from tenure.errors import InvalidArgument
from tenure.sdk.activity.definition import Activity, Call, check_activity, signature_of
from tenure.sdk.activity.option import OneCallSettings, Options
from tenure.sdk.client import bulk, run_view, view
from tenure.sdk.client import method as m
from tenure.sdk.client.client_state import ClientState, new_task_id, seconds
from tenure.sdk.client.completion import Completion
from tenure.sdk.client.handle import Handle
from tenure.sdk.client.run_handle import RunHandle
from tenure.sdk.client.run_start import RunStart
from tenure.sdk.client.run_view import RunDescription
from tenure.sdk.client.schedules import Schedules
from tenure.sdk.client.task_bytes import shared_bytes, task_bytes
from tenure.sdk.client.task_stream import Waiter
from tenure.sdk.client.view import TaskInfo
from tenure.sdk.duration import Duration
from tenure.sdk.payload import Codec, Converter, UserValue
from tenure.sdk.transport.channel import Channel
from tenure.sdk.transport.target import check_client
from tenure.sdk.transport.tls import TLS, resolve
from tenure.sdk.workflow.definition import (
    OneRunSettings,
    Workflow,
    WorkflowOptions,
    check_not_workflow,
    check_workflow,
)
from tenure.v1 import task_service_pb2 as pb
from tenure.v1 import workflow_service_pb2 as workflow_pb

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# The stream of results has no heartbeats. Keep-alive finds a connection that died silently.
_KEEP_ALIVE_SECONDS: Final = 30.0


class Client:
    """Enqueues tasks and starts runs of workflows at a server, and waits for their results.

    >>> async with Client("127.0.0.1:7301") as client:
    ...     handle = await client.enqueue(charge, order)
    ...     receipt = await handle.result()

    It connects with its first call. If one of several targets fails, it connects to the next one.
    A call without an answer is repeated until ``timeout``; this never enqueues a task twice.
    """

    def __init__(
        self,
        target: str | Sequence[str] | None = None,
        *,
        namespace: str | None = None,
        api_key: str | Path | None = None,
        tls: TLS | bool | None = None,
        codec: Codec | None = None,
        timeout: Duration = "30s",
    ) -> None:
        """Set the server, ``"host:port"``, or several: ``"host1:port,host2:port"``.

        The default target is TENURE_TARGET, or else ``127.0.0.1:7301``. The default namespace is
        TENURE_NAMESPACE, or else ``default``.
        ``api_key`` is for servers that require one. The default is TENURE_API_KEY, or the file
        TENURE_API_KEY_FILE. A file, given as ``Path``, is read again when it changes.
        ``tls=True`` trusts the authorities of the operating system; ``TLS`` names others, and a
        certificate for this client. The default is TENURE_TLS with TENURE_TLS_CA, TENURE_TLS_CERT
        and TENURE_TLS_KEY.
        """
        found = check_client(target, namespace, timeout)
        self._state = ClientState(
            Channel(target, api_key=api_key, tls=resolve(tls), keep_alive_s=_KEEP_ALIVE_SECONDS),
            namespace=found,
            converter=Converter(codec),
            timeout=timeout,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._state.channel.place}, namespace {self._state.namespace}>"

    @property
    def schedules(self) -> Schedules:
        """The schedules of the namespace: what starts by itself, and when."""
        return Schedules(self._state)

    async def close(self) -> None:
        """Close the connection; calls that still wait fail. Closing twice is harmless."""
        await self._state.close()

    async def enqueue(
        self, activity: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]:
        """Enqueue one task; arguments that do not fit raise ``TypeError`` before it is sent."""
        return await self._enqueue(None, activity, *args, **kwargs)

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> builtins.list[Handle[R]]:
        """Enqueue many tasks in requests of up to 1,000, each of them all or nothing.

        >>> handles = await client.enqueue_many(charge.call(order) for order in orders)

        When one request fails, others may have succeeded: a note on the error says how many tasks
        were enqueued. Idempotency keys make it safe to send everything again.
        """
        return await bulk.enqueue_many(self._state, calls)

    @overload
    async def enqueue_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        *,
        result: type[T],
        **settings: Unpack[OneCallSettings],
    ) -> Handle[T]: ...
    @overload
    async def enqueue_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        **settings: Unpack[OneCallSettings],
    ) -> Handle[Any]: ...
    async def enqueue_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        *,
        result: Any = Any,
        **settings: Unpack[OneCallSettings],
    ) -> Handle[Any]:
        """Enqueue a task by the name of its activity, without its code.

        >>> await client.enqueue_named("charge", {"order": order}, start_to_close="30s")
        """
        _check(check.name, name, "name")
        options = Options().changed(settings)
        payload = self._state.converter.encode({} if arguments is None else arguments)
        shared = shared_bytes(name, options, options.to_wire(payload.encoding))
        return await self._send(shared, payload.data, options, result)

    @overload
    async def run(self, activity: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def run(
        self,
        activity: Activity[..., R],
        /,
        *args: object,
        timeout: Duration | None,  # noqa: ASYNC109 (people look for it here)
        **kwargs: object,
    ) -> R: ...
    async def run(self, activity: Activity[..., R], /, *args: object, **kwargs: object) -> R:
        """Enqueue one task and wait for its result; if the wait is cancelled, the task goes on.

        >>> receipt = await client.run(charge, order, timeout="1m")

        After ``timeout`` the wait ends with a ``TimeoutError``, and the task goes on. Without a
        timeout the wait lasts as long as the task. If the activity has a parameter ``timeout``, the
        value is passed to it; use ``enqueue`` and ``Handle.result`` in this case.
        """
        check_not_workflow(activity)
        check_activity(activity)
        limit_s = None
        if "timeout" not in signature_of(activity).names and "timeout" in kwargs:
            limit = cast("Duration | None", kwargs.pop("timeout"))
            limit_s = None if limit is None else seconds(limit, "timeout")
        waiter: Waiter = asyncio.get_running_loop().create_future()
        try:
            handle = await self._enqueue(waiter, activity, *args, **kwargs)
            return await handle._wait(limit_s, waiter=waiter)  # noqa: SLF001 (of one package)
        finally:
            waiter.cancel()

    async def start(
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RunHandle[R]:
        """Start a run of a workflow; arguments that do not fit raise ``TypeError`` before.

        >>> run = await client.start(checkout, order)
        >>> receipt = await run.result()

        ``checkout.with_options(id="order-42")`` gives the run an id of yours. While a run with this
        id is live, its handle is returned; ``on_live="reject"`` raises ``AlreadyExists`` instead.
        ``on_finished="return"`` or ``"reject"`` does the same if only finished runs have it. With
        an ``idempotency_key`` the run is started once, however often this is called.
        """
        check_workflow(workflow)
        signature = workflow.signature
        payload = self._state.converter.seal(signature.encode(signature.bind(args, kwargs)))
        start = RunStart(workflow.name, workflow.options, payload)
        return RunHandle(self._state, await start.send(self._state), workflow)

    @overload
    async def start_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        *,
        result: type[T],
        **settings: Unpack[OneRunSettings],
    ) -> RunHandle[T]: ...
    @overload
    async def start_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        **settings: Unpack[OneRunSettings],
    ) -> RunHandle[Any]: ...
    async def start_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        *,
        result: Any = Any,
        **settings: Unpack[OneRunSettings],
    ) -> RunHandle[Any]:
        """Start a run by the name of its workflow, without its code.

        >>> await client.start_named("checkout", {"order": order}, timeout="30d")
        """
        _check(check.name, name, "name")
        options = WorkflowOptions().changed(settings)
        payload = self._state.converter.encode({} if arguments is None else arguments)
        run_id = await RunStart(name, options, payload).send(self._state)
        return RunHandle(self._state, run_id, result)

    @overload
    def run_handle(self, run_id: str, *, result: type[T]) -> RunHandle[T]: ...
    @overload
    def run_handle(self, run_id: str) -> RunHandle[Any]: ...
    def run_handle(self, run_id: str, *, result: Any = Any) -> RunHandle[Any]:
        """Return a handle for the id of a run, without asking the server.

        >>> run = client.run_handle("external:order-42")

        ``external:`` and an id of yours is the live run with this id, or else the last one.
        """
        if run_id.startswith(PREFIX):
            _check(check_id, run_id.removeprefix(PREFIX), "run_id")
        else:
            _check(check.task_id, run_id, "run_id")
        return RunHandle(self._state, run_id, result)

    async def list_runs(
        self,
        *,
        status: RunStatus | str | None = None,
        queue: str = "",
        type: str = "",
        labels: Mapping[str, str] | None = None,
        id: str = "",
        limit: int | None = None,
    ) -> AsyncIterator[RunDescription]:
        """Iterate over runs, newest first, without their payloads; pages are loaded as needed.

        ``id`` is what the ids that their users chose begin with.

        >>> async for run in client.list_runs(status="parked", type="checkout"):
        ...     ...
        """
        request = workflow_pb.ListWorkflowRunsRequest(
            namespace_id=self._state.namespace,
            task_queue=queue,
            workflow_type=type,
            filter_status=run_view.status_name(status),
            labels=labels or {},
            external_id_prefix=id,
        )
        left = limit
        while left is None or left > 0:
            request.page_size = PAGE_SIZE_MAX if left is None else min(left, PAGE_SIZE_MAX)
            answer = await self._state.ask(m.LIST_RUNS, request)
            for run in answer.runs:
                yield run_view.run_description(run, self._state.converter)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return
            left = None if left is None else left - len(answer.runs)

    @overload
    def handle(self, task_id: str, *, result: type[T]) -> Handle[T]: ...
    @overload
    def handle(self, task_id: str) -> Handle[Any]: ...
    def handle(self, task_id: str, *, result: Any = Any) -> Handle[Any]:
        """Return a handle for the id of a task, without asking the server."""
        _check(check.task_id, task_id, "task_id")
        return Handle(self._state, task_id, result)

    def completion(self, *, token: str = "", task_id: str = "", attempt: int = 0) -> Completion:
        """Complete an attempt from outside its worker, by its token or by the id of its task."""
        return Completion(self._state, token=token, task_id=task_id, attempt=attempt)

    async def list(
        self,
        *,
        state: TaskState | str | None = None,
        queue: str = "",
        type: str = "",
        limit: int | None = None,
    ) -> AsyncIterator[TaskInfo]:
        """Iterate over tasks, newest first, without their payloads; pages are loaded as needed.

        >>> async for info in client.list(state="pending", queue="mail"):
        ...     ...
        """
        request = pb.ListTasksRequest(
            namespace_id=self._state.namespace,
            task_queue=queue,
            type=type,
            state=view.state_number(state),
        )
        left = limit
        while left is None or left > 0:
            request.page_size = PAGE_SIZE_MAX if left is None else min(left, PAGE_SIZE_MAX)
            answer = await self._state.ask(m.LIST, request)
            for task in answer.tasks:
                yield view.task_info(task, self._state.converter)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return
            left = None if left is None else left - len(answer.tasks)

    async def _enqueue(
        self, waiter: Waiter | None, activity: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]:
        check_not_workflow(activity)
        check_activity(activity)
        call = activity.call(*args, **kwargs)
        payload = self._state.converter.seal(call.payload)
        shared = self._state.shared(activity, payload.encoding)
        return await self._send(shared, payload.data, activity.options, activity, waiter)

    async def _send(
        self,
        shared: bytes,
        data: bytes,
        options: Options,
        result: UserValue,
        waiter: Waiter | None = None,
    ) -> Handle[Any]:
        state, run_at_ms = self._state, options.run_at_ms
        if options.delay_ms:
            run_at_ms = await state.run_at_ms(options)
        body = task_bytes(shared, new_task_id(), data, run_at_ms)
        return Handle(state, await state.outbox.send(body, waiter), result)


def _check(checked: Callable[[str, str], object], value: str, name: str) -> None:
    """Raise ``ValueError`` for what the server would refuse."""
    try:
        checked(value, name)
    except InvalidArgument as error:
        raise ValueError(error.message) from None
