"""The connection to a server: one channel, and calls whose failures people understand."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message

from tenure.cli.client.rpc_failure import NOT_CONNECTED, failure_of
from tenure.cli.client.target_channel import TargetChannel
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.engine.clock import SystemClock
from tenure.sdk.transport.api_key import find_api_key
from tenure.sdk.transport.tls import TLS
from tenure.v1 import task_service_pb2 as task_pb
from tenure.v1 import workflow_service_pb2 as workflow_pb
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub

Response = TypeVar("Response", bound=Message)
# Who waits longer at a prompt believes that it hangs.
CALL_SECONDS_MAX: Final = 10.0
_RESEND_SECONDS: Final = 0.3
NewWork = task_pb.EnqueueTasksRequest | workflow_pb.StartWorkflowRequest


class ServerConnection:
    """One channel to a server, or to one of several, in one namespace."""

    def __init__(
        self,
        targets: Sequence[str],
        namespace: str,
        *,
        api_key: str | None = "",
        tls: TLS | None = None,
        call_seconds: float = CALL_SECONDS_MAX,
    ) -> None:
        """Prepare the channel; it connects with the first call."""
        self._call_seconds = call_seconds
        self.namespace = namespace
        self.clock = SystemClock()
        self.metadata = _metadata(api_key)
        self.channel = TargetChannel(targets, tls)
        self._is_tls = tls is not None
        self._health = WorkflowServiceStub(self.channel)

    @property
    def target(self) -> str:
        """Return where the next call goes."""
        return self.channel.target

    def close(self) -> None:
        """End the connection."""
        self.channel.close()

    def monotonic_ms(self) -> int:
        """Return time for waiting."""
        return self.clock.monotonic_ms()

    def now_ms(self) -> int:
        """Return the server's time, because every instant that it tells is of its clock."""
        answer = self.call(
            self._health.HealthCheck,
            workflow_pb.HealthCheckRequest(),
            workflow_pb.HealthCheckResponse,
        )
        stamp = answer.timestamp
        return stamp.ToMilliseconds() if answer.HasField("timestamp") else self.clock.now_ms()

    def call(
        self, method: Callable[..., object], request: Message, kind: type[Response]
    ) -> Response:
        """Call and return the answer, of whose type the generated stubs say nothing."""
        with self.failures():
            answer = method(request, timeout=self._call_seconds, metadata=self.metadata)
        assert isinstance(answer, kind)
        return answer

    def call_new(
        self, method: Callable[..., object], request: NewWork, kind: type[Response], named: str
    ) -> Response:
        """Call with something new, and once more, marked, if the answer was lost.

        It has its id before it is sent, so sending it twice does not hurt. ``named`` is what it is,
        and its id.
        """
        try:
            return self.call(method, request, kind)
        except CliError as error:
            if not error.is_transient or error.code == NOT_CONNECTED:
                raise
        time.sleep(_RESEND_SECONDS)
        request.is_resend = True
        try:
            return self.call(method, request, kind)
        except CliError as error:
            if error.is_transient:
                noun, _, new_id = named.partition(" ")
                error.hint += f" If the {noun} was accepted all the same, its id is {new_id}."
            raise

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Raise what a failed call means for people."""
        try:
            yield
        except grpc.RpcError as error:
            raise failure_of(error, self.channel.place, is_tls=self._is_tls) from error


def _metadata(api_key: str | None) -> tuple[tuple[str, str], ...] | None:
    """Return what says who calls, if anything is to."""
    try:
        key = find_api_key(api_key)
    except ValueError:
        what = "The API key is not valid. It must look like tnr_ID_SECRET."
        hint = "Check --api-key or TENURE_API_KEY."
        raise CliError(what, hint=hint, exit_code=ExitCode.USAGE) from None
    return (("authorization", f"Bearer {key}"),) if key else None
