"""A worker as a program: ``python -m tests.wire.worker --target … --mode session --journal …``.

It registers, works as design section 5 says, drains on the first SIGTERM, hands back on the
second, and registers again as a new incarnation when it was judged lost.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from google.protobuf.duration_pb2 import Duration

from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.worker_pb2 import WORKER_MODE_POLL, WORKER_MODE_SESSION
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.wire.call import CALL_SECONDS, Link, NoAnswer, Refused, ask
from tests.wire.incarnation import Incarnation, Options
from tests.wire.journal import RunJournal
from tests.wire.poll import PollMode, flush
from tests.wire.session import SessionMode
from tests.wire.worker_heartbeat import now_s

EXIT_NOT_WANTED: Final = 3
FLUSH_SECONDS: Final = 10.0
GATE_SECONDS: Final = 0.01
NOT_WANTED: Final = {
    "superseded": "another worker has registered with the same name",
    "evicted": "an operator has evicted this worker",
}
_WIRE_MODES: Final = {"session": WORKER_MODE_SESSION, "poll": WORKER_MODE_POLL}


class Mode(Protocol):
    """How an incarnation works until it is over."""

    async def serve(self) -> str: ...


_MODES: Final[dict[str, Callable[[Incarnation], Mode]]] = {"session": SessionMode, "poll": PollMode}


class Worker:
    """One worker, through all of its incarnations."""

    def __init__(self, options: Options, journal: RunJournal, link: Link | None = None) -> None:
        self._options = options
        self._journal = journal
        self._link = link or Link(options.targets)
        self._now: Incarnation | None = None
        self._is_stopping = False
        self._drain: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Work until told to stop; return the exit code."""
        while True:
            me = self._now = await self._register()
            if self._is_stopping:
                self._begin_drain(me)
            reason = await _MODES[self._options.mode](me).serve()
            me.note("over", reason)
            await flush(me, FLUSH_SECONDS)
            if reason in NOT_WANTED:
                print(f"This worker stops: {NOT_WANTED[reason]}.", file=sys.stderr)  # noqa: T201
                return EXIT_NOT_WANTED
            if reason == "deregistered":
                return 0

    def ask_to_stop(self) -> None:
        """Drain; asked a second time, hand back what is held."""
        if self._now is None:
            self._is_stopping = True
        elif self._is_stopping:
            self._now.held_attempts.hand_back()
        else:
            self._is_stopping = True
            self._begin_drain(self._now)

    def _begin_drain(self, me: Incarnation) -> None:
        self._drain = asyncio.get_running_loop().create_task(self._ask_for_drain(me))

    async def _ask_for_drain(self, me: Incarnation) -> None:
        await me.deregister(is_drain=True)
        me.note("drain_acknowledged")
        me.drain()

    async def _register(self) -> Incarnation:
        options = self._options
        request = w.RegisterWorkerRequest(
            namespace_id=options.namespace,
            task_queue=options.queue,
            workflow_types=options.types,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            version=options.version,
            max_concurrent=options.slots,
            labels=options.labels,
            # One per incarnation: asked twice it is the same worker.
            instance_key=uuid.uuid4().hex,
            name=options.name,
            mode=_WIRE_MODES[options.mode],
        )
        if options.lease_ms:
            lease = Duration()
            lease.FromMilliseconds(options.lease_ms)
            request.lease_duration.CopyFrom(lease)
        while True:
            sent_at_s, channel = now_s(), self._link.channel
            try:
                stub = WorkflowServiceStub(channel)
                answer = await ask(stub.RegisterWorker(request, timeout=CALL_SECONDS))
            except NoAnswer:
                await self._link.move(channel)
            except Refused as refused:
                if refused.code != "worker_inactive":
                    raise
                request.instance_key = uuid.uuid4().hex
            else:
                return self._begin(answer, sent_at_s)

    def _begin(self, answer: w.RegisterWorkerResponse, sent_at_s: float) -> Incarnation:
        me = Incarnation(self._options, self._link, self._journal, answer.worker_id)
        me.heartbeat.begin(
            answer.token,
            lease_ms=answer.lease_duration.ToMilliseconds(),
            interval_ms=answer.heartbeat_interval_ms,
            sent_at_s=sent_at_s,
        )
        me.note("registered")
        return me


async def _main(options: Options, path: Path, gate: Path | None) -> int:
    journal = RunJournal(path)
    worker = Worker(options, journal)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.ask_to_stop)
    if gate is not None:
        journal.write("waiting", "")
        while not gate.exists():  # noqa: ASYNC110, ASYNC240 (another process makes it)
            await asyncio.sleep(GATE_SECONDS)
    return await worker.run()


def _parse() -> tuple[Options, Path, Path | None]:
    parser = argparse.ArgumentParser(prog="python -m tests.wire.worker")
    parser.add_argument("--target", required=True, action="append", help="host:port, repeatable")
    parser.add_argument("--mode", choices=sorted(_MODES), default="session")
    parser.add_argument("--queue", default="default")
    parser.add_argument("--types", default="work", help="comma-separated")
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--gate", type=Path, help="register only once this file exists")
    parser.add_argument("--namespace", default="")
    parser.add_argument("--name", default="")
    parser.add_argument("--version", default="")
    parser.add_argument("--lease-ms", type=int, default=0)
    parser.add_argument("--poll-s", type=float, default=20.0)
    said = parser.parse_args()
    options = Options(
        targets=tuple(said.target),
        mode=said.mode,
        queue=said.queue,
        types=tuple(said.types.split(",")),
        slots=said.slots,
        namespace=said.namespace,
        name=said.name,
        version=said.version,
        lease_ms=said.lease_ms,
        poll_s=said.poll_s,
    )
    return options, said.journal, said.gate


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*_parse())))
