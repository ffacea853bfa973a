"""The synchronous client. Made by ``make sync-client``; do not edit.

The one implementation runs on the connection thread of this process; see ``connection_thread``.
"""

# It speaks for parts of the asynchronous client.
# ruff: noqa: SLF001

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from tenure.sdk.sync_schedules import SyncSchedules
from tenure.sdk.transport.connection_thread import Anchor, CallInbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tenure.core.run.status import RunStatus
    from tenure.core.task.record import TaskState
    from tenure.sdk.activity.definition import Activity, Call
    from tenure.sdk.activity.option import OneCallSettings
    from tenure.sdk.client.completion import Completion
    from tenure.sdk.client.explanation import Explanation, RunExplanation
    from tenure.sdk.client.handle import Handle
    from tenure.sdk.client.result_wait import OnProgress
    from tenure.sdk.client.run_handle import RunHandle
    from tenure.sdk.client.run_view import RunDescription
    from tenure.sdk.client.step_view import RunStep
    from tenure.sdk.client.view import AttemptInfo, HeartbeatAnswer, TaskInfo
    from tenure.sdk.duration import Duration
    from tenure.sdk.payload import Codec, UserValue
    from tenure.sdk.transport.tls import TLS
    from tenure.sdk.workflow.definition import OneRunSettings, Workflow
    from tenure.sdk.workflow.signal import Signal

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class SyncHandle(Generic[R_co]):
    """A task that was enqueued: its result, its state, and what can be done with it."""

    def __init__(self, anchor: Anchor, part: Handle[R_co]) -> None:
        """Use ``SyncClient`` instead."""
        self._anchor = anchor
        self._part = part

    def __repr__(self) -> str:
        return repr(self._part)

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._part.task_id

    def result(
        self, *, timeout: Duration | None = None, on_progress: OnProgress | None = None
    ) -> R_co:
        """Wait for the end of the task and return its result.

        A task that did not succeed raises ``TaskFailed`` or one of its subclasses, with the
        failure in the worker as the cause. After ``timeout`` a ``TimeoutError`` is raised and the
        task goes on. Without a timeout it waits as long as the task takes, also while the server
        is restarted.
        ``on_progress`` is called with each new progress of the activity.
        """
        inbox = CallInbox()
        return self._anchor.run(
            lambda client: self._part._at(client).result(
                timeout=timeout, on_progress=inbox.door(on_progress)
            ),
            inbox,
        )

    def describe(self) -> TaskInfo:
        """Return the present state of the task, with its payloads."""
        return self._anchor.run(lambda client: self._part._at(client).describe())

    def attempts(self) -> list[AttemptInfo]:
        """Return the attempts of the task in their order."""
        return self._anchor.run(lambda client: self._part._at(client).attempts())

    def explain(self) -> Explanation:
        """Return why the task is not running now: the decisive reason first, with what to do.

        >>> print(handle.explain())
        """
        return self._anchor.run(lambda client: self._part._at(client).explain())

    def cancel(self, reason: str = "") -> TaskState:
        """Cancel the task; return its state. A running activity is told, and stops by itself."""
        return self._anchor.run(lambda client: self._part._at(client).cancel(reason=reason))

    def pause(self) -> TaskState:
        """Pause the task: no worker gets it until it is resumed; return its state."""
        return self._anchor.run(lambda client: self._part._at(client).pause())

    def resume(self) -> TaskState:
        """Resume a paused task; return its state."""
        return self._anchor.run(lambda client: self._part._at(client).resume())

    def terminate(self) -> TaskState:
        """End the task at once, without waiting for its worker; return its state."""
        return self._anchor.run(lambda client: self._part._at(client).terminate())

    def retry(self) -> SyncHandle[R_co]:
        """Enqueue a finished task again, as a new task; return the handle of that."""
        return SyncHandle(
            self._anchor, self._anchor.run(lambda client: self._part._at(client).retry())
        )


