"""The children of one run at a server, as small as it can be: tasks, groups, and what they return.

Children run for real, each in no time of its own: a function is called, a workflow is played by a
model of its own. Their ends are recorded later, as the seed says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from tenure.sdk import failure
from tenure.sdk.activity.definition import Activity, signature_of
from tenure.sdk.payload import Converter, Payload
from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.journal import Entry, Kind, OpenCall
from tenure.v1 import journal_pb2, task_pb2

if TYPE_CHECKING:
    from tests.sdk.workflow.model import Model

CONVERTER = Converter()
SUCCEEDED = task_pb2.TASK_STATE_SUCCEEDED
FAILED = task_pb2.TASK_STATE_FAILED
CANCELLED = task_pb2.TASK_STATE_CANCELLED
Code = Activity[..., Any] | Workflow[..., Any]


class Child(msgspec.Struct, eq=False):
    """A task or a run that the run has made."""

    made: journal_pb2.NewChild
    group_key: str = ""
    is_open: bool = True
    is_cancel_asked: bool = False


class Group(msgspec.Struct, eq=False):
    """The items of one call."""

    index: int = 0
    total: int = 0
    fails_fast: bool = False
    type: str = ""
    items: set[int] = msgspec.field(default_factory=set)
    ends: dict[int, Entry] = msgspec.field(default_factory=dict)
    states: list[int] = msgspec.field(default_factory=list)
    has_ended: bool = False


class Children:
    """What the server knows of the children of one generation of a run."""

    def __init__(self, model: Model, code: tuple[Code, ...]) -> None:
        self.model = model
        self.code = {each.name: each for each in code}
        self.by_id: dict[str, Child] = {}
        self.calls: set[str] = set()
        self.groups: dict[str, Group] = {}
        self.repeated: list[str] = []
        self.cancels: list[journal_pb2.ChildCancel] = []
        self.reports: list[journal_pb2.SpawnReport] = []
        # What is still running never ends; the test ends it.
        self.is_slow = False
        self.refusal: str = ""

    def take_over(self, results: dict[str, list[Entry]]) -> None:
        """Have the results of groups that have ended."""
        for key, entries in results.items():
            ends = {entry.pos - 1: entry for entry in entries}
            self.groups[key] = Group(total=len(ends), ends=ends, has_ended=True)

    @property
    def names(self) -> set[str]:
        """What signals may be sent to: ids, and ids that a user chose."""
        chosen = (each.made.external_id for each in self.by_id.values())
        return {*self.by_id, *(f"external:{each}" for each in chosen if each)}

    def open_calls(self, after: str = "") -> list[OpenCall]:
        """Return what has not ended: all groups, and children behind an id."""
        calls = [
            OpenCall(
                Kind.GROUP, key, group.index, group.type, "", group.total, spawned=len(group.items)
            )
            for key, group in self.groups.items()
            if not group.has_ended and not after
        ]
        return calls + [
            OpenCall(
                Kind.CHILD, child.made.key, child.made.index, child.made.task.type, task_id=task_id
            )
            for task_id, child in sorted(self.by_id.items())
            if child.is_open and not child.group_key and task_id > after
        ]

    def spawn(self, report: journal_pb2.SpawnReport) -> None:
        """Store children, and let them run."""
        self.reports.append(report)
        group = None
        if report.group_key:
            group = self.groups.get(report.group_key)
            if group is None:
                group = self.groups[report.group_key] = Group(
                    report.group_index,
                    report.group_total,
                    report.fails_fast,
                    report.children[0].task.type,
                )
            first = len(group.items)
            assert [each.item for each in report.children] == [
                *range(first, first + len(report.children))
            ], "the items of a group are stored in their order"
        for made in report.children:
            task_id = made.task.task_id
            call = f"{report.group_key} {made.item}" if report.group_key else made.key
            if task_id in self.by_id or call in self.calls:
                self.repeated.append(call)
                continue
            self.calls.add(call)
            child = self.by_id[task_id] = Child(made, report.group_key)
            if group is not None:
                group.items.add(made.item)
            if not self.is_slow:
                entry = self.outcome(made)
                self._later(child, entry)

    def cancel(self, request: journal_pb2.ChildCancel) -> None:
        """End children that are open."""
        self.cancels.append(request)
        for task_id, child in self.by_id.items():
            is_meant = task_id in request.child_ids or (
                request.group_key and child.group_key == request.group_key
            )
            if is_meant and child.is_open and not child.is_cancel_asked:
                child.is_cancel_asked = True
                error = task_pb2.TaskError(
                    message=request.reason, category=task_pb2.ERROR_CATEGORY_CANCELLED
                )
                self._later(child, self._entry(child.made, CANCELLED, error=error))

    def end_all(self) -> None:
        """Let all end that run."""
        self.is_slow = False
        for child in list(self.by_id.values()):
            if child.is_open:
                self._later(child, self.outcome(child.made))

    def outcome(self, made: journal_pb2.NewChild) -> Entry:
        """Run a child, and return how it ended."""
        code = self.code[made.task.type]
        payload = Payload(made.task.options.encoding, made.task.input)
        try:
            value = self._result(code, payload)
        except Exception as error:  # noqa: BLE001 (whatever it is, the child has failed)
            wire = failure.to_wire(error, CONVERTER)
            return self._entry(made, FAILED, error=wire)
        payload = CONVERTER.encode(value)
        return self._entry(made, SUCCEEDED, output=payload.data, encoding=payload.encoding)

    def _result(self, code: Code, payload: Payload) -> Any:
        if isinstance(code, Workflow):
            arguments = code.signature.decode(CONVERTER, payload)
            return self.model.nested(code, arguments).result()
        arguments = signature_of(code).decode(CONVERTER, payload)
        value = code.invoke(arguments)
        if asyncio.iscoroutine(value):
            try:
                value.send(None)
            except StopIteration as end:
                return end.value
        return value

    def _entry(self, made: journal_pb2.NewChild, state: Any, **rest: Any) -> Entry:
        child = task_pb2.ChildEnd(task_id=made.task.task_id, type=made.task.type, state=state)
        return Entry(Kind.CHILD, made.key, made.index, attempts=1, child=child, **rest)

    def _later(self, child: Child, entry: Entry) -> None:
        model = self.model
        model.at(model.now_ms + model.chance.randrange(1, 300), self._ending(child, entry))

    def _ending(self, child: Child, entry: Entry) -> Callable[[], None]:
        def end() -> None:
            is_current = self.model.children is self and not self.model.is_over
            if not child.is_open or not is_current:
                return
            child.is_open = False
            if child.group_key:
                self._end_item(self.groups[child.group_key], child, entry)
            else:
                self.model.tell(self.model.append(entry))

        return end

    def _end_item(self, group: Group, child: Child, entry: Entry) -> None:
        item = child.made.item
        entry.pos, entry.key = item + 1, str(item)
        assert item not in group.ends
        group.ends[item] = entry
        assert entry.child is not None
        state = entry.child.state
        group.states.append(state)
        has_failed = group.fails_fast and state != SUCCEEDED and not child.is_cancel_asked
        if not group.has_ended and (has_failed or len(group.ends) == group.total):
            group.has_ended = True
            end = task_pb2.GroupEnd(
                total=group.total,
                succeeded=group.states.count(SUCCEEDED),
                failed=group.states.count(FAILED),
                cancelled=group.states.count(CANCELLED),
            )
            error = entry.error if group.fails_fast else None
            made = Entry(Kind.GROUP, child.group_key, group.index, error=error, group=end)
            self.model.tell(self.model.append(made))
