"""The handle of a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from tenure.core.limits import PAGE_SIZE_MAX
from tenure.core.run.external_id import PREFIX
from tenure.core.run.status import RunStatus
from tenure.sdk import failure
from tenure.sdk.client import method as m
from tenure.sdk.client import run_view, step_view
from tenure.sdk.client.client_state import ClientState, new_task_id, seconds
from tenure.sdk.client.explanation import RunExplanation, run_explanation
from tenure.sdk.client.result_wait import OnProgress, ResultWait
from tenure.sdk.client.run_view import RunDescription
from tenure.sdk.client.step_view import RunStep
from tenure.sdk.duration import Duration
from tenure.sdk.payload import PayloadError, UserValue
from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.signal import Signal
from tenure.v1 import workflow_service_pb2 as pb

if TYPE_CHECKING:
    from tenure.sdk.client.client import Client

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class RunHandle(Generic[R_co]):
    """A run of a workflow: its result, its state, and what can be done with it."""

    __slots__ = ("_result", "_state", "run_id")
    run_id: str
    """The id of the run, or ``external:`` and the id that its user chose."""

    def __init__(self, state: ClientState, run_id: str, result: UserValue) -> None:
        """Use ``Client.start`` or ``Client.run_handle``; ``result`` is a workflow or a type."""
        self._state = state
        self._result = result
        self.run_id = run_id

    def __repr__(self) -> str:
        return f"<RunHandle of run {self.run_id}>"

    async def result(
        self,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 (people look for it here)
        on_progress: OnProgress | None = None,
    ) -> R_co:
        """Wait for the end of the run and return its result.

        A run that did not succeed raises ``TaskFailed`` or one of its subclasses, with the failure
        of its code as the cause. After ``timeout`` a ``TimeoutError`` is raised and the run goes
        on. Without a timeout it waits as long as the run takes, also while the server is restarted.
        ``on_progress`` is called with each new progress of the run.
        """
        limit_s = None if timeout is None else seconds(timeout, "timeout")
        wait = ResultWait(self._state, await self._own_id(), noun=failure.RUN)
        result = await wait.end(limit_s, on_progress)
        wanted = self._result
        if isinstance(wanted, Workflow):
            wanted = wanted.signature.result_type
        value: R_co = wait.value(result, wanted)
        return value

    @overload
    async def signal(self, sig: Signal[None], /, *, id: str = "") -> None: ...
    @overload
    async def signal(self, sig: Signal[T], value: T, /, *, id: str = "") -> None: ...
    @overload
    async def signal(self, sig: str, value: object = None, /, *, id: str = "") -> None: ...
    async def signal(
        self, sig: Signal[Any] | str, value: object = None, /, *, id: str = ""
    ) -> None:
        """Send a signal; it is kept until the code of the run takes it.

        >>> await run.signal(approve, Approval(by="ann"), id=request_id)

        A signal with an ``id`` is recorded once, however often it is sent. A name in place of the
        signal sends whatever value is given. A value of another type than that of the signal raises
        ``TypeError`` before it is sent.
        """
        converter = self._state.converter
        if isinstance(sig, Signal):
            name, payload = sig.name, converter.seal(sig.encode(value))
        else:
            name, payload = sig, converter.encode(value)
        sent = pb.NewSignal(
            name=name,
            payload=payload.data,
            encoding=payload.encoding,
            # A lost answer must not send it twice.
            signal_id=id or new_task_id(),
        )
        request = pb.SignalWorkflowRunRequest(
            namespace_id=self._state.namespace, run_id=self.run_id, signal=sent
        )
        await self._state.ask(m.SIGNAL_RUN, request)

    async def describe(self) -> RunDescription:
        """Return where the run stands: its status, what it waits for, why it is parked."""
        return run_view.run_description(await self._get(), self._state.converter)

    async def status(self) -> RunStatus:
        """Return the present status of the run."""
        return run_view.status_of((await self._get()).status)

    @overload
    async def state(self, type: type[T]) -> T | None: ...
    @overload
    async def state(self) -> UserValue: ...
    async def state(self, type: UserValue = Any) -> UserValue:
        """Return what the run has last published with ``ctx.set_state``; None: nothing.

        >>> cart = await run.state(Cart)
        """
        payload = run_view.published(await self._get())
        if payload is None:
            return None
        try:
            return self._state.converter.decode(payload, type)
        except PayloadError as error:
            message = f"The state of run {self.run_id} cannot be read. {error}"
            raise PayloadError(message) from error

    async def steps(self, *, key: str = "") -> AsyncIterator[RunStep]:
        """Iterate over the attempts of its steps, in the order in which they were recorded.

        >>> async for step in run.steps():
        ...     print(step.key, step.status)

        Those of local steps, queued activities, child runs and maps; what has not ended comes last.
        With the ``key`` of a call, as ``tenure runs show`` has it, it is those of one step. Pages
        are loaded as needed.
        """
        request = pb.ListStepAttemptsRequest(
            namespace_id=self._state.namespace,
            # The pages are of one run, whatever happens to the id of its user meanwhile.
            run_id=await self._own_id(),
            step_id=key,
            page_size=PAGE_SIZE_MAX,
        )
        while True:
            answer = await self._state.ask(m.LIST_STEPS, request)
            for step in answer.step_attempts:
                yield step_view.run_step(step, self._state.converter)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return

    async def explain(self) -> RunExplanation:
        """Return why the run does not go on now: the decisive reason first, with what to do.

        >>> print(await run.explain())

        What it waits for is explained in the same way, down to the cause.
        """
        request = pb.ExplainWorkflowRunRequest(
            namespace_id=self._state.namespace, run_id=self.run_id
        )
        return run_explanation(await self._state.ask(m.EXPLAIN_RUN, request))

    async def cancel(self, reason: str = "") -> None:
        """Ask the run to end: its code gets a ``CancelledError`` and may clean up."""
        request = pb.CancelWorkflowRunRequest(
            namespace_id=self._state.namespace, run_id=self.run_id, reason=reason
        )
        await self._state.change_once(m.CANCEL_RUN, request, lambda found: found == "CANCELLED")

    async def resume(self) -> RunStatus:
        """Let a paused run go on, or try a parked one at once; return its status."""
        request = pb.ResumeWorkflowRunRequest(
            namespace_id=self._state.namespace, run_id=self.run_id
        )
        answer = await self._state.change_once(
            m.RESUME_RUN, request, lambda found: found != "PAUSED"
        )
        return await self.status() if isinstance(answer, str) else run_view.status_of(answer.status)

    async def terminate(self) -> RunStatus:
        """End the run at once, without asking its code; return its status."""
        request = pb.TerminateWorkflowRunRequest(
            namespace_id=self._state.namespace, run_id=self.run_id
        )
        answer = await self._state.change_once(
            m.TERMINATE_RUN, request, lambda found: found == "FAILED"
        )
        return await self.status() if isinstance(answer, str) else run_view.status_of(answer.status)

    async def retry(self, *, from_step: str = "") -> RunHandle[R_co]:
        """Make a new run from a finished one; return the handle of that.

        >>> again = await run.retry(from_step="last")

        Without ``from_step`` it begins from the start. With the key of a call, as ``tenure runs
        show`` has it, it keeps what was recorded before that call; ``"last"`` is the failure that
        ended the run. Steps that it does again have the idempotency keys that they had.
        """
        request = pb.RetryWorkflowRunRequest(
            namespace_id=self._state.namespace,
            # What the handle names may be the new run by the time of a second request.
            run_id=await self._own_id(),
            from_step=from_step,
            new_run_id=new_task_id(),
        )
        answer = await self._state.ask(m.RETRY_RUN, request)
        return RunHandle(self._state, answer.run_id, self._result)

    def _at(self, client: Client) -> RunHandle[R_co]:
        """Return the same run as another client sees it."""
        return RunHandle(client._state, self.run_id, self._result)  # noqa: SLF001 (of one package)

    async def _own_id(self) -> str:
        """Return the id of the run itself, also if the handle has the one that its user chose."""
        is_external = self.run_id.startswith(PREFIX)
        return (await self._get()).run_id if is_external else self.run_id

    async def _get(self) -> pb.WorkflowRun:
        request = pb.GetWorkflowRunRequest(namespace_id=self._state.namespace, run_id=self.run_id)
        return (await self._state.ask(m.GET_RUN, request)).run