class SyncRunHandle(Generic[R_co]):
    """A run of a workflow: its result, its state, and what can be done with it."""

    def __init__(self, anchor: Anchor, part: RunHandle[R_co]) -> None:
        """Use ``SyncClient`` instead."""
        self._anchor = anchor
        self._part = part

    def __repr__(self) -> str:
        return repr(self._part)

    @property
    def run_id(self) -> str:
        """The id of the run, or ``external:`` and the id that its user chose."""
        return self._part.run_id

    def result(
        self, *, timeout: Duration | None = None, on_progress: OnProgress | None = None
    ) -> R_co:
        """Wait for the end of the run and return its result.

        A run that did not succeed raises ``TaskFailed`` or one of its subclasses, with the failure
        of its code as the cause. After ``timeout`` a ``TimeoutError`` is raised and the run goes
        on. Without a timeout it waits as long as the run takes, also while the server is restarted.
        ``on_progress`` is called with each new progress of the run.
        """
        inbox = CallInbox()
        return self._anchor.run(
            lambda client: self._part._at(client).result(
                timeout=timeout, on_progress=inbox.door(on_progress)
            ),
            inbox,
        )

    @overload
    def signal(self, sig: Signal[None], /, *, id: str = "") -> None: ...

    @overload
    def signal(self, sig: Signal[T], value: T, /, *, id: str = "") -> None: ...

    @overload
    def signal(self, sig: str, value: object = None, /, *, id: str = "") -> None: ...

    def signal(self, sig: Signal[Any] | str, value: object = None, /, *, id: str = "") -> None:
        """Send a signal; it is kept until the code of the run takes it.

        >>> run.signal(approve, Approval(by="ann"), id=request_id)

        A signal with an ``id`` is recorded once, however often it is sent. A name in place of the
        signal sends whatever value is given. A value of another type than that of the signal raises
        ``TypeError`` before it is sent.
        """
        self._anchor.run(lambda client: self._part._at(client).signal(sig, value, id=id))

    def describe(self) -> RunDescription:
        """Return where the run stands: its status, what it waits for, why it is parked."""
        return self._anchor.run(lambda client: self._part._at(client).describe())

    def status(self) -> RunStatus:
        """Return the present status of the run."""
        return self._anchor.run(lambda client: self._part._at(client).status())

    @overload
    def state(self, type: type[T]) -> T | None: ...

    @overload
    def state(self) -> UserValue: ...

    def state(self, type: UserValue = Any) -> UserValue:
        """Return what the run has last published with ``ctx.set_state``; None: nothing.

        >>> cart = run.state(Cart)
        """
        return self._anchor.run(lambda client: self._part._at(client).state(type=type))

    def steps(self, *, key: str = "") -> Iterator[RunStep]:
        """Iterate over the attempts of its steps, in the order in which they were recorded.

        >>> for step in run.steps():
        ...     print(step.key, step.status)

        Those of local steps, queued activities, child runs and maps; what has not ended comes last.
        With the ``key`` of a call, as ``tenure runs show`` has it, it is those of one step. Pages
        are loaded as needed.
        """
        return self._anchor.iterate(lambda client: self._part._at(client).steps(key=key))

    def explain(self) -> RunExplanation:
        """Return why the run does not go on now: the decisive reason first, with what to do.

        >>> print(run.explain())

        What it waits for is explained in the same way, down to the cause.
        """
        return self._anchor.run(lambda client: self._part._at(client).explain())

    def cancel(self, reason: str = "") -> None:
        """Ask the run to end: its code gets a ``CancelledError`` and may clean up."""
        self._anchor.run(lambda client: self._part._at(client).cancel(reason=reason))

    def resume(self) -> RunStatus:
        """Let a paused run go on, or try a parked one at once; return its status."""
        return self._anchor.run(lambda client: self._part._at(client).resume())

    def terminate(self) -> RunStatus:
        """End the run at once, without asking its code; return its status."""
        return self._anchor.run(lambda client: self._part._at(client).terminate())

    def retry(self, *, from_step: str = "") -> SyncRunHandle[R_co]:
        """Make a new run from a finished one; return the handle of that.

        >>> again = run.retry(from_step="last")

        Without ``from_step`` it begins from the start. With the key of a call, as ``tenure runs
        show`` has it, it keeps what was recorded before that call; ``"last"`` is the failure that
        ended the run. Steps that it does again have the idempotency keys that they had.
        """
        return SyncRunHandle(
            self._anchor,
            self._anchor.run(lambda client: self._part._at(client).retry(from_step=from_step)),
        )


