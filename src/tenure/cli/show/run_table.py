"""Runs and their journals as people read them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from tenure.cli.show.output import Lines
from tenure.cli.show.run_view import (
    ShownEntry,
    ShownGroup,
    ShownGroupEnd,
    ShownOpenChild,
    ShownRun,
    ShownWait,
)
from tenure.cli.show.table import Column
from tenure.cli.show.task_table import (
    ago,
    damage_text,
    full_error_text,
    labels_text,
    made_by_text,
    payload_text,
    progress_text,
)
from tenure.cli.show.text import age_text, duration_text, instant_text, parse_instant_ms, size_text
from tenure.core.limits import INSTANT_MS_MAX

# What a reader takes in of something that is waited for by many.
_WAITS_NOTED_MAX: Final = 3
_LEVEL: Final = "│ "
_TIMED: Final = frozenset({"STEP", "CHILD"})


class WithEntries(ShownRun, frozen=True, kw_only=True):
    """A run with its journal, for ``tenure runs show``."""

    entries: list[ShownEntry]
    open: list[ShownOpenChild] | None = None

    @classmethod
    def of(
        cls, run: ShownRun, entries: Sequence[ShownEntry], open_: Sequence[ShownOpenChild] = ()
    ) -> WithEntries:
        """Put both together, with the children that have not ended."""
        fields = msgspec.structs.asdict(run)
        return cls(**fields, entries=list(entries), open=list(open_) or None)


def columns(now_ms: int) -> Sequence[Column[ShownRun]]:
    """Return the columns of a list of runs."""
    return (
        Column("RUN", lambda run: run.run_id),
        Column("ID", lambda run: run.external_id, rank=5, is_text=True),
        Column("TYPE", lambda run: run.type, rank=1, is_text=True),
        Column("QUEUE", lambda run: run.queue, rank=4, is_text=True),
        Column("STATUS", lambda run: run.status),
        Column("AGE", lambda run: age_text(run.created_at, now_ms), rank=3),
        Column("NOTE", lambda run: note(run, now_ms), rank=2, is_text=True),
    )


def note(run: ShownRun, now_ms: int) -> str:
    """Return what is most worth knowing about a run in its present status."""
    if run.failure_reason:
        return _noted_failure(run)
    if run.park_error is not None:
        return run.park_error.message
    if run.cancel_reason:
        return run.cancel_reason
    if run.status == "SLEEPING":
        return _wakes(run, now_ms)
    if run.waits:
        return _noted_waits(run.waits, run.wait_count or 0)
    starts_in_ms = parse_instant_ms(run.run_at) - now_ms
    if run.status == "PENDING" and starts_in_ms > 0:
        return f"starts in {duration_text(starts_in_ms)}"
    return progress_text(run)


def _noted_failure(run: ShownRun) -> str:
    message = f": {run.error.message}" if run.error and run.error.message else ""
    return f"{run.failure_reason}{message}"


def _noted_waits(waits: Sequence[ShownWait], count: int) -> str:
    names = [f"{wait.kind} {wait.key}" for wait in waits[:_WAITS_NOTED_MAX]]
    return ", ".join(names) + (", …" if count > len(names) else "")


def _wakes(run: ShownRun, now_ms: int) -> str:
    if run.wakes_at is None:
        return ""
    return f"wakes in {duration_text(max(parse_instant_ms(run.wakes_at) - now_ms, 0))}"


def facts(run: ShownRun, now_ms: int, why: str = "") -> Iterator[tuple[str, object]]:
    """Return what is known of a run, the most important first; ``why`` says why it waits."""
    yield "run", run.run_id
    yield "id", run.external_id
    yield "status", run.status
    yield "waits", why or _waits_text(run)
    yield "parked", _parked_text(run, now_ms)
    yield "wakes", run.wakes_at if run.park_error is None else ""
    yield "reason", run.failure_reason or run.cancel_reason
    yield (
        "pause",
        "requested: it is paused when its attempt ends" if run.is_pause_requested else "",
    )
    yield "error", full_error_text(run.error) if run.error is not None else ""
    yield "damaged", damage_text(run)
    yield "progress", progress_text(run)
    yield "state", payload_text(run.state, run.state_base64)
    yield "type", run.type
    yield "queue", run.queue
    yield "namespace", run.namespace
    yield "priority", run.priority
    yield "attempt", run.attempt
    yield "begun anew", _times(run.generation)
    yield "worker", run.worker_id
    yield "created", ago(run.created_at, now_ms)
    if parse_instant_ms(run.run_at) > now_ms:
        yield "starts", run.run_at
    yield "begun", ago(run.begun_at, now_ms)
    yield "cancel", ago(run.cancel_requested_at, now_ms)
    yield "finished", ago(run.finished_at, now_ms)
    yield "timeout", duration_text(run.timeout_ms) if run.timeout_ms else ""
    yield "labels", labels_text(run.labels)
    yield "key", run.idempotency_key
    yield "made by", made_by_text(run)
    yield "open", _open_text(run)
    yield "groups", _groups_text(run)
    yield "retry of", run.retry_of
    yield "journal", _journal_text(run)
    yield "input", payload_text(run.input, run.input_base64)
    yield "output", payload_text(run.output, run.output_base64)
    yield "trace", Lines(run.error.stack_trace or "") if run.error else None


def _waits_text(run: ShownRun) -> Lines | None:
    if not run.waits:
        return None
    lines = [_wait_text(wait) for wait in run.waits]
    hidden = (run.wait_count or 0) - len(run.waits)
    if hidden > 0:
        lines.append(f"and {hidden} more")
    return Lines("\n".join(lines))


def _wait_text(wait: ShownWait) -> str:
    since = f" since {wait.since}" if wait.since else ""
    detail = f" ({_detail_text(wait.detail)})" if wait.detail else ""
    site = f" at {wait.site}" if wait.site else ""
    return f"{wait.kind} {wait.key}{since}{detail}{site}"


def _detail_text(detail: str) -> str:
    """Return a detail for people; of what ends at a time it is that instant in milliseconds."""
    is_instant = detail.isascii() and detail.isdigit() and int(detail) <= INSTANT_MS_MAX
    return f"until {instant_text(int(detail))}" if is_instant else detail


def _parked_text(run: ShownRun, now_ms: int) -> str:
    if run.park_error is None:
        return ""
    count = run.park_count or 1
    times = "" if count == 1 else f", {count} times in a row"
    return f"{full_error_text(run.park_error)}; {_wakes(run, now_ms)}{times}"


def _open_text(run: ShownRun) -> str:
    count = run.open_child_count
    return "" if not count else "1 child" if count == 1 else f"{count} children"


def _groups_text(run: ShownRun) -> Lines | None:
    return Lines("\n".join([group_text(each) for each in run.groups])) if run.groups else None


def group_text(group: ShownGroup) -> str:
    """Return how far a group is: of how many items it has the ends."""
    failed = f", {group.failed} failed" if group.failed else ""
    return f"{group.key} {group.spawned - group.open_count} of {group.total} done{failed}"


def _times(count: int) -> str:
    return "" if not count else "once" if count == 1 else f"{count} times"


def _journal_text(run: ShownRun) -> str:
    if run.entry_count is None:
        return ""
    noun = "entry" if run.entry_count == 1 else "entries"
    return f"{run.entry_count} {noun}, {size_text(run.journal_bytes or 0)}"


class OpenCall(NamedTuple):
    """A call that has not ended, or a signal or a timer that a run waits for."""

    kind: str
    key: str
    note: str
    took_ms: int | None = None

    @property
    def path(self) -> Sequence[str]:
        """Return the branches in which it is; a signal is of no branch."""
        return () if self.kind == "SIGNAL" else self.key.split("/")[:-1]


class JournalLine(NamedTuple):
    """A line of a journal that is shown as a tree: an entry, an open call, or a branch."""

    depth: int
    name: str
    entry: ShownEntry | None
    took_ms: int | None
    open: OpenCall | None = None

    @property
    def kind(self) -> str:
        """Return what it is."""
        if self.open is not None:
            return self.open.kind
        return self.entry.kind if self.entry else "branch"


class _Branch:
    """One branch of a body: its entries and its own branches, in the order of their beginning."""

    def __init__(self) -> None:
        self._parts: dict[str | int, ShownEntry | OpenCall | _Branch] = {}

    def add(self, path: Sequence[str], part: ShownEntry | OpenCall) -> None:
        """Put an entry or an open call where its call was."""
        if not path:
            self._parts[part.pos if isinstance(part, ShownEntry) else f"{part.kind} {part.key}"] = (
                part
            )
            return
        branch = self._parts.setdefault(path[0], _Branch())
        assert isinstance(branch, _Branch)
        branch.add(path[1:], part)

    def lines(self, depth: int = 0) -> Iterator[JournalLine]:
        """Return the lines of what is in the branch."""
        for name, part in self._parts.items():
            if isinstance(part, _Branch):
                yield JournalLine(depth, f"{name}/", None, part.took_ms())
                yield from part.lines(depth + 1)
                continue
            last = part.key.rpartition("/")[2]
            if isinstance(part, OpenCall):
                yield JournalLine(depth, last, None, part.took_ms, part)
            else:
                yield JournalLine(depth, last, part, part.took_ms)

    def took_ms(self) -> int | None:
        """Return the time from the first beginning in the branch to its last entry."""
        found = [line.entry for line in self.lines() if line.entry is not None]
        if not found:
            return None
        begins = [parse_instant_ms(entry.started_at or entry.at) for entry in found]
        return max(parse_instant_ms(entry.at) for entry in found) - min(begins)


def tree(entries: Iterable[ShownEntry], open_: Iterable[OpenCall] = ()) -> list[JournalLine]:
    """Return a journal by its branches, each with what has not ended in it.

    That a step has begun is left out once it has ended.
    """
    found = list(entries)
    ended = {entry.key for entry in found if entry.kind == "STEP"}
    root = _Branch()
    for entry in found:
        if entry.kind != "BEGUN" or entry.key not in ended:
            root.add(entry.key.split("/")[:-1], entry)
    for call in open_:
        root.add(call.path, call)
    return list(root.lines())


def open_calls(
    run: ShownRun, children: Iterable[ShownOpenChild], now_ms: int
) -> Iterator[OpenCall]:
    """Return what a run has open: its children, its maps, and what else it waits for."""
    waits = {(each.kind, each.key): each for each in run.waits or ()}
    for child in children:
        wait = waits.pop(("child", child.key), None)
        what = "run" if child.kind == "WORKFLOW" else "task"
        text = "waits for" if wait else "open:"
        yield OpenCall(
            "CHILD", child.key, f"{text} {what} {child.task_id}", _waited_ms(wait, now_ms)
        )
    for group in run.groups or ():
        wait = waits.pop(("group", group.key), None)
        yield OpenCall("GROUP", group.key, group_text(group), _waited_ms(wait, now_ms))
    for wait in waits.values():
        yield OpenCall(
            wait.kind.upper(), wait.key, f"waits for {_wait_text(wait)}", _waited_ms(wait, now_ms)
        )


def _waited_ms(wait: ShownWait | None, now_ms: int) -> int | None:
    if wait is None or wait.since is None:
        return None
    return max(now_ms - parse_instant_ms(wait.since), 0)


def entry_columns() -> Sequence[Column[JournalLine]]:
    """Return the columns of a journal."""
    return (
        Column("POS", lambda line: line.entry.pos if line.entry else ""),
        Column("CALL", lambda line: _LEVEL * line.depth + line.name, is_text=True),
        Column("KIND", lambda line: line.kind, rank=2),
        Column("TOOK", _took, rank=1),
        Column("AT", lambda line: line.entry.at if line.entry else "", rank=4),
        Column("NOTE", line_note, rank=3, is_text=True),
    )


def _took(line: JournalLine) -> str:
    if line.entry is not None:
        # What took no time is sent without it.
        return duration_text(line.took_ms or 0) if line.entry.kind in _TIMED else ""
    return "" if line.took_ms is None else duration_text(line.took_ms)


def line_note(line: JournalLine) -> str:
    """Return what is most worth knowing about a line."""
    if line.open is not None:
        return line.open.note
    return "" if line.entry is None else entry_note(line.entry)


def entry_note(entry: ShownEntry) -> str:
    """Return what is most worth knowing about an entry."""
    parts = []
    if entry.kind == "BEGUN":
        parts.append("has begun")
    if (entry.attempts or 0) > 1:
        parts.append(f"{entry.attempts} attempts")
    parts.extend(end_texts(entry))
    if entry.sender:
        parts.append(f"from {entry.sender}")
    if entry.next_at:
        parts.append(f"again at {entry.next_at}")
    parts.append(_said(entry))
    parts.append(entry.site or "")
    return ", ".join(filter(None, parts))


def _said(entry: ShownEntry) -> str:
    """Return what a signal or a line of the log says."""
    if entry.kind == "SIGNAL" and entry.output is not None:
        return bytes(entry.output).decode()
    if entry.kind == "NOTE" and entry.output_base64 is not None:
        # The level stands in the place of the encoding.
        return f"{entry.encoding}: {base64.b64decode(entry.output_base64).decode()}"
    return ""


def end_texts(entry: ShownEntry) -> Iterator[str]:
    """Return how a step, a child or a group ended, as far as it is worth a note."""
    if entry.group is not None:
        yield _group_end_text(entry.group)
    if entry.error is not None:
        yield full_error_text(entry.error)
    if entry.child is not None:
        yield entry.child.task_id


def _group_end_text(group: ShownGroupEnd) -> str:
    counts = {"failed": group.failed, "cancelled": group.cancelled}
    others = "".join([f", {count} {name}" for name, count in counts.items() if count])
    return f"{group.succeeded} of {group.total} succeeded{others}"
