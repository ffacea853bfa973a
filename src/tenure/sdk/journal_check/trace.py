"""A journal as a timeline: trace events that Perfetto and Chrome show, one lane per branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from tenure.v1 import task_pb2
from tenure.v1.workflow_service_pb2 import WorkflowRun

_BODY: Final = "body"
_PID: Final = 1
_STEP: Final = task_pb2.ENTRY_KIND_STEP
_TIMER: Final = task_pb2.ENTRY_KIND_TIMER
# Children and groups: when they began is not recorded of all.
_OUTSIDE: Final = frozenset({task_pb2.ENTRY_KIND_CHILD, task_pb2.ENTRY_KIND_GROUP})
_encode: Final = msgspec.json.Encoder().encode
Event = dict[str, Any]


def write(run: WorkflowRun, pages: Iterable[task_pb2.JournalPage], now_ms: int) -> Iterator[bytes]:
    """Yield the document in parts; what is open lasts until ``now_ms``."""
    yield b'{"displayTimeUnit":"ms","traceEvents":[\n'
    yield _encode(_named("process_name", 0, f"{run.workflow_type} {run.run_id}"))
    for event in _Timeline(run).events(pages, now_ms):
        yield b",\n" + _encode(event)
    yield b"\n]}\n"


class _Timeline:
    """The lanes of a run, and when the last call of each has ended."""

    def __init__(self, run: WorkflowRun) -> None:
        self._begun_at_ms = (
            run.begun_at if run.HasField("begun_at") else run.created_at
        ).ToMilliseconds()
        self._lanes: dict[str, int] = {}
        self._ends: dict[str, int] = {}

    def events(self, pages: Iterable[task_pb2.JournalPage], now_ms: int) -> Iterator[Event]:
        open_calls: list[tuple[str, str]] = []
        for page in pages:
            open_calls += [(each.key, "child") for each in page.open]
            open_calls += [(each.key, "group") for each in page.groups]
            for entry in page.entries:
                yield from self._entry(entry)
        for key, kind in open_calls:
            began_ms = self._began_ms(key)
            yield from self._lane(key)
            yield self._lasting(key, f"open {kind}", began_ms, now_ms - began_ms, {})

    def _entry(self, entry: task_pb2.Entry) -> Iterator[Event]:
        content = entry.content
        kind = task_pb2.EntryKind.Name(content.kind).removeprefix("ENTRY_KIND_").lower()
        # A signal has no branch, whatever its name is.
        key = content.key if _is_call(content) else ""
        yield from self._lane(key)
        if not _is_call(content):
            yield self._instant(entry, kind)
            return
        began_ms = content.started_at_ms
        took_ms = content.took_ms
        if not began_ms:
            began_ms = self._began_ms(key)
            took_ms = max(0, entry.at_ms - began_ms)
        yield self._lasting(key, kind, began_ms, took_ms, _arguments(entry))
        self._ends[_path(key)] = max(self._ends.get(_path(key), 0), entry.at_ms)

    def _lane(self, key: str) -> Iterator[Event]:
        """Name the lane of a call when it is first used."""
        path = _path(key)
        if path not in self._lanes:
            self._lanes[path] = len(self._lanes)
            yield _named("thread_name", self._lanes[path], path.rstrip("/") or _BODY)

    def _began_ms(self, key: str) -> int:
        """Return when a call began of which that is not recorded: at the end of the last one."""
        path = _path(key)
        while path and path not in self._ends:
            path = _path(path[:-1])
        return self._ends.get(path, self._begun_at_ms)

    def _lasting(
        self, key: str, kind: str, began_ms: int, took_ms: int, arguments: dict[str, object]
    ) -> Event:
        return {
            "name": key,
            "cat": kind,
            "ph": "X",
            "ts": began_ms * 1_000,
            "dur": took_ms * 1_000,
            "pid": _PID,
            "tid": self._lanes[_path(key)],
            "args": arguments,
        }

    def _instant(self, entry: task_pb2.Entry, kind: str) -> Event:
        return {
            "name": f"{kind} {entry.content.key}".rstrip(),
            "cat": kind,
            "ph": "i",
            "s": "t",
            "ts": entry.at_ms * 1_000,
            "pid": _PID,
            "tid": self._lanes[""],
            "args": _arguments(entry),
        }


def _is_call(content: task_pb2.NewEntry) -> bool:
    return content.kind in (_STEP, _TIMER) or content.kind in _OUTSIDE


def _arguments(entry: task_pb2.Entry) -> dict[str, object]:
    content = entry.content
    known = {
        "pos": entry.pos,
        "attempts": content.attempts,
        "site": content.site,
        "error": content.error.message,
        "childId": entry.child.task_id,
        "items": entry.group.total,
        "sender": entry.sender,
    }
    return {name: value for name, value in known.items() if value}


def _named(what: str, lane: int, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": _PID, "tid": lane, "args": {"name": name}}


def _path(key: str) -> str:
    return key[: key.rfind("/") + 1]