class SyncCompletion:
    """Completes an attempt that its activity left with ``activity.complete_later()``.

    Calls can be repeated: the same completion gets the same answer again. A different one is
    refused with ``TaskAlreadyTerminal`` or ``AttemptMismatch``.
    """

    def __init__(self, anchor: Anchor, part: Completion) -> None:
        """Use ``SyncClient`` instead."""
        self._anchor = anchor
        self._part = part

    def __repr__(self) -> str:
        return repr(self._part)

    def complete(self, value: object = None) -> TaskState:
        """End the attempt with success and this result; return the task's state."""
        return self._anchor.run(lambda client: self._part._at(client).complete(value=value))

    def fail(self, error: BaseException | str) -> TaskState:
        """End the attempt with a failure, which may be retried; return the task's state."""
        return self._anchor.run(lambda client: self._part._at(client).fail(error=error))

    def cancel(self) -> TaskState:
        """Report that the attempt has stopped after a cancel; return the task's state."""
        return self._anchor.run(lambda client: self._part._at(client).cancel())

    def heartbeat(
        self, *details: object, percent: float | None = None, message: str | None = None
    ) -> HeartbeatAnswer:
        """Report that the attempt makes progress; the answer says whether it has to stop."""
        return self._anchor.run(
            lambda client: self._part._at(client).heartbeat(
                *details, percent=percent, message=message
            )
        )


