"""Asynchronous completion: the end of an attempt, reported from outside its worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenure.core.task.record import TaskState
from tenure.sdk import failure
from tenure.sdk.client import method as m
from tenure.sdk.client import view
from tenure.sdk.client.client_state import ClientState
from tenure.sdk.client.view import HeartbeatAnswer
from tenure.sdk.failure import ApplicationError
from tenure.v1 import task_pb2
from tenure.v1 import task_service_pb2 as pb

if TYPE_CHECKING:
    from tenure.sdk.client.client import Client

_SUCCEEDED: Final = task_pb2.FINISH_KIND_SUCCEEDED
_FAILED: Final = task_pb2.FINISH_KIND_FAILED
_CANCELLED: Final = task_pb2.FINISH_KIND_CANCELLED


class Completion:
    """Completes an attempt that its activity left with ``activity.complete_later()``.

    Calls can be repeated: the same completion gets the same answer again. A different one is
    refused with ``TaskAlreadyTerminal`` or ``AttemptMismatch``.
    """

    def __init__(
        self, state: ClientState, *, token: str = "", task_id: str = "", attempt: int = 0
    ) -> None:
        """Use ``Client.completion``; attempt 0 is the live one."""
        if bool(token) == bool(task_id):
            raise ValueError("Give either the token of the attempt or the id of the task.")
        if token and attempt:
            raise ValueError("A token belongs to one attempt. Leave attempt out.")
        self._state = state
        self._token = token
        self._task_id = task_id
        self._attempt = attempt

    def __repr__(self) -> str:
        # The token is a credential.
        return f"<Completion of {'task ' + self._task_id if self._task_id else 'a token'}>"

    async def complete(self, value: object = None) -> TaskState:
        """End the attempt with success and this result; return the task's state."""
        payload = self._state.converter.encode(value)
        if self._token:
            return await self._by_token(
                pb.CompleteByTokenRequest(
                    kind=_SUCCEEDED, output=payload.data, output_encoding=payload.encoding
                )
            )
        return await self._by_id(
            pb.CompleteByIdRequest(
                kind=_SUCCEEDED, output=payload.data, output_encoding=payload.encoding
            )
        )

    async def fail(self, error: BaseException | str) -> TaskState:
        """End the attempt with a failure, which may be retried; return the task's state."""
        raised = ApplicationError(error) if isinstance(error, str) else error
        state = failure.to_wire(raised, self._state.converter)
        if self._token:
            return await self._by_token(pb.CompleteByTokenRequest(kind=_FAILED, error=state))
        # The attempt is named, so that a repeated request cannot fail the next attempt.
        attempt = self._attempt or await self._live_attempt()
        return await self._by_id(pb.CompleteByIdRequest(kind=_FAILED, error=state, attempt=attempt))

    async def cancel(self) -> TaskState:
        """Report that the attempt has stopped after a cancel; return the task's state."""
        if self._token:
            return await self._by_token(pb.CompleteByTokenRequest(kind=_CANCELLED))
        return await self._by_id(pb.CompleteByIdRequest(kind=_CANCELLED))

    async def heartbeat(
        self, *details: object, percent: float | None = None, message: str | None = None
    ) -> HeartbeatAnswer:
        """Report that the attempt makes progress; the answer says whether it has to stop."""
        data = self._state.converter.encode_details(details) if details else None
        if self._token:
            by_token = pb.HeartbeatByTokenRequest(
                task_token=self._token, details=data, progress_percent=percent, message=message
            )
            return view.heartbeat_answer(await self._state.ask(m.HEARTBEAT_BY_TOKEN, by_token))
        by_id = pb.HeartbeatByIdRequest(
            namespace_id=self._state.namespace,
            task_id=self._task_id,
            attempt=self._attempt,
            details=data,
            progress_percent=percent,
            message=message,
        )
        return view.heartbeat_answer(await self._state.ask(m.HEARTBEAT_BY_ID, by_id))

    def _at(self, client: Client) -> Completion:
        """Return the same attempt as another client sees it."""
        return Completion(
            client._state,  # noqa: SLF001 (of one package)
            token=self._token,
            task_id=self._task_id,
            attempt=self._attempt,
        )

    async def _by_token(self, request: pb.CompleteByTokenRequest) -> TaskState:
        request.task_token = self._token
        return view.state_of((await self._state.ask(m.COMPLETE_BY_TOKEN, request)).state)

    async def _by_id(self, request: pb.CompleteByIdRequest) -> TaskState:
        request.namespace_id = self._state.namespace
        request.task_id = self._task_id
        request.attempt = request.attempt or self._attempt
        return view.state_of((await self._state.ask(m.COMPLETE_BY_ID, request)).state)

    async def _live_attempt(self) -> int:
        request = pb.GetTaskRequest(namespace_id=self._state.namespace, task_id=self._task_id)
        return (await self._state.ask(m.GET, request)).task.attempt
