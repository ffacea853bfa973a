"""A server for one run, as small as it can be: a journal, a clock, and an order of events.

Time is simulated. Steps take as long as the seed says; messages too, each direction in its order.
A crash forgets the run that is held and hands the journal to a new one.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import queue
import random
from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from tenure.errors import TenureError
from tenure.sdk import failure
from tenure.sdk.payload import Converter, Payload
from tenure.sdk.workflow.body import start_body
from tenure.sdk.workflow.context import RunInfo
from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.ending import Continued, Ending, Raised, Returned, Yielded
from tenure.sdk.workflow.journal import Entry, Kind, OpenCall
from tenure.sdk.workflow.port import RunIdentity
from tenure.sdk.workflow.results import Results
from tenure.sdk.workflow.run import Run
from tenure.sdk.workflow.step import Step
from tenure.v1 import journal_pb2
from tenure.v1.error_pb2 import ErrorDetail
from tests.bounds import WAIT_S
from tests.sdk.workflow.child_model import Children, Code

CONVERTER = Converter()
BEGUN_AT_MS = 1_800_000_000_000
IDENTITY = RunIdentity(run_id="0198f2c4-0000-7000-8000-0123456789ab", begun_at_ms=BEGUN_AT_MS)
EVENTS_MAX = 100_000


class Stuck(Exception):
    """Nothing more will happen, and the run has not ended."""


class Model:
    """The server, the worker and the time of one run."""

    def __init__(
        self, workflow: Workflow[..., Any], *args: Any, seed: int = 0, code: tuple[Code, ...] = ()
    ) -> None:
        self.workflow = workflow
        self.arguments = workflow.signature.bind(args, {})
        self.identity = replace(IDENTITY, type=workflow.name)
        self.code = code
        self.children = Children(self, code)
        # Signals to other runs, by their ids.
        self.sent: dict[str, tuple[str, str, bytes]] = {}
        # Those to runs that are no children of this one, or were none yet.
        self.sent_to_strangers: list[str] = []
        self.send_problems: list[TenureError] = []
        self.chance = random.Random(seed)
        self.now_ms = BEGUN_AT_MS
        self.journal: list[Entry] = []
        self.attempt = 0
        self.ending: Ending | None = None
        # How often each step was executed, and how often after it was recorded.
        self.executions: dict[str, int] = {}
        self.repeated: list[str] = []
        self.published: list[tuple[Payload | None, float | None, str | None]] = []
        self.hand_outs: list[int] = []
        self.holder: Holder | None = None
        self.warm: Holder | None = None
        self.on_recorded: Callable[[Entry], None] = lambda _: None
        self.on_spawned: Callable[[], None] = lambda: None
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()

    # -- The server

    def at(self, at_ms: int, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._events, (max(at_ms, self.now_ms), next(self._order), action))

    def append(self, entry: Entry) -> Entry:
        """Record an entry."""
        entry = replace(entry, pos=len(self.journal) + 1, at_ms=self.now_ms)
        self.journal.append(entry)
        return entry

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.ending is not None and not isinstance(self.ending, Yielded)

    def nested(self, workflow: Workflow[..., Any], arguments: dict[str, Any]) -> Model:
        """Return the model of a child."""
        model = Model(workflow, *arguments.values(), seed=self.chance.randrange(1_000_000))
        model.children = Children(model, self.code)
        model.now_ms = self.now_ms
        return model

    def signal(self, name: str, value: object) -> None:
        """Send a signal."""
        payload = CONVERTER.encode(value)
        self.tell(self.append(Entry(Kind.SIGNAL, name, output=payload.data, encoding="json")))

    def cancel(self) -> None:
        """Ask the run to end."""
        self.tell(self.append(Entry(Kind.CANCEL, "cancel")))

    def tell(self, entry: Entry) -> None:
        """Wake the run for an entry of the server, or push it to whoever holds it."""
        holder = self.holder
        if holder is None:
            if not self.is_over:
                self.hand_out()
            return
        holder.after(lambda: holder.run.take_page([replace(entry)], len(self.journal)))
        if entry.kind in (Kind.CHILD, Kind.GROUP):
            self.on_recorded(entry)

    def hand_out(self, *, is_cold: bool = False) -> None:
        """Give the run to a worker: a new one, or the one that still has it in its memory."""
        self.attempt += 1
        self.ending = None
        warm, self.warm = self.warm, None
        if warm is not None and is_cold:
            warm.put_aside()
            warm = None
        holder = self.holder = warm or Holder(self)
        after = holder.run.journal.seen
        self.hand_outs.append(len(self.journal) - after)
        holder.begin(self.attempt, [replace(each) for each in self.journal[after:]])

    def crash(self) -> None:
        """Kill the worker; another one gets the run."""
        assert self.holder is not None
        self.holder.put_aside()
        self.hand_out()

    def ended(self, holder: Holder, ending: Ending) -> None:
        """Hear how an attempt ended."""
        if holder.is_dead:
            return
        self.holder = None
        if isinstance(ending, Yielded):
            self._wait(holder, ending)
        elif isinstance(ending, Continued):
            self._begin_anew(ending)
        else:
            self.ending = ending

    def _begin_anew(self, ending: Continued) -> None:
        kept = [each for each in self.journal if self._is_kept(each, ending)]
        self.journal = []
        for entry in kept:
            self.append(replace(entry, attempt=0, no=0))
        self.arguments = self.workflow.signature.decode(CONVERTER, ending.arguments)
        self.identity = replace(self.identity, generation=self.identity.generation + 1)
        self.children = Children(self, self.code)
        self.executions = {}
        self.hand_out()

    def _is_kept(self, entry: Entry, ending: Continued) -> bool:
        if entry.kind is Kind.CANCEL:
            return entry.pos > ending.seen
        return entry.kind is Kind.SIGNAL and (entry.pos in ending.keep or entry.pos > ending.seen)

    def _wait(self, holder: Holder, ending: Yielded) -> None:
        if self.chance.random() < 0.5:
            self.warm = holder
        else:
            holder.put_aside()
        if len(self.journal) > ending.seen:
            self.hand_out()
            return
        self.ending = ending
        attempt = self.attempt
        if ending.wake_at_ms:

            def wake() -> None:
                if self.attempt == attempt and self.holder is None:
                    self.append(Entry(Kind.TIMER, ending.wake_key, ending.wake_index))
                    self.hand_out()

            self.at(ending.wake_at_ms, wake)

    # -- Time

    def play(self) -> Ending:
        """Let everything happen until the run has ended."""
        if self.attempt == 0:
            self.hand_out()
        for _ in range(EVENTS_MAX):
            if self.ending is not None and self.is_over:
                return self.ending
            if not self._events:
                raise Stuck(self.ending, self.journal)
            self.now_ms, _, action = heapq.heappop(self._events)
            action()
            if self.holder is not None:
                self.holder.settle()
        raise Stuck("too many events")

    def result(self) -> Any:
        """Play, and return what the body returned; raise what it raised."""
        ending = self.play()
        if isinstance(ending, Returned):
            return ending.value
        if isinstance(ending, Raised):
            raise ending.error
        raise AssertionError(ending)


class Holder:
    """A worker that holds the run."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.is_dead = False
        # With none, each turn of a plain body goes on beside the loop. Time stands still meanwhile,
        # so what happens depends on the seed alone.
        self.patience_s = model.chance.choice((None, 0.0)) if not model.workflow.is_async else None
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.is_certain = True
        self.is_draining = False
        self._attempt = 0
        self._alarm = 0
        self._is_in_step = False
        self._last_up_ms = self._last_down_ms = 0
        self.may_linger = model.attempt % 2 == 0
        self.run = Run(self, CONVERTER, model.identity, changes=model.workflow.changes)
        info = RunInfo(
            run_id=model.identity.run_id,
            type=model.workflow.name,
            queue="default",
            namespace="default",
            begun_at=datetime.fromtimestamp(BEGUN_AT_MS / 1_000, UTC),
        )
        arguments = model.arguments
        self.thread = start_body(self.run, self, model.workflow, info, arguments, Context())

    def put_aside(self) -> None:
        """Forget the run."""
        self.is_dead = True
        assert self.run.put_aside(), "the body does not end"
        assert self.thread is None or self.thread.join(WAIT_S), "the thread does not end"

    def begin(self, attempt: int, entries: list[Entry]) -> None:
        """Get an attempt."""
        self._attempt = attempt
        end = len(self.model.journal)
        # Sometimes the page ends early, and the rest has to be asked for.
        if entries and self.model.chance.random() < 0.3:
            entries = entries[: self.model.chance.randrange(len(entries))]
        open_calls, open_next = self._page(self.model.children.open_calls())
        self.after(lambda: self.run.hand_out(attempt, entries, end, open_calls, open_next))

    def _page(self, calls: list[OpenCall]) -> tuple[list[OpenCall], str]:
        """Return a part of what is open, and where it goes on."""
        for number, call in enumerate(calls[:-1]):
            if call.task_id and self.model.chance.random() < 0.2:
                return calls[: number + 1], call.task_id
        return calls, ""

    # -- What the run asks

    @property
    def server_now_ms(self) -> int:
        return self.model.now_ms

    def send(self, entry: Entry) -> None:
        attempt = self._attempt
        no = entry.no

        def arrive() -> None:
            if self.is_dead:
                return
            assert attempt == self.model.attempt
            stored = self.model.append(replace(entry, attempt=attempt))
            # The acknowledgement first: a crash here loses it.
            self.after(lambda: self.run.acknowledge(no, stored.pos, stored.at_ms))
            self.model.on_recorded(stored)

        self._last_up_ms = max(self._last_up_ms, self.model.now_ms + self._latency_ms())
        self.model.at(self._last_up_ms, arrive)

    def start_step(self, step: Step[Any], _retries: Entry | None) -> None:
        model, key = self.model, step.key
        model.executions[key] = model.executions.get(key, 0) + 1
        if any(each.key == key and each.kind is Kind.STEP for each in model.journal):
            model.repeated.append(key)
        self._is_in_step = True
        entry = _executed(step)
        self._is_in_step = False
        model.at(model.now_ms + model.chance.randrange(1, 200), self._alive(step, entry))

    def _alive(self, step: Step[Any], entry: Entry) -> Callable[[], None]:
        return lambda: None if self.is_dead else self.run.step_ended(step, entry)

    def stop_step(self, step: Step[Any]) -> None:
        entry = Entry(Kind.STEP, step.key)
        self.model.at(self.model.now_ms, self._alive(step, entry))

    def publish(self, state: Payload | None, percent: float | None, message: str | None) -> None:
        self.model.published.append((state, percent, message))

    def fetch(self, after: int) -> None:
        def answer() -> None:
            entries = [replace(each) for each in self.model.journal[after:]]
            self.after(lambda: self.run.take_page(entries, len(self.model.journal)))

        self.model.at(self.model.now_ms + self._latency_ms(), answer)

    def fetch_open(self, open_after: str) -> None:
        def answer() -> None:
            page = self._page(self.model.children.open_calls(open_after))
            self.after(lambda: self.run.take_open(*page))

        self.model.at(self.model.now_ms + self._latency_ms(), answer)

    def fetch_group(self, group_key: str, after: int) -> None:
        def answer() -> None:
            # The run may have begun anew since.
            if self.is_dead:
                return
            ends = sorted(self.model.children.groups[group_key].ends.items())
            later = [replace(entry) for item, entry in ends if item >= after]
            page = later[: self.model.chance.randrange(1, 40)]
            take = functools.partial(self.run.take_group_page, group_key, after, page)
            # Steps take no time here, so they cannot wait.
            if self._is_in_step:
                take()
            else:
                self.after(take)

        if self._is_in_step:
            answer()
        else:
            self.model.at(self.model.now_ms + self._latency_ms(), answer)

    def spawn(self, report: journal_pb2.SpawnReport) -> None:
        self._ask(report.number, lambda: self.model.children.spawn(report), is_spawn=True)

    def cancel_children(self, request: journal_pb2.ChildCancel) -> None:
        self._ask(request.number, lambda: self.model.children.cancel(request))

    def _ask(self, number: int, do: Callable[[], None], *, is_spawn: bool = False) -> None:
        def arrive() -> None:
            if self.is_dead:
                return
            error = None
            if is_spawn and self.model.children.refusal:
                error = ErrorDetail(code=self.model.children.refusal, message="refused")
            else:
                do()
            self.after(lambda: self.run.children_answered(number, error))
            if is_spawn:
                self.model.on_spawned()

        self._last_up_ms = max(self._last_up_ms, self.model.now_ms + self._latency_ms())
        self.model.at(self._last_up_ms, arrive)

    async def signal(self, run_id: str, name: str, payload: Payload, signal_id: str) -> None:
        if self.model.send_problems:
            raise self.model.send_problems.pop()
        if run_id not in self.model.children.names:
            self.model.sent_to_strangers.append(run_id)
        self.model.sent[signal_id] = (run_id, name, payload.data)

    def post(self, callback: Callable[[], None]) -> None:
        is_body = self.thread is not None and self.thread.is_here
        self._posted.put(callback) if is_body else callback()

    def settle(self) -> None:
        """Wait until a plain body waits for its run."""
        while self.run.loop.is_away:
            self._posted.get(timeout=WAIT_S)()
            self.run.advance()

    def wake_at(self, at_ms: int | None) -> None:
        self._alarm += 1
        alarm = self._alarm
        if at_ms is not None:

            def ring() -> None:
                if not self.is_dead and alarm == self._alarm:
                    self.run.wake()

            self.model.at(at_ms, ring)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.model.at(self.model.now_ms, lambda: None if self.is_dead else callback())

    def end(self, ending: Ending) -> None:
        self.model.ended(self, ending)
        if not isinstance(ending, Yielded):
            self.put_aside()

    # -- Inside

    def after(self, action: Callable[[], None]) -> None:
        """Do something when a message from the server arrives."""
        self._last_down_ms = max(self._last_down_ms, self.model.now_ms + self._latency_ms())
        self.model.at(self._last_down_ms, lambda: None if self.is_dead else action())

    def _latency_ms(self) -> int:
        return self.model.chance.choice((0, 1, 1, 2, 30))


def _executed(step: Step[Any]) -> Entry:
    """Run the function of a step to its end, and return what is recorded."""
    assert step.function is not None
    entry = Entry(Kind.STEP, step.key, step.call_key.index, line=step.line)
    try:
        value = step.function.call(*step.args, **step.kwargs)
        if asyncio.iscoroutine(value):
            reads = any(isinstance(each, Results) for each in step.args)
            value = asyncio.run(value) if reads else _finish(value)
        payload = CONVERTER.encode(value)
        entry.output, entry.encoding = payload.data, payload.encoding
    except (ValueError, failure.ApplicationError, TenureError) as error:
        entry.error = failure.to_wire(error, CONVERTER)
    return entry


def _finish(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a step of these tests waits for nothing")
