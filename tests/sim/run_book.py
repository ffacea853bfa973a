"""What bodies did: equal journals give equal calls, and a recorded step never runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.core.journal import entry as stored
from tenure.core.journal.entry import EntryKind
from tenure.core.task.attempt import Outcome
from tenure.core.task.record import Task, TaskState
from tenure.sdk.payload import Payload
from tenure.sdk.workflow.ending import Ending, Raised, Returned
from tenure.sdk.workflow.journal import Entry
from tenure.sdk.workflow.step import Step
from tests.sim import family, flow
from tests.sim.body import Body, Calls, Childless, error_of, is_cancelled, received
from tests.sim.trace import Violation, short

if TYPE_CHECKING:
    from tests.sim.worker import Held
    from tests.sim.world import World


class RunBook:
    """What was seen of all bodies of a world, by the journals of their runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._calls: dict[tuple[str, int], Calls] = {}
        self.step_count = self.replay_count = 0

    def at_frontier(self, task: Task, seen: int, calls: Calls) -> None:
        """Check that a body has called what every other one with these entries has called."""
        known = self._calls.setdefault((journal_of(task), seen), calls)
        if known != calls:
            other = sorted(set(known.items()) ^ set(calls.items()))
            message = f"run {short(task.id)} has called other things at {seen}: {other}"
            self._world.fail(Violation(message, task.id))

    def step_started(self, held: Held, step: Step[Any]) -> None:
        """Check that the holder of a run does not run a step that is recorded."""
        self.step_count += 1
        task = held.task
        live = self._world.checker.live.get((task.namespace, task.id))
        if live is None or live.attempt != task.attempt or live.worker_id != held.worker_id:
            return  # Somebody else has it, and this one will be told.
        entries = self._world.checker.journals.entries[journal_of(task)]
        if any(each.key == step.key and each.kind is EntryKind.STEP for each in entries):
            message = f"run {short(task.id)}#{task.attempt} runs {step.key} again"
            self._world.fail(Violation(message, task.id))

    def verify(self, task: Task) -> None:
        """Check that the result of a run is that of a worker which never fails."""
        by_others = self._world.request_log.finishes.get((task.namespace, task.id, 0), [])
        if task.output is not None:
            is_by_others = any(each.output == task.output for _, each in by_others)
        else:
            is_by_others = any(each.error == task.progress.error for _, each in by_others)
        # A record of the last attempt says that something else has ended the run after it.
        key = (task.namespace, task.id)
        is_by_last = self._world.checker.ended(key, task.attempt) is None
        is_by_body = is_by_last and task.last_outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
        if is_by_body and not is_by_others and task.type == family.TYPE:
            self._check_family(task)
        elif is_by_body and not is_by_others:
            self._check(task, _Replay(task, self._entries(task)).ending)

    def _check_family(self, task: Task) -> None:
        """Tell the story of a run again from its whole journal."""
        story = family.Story(task.input or b"")
        story.tell(self._entries(task))
        # A run that succeeds keeps the error of an earlier attempt, as every task does.
        error = task.progress.error if task.state is not TaskState.SUCCEEDED else None
        kept = task.output if error is None else error.message.encode()
        told = {"returns": TaskState.SUCCEEDED, "fails": TaskState.FAILED}.get(story.verdict or "")
        if told is TaskState.FAILED and task.is_cancel_requested:
            told = TaskState.CANCELLED
        if (told, story.output) != (task.state, kept):
            message = (
                f"run {short(task.id)} is {task.state} with {kept!r}, and {story.verdict} by itself"
            )
            raise Violation(message, task.id)

    def _entries(self, task: Task) -> list[stored.Entry]:
        self.replay_count += 1
        return self._world.checker.journals.entries[journal_of(task)]

    def _check(self, task: Task, ending: Ending | None) -> None:
        if isinstance(ending, Returned):
            told: object = flow.CONVERTER.encode(ending.value).data
            kept: object = task.output
        elif isinstance(ending, Raised) and not is_cancelled(ending.error):
            told, kept = error_of(ending.error), task.progress.error
        else:
            told, kept = ending, task.state
        if told != kept:
            message = f"run {short(task.id)} ended with {kept!r}, and with {told!r} by itself"
            raise Violation(message, task.id)


def journal_of(task: Task) -> str:
    """Return the journal of a run."""
    assert task.link is not None
    assert task.link.journal_id is not None
    return task.link.journal_id


class _Replay(Childless):
    """Executes a body with a whole journal and nothing else."""

    is_certain = True
    is_draining = False

    def __init__(self, task: Task, entries: list[stored.Entry]) -> None:
        self.ending: Ending | None = None
        self._ready: list[Callable[[], None]] = []
        assert task.progress.run is not None
        self.server_now_ms = task.progress.run.begun_at_ms
        body = Body(self, task)
        body.hand_out(task.attempt, [received(each) for each in entries], len(entries))
        while self._ready:
            self._ready.pop(0)()
        body.put_aside()

    def at_frontier(self, seen: int, calls: Calls) -> None:
        """Have all of it."""

    def send(self, entry: Entry) -> None:
        """Record nothing: what is missing stays so."""

    def start_step(self, step: Step[Any], retries: Entry | None) -> None:
        """Run nothing: what is missing stays so."""

    def stop_step(self, step: Step[Any]) -> None:
        """Have nothing that runs."""

    def publish(self, state: Payload | None, percent: float | None, message: str | None) -> None:
        """Show nothing."""

    def fetch(self, after: int) -> None:
        """Have all of it."""

    def wake_at(self, at_ms: int | None) -> None:
        """Wait for nothing."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call when it is its turn."""
        self._ready.append(callback)

    def end(self, ending: Ending) -> None:
        """Hear how it ends."""
        self.ending = ending
