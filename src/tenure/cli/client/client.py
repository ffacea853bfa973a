"""The way to a server: gRPC on one side, plain records on the other; a part for each noun."""

from __future__ import annotations

from collections.abc import Sequence

from tenure.cli.client.access_client import AccessClient
from tenure.cli.client.connection import CALL_SECONDS_MAX, ServerConnection
from tenure.cli.client.endpoint_client import EndpointClient
from tenure.cli.client.journal_client import JournalClient
from tenure.cli.client.queue_client import QueueClient
from tenure.cli.client.rpc_failure import NOT_CONNECTED
from tenure.cli.client.run_client import RunClient
from tenure.cli.client.schedule_client import ScheduleClient
from tenure.cli.client.task_client import TaskClient
from tenure.cli.client.worker_client import WorkerClient
from tenure.cli.failure import CliError
from tenure.cli.show import diagnosis_view
from tenure.sdk.transport.tls import TLS
from tenure.v1 import admin_service_pb2 as pb
from tenure.v1.admin_service_pb2_grpc import AdminServiceStub


class ServerClient(ServerConnection):
    """Everything that commands ask a server, in one namespace."""

    def __init__(
        self,
        targets: Sequence[str],
        namespace: str,
        *,
        api_key: str | None = "",
        tls: TLS | None = None,
        call_seconds: float = CALL_SECONDS_MAX,
    ) -> None:
        super().__init__(targets, namespace, api_key=api_key, tls=tls, call_seconds=call_seconds)
        self.tasks = TaskClient(self)
        self.runs = RunClient(self)
        self.schedules = ScheduleClient(self)
        self.journals = JournalClient(self)
        self.workers = WorkerClient(self)
        self.queues = QueueClient(self)
        self.endpoints = EndpointClient(self)
        self.access = AccessClient(self)

    def diagnose(self, namespace: str) -> diagnosis_view.ShownDiagnosis:
        """Return what is wrong; without a namespace with all that the caller may see."""
        self._connect()
        request = pb.DiagnoseRequest(namespace_id=namespace, client_now_ms=self.clock.now_ms())
        answer = self.call(AdminServiceStub(self.channel).Diagnose, request, pb.DiagnoseResponse)
        return diagnosis_view.diagnosis(answer)

    def _connect(self) -> None:
        """Make sure of the connection, so that the time that it takes is not the clocks' fault."""
        try:
            self.now_ms()
        except CliError as error:
            # A server whose store is away says so to this question, and tells more when diagnosed.
            if not error.is_transient or error.code == NOT_CONNECTED:
                raise