class SyncClient:
    """Enqueues tasks and starts runs of workflows at a server, and waits for their results.

    >>> with SyncClient("127.0.0.1:7301") as client:
    ...     handle = client.enqueue(charge, order)
    ...     receipt = handle.result()

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
        self._anchor = Anchor(
            target=target,
            namespace=namespace,
            api_key=api_key,
            tls=tls,
            codec=codec,
            timeout=timeout,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._anchor)

    @property
    def schedules(self) -> SyncSchedules:
        """The schedules of the namespace: what starts by itself, and when."""
        return SyncSchedules(self._anchor)

    def close(self) -> None:
        """Close the connection; calls that still wait fail. Closing twice is harmless."""
        self._anchor.close()

    def enqueue(
        self, activity: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncHandle[R]:
        """Enqueue one task; arguments that do not fit raise ``TypeError`` before it is sent."""
        return SyncHandle(
            self._anchor, self._anchor.run(lambda client: client.enqueue(activity, *args, **kwargs))
        )

    def enqueue_many(self, calls: Iterable[Call[R]]) -> builtins.list[SyncHandle[R]]:
        """Enqueue many tasks in requests of up to 1,000, each of them all or nothing.

        >>> handles = client.enqueue_many(charge.call(order) for order in orders)

        When one request fails, others may have succeeded: a note on the error says how many tasks
        were enqueued. Idempotency keys make it safe to send everything again.
        """
        calls = (*calls,)
        return [
            SyncHandle(self._anchor, each)
            for each in self._anchor.run(lambda client: client.enqueue_many(calls=calls))
        ]

    @overload
    def enqueue_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        *,
        result: type[T],
        **settings: Unpack[OneCallSettings],
    ) -> SyncHandle[T]: ...

    @overload
    def enqueue_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        **settings: Unpack[OneCallSettings],
    ) -> SyncHandle[Any]: ...

    def enqueue_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        *,
        result: Any = Any,
        **settings: Unpack[OneCallSettings],
    ) -> SyncHandle[Any]:
        """Enqueue a task by the name of its activity, without its code.

        >>> client.enqueue_named("charge", {"order": order}, start_to_close="30s")
        """
        return SyncHandle(
            self._anchor,
            self._anchor.run(
                lambda client: client.enqueue_named(
                    name=name, arguments=arguments, result=result, **settings
                )
            ),
        )

    @overload
    def run(self, activity: Activity[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def run(
        self,
        activity: Activity[..., R],
        /,
        *args: object,
        timeout: Duration | None,
        **kwargs: object,
    ) -> R: ...

    def run(self, activity: Activity[..., R], /, *args: object, **kwargs: object) -> R:
        """Enqueue one task and wait for its result; if the wait is cancelled, the task goes on.

        >>> receipt = client.run(charge, order, timeout="1m")

        After ``timeout`` the wait ends with a ``TimeoutError``, and the task goes on. Without a
        timeout the wait lasts as long as the task. If the activity has a parameter ``timeout``, the
        value is passed to it; use ``enqueue`` and ``Handle.result`` in this case.
        """
        return self._anchor.run(lambda client: client.run(activity, *args, **kwargs))

    def start(
        self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> SyncRunHandle[R]:
        """Start a run of a workflow; arguments that do not fit raise ``TypeError`` before.

        >>> run = client.start(checkout, order)
        >>> receipt = run.result()

        ``checkout.with_options(id="order-42")`` gives the run an id of yours. While a run with this
        id is live, its handle is returned; ``on_live="reject"`` raises ``AlreadyExists`` instead.
        ``on_finished="return"`` or ``"reject"`` does the same if only finished runs have it. With
        an ``idempotency_key`` the run is started once, however often this is called.
        """
        return SyncRunHandle(
            self._anchor, self._anchor.run(lambda client: client.start(workflow, *args, **kwargs))
        )

    @overload
    def start_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        *,
        result: type[T],
        **settings: Unpack[OneRunSettings],
    ) -> SyncRunHandle[T]: ...

    @overload
    def start_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        **settings: Unpack[OneRunSettings],
    ) -> SyncRunHandle[Any]: ...

    def start_named(
        self,
        name: str,
        arguments: Mapping[str, object] | bytes | None = None,
        *,
        result: Any = Any,
        **settings: Unpack[OneRunSettings],
    ) -> SyncRunHandle[Any]:
        """Start a run by the name of its workflow, without its code.

        >>> client.start_named("checkout", {"order": order}, timeout="30d")
        """
        return SyncRunHandle(
            self._anchor,
            self._anchor.run(
                lambda client: client.start_named(
                    name=name, arguments=arguments, result=result, **settings
                )
            ),
        )

    @overload
    def run_handle(self, run_id: str, *, result: type[T]) -> SyncRunHandle[T]: ...

    @overload
    def run_handle(self, run_id: str) -> SyncRunHandle[Any]: ...

    def run_handle(self, run_id: str, *, result: Any = Any) -> SyncRunHandle[Any]:
        """Return a handle for the id of a run, without asking the server.

        >>> run = client.run_handle("external:order-42")

        ``external:`` and an id of yours is the live run with this id, or else the last one.
        """
        return SyncRunHandle(
            self._anchor,
            self._anchor.call(lambda client: client.run_handle(run_id=run_id, result=result)),
        )

    def list_runs(
        self,
        *,
        status: RunStatus | str | None = None,
        queue: str = "",
        type: str = "",
        labels: Mapping[str, str] | None = None,
        id: str = "",
        limit: int | None = None,
    ) -> Iterator[RunDescription]:
        """Iterate over runs, newest first, without their payloads; pages are loaded as needed.

        ``id`` is what the ids that their users chose begin with.

        >>> for run in client.list_runs(status="parked", type="checkout"):
        ...     ...
        """
        return self._anchor.iterate(
            lambda client: client.list_runs(
                status=status, queue=queue, type=type, labels=labels, id=id, limit=limit
            )
        )

    @overload
    def handle(self, task_id: str, *, result: type[T]) -> SyncHandle[T]: ...

    @overload
    def handle(self, task_id: str) -> SyncHandle[Any]: ...

    def handle(self, task_id: str, *, result: Any = Any) -> SyncHandle[Any]:
        """Return a handle for the id of a task, without asking the server."""
        return SyncHandle(
            self._anchor,
            self._anchor.call(lambda client: client.handle(task_id=task_id, result=result)),
        )

    def completion(self, *, token: str = "", task_id: str = "", attempt: int = 0) -> SyncCompletion:
        """Complete an attempt from outside its worker, by its token or by the id of its task."""
        return SyncCompletion(
            self._anchor,
            self._anchor.call(
                lambda client: client.completion(token=token, task_id=task_id, attempt=attempt)
            ),
        )

    def list(
        self,
        *,
        state: TaskState | str | None = None,
        queue: str = "",
        type: str = "",
        limit: int | None = None,
    ) -> Iterator[TaskInfo]:
        """Iterate over tasks, newest first, without their payloads; pages are loaded as needed.

        >>> for info in client.list(state="pending", queue="mail"):
        ...     ...
        """
        return self._anchor.iterate(
            lambda client: client.list(state=state, queue=queue, type=type, limit=limit)
        )
