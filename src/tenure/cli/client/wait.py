"""Waiting for tasks: the server tells when one ends, and progress is asked for meanwhile."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.show.output import Output
from tenure.cli.show.progress import ProgressDisplay, make_progress
from tenure.cli.show.task_table import columns, error_text, failure_text, payload_text
from tenure.cli.show.text import age_text, duration_text, parse_instant_ms

if TYPE_CHECKING:
    from tenure.cli.client.client import ServerClient
    from tenure.cli.client.invocation import Invocation
    from tenure.cli.client.run_progress import RunProgress
    from tenure.cli.show.explain import ShownExplanation
    from tenure.cli.show.view import ShownTask

_ENDS: Final = {"SUCCEEDED": "succeeded", "FAILED": "failed", "CANCELLED": "was cancelled"}
LOOK_SECONDS: Final = 0.5
# After how long the reader is told why a task does not run.
STALLED_MS: Final = 5_000
# How many of those that are waited for are asked about their progress in each round.
SHOWN_MAX: Final = 10
_AGAIN_SECONDS: Final = 1.0
# A server that is restarted is back by then; a wait goes on over it.
_AWAY_MS_MAX: Final = 60_000


class Watcher:
    """Listens in a thread to the stream of results, and opens it again when it breaks."""

    def __init__(self, client: ServerClient, task_ids: Sequence[str]) -> None:
        """Begin to listen."""
        self._client = client
        self._open = dict.fromkeys(task_ids)
        self._told: queue.Queue[str] = queue.Queue()
        self._stopped = threading.Event()
        # The process may end while the stream is open; the thread must not hold it back.
        threading.Thread(target=self._run, name="tenure-watch", daemon=True).start()

    def _run(self) -> None:
        while self._open and not self._stopped.is_set():
            try:
                for task_ids in self._client.tasks.watch_tasks(list(self._open)):
                    for task_id in task_ids:
                        self._open.pop(task_id, None)
                        self._told.put(task_id)
            except (CliError, ValueError):
                # Whoever waits looks for itself too, so it finds out what is wrong. On a channel
                # that was closed, because the wait has ended, gRPC raises a ValueError.
                self._stopped.wait(_AGAIN_SECONDS)

    def next(self, seconds: float) -> set[str]:
        """Return the tasks that ended, after at most so many seconds."""
        told = set()
        try:
            told.add(self._told.get(timeout=max(seconds, 0.0)))
            while True:
                told.add(self._told.get_nowait())
        except queue.Empty:
            return told

    def stop(self) -> None:
        """Listen no more; the end of the channel ends an open stream."""
        self._stopped.set()


class Wait:
    """Knows the tasks that are waited for, by the last look at each."""

    def __init__(self, client: ServerClient, task_ids: Sequence[str]) -> None:
        """Look at each task once: one that is not there is told at once."""
        self._client = client
        self._seen_at_ms = client.monotonic_ms()
        self.tasks = {task_id: client.tasks.get_task(task_id) for task_id in task_ids}

    @property
    def open(self) -> list[ShownTask]:
        """Return the tasks that have not ended."""
        return [task for task in self.tasks.values() if not task.is_ended]

    def look(self, told: set[str]) -> CliError | None:
        """Look at what ended and at some of the others; return what is wrong with the server."""
        chosen = [*told, *(task.task_id for task in self.open[:SHOWN_MAX])]
        try:
            for task_id in dict.fromkeys(chosen):
                self.tasks[task_id] = self._client.tasks.get_task(task_id)
        except CliError as error:
            away_ms = self._client.monotonic_ms() - self._seen_at_ms
            if not error.is_transient or away_ms > _AWAY_MS_MAX:
                raise
            return error
        told.clear()
        self._seen_at_ms = self._client.monotonic_ms()
        return None


def for_tasks(
    call: Invocation,
    task_ids: Sequence[str],
    timeout_ms: int | None,
    run: RunProgress | None = None,
) -> list[ShownTask]:
    """Return the tasks when all have ended, showing how far they are meanwhile.

    Of a single ``run`` its steps are told too.
    """
    client = call.client
    started_ms = client.monotonic_ms()
    wait = Wait(client, task_ids)
    watcher = Watcher(client, [task.task_id for task in wait.open])
    told: set[str] = set()
    explained: set[str] = set()
    try:
        with make_progress(call.output, client.now_ms()) as progress:
            while wait.open:
                waited_ms = client.monotonic_ms() - started_ms
                doing = _tell_steps(progress, run)
                progress.show(list(wait.tasks.values()), waited_ms, doing)
                for text in _told(client, wait.open, explained, is_late=waited_ms >= STALLED_MS):
                    progress.tell(text)
                left_s = _left_seconds(client, started_ms, timeout_ms)
                told |= watcher.next(min(LOOK_SECONDS, left_s))
                problem = wait.look(told)
                if problem is not None:
                    progress.trouble(problem)
                if wait.open and not _left_seconds(client, started_ms, timeout_ms):
                    raise _timed_out(client, wait.open, timeout_ms or 0)
            _tell_rest(progress, run)
    except KeyboardInterrupt:
        raise _interrupted(wait.open) from None
    finally:
        watcher.stop()
    return list(wait.tasks.values())


def _tell_steps(progress: ProgressDisplay, run: RunProgress | None) -> str:
    """Tell what a run has done, and return what it is at."""
    if run is None:
        return ""
    for text in run.news():
        progress.tell(text)
    return run.doing


def _tell_rest(progress: ProgressDisplay, run: RunProgress | None) -> None:
    """Tell what a run did before its end."""
    for text in run.rest() if run is not None else ():
        progress.tell(text)


def _told(
    client: ServerClient, tasks: Sequence[ShownTask], known: set[str], *, is_late: bool
) -> Iterator[str]:
    """Yield what the reader is told of tasks that do not run, each once."""
    if is_late:
        for task in tasks[:SHOWN_MAX]:
            for found in _explanations(client, [task], known):
                yield f"{found.task_id}: {found.first} What to do: {_why_command(task)}"
    yield from _parked(client, tasks, known)


def _explanations(
    client: ServerClient, tasks: Sequence[ShownTask], known: set[str]
) -> Iterator[ShownExplanation]:
    """Yield why tasks do not run, each once, as far as the server says it."""
    for task in tasks[:SHOWN_MAX]:
        if task.is_waiting and task.task_id not in known:
            known.add(task.task_id)
            # The wait goes on without it.
            with contextlib.suppress(CliError):
                yield client.tasks.explain_task(task.task_id)


def _parked(client: ServerClient, tasks: Sequence[ShownTask], known: set[str]) -> Iterator[str]:
    """Yield why runs are parked and what to do, each once."""
    for task in tasks[:SHOWN_MAX]:
        if not task.is_run or task.state != "WAITING" or f"parked {task.task_id}" in known:
            continue
        # The wait goes on without it.
        with contextlib.suppress(CliError):
            error = client.runs.get_run(task.task_id).park_error
            if error is not None:
                known.add(f"parked {task.task_id}")
                why = error_text(error).rstrip(".")
                yield f"{task.task_id}: parked: {why}. {_park_commands(task)}"


def _park_commands(task: ShownTask) -> str:
    run_id = task.task_id
    return f"Try it again: tenure runs resume {run_id}. End it: tenure runs terminate {run_id}"


def _why_command(task: ShownTask) -> str:
    """Return the command that says why it does not end."""
    return f"tenure {'runs show' if task.is_run else 'tasks explain'} {task.task_id}"


def _left_seconds(client: ServerClient, started_ms: int, timeout_ms: int | None) -> float:
    if timeout_ms is None:
        return LOOK_SECONDS
    return max(started_ms + timeout_ms - client.monotonic_ms(), 0) / 1000


def _timed_out(client: ServerClient, tasks: Sequence[ShownTask], timeout_ms: int) -> CliError:
    what = _named(tasks)
    why = "; ".join(_standing(task) for task in tasks[:SHOWN_MAX]) + "."
    hint = _go_on(tasks)
    found = next(_explanations(client, tasks, set()), None)
    if found is not None:
        why = f"{why} {found.first}"
        if len(tasks) > 1 or not tasks[0].is_run:
            hint = f"See why: {found.command}. {hint}"
    parked = next(_parked(client, tasks, set()), "")
    if parked:
        why = f"{why} {parked}"
    return CliError(
        f"{what} not ended within {duration_text(timeout_ms)}.",
        why=why,
        hint=hint,
        exit_code=ExitCode.TIMED_OUT,
    )


def _interrupted(tasks: Sequence[ShownTask]) -> CliError:
    return CliError(
        "Interrupted. The tasks continue." if tasks else "Interrupted.",
        hint=_go_on(tasks) if tasks else "",
        exit_code=ExitCode.INTERRUPTED,
    )


def _named(tasks: Sequence[ShownTask]) -> str:
    return f"{tasks[0].title} has" if len(tasks) == 1 else f"{len(tasks)} tasks have"


def _standing(task: ShownTask) -> str:
    holder = f" on worker {task.worker_id}" if task.worker_id else ""
    tried = f", attempt {task.attempt}" if task.attempt else ", waiting for a worker"
    return f"{task.task_id} is {task.state.lower()}{tried}{holder}"


def _go_on(tasks: Sequence[ShownTask]) -> str:
    if len(tasks) == 1 and tasks[0].is_run:
        return f"Look at it: tenure runs show {tasks[0].task_id}"
    return "Wait again: tenure tasks wait " + " ".join(task.task_id for task in tasks)


def is_output_lost(task: ShownTask) -> bool:
    """Tell whether the server could not say with what a task succeeded."""
    return "output" in (task.damaged or ())


def show_result(output: Output, task: ShownTask) -> None:
    """Write how one task ended: its output to stdout, the rest beside it."""
    if not output.is_table:
        output.write(task)
        return
    text = payload_text(task.output, task.output_base64)
    if text is not None:
        output.lines(text)
    elif is_output_lost(task):
        output.note(
            f"Error: The stored output of {task.noun} {task.task_id} is damaged and not shown."
        )
    took = ""
    if task.finished_at is not None:
        took = f" after {age_text(task.created_at, parse_instant_ms(task.finished_at))}"
    tried = f", attempt {task.attempt}" if task.attempt else ""
    output.note(f"{task.title} {_ENDS[task.state]}{took}{tried}.")
    if task.state == "FAILED":
        output.note(f"  Why: {failure_text(task)}")
        output.note(f"  Next: tenure {task.noun}s show {task.task_id}")


def show_results(call: Invocation, tasks: Sequence[ShownTask]) -> None:
    """Write how tasks ended, in the order in which they were named."""
    if call.output.form == "jsonl":
        for task in tasks:
            call.output.write(task)
    elif call.output.form == "json":
        call.output.write({"tasks": tasks})
    elif len(tasks) == 1:
        show_result(call.output, tasks[0])
    else:
        call.output.table(columns(call.client.now_ms()), tasks)
