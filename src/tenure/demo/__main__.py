"""What ``make run`` shows: a worker is killed, and another one goes on with its work.

Its tasks begin again, and its workflow runs go on with their next step.
"""

from __future__ import annotations

import sys
import time
from typing import Final

import grpc
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tenure import RunStatus, SyncClient, SyncRunHandle
from tenure.demo.process import DemoStage
from tenure.demo.worker import QUEUE, make_album, resize_image
from tenure.v1 import admin_service_pb2 as admin_pb
from tenure.v1 import admin_service_pb2_grpc, worker_pb2, workflow_service_pb2_grpc
from tenure.v1 import workflow_service_pb2 as workflow_pb

WORKER_COUNT: Final = 2
TASK_COUNT: Final = 120
RUN_COUNT: Final = 4
KILL_AFTER: Final = 20
VICTIM: Final = "worker-2"
SECONDS_MAX: Final = 120
FRAME_S: Final = 0.2
_LIVE: Final = ("PENDING", "DISPATCHED", "RUNNING")


class Demo:
    """Reads the state through the public API and draws it."""

    def __init__(self, stage: DemoStage, channel: grpc.Channel, client: SyncClient) -> None:
        """Show the state of ``stage``."""
        self._stage = stage
        self._client = client
        self._runs: list[SyncRunHandle[str]] = []
        self._workflows = workflow_service_pb2_grpc.WorkflowServiceStub(channel)
        self._admin = admin_service_pb2_grpc.AdminServiceStub(channel)
        self.note = "Two workers share the tasks and the runs."
        self.done_count = 0
        self.done_run_count = 0
        # What workers are called, by id.
        self._names: dict[str, str] = {}
        # What the worker that is going to be killed has said of itself.
        self.victim_done_count = 0

    def enqueue(self) -> None:
        """Start the runs, and enqueue the tasks in one request."""
        for number in range(RUN_COUNT):
            self._runs.append(self._client.start(make_album, f"album {number + 1}"))
        self._client.enqueue_many(resize_image.call(number) for number in range(TASK_COUNT))

    def look(self) -> Table:
        """Read the present state and return it as a table."""
        queue = self._admin.GetQueue(admin_pb.GetQueueRequest(name=QUEUE)).queue
        counts = dict.fromkeys(_LIVE, 0)
        for each in queue.types:
            if each.type == resize_image.name:
                counts.update(each.counts)
        self.done_count = TASK_COUNT - sum(counts.values()) if self._runs else 0
        table = Table(title=f"Tenure at {self._stage.http}", caption=self.note)
        for column in ("worker", "pid", "status", "health", "holds", "done"):
            table.add_column(column)
        request = workflow_pb.ListWorkersRequest(task_queue=QUEUE)
        for worker in reversed(self._workflows.ListWorkers(request).workers):
            table.add_row(*self._row(worker))
        shown = "  ".join(f"{state.lower()} {count}" for state, count in counts.items())
        table.add_section()
        table.add_row("tasks", "", f"done {self.done_count}/{TASK_COUNT}", "", shown, "")
        table.add_section()
        self._add_runs(table)
        return table

    def _add_runs(self, table: Table) -> None:
        infos = [each.describe() for each in self._runs]
        self.done_run_count = sum(each.status is RunStatus.COMPLETED for each in infos)
        for number, info in enumerate(infos):
            holder = self._names.get(info.worker_id, "")
            attempt = f", attempt {info.attempt}" if info.attempt > 1 else ""
            shown = f"{info.status}{attempt}"
            table.add_row(f"album {number + 1}", "", shown, "", info.progress.message, holder)

    def _row(self, worker: worker_pb2.Worker) -> tuple[str, ...]:
        request = workflow_pb.GetWorkerRequest(worker_id=worker.worker_id)
        held = self._workflows.GetWorker(request).worker.held_count
        status = worker_pb2.WorkerStatus.Name(worker.status).removeprefix("WORKER_STATUS_")
        health = worker_pb2.WorkerHealth.Name(worker.health).removeprefix("WORKER_HEALTH_")
        reason = f" ({worker.end_reason})" if worker.end_reason else ""
        self._names[worker.worker_id] = worker.name
        if worker.name == VICTIM:
            self.victim_done_count = worker.total_completed
        return (
            worker.name,
            str(worker.pid),
            status.lower() + reason,
            health.lower() if worker.health else "-",
            str(held),
            str(worker.total_completed),
        )

    def run(self, live: Live) -> None:
        """Run the demo to its end."""
        is_killed = False
        deadline = time.monotonic() + SECONDS_MAX
        while self.done_count < TASK_COUNT or self.done_run_count < RUN_COUNT:
            if time.monotonic() > deadline:
                raise SystemExit(
                    "The tasks did not end in time. Try again when the machine is idle."
                )
            # With both workers there, each gets some of the runs.
            if not self._runs and len(self._names) == WORKER_COUNT:
                self.enqueue()
            live.update(self.look(), refresh=True)
            # After its first heartbeat, so that the table shows what it had done.
            if not is_killed and self.done_count >= KILL_AFTER and self.victim_done_count:
                self._stage.kill_worker(VICTIM)
                is_killed = True
                self.note = f"{VICTIM} was killed; worker-1 goes on with its tasks and runs."
            time.sleep(FRAME_S)
        self.note = (
            f"All {TASK_COUNT} tasks are done, each with one outcome, and all {RUN_COUNT} albums: "
            "each went on with its next page."
        )
        live.update(self.look(), refresh=True)


def main() -> None:
    """Run the demo; on a terminal the server stays for you to try it."""
    console = Console()
    is_terminal = sys.stdout.isatty() and sys.stdin.isatty()
    ports = ("127.0.0.1:7300", "127.0.0.1:7301") if is_terminal else ("127.0.0.1:0",) * 2
    with (
        DemoStage(*ports) as stage,
        grpc.insecure_channel(stage.grpc) as channel,
        SyncClient(stage.grpc) as client,
    ):
        for name in ("worker-1", VICTIM):
            stage.start_worker(name)
        with Live(console=console, auto_refresh=False) as live:
            Demo(stage, channel, client).run(live)
        if is_terminal:
            console.print(
                f"The server and worker-1 keep running. Try:\n"
                f"  .venv/bin/tenure tasks enqueue {resize_image.name} --queue {QUEUE} "
                "--input '{\"image\": 1}' --wait\n"
                f"  .venv/bin/tenure workers ls\n"
                f"  http://{stage.http}/docs\n"
                "Ctrl-C ends everything."
            )
            try:
                stage.workers["worker-1"].wait()
            except KeyboardInterrupt:
                console.print("Stopped.")


if __name__ == "__main__":
    main()
