"""One incarnation of a worker: what both modes share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from tenure.v1 import workflow_service_pb2 as w
from tenure.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from tests.wire.call import CALL_SECONDS, Link, NoAnswer, Refused, ask
from tests.wire.held_attempts import HeldByWorker
from tests.wire.journal import RunJournal
from tests.wire.worker_heartbeat import HeartbeatChain

DRAIN_SECONDS = 300.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is set up."""

    targets: tuple[str, ...]
    mode: str
    queue: str = "default"
    types: tuple[str, ...] = ("work",)
    slots: int = 10
    namespace: str = ""
    name: str = ""
    version: str = ""
    labels: dict[str, str] = {}
    lease_ms: int = 0
    poll_s: float = 20.0


class Over(Exception):
    """The incarnation is over; the reason is the server's, or ``deregistered``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Incarnation:
    """A registered worker: its id, what it holds, its heartbeats, and its link."""

    def __init__(self, options: Options, link: Link, journal: RunJournal, worker_id: str) -> None:
        self.options = options
        self.link = link
        self.journal = journal
        self.worker_id = worker_id
        self.heartbeat = HeartbeatChain()
        self.held_attempts = HeldByWorker(worker_id, journal, lambda: not self.heartbeat.is_fenced)

    def note(self, event: str, text: str = "") -> None:
        self.journal.write(event, self.worker_id, text=text)

    def odd(self, error: NoAnswer | Refused) -> None:
        """Write down what no fault explains: the checker complains about it."""
        if isinstance(error, Refused) or error.is_odd:
            self.note("odd", str(error))

    def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Finish what is held, hand the rest back at the deadline."""
        if not self.held_attempts.is_draining:
            self.note("draining")
            self.held_attempts.is_draining = True
            self.held_attempts.news.set()
            asyncio.get_running_loop().call_later(seconds, self.held_attempts.hand_back)

    @property
    def is_drained(self) -> bool:
        return self.held_attempts.is_draining and not self.held_attempts.held

    async def wait_for_news(self, seconds: float) -> None:
        """Wait until there is something to report, or for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self.held_attempts.news.wait()
        self.held_attempts.news.clear()

    async def deregister(self, *, is_drain: bool) -> None:
        """Begin a drain, or end for good; asked until somebody answers."""
        request = w.DeregisterWorkerRequest(
            namespace_id=self.options.namespace, worker_id=self.worker_id, drain=is_drain
        )
        while True:
            channel = self.link.channel
            try:
                stub = WorkflowServiceStub(channel)
                await ask(stub.DeregisterWorker(request, timeout=CALL_SECONDS))
            except NoAnswer as error:
                self.odd(error)
                await self.link.move(channel)
            except Refused as refused:
                # Somebody else ended it, or an earlier request did and its answer was lost.
                raise_if_over(refused)
                self.odd(refused)
                return
            else:
                return


def raise_if_over(refused: Refused) -> None:
    """Raise when the server says that the worker is offline."""
    if refused.code == "worker_inactive":
        raise Over(refused.detail.reason or "unknown")


async def run_together(*parts: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Run coroutines until the first ends or raises; the others are cancelled."""
    tasks = [asyncio.ensure_future(part()) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
